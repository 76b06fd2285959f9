"""Consumer groups against the fake cluster: what is kept, coordinators that move, and failures that stay apart."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.admin import DescribeGroupsResponse, ListGroupsResponse

from heliograph.errors import BrokerRefused, GroupAlive, NotAuthorized, ProtocolError, Unreachable
from heliograph.kafka.admin import coordinators
from heliograph.kafka.admin.commits import Commit, commit_offsets, fetch_commits
from heliograph.kafka.admin.coordinators import Answers
from heliograph.kafka.admin.groups import GroupListing, describe_groups, list_groups, parse_assignment
from heliograph.kafka.types import TopicPartition
from tests.fake_cluster import (
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    Call,
    FakeCluster,
    FakeGroup,
)
from tests.unit.kafka.test_cluster import client, run

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OLD_VERSIONS = {OFFSET_COMMIT: (0, 8), OFFSET_FETCH: (0, 6), FIND_COORDINATOR: (0, 3), LIST_GROUPS: (0, 3)}
"""What a 2.4 broker has."""


def kept(offset: int, metadata: str = "", epoch: int = -1) -> tuple[int, str, int]:
    return offset, metadata, epoch


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "RETRY_FOR_S", 0.3)


# -- listing and describing ------------------------------------------------------------------


def test_consumer_groups_of_all_brokers_are_listed_and_no_others() -> None:
    async def test() -> None:
        async with FakeCluster("a", brokers=2) as fake, client(fake) as cluster:
            fake.groups = {
                "classic": FakeGroup(members=1),
                "simple": FakeGroup(coordinator=2, protocol_type=""),
                "new": FakeGroup(coordinator=2, group_type="Consumer"),
                "connect": FakeGroup(protocol_type="connect"),
                "share": FakeGroup(protocol_type="share", group_type="Share"),
                "share without members": FakeGroup(protocol_type="", group_type="Share"),
                "streams": FakeGroup(protocol_type="streams", group_type="Streams"),
            }
            assert await list_groups(cluster) == {
                "classic": GroupListing(group_id="classic", state="Stable", kind="classic"),
                "simple": GroupListing(group_id="simple", state="Empty", kind="classic"),
                "new": GroupListing(group_id="new", state="Empty", kind="consumer"),
            }

    run(test())


@pytest.mark.parametrize(("newest", "state", "kind"), [(3, "", ""), (4, "Stable", ""), (5, "Stable", "classic")])
def test_an_older_broker_tells_less_of_a_group(newest: int, state: str, kind: str) -> None:
    async def test() -> None:
        async with FakeCluster("a") as fake, client(fake) as cluster:
            fake.versions[LIST_GROUPS] = (0, newest)
            fake.groups = {"g": FakeGroup(members=1)}
            assert await list_groups(cluster) == {"g": GroupListing(group_id="g", state=state, kind=kind)}

    run(test())


def test_a_listing_without_one_broker_is_none() -> None:
    async def test() -> None:
        async with FakeCluster("a", brokers=2) as fake, client(fake) as cluster:
            await cluster.refresh()
            await fake.brokers[2].stop()
            await cluster.connection(1)
            with pytest.raises(Unreachable):
                await list_groups(cluster)

    run(test())


@pytest.mark.parametrize(("times", "passes"), [(2, True), (10_000, False)])
def test_a_broker_that_still_loads_its_groups_is_waited_for(times: int, passes: bool) -> None:
    left = times

    async def loading(call: Call) -> Any:
        nonlocal left
        left -= 1
        return await call.proceed() if left < 0 else ListGroupsResponse(throttle_time_ms=0, error_code=14, groups=[])

    async def test() -> None:
        async with FakeCluster("a") as fake, client(fake) as cluster:
            fake.groups = {"g": FakeGroup()}
            fake.control(LIST_GROUPS, loading)
            if passes:
                assert set(await list_groups(cluster)) == {"g"}
            else:
                with pytest.raises(BrokerRefused, match="COORDINATOR_LOAD_IN_PROGRESS"):
                    await list_groups(cluster)

    run(test())


def test_groups_are_described_and_unknown_ones_are_dead() -> None:
    async def test() -> None:
        async with FakeCluster("a", brokers=2) as fake, client(fake) as cluster:
            fake.groups = {"alive": FakeGroup(coordinator=2, members=2), "empty": FakeGroup()}
            answers = await describe_groups(cluster, {"alive": "classic", "empty": "", "gone": "consumer"})
            assert not answers.failed
            assert {name: found.state for name, found in answers.found.items()} == {
                "alive": "Stable",
                "empty": "Empty",
                "gone": "Dead",
            }
            assert [str(member) for member in answers.the("alive").members] == ["app at /127.0.0.1"] * 2
            assert not answers.the("gone").members

    run(test())


def test_a_group_that_turned_classic_since_it_was_listed_is_found() -> None:
    async def test() -> None:
        async with FakeCluster("a") as fake, client(fake) as cluster:
            fake.groups = {"g": FakeGroup(members=1)}
            found = (await describe_groups(cluster, {"g": "consumer"})).the("g")
            assert (found.state, found.kind, len(found.members)) == ("Stable", "classic", 1)

    run(test())


def test_a_group_that_may_not_be_described_is_named_and_the_others_are_told() -> None:
    async def forbid(call: Call) -> Any:
        response = await call.proceed()
        response.groups[0].error_code = 30
        return response

    async def test() -> None:
        async with FakeCluster("a") as fake, client(fake) as cluster:
            fake.groups = {"secret": FakeGroup(), "open": FakeGroup()}
            fake.control(DESCRIBE_GROUPS, forbid)
            answers = await describe_groups(cluster, dict.fromkeys(fake.groups, "classic"))
            assert set(answers.found) == {"open"}
            with pytest.raises(NotAuthorized, match=r'DescribeGroups for group "secret".*grant Describe'):
                answers.the("secret")

    run(test())


def test_an_answer_without_a_group_is_a_typed_error() -> None:
    async def forget(call: Call) -> Any:
        return DescribeGroupsResponse(throttle_time_ms=0, groups=[])

    async def test() -> None:
        async with FakeCluster("a") as fake, client(fake) as cluster:
            fake.control(DESCRIBE_GROUPS, forget)
            with pytest.raises(ProtocolError):
                (await describe_groups(cluster, {"g": "classic"})).the("g")

    run(test())


def text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode()


def numbers(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "big") for value in (len(values), *values))


@pytest.mark.parametrize("tail", [b"\xff\xff\xff\xff", numbers() + b"", b"\x00\x00\x00\x03abc", b""])
@pytest.mark.parametrize("version", [0, 1, 3, 9])
def test_parse_assignment_takes_all_versions_and_any_user_data(version: int, tail: bytes) -> None:
    topics = (2).to_bytes(4, "big") + text("t") + numbers(1, 0) + text("u") + numbers()
    assert parse_assignment(version.to_bytes(2, "big") + topics + tail) == (T1, T0)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x01", b"\x00\x00\x7f\xff\xff\xff", bytes(5), b"\xff" * 40])
def test_parse_assignment_makes_nothing_of_garbage(data: bytes) -> None:
    assert parse_assignment(data) == ()


# -- commits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("old", [False, True])
def test_commits_are_fetched_and_written(old: bool) -> None:
    async def test() -> None:
        async with FakeCluster("a", brokers=3) as fake, client(fake) as cluster:
            fake.versions.update(OLD_VERSIONS if old else {})
            offsets = {f"g{index}": {T0: Commit(index, "ü", 4), T1: Commit(7)} for index in range(200)}
            fake.groups = {group: FakeGroup(coordinator=1 + index % 3) for index, group in enumerate(offsets)}
            assert await commit_offsets(cluster, offsets) == Answers(found=dict.fromkeys(offsets))
            assert fake.groups["g5"].commits == {T0: kept(5, "ü", 4), T1: kept(7)}
            assert await fetch_commits(cluster, offsets) == Answers(found=offsets)
            some = await fetch_commits(cluster, ["g5", "gone"], partitions=[T1, TopicPartition("u", 0)])
            assert some == Answers(found={"g5": {T1: Commit(7)}, "gone": {}})
            used = {call.api_key: call.version for call in fake.calls}
            assert used[OFFSET_COMMIT] == (8 if old else 9)
            assert used[OFFSET_FETCH] == (6 if old else 8)

    run(test())


def test_many_groups_take_few_requests() -> None:
    async def test() -> None:
        async with FakeCluster("a", brokers=2) as fake, client(fake) as cluster:
            fake.groups = {f"g{index}": FakeGroup(coordinator=1 + index % 2) for index in range(1200)}
            assert len((await fetch_commits(cluster, fake.groups.keys())).found) == 1200
            count = [sum(call.api_key == key for call in fake.calls) for key in (FIND_COORDINATOR, OFFSET_FETCH)]
            assert count == [3, 4]

    run(test())


def test_a_listed_group_needs_no_lookup() -> None:
    async def test() -> None:
        async with FakeCluster("a", brokers=2) as fake, client(fake) as cluster:
            fake.groups = {"g": FakeGroup(coordinator=2)}
            await list_groups(cluster)
            await fetch_commits(cluster, ["g"])
            assert not any(call.api_key == FIND_COORDINATOR for call in fake.calls)

    run(test())


@pytest.mark.parametrize("old", [False, True])
def test_a_coordinator_that_moved_is_followed(old: bool) -> None:
    async def test() -> None:
        async with FakeCluster("a", brokers=2) as fake, client(fake) as cluster:
            fake.versions.update(OLD_VERSIONS if old else {})
            fake.groups = {"moves": FakeGroup(members=1), "stays": FakeGroup()}
            await list_groups(cluster)
            fake.groups["moves"].coordinator = 2
            described = await describe_groups(cluster, {"moves": "classic", "stays": "classic"})
            assert not described.failed
            fake.groups["moves"] = FakeGroup(coordinator=1)
            offsets = {"moves": {T0: Commit(5)}, "stays": {T0: Commit(6)}}
            assert not (await commit_offsets(cluster, offsets)).failed
            fake.groups["moves"].coordinator = 2
            assert await fetch_commits(cluster, offsets) == Answers(found=offsets)

    run(test())


def test_a_coordinator_that_does_not_come_fails_its_groups_only() -> None:
    async def nowhere(call: Call) -> Any:
        response = await call.proceed()
        for found in response.coordinators:
            found.error_code = 15 if found.key == "lost" else 0
        return response

    async def test() -> None:
        async with FakeCluster("a") as fake, client(fake) as cluster:
            fake.control(FIND_COORDINATOR, nowhere)
            answers = await fetch_commits(cluster, ["lost", "g"])
            assert answers.found == {"g": {}}
            assert "COORDINATOR_NOT_AVAILABLE" in str(answers.failed["lost"])
            assert sum(call.api_key == FIND_COORDINATOR for call in fake.calls) > 2

    run(test())


@pytest.mark.parametrize("api_key", [OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR])
def test_a_broken_connection_is_opened_again(api_key: int) -> None:
    async def test() -> None:
        async with FakeCluster("a") as fake, client(fake) as cluster:
            fake.cut_next(api_key, after=False)
            offsets = {f"g{index}": {T0: Commit(index)} for index in range(100)}
            assert await commit_offsets(cluster, offsets) == Answers(found=dict.fromkeys(offsets))
            assert await fetch_commits(cluster, offsets) == Answers(found=offsets)

    run(test())


def test_a_broker_that_is_gone_fails_its_groups_only() -> None:
    async def test() -> None:
        async with FakeCluster("a", brokers=2) as fake, client(fake) as cluster:
            fake.groups = {"here": FakeGroup(coordinator=1), "there": FakeGroup(coordinator=2)}
            await cluster.refresh()
            await cluster.connection(1)
            await fake.brokers[2].stop()
            answers = await fetch_commits(cluster, ["here", "there"])
            assert answers.found == {"here": {}}
            assert isinstance(answers.failed["there"], Unreachable)

    run(test())


def test_a_group_with_members_refuses_and_the_others_do_not() -> None:
    async def test() -> None:
        async with FakeCluster("a") as fake, client(fake) as cluster:
            fake.groups = {"alive": FakeGroup(members=1)}
            answers = await commit_offsets(cluster, {"alive": {T0: Commit(1)}, "g": {T0: Commit(2)}})
            assert answers.found == {"g": None}
            with pytest.raises(GroupAlive, match=r'group "alive".*only they may commit'):
                answers.the("alive")

    run(test())


@pytest.mark.parametrize("code", [22, 25, 27, 82, 110, 113])
def test_every_way_to_say_that_a_group_has_members(code: int) -> None:
    async def test() -> None:
        async with FakeCluster("a") as fake, client(fake) as cluster:
            fake.refuse(OFFSET_COMMIT, "t", 1, code)
            answers = await commit_offsets(cluster, {"g": {T0: Commit(1), T1: Commit(1)}})
            assert isinstance(answers.failed["g"], GroupAlive)
            assert answers.failed["g"].details["error_code"] == code

    run(test())


def test_a_refused_partition_fails_its_group_by_name() -> None:
    async def test() -> None:
        async with FakeCluster("a") as fake, client(fake) as cluster:
            fake.refuse(OFFSET_COMMIT, "t", 1, 3)
            answers = await commit_offsets(cluster, {"g": {T0: Commit(1), T1: Commit(1)}})
            with pytest.raises(BrokerRefused, match='OffsetCommit of t-1 for group "g" refused with UNKNOWN_TOPIC'):
                answers.the("g")
            assert not (await commit_offsets(cluster, {"g": {T0: Commit(1), T1: Commit(2)}})).failed
            fake.refuse(OFFSET_FETCH, "t", 0, 29)
            with pytest.raises(NotAuthorized, match='OffsetFetch of t-0 for group "g" is not allowed'):
                (await fetch_commits(cluster, ["g"])).the("g")

    run(test())


def test_an_answer_without_a_committed_partition_is_a_typed_error() -> None:
    async def forget(call: Call) -> Any:
        response = await call.proceed()
        response.topics[0].partitions.pop()
        return response

    async def test() -> None:
        async with FakeCluster("a") as fake, client(fake) as cluster:
            fake.control(OFFSET_COMMIT, forget)
            with pytest.raises(ProtocolError, match="1 partitions, not 2"):
                (await commit_offsets(cluster, {"g": {T0: Commit(1), T1: Commit(1)}})).the("g")

    run(test())


def test_no_groups_take_no_requests() -> None:
    async def test() -> None:
        async with FakeCluster("a") as fake, client(fake) as cluster:
            assert await fetch_commits(cluster, []) == Answers()
            assert await commit_offsets(cluster, {}) == Answers()
            assert await describe_groups(cluster, {}) == Answers()
            assert not fake.calls

    run(test())
