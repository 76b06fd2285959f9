"""What an application may do with the mirrored topics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from heliograph.config.settings import Flow
from heliograph.preflight.access import APP
from heliograph.preflight.steps import Note, Step, Verdict, failed, name_some, passed, warned

READ, WRITE = 3, 4
"""Codes of operations, as the protocol numbers them."""


def mirrored_topics(flows: Sequence[Flow], names: Iterable[str]) -> list[str]:
    """Those of a target's topics that the flows write, by their names alone: the source may be gone."""
    return sorted(name for name in names if any(_is_copy(flow, name) for flow in flows))


def _is_copy(flow: Flow, name: str) -> bool:
    policy = flow.policy
    if policy.topic_source(name) != flow.source or policy.is_internal_topic(name):
        return False
    upstream = policy.upstream_topic(name)
    return upstream is not None and flow.mirrors(upstream)


def check_operations(alias: str, operations: Mapping[str, frozenset[int] | None]) -> list[Step]:
    """Read and Write for each mirrored topic; None: the broker does not say."""
    if not operations:
        return [warned("rights", "no mirrored topic is there yet", "check again when the mirror runs").of(alias, APP)]
    known = {name: codes for name, codes in operations.items() if codes is not None}
    if not known:
        return [warned("rights", "the broker does not say what the user may do").of(alias, APP)]
    return [note.of(alias, APP) for note in (_judge("read", READ, known), _judge("write", WRITE, known))]


def _judge(verb: str, code: int, known: Mapping[str, frozenset[int]]) -> Note:
    """An application seldom uses all topics, and seldom writes copies: only to read nothing at all is a failure."""
    denied = [name for name, codes in known.items() if code not in codes]
    allowed = len(known) - len(denied)
    if not denied:
        return passed(verb, f"may {verb} all {len(known)} mirrored topics")
    what = f"may {verb} {allowed} of {len(known)} mirrored topics, not {name_some(denied)}"
    remedy = f"grant {verb.capitalize()} on the topics that the application uses, with their names on this cluster"
    verdict = Verdict.FAIL if code == READ and not allowed else Verdict.WARN
    return failed(verb, what, remedy) if verdict is Verdict.FAIL else warned(verb, what, remedy)
