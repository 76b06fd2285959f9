"""Checks what an application may do with the mirrored topics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from heliograph.config.settings import Flow
from heliograph.errors import ConfigError
from heliograph.kafka.admin.acls import Operation, ResourceType
from heliograph.kafka.admin.allowed_operations import Question
from heliograph.ledger.copy_names import names_of
from heliograph.preflight.logins import APP
from heliograph.preflight.steps import NAMED, Note, Step, failed, passed, warned
from heliograph.text import some_of


def mirrored_topics(flows: Sequence[Flow], names: Iterable[str]) -> list[str]:
    """Lists the target's topics that the flows write, by their names alone: the source may be gone."""
    return sorted(name for name in names if any(_is_copy(flow, name) for flow in flows))


def _is_copy(flow: Flow, name: str) -> bool:
    policy = flow.policy
    try:
        if policy.topic_source(name) != flow.source or policy.is_internal_topic(name):
            return False
        upstream = policy.upstream_topic(name)
    except ConfigError:  # a custom class
        return False
    return upstream is not None and bool(names_of(flow, [upstream]))


def check_rights(alias: str, names: Sequence[str], there: Mapping[Question, bool]) -> list[Step]:
    """Checks Read and Write for each mirrored topic."""
    if not names:
        return [warned("rights", "no mirrored topic exists yet", "check again when the mirror runs").of(alias, APP)]
    return [_judge(operation, names, there).of(alias, APP) for operation in (Operation.READ, Operation.WRITE)]


def questions(names: Sequence[str]) -> list[Question]:
    return [(ResourceType.TOPIC, name, operation) for name in names for operation in (Operation.READ, Operation.WRITE)]


def _judge(operation: Operation, names: Sequence[str], there: Mapping[Question, bool]) -> Note:
    """Judges one operation: only if no topic can be read it fails, because applications seldom use all topics."""
    verb = operation.lower()
    denied = [name for name in names if not there[ResourceType.TOPIC, name, operation]]
    if not denied:
        return passed(verb, f"may {verb} all {len(names)} mirrored topics")
    what = f"may {verb} {len(names) - len(denied)} of {len(names)} mirrored topics, not {some_of(denied, NAMED)}"
    remedy = f"grant {operation} on the topics that the application uses, with their names on this cluster"
    is_failure = operation is Operation.READ and len(denied) == len(names)
    return failed(verb, what, remedy) if is_failure else warned(verb, what, remedy)
