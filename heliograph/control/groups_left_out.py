"""Groups whose commits cannot be written down as they are: each costs itself alone, and is named once."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from heliograph.errors import BrokerRefused, GroupRefused
from heliograph.kafka.log import KeyValue
from heliograph.ledger.mm2.internal_records import Checkpoint

log = logging.getLogger("heliograph")


def encode_checkpoints(news: Iterable[Checkpoint]) -> tuple[dict[str, list[KeyValue]], dict[str, GroupRefused]]:
    """Encode the records of each group; a group with a checkpoint that cannot be encoded has an error instead."""
    records: dict[str, list[KeyValue]] = {}
    failed: dict[str, GroupRefused] = {}
    for item in news:
        try:
            records.setdefault(item.group, []).append(item.encode())
        except ValueError as error:
            failed[item.group] = GroupRefused(
                f"its commit in {item.topic}-{item.partition} cannot be a checkpoint",
                why=str(error),
                remedy="let it commit with less metadata",
            )
    return {group: found for group, found in records.items() if group not in failed}, failed


class LeftOut:
    """Remembers which groups of a flow one kind of record was not written for, and why."""

    def __init__(self, flow: str, done: str) -> None:
        """`done` is what is not done with them."""
        self._flow = flow
        self._done = done
        self.groups: dict[str, str] = {}
        """The groups left out now, and why."""

    def too_large(
        self, records: Mapping[str, Sequence[KeyValue]], refused: Mapping[str, BrokerRefused], topic: str
    ) -> dict[str, GroupRefused]:
        """Name the groups whose records a broker refused as too large."""
        return {
            group: GroupRefused(
                f"the largest record of its commits has {max(map(_size, records[group])):,} bytes",
                why=error.what,
                remedy=f'raise max.message.bytes of "{topic}", or let the group commit with less metadata',
            )
            for group, error in refused.items()
        }

    def note(self, tried: Collection[str], failed: Mapping[str, GroupRefused]) -> None:
        """Name those that are left out now, and those that no longer are."""
        for group in tried:
            error = failed.get(group)
            if error is None:
                if self.groups.pop(group, None) is not None:
                    log.info('%s: group "%s" is %s again', self._flow, group, self._done)
            elif self.groups.get(group) != (text := str(error)):
                self.groups[group] = text
                log.warning('%s: group "%s" is not %s: %s', self._flow, group, self._done, error)

    def forget(self, gone: Iterable[str]) -> None:
        """Forget groups that are gone."""
        for group in gone:
            self.groups.pop(group, None)


def _size(pair: KeyValue) -> int:
    return len(pair[0]) + len(pair[1] or b"")
