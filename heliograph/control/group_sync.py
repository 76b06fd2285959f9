"""Write translated offsets into the groups of one flow's target, by the rule of `ledger.group_commits`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

from heliograph.flow.flow import FlowDriver
from heliograph.kafka.admin.commits import Commit, fetch_commits
from heliograph.kafka.admin.groups import DEAD, list_groups
from heliograph.kafka.types import TopicPartition
from heliograph.ledger.group_commits import IDLE, move_forward, plan_sync

log = logging.getLogger("heliograph")

AT_ONCE = 200
"""Maximum number of groups that are checked and written in one go; so few use four connections."""


class GroupSync:
    """Writes translated offsets into the groups of one flow's target."""

    def __init__(self, flow: FlowDriver) -> None:
        self._flow = flow
        self._alive: frozenset[str] = frozenset()
        self._failed: dict[str, str] = {}
        self.written = 0
        """Groups whose offsets were moved, over all passes."""

    async def sync(self, wanted: Mapping[str, Mapping[TopicPartition, Commit]]) -> None:
        """Bring the target's groups up to the offsets wanted: find those that are behind, look again and write."""
        target = self._flow.target
        listed = await list_groups(target)
        states = {group: found.state or "Empty" for group, found in listed.items()}
        answers = await fetch_commits(target, [group for group in wanted if group in listed])
        failed = {group: str(error) for group, error in answers.failed.items()}
        alive = {group for group in wanted if states.get(group, DEAD) not in IDLE}
        rest = {group: offsets for group, offsets in wanted.items() if group not in failed}
        due = plan_sync(rest, states=states, there=answers.found)
        for few in _in_lots(list(due), AT_ONCE):
            moved = await move_forward(target, {group: due[group] for group in few})
            self.written += len(moved.written)
            alive |= moved.alive
            failed |= {group: str(error) for group, error in moved.failed.items()}
        self._tell(alive, failed)

    def _tell(self, alive: set[str], failed: dict[str, str]) -> None:
        """Log once what begins and once that it is over."""
        flow = self._flow
        for group in sorted(alive - self._alive):
            log.info(
                '%s: group "%s" has members on "%s": its offsets there are left alone',
                flow.name,
                group,
                flow.flow.target,
            )
        for group, text in failed.items():
            if self._failed.get(group) != text:
                log.warning('%s: offsets of group "%s" are not written: %s', flow.name, group, text)
        for group in sorted(self._failed.keys() - failed.keys()):
            log.info('%s: offsets of group "%s" are written again', flow.name, group)
        self._alive, self._failed = frozenset(alive), failed


def _in_lots(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (items[at : at + size] for at in range(0, len(items), size))
