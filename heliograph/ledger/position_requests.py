"""Tells partitions that a flow is asked for the first time from new ones, and keeps what was asked for. Pure.

A request is written while nobody leads the flow. The next leader opens the partition's new count by it, and with the
count's entry the request is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import replace

from heliograph.config.settings import Flow
from heliograph.ledger.records.selection_seen import SelectionSeen
from heliograph.names.filters import NameFilter

ALL = NameFilter((".*",))
"""Stands for the selection of a flow whose topics a class of the user's own chooses."""


def first_asked(flow: Flow, before: SelectionSeen | None, *, is_new: bool) -> Callable[[tuple[str, int]], bool]:
    """Tells of a partition that was never copied whether it is one that the flow is first asked for, or a new one.

    `is_new`: the flow has never copied anything, as far as its ledger knows. A ledger of an older release does not
    say what was asked for: then it was all that is now.
    """
    if before is None:
        return lambda _: is_new
    waiting, topics = before.waiting, NameFilter(before.include, before.exclude)
    then = flow if topics == flow.topics else replace(flow, topics=topics)

    def is_first(where: tuple[str, int]) -> bool:
        topic, partition = where
        return partition < waiting.get(topic, 0) or not then.mirrors(topic)

    return is_first


def asked_now(
    flow: Flow,
    before: SelectionSeen | None,
    partitions: Mapping[str, int],
    *,
    begun: Container[tuple[str, int]],
    is_first: Callable[[tuple[str, int]], bool],
) -> SelectionSeen:
    """After a look that found so many partitions of each topic; where all begins at the first record nobody waits."""
    waiting: dict[str, int] = {}
    known = before.waiting if before is not None else {}
    if not flow.start_positions.are_earliest:
        for topic, number in partitions.items():
            there = known.get(topic) or (number if is_first((topic, 0)) else 0)
            if any((topic, partition) not in begun for partition in range(there)):
                waiting[topic] = there
    asked = flow.topics if isinstance(flow.topics, NameFilter) else ALL
    return SelectionSeen(include=asked.include, exclude=asked.exclude, waiting=waiting)
