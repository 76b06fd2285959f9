"""A cluster's client against the fake cluster: versions, bootstrap, metadata, broken connections, nonsense."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.errors import HeliographError, ProtocolError, Unreachable, UnsupportedVersion
from heliograph.kafka import messages
from heliograph.kafka.admin.topics import LATEST, end_offsets, list_offsets
from heliograph.kafka.catalogue import Catalogue, PartitionMeta, TopicMeta
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.log import append, fetch_partition, fetch_version, produce_version
from heliograph.kafka.types import NO_TOPIC_ID, BrokerAddress, TopicPartition
from tests.fake_cluster import API_VERSIONS, FETCH, LIST_OFFSETS, METADATA, PRODUCE, SILENCE, Call, FakeCluster
from tests.unit.helpers.logs import new_records

OLD_VERSIONS = {PRODUCE: (3, 8), FETCH: (4, 11), LIST_OFFSETS: (1, 5), METADATA: (0, 9)}
"""What a 2.4 broker has."""


def run(test: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(15):
            await test

    asyncio.run(in_time())


@asynccontextmanager
async def client(fake: FakeCluster, *, timeout_s: float = 5.0) -> AsyncIterator[Cluster]:
    cluster = Cluster(fake.alias, fake.bootstrap, client_id="test", connect_timeout_s=2.0, timeout_s=timeout_s)
    try:
        yield cluster
    finally:
        cluster.close()


async def unused_address() -> BrokerAddress:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return BrokerAddress("127.0.0.1", port)


# -- versions --------------------------------------------------------------------------------


def test_the_newest_version_in_common_is_used() -> None:
    async def test() -> None:
        async with FakeCluster("a", topics={"t": 1}) as fake, client(fake) as cluster:
            await cluster.refresh()
            connection = await cluster.connection(1)
            assert fetch_version(connection, with_id=True) == 16
            assert fetch_version(connection, with_id=False) == 11
            assert produce_version(connection, with_id=True) == 13
            assert produce_version(connection, with_id=False) == 10
            assert [call.version for call in fake.calls if call.api_key == METADATA] == [12]

    run(test())


def test_a_broker_with_old_versions_only_is_read_and_written() -> None:
    async def test() -> None:
        async with FakeCluster("a", topics={"t": 1}) as fake, client(fake) as cluster:
            fake.versions.update(OLD_VERSIONS)
            await cluster.refresh()
            assert cluster.catalogue.topics["t"].topic_id == NO_TOPIC_ID
            assert await append(cluster, "t", 0, [(b"k", b"v")], now_ms=1) == 0
            assert await end_offsets(cluster, [TopicPartition("t", 0)]) == {TopicPartition("t", 0): 1}
            assert (await fetch_partition(cluster, "t", 0, 0)).records
            used = {call.api_key: call.version for call in fake.calls}
            assert used == {API_VERSIONS: 3, METADATA: 9, PRODUCE: 8, LIST_OFFSETS: 5, FETCH: 11}

    run(test())


@pytest.mark.parametrize("versions", [(0, 7), (14, 20), None], ids=["too old", "too new", "none"])
def test_no_version_in_common(versions: tuple[int, int] | None) -> None:
    async def test() -> None:
        async with FakeCluster("a", topics={"t": 1}) as fake, client(fake) as cluster:
            if versions is None:
                del fake.versions[PRODUCE]
            else:
                fake.versions[PRODUCE] = versions
            await cluster.refresh()
            with pytest.raises(UnsupportedVersion):
                await append(cluster, "t", 0, [(b"k", b"v")], now_ms=1)

    run(test())


def test_no_metadata_version_in_common() -> None:
    async def test() -> None:
        async with FakeCluster("a") as fake, client(fake) as cluster:
            fake.versions[METADATA] = (13, 14)
            with pytest.raises(UnsupportedVersion, match="13 to 14"):
                await cluster.refresh()

    run(test())


def test_a_broker_that_does_not_know_the_probe_is_too_old() -> None:
    async def too_old(call: Call) -> bytes:
        body = call.correlation_id.to_bytes(4, "big") + (35).to_bytes(2, "big") + bytes(4)
        return len(body).to_bytes(4, "big") + body

    async def test() -> None:
        async with FakeCluster("a") as fake, client(fake) as cluster:
            fake.control(API_VERSIONS, too_old)
            with pytest.raises(UnsupportedVersion, match=r"older than 2\.4"):
                await cluster.refresh()

    run(test())


# -- bootstrap and connections -------------------------------------------------------------


def test_dead_bootstrap_servers_are_passed_over() -> None:
    async def test() -> None:
        async with FakeCluster("a", brokers=2) as fake:
            dead = [await unused_address() for _ in range(5)]
            cluster = Cluster("a", [*dead, *fake.bootstrap], client_id="test")
            assert len((await cluster.refresh()).brokers) == 2
            cluster.close()

    run(test())


def test_no_bootstrap_server_answers() -> None:
    async def test() -> None:
        dead = [await unused_address() for _ in range(2)]
        with pytest.raises(Unreachable, match="none of 2 brokers answers") as caught:
            await Cluster("a", dead, client_id="test").refresh()
        assert all(str(address) in str(caught.value) for address in dead)
        with pytest.raises(Unreachable, match="no connection"):
            await Cluster("a", dead[:1], client_id="test").refresh()

    run(test())


def test_known_brokers_serve_when_the_bootstrap_servers_are_gone() -> None:
    async def test() -> None:
        async with FakeCluster("a", brokers=2) as fake:
            cluster = Cluster("a", [fake.brokers[1].address], client_id="test")
            await cluster.refresh()
            await fake.brokers[1].stop()
            with pytest.raises(Unreachable):
                await cluster.call(messages.MetadataRequest(topics=[]), node_id=1)
            await cluster.refresh()
            cluster.close()

    run(test())


def test_a_broken_connection_is_opened_again() -> None:
    async def test() -> None:
        async with FakeCluster("a", topics={"t": 1}) as fake, client(fake) as cluster:
            await cluster.refresh()
            before = await cluster.connection(1)
            assert await cluster.connection(1) is before
            fake.cut_next(METADATA, after=False)
            with pytest.raises(Unreachable, match="closed the connection"):
                await cluster.refresh()
            assert not before.is_open
            await cluster.refresh()
            assert await cluster.connection(1) is not before

    run(test())


def test_a_broker_that_came_back_is_found_again() -> None:
    async def test() -> None:
        async with FakeCluster("a", topics={"t": 1}) as fake, client(fake) as cluster:
            await cluster.refresh()
            await fake.brokers[1].stop()
            with pytest.raises(Unreachable):
                await cluster.refresh()
            await fake.brokers[1].start()
            assert "t" in (await cluster.refresh()).topics

    run(test())


def test_channels_have_connections_of_their_own_and_callers_share_them() -> None:
    async def test() -> None:
        async with FakeCluster("a") as fake, client(fake) as cluster:
            await cluster.refresh()
            fetch = await asyncio.gather(*(cluster.connection(1, "fetch") for _ in range(3)))
            assert len(set(fetch)) == 1
            assert fetch[0] is not await cluster.connection(1)
            assert sum(call.api_key == API_VERSIONS for call in fake.calls) == 2

    run(test())


def test_a_broker_out_of_the_metadata_is_unreachable() -> None:
    async def test() -> None:
        async with FakeCluster("a") as fake, client(fake) as cluster:
            await cluster.refresh()
            with pytest.raises(Unreachable, match="broker 9"):
                await cluster.connection(9)

    run(test())


def test_a_port_that_speaks_http() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def test() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        address = BrokerAddress("127.0.0.1", server.sockets[0].getsockname()[1])
        with pytest.raises(ProtocolError, match="does not seem to speak Kafka"):
            await Cluster("a", [address], client_id="test").refresh()
        server.close()

    run(test())


def test_a_silent_broker_is_given_up_in_time() -> None:
    async def silent(call: Call) -> bytes:
        return SILENCE

    async def test() -> None:
        async with FakeCluster("a") as fake, client(fake, timeout_s=0.1) as cluster:
            fake.control(API_VERSIONS, silent)
            with pytest.raises(Unreachable, match="no answer in time"):
                await cluster.refresh()

    run(test())


# -- metadata ------------------------------------------------------------------------------


def test_asking_for_some_topics_keeps_what_is_known_of_the_others() -> None:
    async def test() -> None:
        async with FakeCluster("a", topics={"t": 1, "u": 2}) as fake, client(fake) as cluster:
            await cluster.refresh()
            del fake.topics["t"]
            fake.create("u", 3)
            catalogue = await cluster.refresh(["u"])
            assert set(catalogue.topics) == {"t", "u"}
            assert len(catalogue.topics["u"].partitions) == 3
            assert set((await cluster.refresh(["t"])).topics) == {"u"}

    run(test())


def test_a_topic_with_an_error_is_not_in_the_catalogue() -> None:
    async def spoil(call: Call) -> Any:
        response = await call.proceed()
        for topic in response.topics:
            topic.error_code = {"denied": 29, "electing": 5}.get(topic.name, 0)
        return response

    async def test() -> None:
        async with FakeCluster("a", topics={"t": 1, "denied": 1, "electing": 1}) as fake, client(fake) as cluster:
            fake.control(METADATA, spoil)
            assert set((await cluster.refresh()).topics) == {"t", "electing"}

    run(test())


def test_partitions_come_in_any_order_but_without_holes() -> None:
    drop = 99

    async def spoil(call: Call) -> Any:
        response = await call.proceed()
        partitions = response.topics[0].partitions
        response.topics[0].partitions = [p for p in reversed(partitions) if p.partition_index != drop]
        return response

    async def test() -> None:
        nonlocal drop
        async with FakeCluster("a", brokers=3, topics={"t": 3}) as fake, client(fake) as cluster:
            fake.control(METADATA, spoil)
            catalogue = await cluster.refresh()
            assert [catalogue.leader_of("t", index) for index in range(4)] == [1, 2, 3, None]
            drop = 1
            with pytest.raises(ProtocolError, match="holes"):
                await cluster.refresh()

    run(test())


def test_a_leader_that_is_no_known_broker_is_none() -> None:
    async def test() -> None:
        async with FakeCluster("a", topics={"t": 2}) as fake, client(fake) as cluster:
            fake.move_leader("t", 0, -1)
            fake.move_leader("t", 1, 7)
            catalogue = await cluster.refresh()
            assert [catalogue.leader_of("t", index) for index in range(2)] == [None, None]
            answers = await list_offsets(cluster, [TopicPartition("t", 0)], LATEST)
            assert answers[TopicPartition("t", 0)].error_code == 5

    run(test())


# -- moved leaders and nonsense ------------------------------------------------------------


def test_reads_and_writes_follow_a_leader_that_moved() -> None:
    async def test() -> None:
        async with FakeCluster("a", brokers=2, topics={"t": 1}) as fake, client(fake) as cluster:
            await cluster.refresh()
            fake.move_leader("t", 0, 2)
            assert await append(cluster, "t", 0, [(b"k", b"v")], now_ms=1) == 0
            fake.move_leader("t", 0, 1)
            assert (await fetch_partition(cluster, "t", 0, 0)).high_watermark == 1
            fake.move_leader("t", 0, 2)
            assert await end_offsets(cluster, [TopicPartition("t", 0)]) == {TopicPartition("t", 0): 1}

    run(test())


def test_a_fetch_refused_as_a_whole_is_a_typed_error() -> None:
    async def refuse(call: Call) -> Any:
        response = await call.proceed()
        response.error_code, response.responses = -1, []
        return response

    async def test() -> None:
        async with FakeCluster("a", topics={"t": 1}) as fake, client(fake) as cluster:
            await cluster.refresh()
            fake.control(FETCH, refuse)
            with pytest.raises(HeliographError):
                await fetch_partition(cluster, "t", 0, 0)

    run(test())


@pytest.mark.parametrize("api_key", [PRODUCE, LIST_OFFSETS])
def test_an_answer_without_what_was_asked_for_is_a_typed_error(api_key: int) -> None:
    async def forget(call: Call) -> Any:
        response = await call.proceed()
        if api_key == PRODUCE:
            response.responses = []
        else:
            response.topics = []
        return response

    async def test() -> None:
        async with FakeCluster("a", topics={"t": 1}) as fake, client(fake) as cluster:
            await cluster.refresh()
            fake.control(api_key, forget)
            work: Awaitable[Any] = (
                append(cluster, "t", 0, [(b"k", b"v")], now_ms=1)
                if api_key == PRODUCE
                else end_offsets(cluster, [TopicPartition("t", 0)])
            )
            with pytest.raises(ProtocolError):
                await work

    run(test())


TOPIC = messages.ListOffsetsRequest.ListOffsetsTopic
REQUESTS = {
    "ApiVersions": lambda: messages.ApiVersionsRequest(client_software_name="x", client_software_version="1"),
    "Metadata": lambda: messages.MetadataRequest(topics=None, allow_auto_topic_creation=False),
    "ListOffsets": lambda: messages.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[
            TOPIC(
                name="t",
                partitions=[TOPIC.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)],
            )
        ],
    ),
    "InitProducerId": lambda: messages.InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=1, producer_id=-1, producer_epoch=-1
    ),
}
"""What kafka-python's classes decode the answers of."""


