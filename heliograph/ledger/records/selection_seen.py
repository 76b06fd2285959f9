"""The ledger record "asked": which topics a flow was asked for when it last looked. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from heliograph.errors import ConfigError
from heliograph.ledger.records.ledger_record import JsonRecord
from heliograph.ledger.records.untrusted_json import as_fields, as_number, as_texts, take
from heliograph.names.filters import NameFilter


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionSeen(JsonRecord):
    """The topics that a flow was asked for when its topics were last looked at.

    Start positions are for what a flow is asked for the first time. What appears later among these topics is new, and
    is copied from its first record: whoever wrote there before we looked counted on the mirror.
    """

    KIND: ClassVar[str] = "asked"
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    """Patterns of topics."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """Topics of which so many partitions were there when they were first asked for, and some could not begin yet."""

    def key_parts(self) -> Sequence[Any]:
        return ()

    def fields(self) -> Mapping[str, Any]:
        return {"topics": self.include, "exclude": self.exclude, "waiting": self.waiting}

    @classmethod
    def parse_fields(cls, rest: Sequence[Any], fields: Mapping[str, Any]) -> SelectionSeen:
        take(rest, 0)
        include, exclude = as_texts(fields["topics"]), as_texts(fields["exclude"])
        try:
            NameFilter(include, exclude)
        except ConfigError as error:
            raise ValueError("patterns that cannot be used") from error
        waiting = {topic: as_number(number) for topic, number in as_fields(fields["waiting"]).items()}
        return cls(include=include, exclude=exclude, waiting=waiting)
