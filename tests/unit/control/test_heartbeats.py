"""Heartbeats: when each is due, what is written, and what is said of a cluster that does not take them."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from heliograph.config import Settings, parse_settings
from heliograph.control import heartbeats
from heliograph.control.heartbeats import Heartbeats, Schedule, client_id
from heliograph.kafka.log import append
from heliograph.ledger.cluster_access import admin_way
from heliograph.ledger.mm2 import internal_records
from tests.fake_cluster import PRODUCE, FakeCluster

AB, CB = ("A", "B"), ("C", "B")
TOPIC_AUTHORIZATION_FAILED = 29


# -- when


def test_new_pair_is_due_at_once_and_then_after_its_interval() -> None:
    schedule = Schedule()
    assert (schedule.next_at, schedule.take(5.0)) == (None, [])
    schedule.set({AB: 2.0, CB: 3.0}, 10.0)
    assert schedule.take(10.0) == [AB, CB]
    assert schedule.next_at == 12.0
    assert schedule.take(11.9) == []
    assert schedule.take(12.1) == [AB]
    assert schedule.take(13.0) == [CB]
    assert schedule.next_at == 14.0  # not 14.1: a late one does not move those after it


def test_missed_heartbeats_are_not_made_up_for() -> None:
    schedule = Schedule()
    schedule.set({AB: 1.0}, 0.0)
    assert schedule.take(100.5) == [AB]
    assert schedule.take(100.5) == []
    assert schedule.next_at == 101.5


def test_changed_interval_counts_from_the_last_heartbeat() -> None:
    schedule = Schedule()
    schedule.set({AB: 60.0, CB: 60.0}, 0.0)
    schedule.take(0.0)
    schedule.set({AB: 5.0}, 3.0)
    assert schedule.take(4.9) == []
    assert schedule.take(5.0) == [AB]
    schedule.set({}, 6.0)
    assert schedule.next_at is None


def test_client_id_is_mm2s() -> None:
    assert client_id([AB]) == "A->B|MirrorHeartbeatConnector|heartbeats-target-admin"
    assert client_id([AB, CB]) == "*->B|MirrorHeartbeatConnector|heartbeats-target-admin"


# -- as whom


def test_flow_that_ends_or_begins_at_a_cluster_says_how_its_admin_comes_in() -> None:
    settings = parse_settings(
        "clusters=A,B,C\nA.bootstrap.servers=a:1\nB.bootstrap.servers=b:1\nC.bootstrap.servers=c:1\n"
        "C.security.protocol=SSL\nA->B.enabled=true\nB->A.enabled=false\n"
        "A->B.source.admin.security.protocol=SASL_SSL\nB->A.target.admin.security.protocol=SASL_PLAINTEXT\n"
    )
    assert {alias: admin_way(settings, alias).security.protocol for alias in "ABC"} == {
        "A": "SASL_SSL",  # of the flow that is enabled
        "B": "PLAINTEXT",
        "C": "SSL",
    }


# -- what is written and said


def settings_for(cluster: FakeCluster, more: str = "") -> Settings:
    port = cluster.brokers[1].port
    return parse_settings(
        f"clusters=A,B,C\nB.bootstrap.servers=127.0.0.1:{port}\nheartbeats.topic.replication.factor=1\n{more}"
    )


@asynccontextmanager
async def beating(beats: Heartbeats) -> AsyncIterator[None]:
    task = asyncio.ensure_future(beats.run())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def written(cluster: FakeCluster) -> list[internal_records.Heartbeat | None]:
    return [
        internal_records.Heartbeat.parse(record.key, record.value)
        for record in cluster.partition("heartbeats", 0).records()
    ]


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(heartbeats, "FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(heartbeats, "LONGEST_PAUSE_S", 0.05)
    caplog.set_level(logging.INFO, "heliograph")


def test_pairs_into_a_cluster_are_written_together(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with FakeCluster("B", topics={"heartbeats": 1}) as cluster:
            beats = Heartbeats(settings_for(cluster))
            before = int(time.time() * 1000)
            async with beating(beats):
                await cluster.wait_until(lambda: beats.written == 4)
            found = written(cluster)
            assert [(beat.source, beat.target) for beat in found if beat] == [AB, CB, AB, CB]
            first, _, second, _ = (beat.time_ms for beat in found if beat)
            assert before <= first <= second - 900
            assert len(cluster.partition("heartbeats", 0).headers()) == 2
            assert (beats.failed, caplog.messages) == (0, [])

    asyncio.run(test())


def test_refusal_is_named_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with FakeCluster("B", topics={"heartbeats": 1}) as cluster:
            cluster.refuse(PRODUCE, "heartbeats", 0, TOPIC_AUTHORIZATION_FAILED, times=2)
            beats = Heartbeats(settings_for(cluster))
            async with beating(beats):
                await cluster.wait_until(lambda: beats.written > 0)
            assert beats.failed == 4

    asyncio.run(test())
    warning, info = caplog.messages
    assert warning.startswith('heartbeats into "B" are not written: NOT_AUTHORIZED: ')
    assert "emit.heartbeats.enabled = false" in warning
    assert info.startswith('heartbeats into "B" are written again after ')


def test_too_few_brokers_are_named_until_the_factor_is_lowered(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with FakeCluster("B") as cluster:
            settings = settings_for(cluster, "heartbeats.topic.replication.factor=3\n")
            beats = Heartbeats(settings)
            async with beating(beats):
                await cluster.wait_until(lambda: beats.failed >= 2)
                cluster.create("heartbeats")
                beats.apply(settings)
                await cluster.wait_until(lambda: beats.written > 0)

    asyncio.run(test())
    warning, info = caplog.messages
    assert warning == (
        'heartbeats into "B" are not written: CONFIG: "B": "heartbeats" needs 3 replicas, and there is 1 broker; lower '
        "heartbeats.topic.replication.factor, or set emit.heartbeats.enabled = false; retrying"
    )
    assert info.startswith('heartbeats into "B" are written again after ')


def test_cluster_that_does_not_answer_is_named_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with FakeCluster("B", topics={"heartbeats": 1}) as cluster:
            settings = settings_for(cluster)
            await cluster.brokers[1].stop()
            beats = Heartbeats(settings)
            async with beating(beats):
                await cluster.wait_until(lambda: beats.failed >= 4)
                await cluster.brokers[1].start()
                await cluster.wait_until(lambda: beats.written > 0)

    asyncio.run(test())
    warning, info = caplog.messages
    assert warning.startswith('heartbeats into "B" are not written: UNREACHABLE: ')
    assert info.startswith('heartbeats into "B" are written again after ')


def test_new_settings_count_at_once() -> None:
    async def test() -> None:
        async with FakeCluster("B", topics={"heartbeats": 1}) as cluster:
            off = "C->B.emit.heartbeats.enabled=false\nA->B.heartbeats.state=paused\n"
            beats = Heartbeats(settings_for(cluster, off))
            async with beating(beats):
                await asyncio.sleep(0.05)
                assert (beats.written, cluster.calls) == (0, [])
                beats.apply(settings_for(cluster, "A->B.emit.heartbeats.enabled=false\n"))
                await cluster.wait_until(lambda: beats.written == 1)
            assert [(beat.source, beat.target) for beat in written(cluster) if beat] == [CB]

    asyncio.run(test())


def test_a_fault_of_our_own_is_named_once_counted_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    faults = [ZeroDivisionError(), ZeroDivisionError()]

    async def broken(*arguments: Any, **more: Any) -> int:
        if faults:
            raise faults.pop()
        return await append(*arguments, **more)

    async def test() -> None:
        async with FakeCluster("B", topics={"heartbeats": 1}) as cluster:
            monkeypatch.setattr(heartbeats, "append", broken)
            beats = Heartbeats(settings_for(cluster))
            async with beating(beats):
                await cluster.wait_until(lambda: beats.written >= 2)
            assert beats.failed == 4

    asyncio.run(test())
    assert [re.sub(r"; .*| after.*", "", message) for message in caplog.messages] == [
        'heartbeats: not written into "B": INTERNAL: ZeroDivisionError: ',
        'heartbeats: not written into "B": works again',
    ]


def test_a_standby_writes_no_heartbeats_and_the_first_one_as_soon_as_it_leads() -> None:
    stands_by = True

    async def test() -> None:
        nonlocal stands_by
        async with FakeCluster("B", topics={"heartbeats": 1}) as cluster:
            settings = settings_for(cluster, "emit.heartbeats.interval.seconds=600\n")
            async with beating(Heartbeats(settings, stands_by=lambda source, target: stands_by)):
                await asyncio.sleep(0.5)
                assert written(cluster) == []
                stands_by = False
                await cluster.wait_until(lambda: len(written(cluster)) == 2, 5)

    asyncio.run(test())
