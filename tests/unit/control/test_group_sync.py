"""Offsets of the target's groups against the fake cluster: whatever a consumer does meanwhile, its place is its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.control.group_sync import GroupSync
from heliograph.kafka.admin.commits import Commit
from heliograph.kafka.types import TopicPartition
from heliograph.ledger.group_commits import move_forward
from tests.fake_cluster import DESCRIBE_GROUPS, OFFSET_COMMIT, OFFSET_FETCH, Call, FakeCluster, FakeGroup
from tests.unit.kafka.test_cluster import client, run

T0 = TopicPartition("A.t", 0)
LOOKS_AND_WRITES = (DESCRIBE_GROUPS, OFFSET_FETCH, OFFSET_COMMIT)


def at(offset: int, **group: Any) -> FakeGroup:
    return FakeGroup(commits={T0: (offset, "", -1)}, **group)


def offsets(fake: FakeCluster) -> dict[str, int]:
    return {name: group.commits[T0][0] for name, group in fake.groups.items()}


def before(fake: FakeCluster, api_key: int, name: str, group: FakeGroup, *, times: int = 1) -> None:
    """A consumer was there when so many requests of a kind are about to be answered."""
    left = times

    async def hook(call: Call) -> Any:
        nonlocal left
        left -= 1
        if not left:
            fake.groups[name] = group
        return await call.proceed()

    fake.control(api_key, hook)


def test_groups_are_looked_at_and_written_in_one_go() -> None:
    async def test() -> None:
        async with FakeCluster("b") as fake, client(fake) as cluster:
            fake.groups = {f"g{number}": at(1) for number in range(3)}
            moved = await move_forward(cluster, {name: {T0: Commit(5)} for name in fake.groups})
            assert set(moved.written) == set(fake.groups)
            assert set(offsets(fake).values()) == {5}
            asked = [call.api_key for call in fake.calls if call.api_key in LOOKS_AND_WRITES]
            assert asked == sorted(asked, key=LOOKS_AND_WRITES.index)

    run(test())


@pytest.mark.parametrize(
    ("api_key", "times"),
    [(DESCRIBE_GROUPS, 1), (OFFSET_FETCH, 1), (OFFSET_FETCH, 2)],
    ids=["after the listing", "before the first look at offsets", "before the second"],
)
def test_a_consumer_that_came_and_went_before_the_write_is_not_set_back(api_key: int, times: int) -> None:
    async def test() -> None:
        async with FakeCluster("b") as fake, client(fake) as cluster:
            fake.groups = {"g": at(1), "other": at(1)}
            before(fake, api_key, "g", at(9), times=times)
            flow: Any = SimpleNamespace(name="a->b", target=cluster, flow=SimpleNamespace(target="b"))
            await GroupSync(flow).sync({name: {T0: Commit(5)} for name in fake.groups})
            assert offsets(fake) == {"g": 9, "other": 5}

    run(test())


def test_a_group_that_is_joined_after_the_last_look_is_refused_by_its_coordinator() -> None:
    async def test() -> None:
        async with FakeCluster("b") as fake, client(fake) as cluster:
            fake.groups = {"g": at(1), "other": at(1)}
            before(fake, OFFSET_COMMIT, "g", at(3, members=1))
            moved = await move_forward(cluster, {name: {T0: Commit(5)} for name in fake.groups})
            assert moved.alive == {"g"}
            assert not moved.failed
            assert offsets(fake) == {"g": 3, "other": 5}

    run(test())
