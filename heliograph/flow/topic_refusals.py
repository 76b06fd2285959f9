"""What a target refuses to do with topics: said once for each, with what can be done, and that it is over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from heliograph.errors import HeliographError
from heliograph.kafka.error_codes import Code, is_retriable

_ADVICE: dict[int, str] = {
    Code.INVALID_REPLICATION_FACTOR: "lower replication.factor (-1: the broker's default)",
    Code.INVALID_CONFIG: "name the setting in config.properties.exclude",
    Code.THROTTLING_QUOTA_EXCEEDED: "raise controller_mutation_rate of our user; it is tried again soon",
}
"""What a mirror's own administrator can do about an error code; the policy of a target is for the target's."""


class News(NamedTuple):
    denied: dict[str, HeliographError]
    granted: list[str]


class TopicRefusals:
    """By topic, what was last refused and why."""

    def __init__(self) -> None:
        self.errors: dict[str, HeliographError] = {}

    def note(self, results: Mapping[str, HeliographError | None]) -> News:
        """Take the results of topics; return which refusals are new, and which are over."""
        news = News({}, [])
        for topic, error in results.items():
            before = self.errors.get(topic)
            if error is None and before is not None:
                del self.errors[topic]
                news.granted.append(topic)
            elif error is not None:
                self.errors[topic] = error
                if str(error) != str(before):
                    news.denied[topic] = error
        return news

    def forget_all_but(self, topics: Mapping[str, object]) -> None:
        """Forget the refusals of topics that are not mirrored any more."""
        self.errors = {topic: error for topic, error in self.errors.items() if topic in topics}

    @property
    def is_passing(self) -> bool:
        """Something was refused that a second try may be granted, without anybody doing anything."""
        return any(is_retriable(error.details.get("error_code", 0)) for error in self.errors.values())


def advised(error: HeliographError) -> HeliographError:
    """Put what the configuration can do about an error before what others can."""
    advice = _ADVICE.get(error.details.get("error_code", 0))
    if advice is None:
        return error
    remedy = ", or ".join(filter(None, (advice, error.remedy)))
    return type(error)(error.what, where=error.where, why=error.why, remedy=remedy, **error.details)