@pytest.mark.parametrize("name", REQUESTS)
def test_a_garbled_answer_is_a_typed_error_or_read_as_odd_values(name: str) -> None:
    request = REQUESTS[name]()
    fake = FakeCluster("a", brokers=3, topics={"t": 2, "u": 1})
    everything = dict.fromkeys(fake.versions, (0, 99))
    version = messages.pick_version(request.API_KEY, everything, where="")
    sent = messages.encode_request(request, version=version, correlation_id=7, client_id="test")
    whole = asyncio.run(fake.answer(1, sent[4:]))[4:]
    assert messages.decode_response(request, memoryview(whole), where="") is not None

    @settings(max_examples=150)
    @given(data=st.data())
    def garble(data: st.DataObject) -> None:
        spoilt = bytearray(whole)
        for _ in range(data.draw(st.integers(0, 3))):
            spoilt[data.draw(st.integers(0, len(spoilt) - 1))] = data.draw(st.integers(0, 255))
        cut = data.draw(st.one_of(st.just(len(spoilt)), st.integers(0, len(spoilt))))
        with contextlib.suppress(ProtocolError):
            messages.decode_response(request, memoryview(spoilt)[:cut], where="")

    garble()


@pytest.mark.parametrize("api_key", [API_VERSIONS, METADATA, LIST_OFFSETS, PRODUCE, FETCH])
def test_a_truncated_answer_is_a_typed_error(api_key: int) -> None:
    async def truncate(call: Call) -> bytes:
        frame = call.encode(await call.proceed())[:-3]
        return (len(frame) - 4).to_bytes(4, "big") + frame[4:]

    async def test() -> None:
        async with FakeCluster("a", topics={"t": 1}) as fake, client(fake) as cluster:
            fake.append("t", 0, new_records(0, 3))
            fake.control(api_key, truncate)
            with pytest.raises(ProtocolError):
                await _some_work(cluster)

    run(test())


