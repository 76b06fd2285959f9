"""The rule for committing a group's offsets on the target: never to a group that lives there, never backwards.

Kafka has no "set unless somebody was here": so the state and the offsets of a few groups are read
and their new offsets written in one go, within a fraction of a second, and a group that has a member then is
refused by its coordinator as well. MirrorMaker 2 reads one interval before it writes (KAFKA-19794).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from heliograph.errors import GroupAlive, HeliographError
from heliograph.kafka.admin.commits import Commit, commit_offsets, fetch_commits
from heliograph.kafka.admin.groups import DEAD, describe_groups
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.types import TopicPartition

Offsets = dict[str, dict[TopicPartition, Commit]]
IDLE = ("Empty", DEAD)
"""The states of a group without members."""


def plan_sync(
    wanted: Mapping[str, Mapping[TopicPartition, Commit]],
    *,
    states: Mapping[str, str],
    there: Mapping[str, Mapping[TopicPartition, Commit]],
) -> Offsets:
    """Return the offsets to write: only forward, only of groups without members; one without a state is new."""
    plan: Offsets = {}
    for group, offsets in wanted.items():
        if states.get(group, DEAD) not in IDLE:
            continue
        has = there.get(group, {})
        forward = {
            where: commit for where, commit in offsets.items() if where not in has or has[where].offset < commit.offset
        }
        if forward:
            plan[group] = forward
    return plan


class Moved(NamedTuple):
    """The outcome for groups that were to be moved; a group in none of these had all its offsets already."""

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
        alive=refused | {group for group in sure if states[group] not in IDLE},
        failed=unsure | {group: error for group, error in answers.failed.items() if group not in refused},
    )
