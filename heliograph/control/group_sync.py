"""Write translated offsets into the target's groups: never to a group that lives there, never backwards.

Kafka has no "set unless somebody was here": so the state and the offsets of a few groups are read
and their new offsets written in one go, within a fraction of a second, and a group that has a member then is
refused by its coordinator as well. MirrorMaker 2 reads one interval before it writes (KAFKA-19794).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from heliograph.errors import GroupAlive, HeliographError
from heliograph.flow.flow import FlowDriver
from heliograph.kafka.admin.commits import Commit, commit_offsets, fetch_commits
from heliograph.kafka.admin.groups import DEAD, describe_groups, list_groups
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.types import TopicPartition

log = logging.getLogger("heliograph")

AT_ONCE = 200
"""Groups that are looked at and written in one go; commits of so few use four connections."""

Offsets = dict[str, dict[TopicPartition, Commit]]
_IDLE = ("Empty", DEAD)


def plan_sync(
    wanted: Mapping[str, Mapping[TopicPartition, Commit]],
    *,
    states: Mapping[str, str],
    there: Mapping[str, Mapping[TopicPartition, Commit]],
) -> Offsets:
    """What to write: only forward, only where nobody is; a group without a state is unknown to the target."""
    plan: Offsets = {}
    for group, offsets in wanted.items():
        if states.get(group, DEAD) not in _IDLE:
            continue
        has = there.get(group, {})
        forward = {
            where: commit for where, commit in offsets.items() if where not in has or has[where].offset < commit.offset
        }
        if forward:
            plan[group] = forward
    return plan


class Moved(NamedTuple):
    """What became of groups that were to be moved; of those in none of these all offsets were there already."""

    written: Offsets
    alive: set[str]
    """They have members: their offsets are their own."""
    failed: dict[str, HeliographError]


async def move_forward(cluster: Cluster, wanted: Mapping[str, Mapping[TopicPartition, Commit]]) -> Moved:
    """Look at groups and write their offsets at once; a group that nobody knew of is looked at too."""
    described = await describe_groups(cluster, dict.fromkeys(wanted, ""))
    there = await fetch_commits(cluster, list(wanted))
    unsure = described.failed | there.failed
    states = {group: found.state for group, found in described.found.items()}
    sure = {group: offsets for group, offsets in wanted.items() if group not in unsure}
    plan = plan_sync(sure, states=states, there=there.found)
    answers = await commit_offsets(cluster, plan)
    refused = {group for group, error in answers.failed.items() if isinstance(error, GroupAlive)}
    return Moved(
        written={group: plan[group] for group in answers.found},
        alive=refused | {group for group in sure if states[group] not in _IDLE},
        failed=unsure | {group: error for group, error in answers.failed.items() if group not in refused},
    )


class GroupSync:
    """Of one flow."""

    def __init__(self, flow: FlowDriver) -> None:
        self._flow = flow
        self._alive: frozenset[str] = frozenset()
        self._failed: dict[str, str] = {}
        self.written = 0
        """Groups whose offsets were moved, over all passes."""

    async def write(self, wanted: Mapping[str, Mapping[TopicPartition, Commit]]) -> None:
        """Bring the target's groups up to the offsets wanted: find those that are behind, look again and write."""
        target = self._flow.target
        listed = await list_groups(target)
        states = {group: found.state or "Empty" for group, found in listed.items()}
        answers = await fetch_commits(target, [group for group in wanted if group in listed])
        failed = {group: str(error) for group, error in answers.failed.items()}
        alive = {group for group in wanted if states.get(group, DEAD) not in _IDLE}
        rest = {group: offsets for group, offsets in wanted.items() if group not in failed}
        due = plan_sync(rest, states=states, there=answers.found)
        for few in _in_lots(list(due), AT_ONCE):
            moved = await move_forward(target, {group: due[group] for group in few})
            self.written += len(moved.written)
            alive |= moved.alive
            failed |= {group: str(error) for group, error in moved.failed.items()}
        self._tell(alive, failed)

    def _tell(self, alive: set[str], failed: dict[str, str]) -> None:
        """Once when it begins, once when it is over."""
        flow = self._flow
        for group in sorted(alive - self._alive):
            log.info(
                '%s: the group "%s" lives on "%s": its offsets there are its own', flow.name, group, flow.flow.target
            )
        for group, text in failed.items():
            if self._failed.get(group) != text:
                log.warning('%s: the offsets of the group "%s" are not written: %s', flow.name, group, text)
        for group in sorted(self._failed.keys() - failed.keys()):
            log.info('%s: over: the offsets of the group "%s" could not be written', flow.name, group)
        self._alive, self._failed = frozenset(alive), failed


def _in_lots(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (items[at : at + size] for at in range(0, len(items), size))