async def _some_work(cluster: Cluster) -> None:
    await cluster.refresh()
    await end_offsets(cluster, [TopicPartition("t", 0)])
    await append(cluster, "t", 0, [(b"k", b"v")], now_ms=1)
    await fetch_partition(cluster, "t", 0, 0)


def test_a_topic_that_is_missing_and_a_partition_without_a_leader_are_told_apart() -> None:
    cluster = Cluster("b", [BrokerAddress("127.0.0.1", 1)], client_id="test")
    metas = (PartitionMeta(-1, 0, (1, 2), ()), PartitionMeta(7, 0, (7,), (7,)))
    cluster.catalogue = Catalogue(cluster_id="x", brokers={}, topics={"t": TopicMeta("t", NO_TOPIC_ID, metas)})
    assert 'there is no topic "u" on the cluster' in str(cluster.no_leader("u", 0, "Fetch", where="u-0"))
    assert "there is no partition 5" in str(cluster.no_leader("t", 5, "Fetch", where="t-5"))
    assert "no leader now; none of its replicas is in sync" in str(cluster.no_leader("t", 0, "Fetch", where="t-0"))
    assert "broker 7, its leader, is gone" in str(cluster.no_leader("t", 1, "Fetch", where="t-1"))


def test_an_advertised_address_that_cannot_be_reached_is_told_as_such() -> None:
    async def test() -> None:
        cluster = Cluster("b", [BrokerAddress("127.0.0.1", 1)], client_id="test", connect_timeout_s=1)
        cluster.catalogue = Catalogue(cluster_id="x", brokers={3: BrokerAddress("no.such.host.invalid", 9092)})
        with pytest.raises(
            Unreachable, match=r"broker 3 cannot be reached at the address that it advertises.*resolved"
        ):
            await cluster.connection(3)

    run(test())
