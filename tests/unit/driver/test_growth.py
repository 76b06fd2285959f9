"""What a mirror keeps in memory does not grow with its age: months of epochs, outages and topics in a few seconds."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from heliograph import outage_log
from heliograph.config import parse_settings
from heliograph.control import checkpoints as carrying
from heliograph.control.offset_syncs import OffsetSyncSync
from heliograph.driver.driver import Driver
from heliograph.driver.plan import Workforce
from heliograph.driver.spark.epochs import DEFAULTS, SparkEpochs
from heliograph.flow.progress import Progress
from heliograph.kafka.admin import coordinators
from heliograph.kafka.admin.commits import fetch_commits
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.connection import BufferPool
from heliograph.lane import lane as lane_module
from heliograph.lane.fetch_memory import FetchMemory
from heliograph.lane.fetcher import Fetcher
from heliograph.ledger import store
from heliograph.ledger.model import Side
from heliograph.outage_log import Outage, Waits
from tests.fake_cluster import FakeCluster, FakeGroup
from tests.unit.driver.test_isolation import terms_of
from tests.unit.flow.test_flow import CONFIG
from tests.unit.flow.test_restarts import NoEpochs
from tests.unit.helpers.logs import ENTRY, row_of
from tests.unit.helpers.placed import LEDGER, a_world
from tests.unit.kafka.test_cluster import client

WORKFORCE = Workforce(frozenset("1"), 1)


# -- outages


def test_a_long_outage_with_ever_new_causes_is_remembered_in_part() -> None:
    spell = Outage()
    for number in range(100_000):
        assert spell.is_news(f"no answer to request {number}")
        spell.is_news("the cause that comes again")
    assert len(spell._said) <= outage_log.MOST_SAID
    assert not spell.is_news("the cause that comes again"), "what is met again and again is said once"


def test_partitions_that_wait_for_ever_new_causes_have_few_sets_to_be_in(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "heliograph")
    waits = Waits("a->b")
    partitions = [("t", partition) for partition in range(100)]
    for number in range(1_000):
        for where in partitions:
            waits.note(where, f"no answer to request {number}")
    assert len(waits) == outage_log.MOST_CAUSES + 1
    assert len(caplog.messages) == outage_log.MOST_CAUSES + 1
    assert caplog.messages[-1] == f"a->b: waiting: {outage_log.OTHER_CAUSES}"
    for where in partitions:
        waits.goes_on(where)
    assert len(waits) == 0
    assert len(caplog.messages) == 2 * (outage_log.MOST_CAUSES + 1), "each is over once"


# -- epochs, and topics that come and go


def test_the_driver_keeps_nothing_of_topics_that_are_gone() -> None:
    async def scenario() -> None:
        driver = Driver(parse_settings(CONFIG), NoEpochs(), report=lambda _: None)
        [life] = driver._lives
        flow: Any = life.flow
        flow.opening.lease_holder = None
        for number in range(2_000):
            flow.entries.clear()
            flow.entries.update({(f"topic-{number}", 0): ENTRY, ("stays", 0): ENTRY})
            for topic, partition in flow.entries:
                life.progress.note(topic, partition, ENTRY)
            driver._plan([flow], WORKFORCE)
            rows = [row_of(flow=flow.name, topic=topic, entry=ENTRY, bytes=10) for topic, _ in flow.entries]
            await driver._take_rows([life], rows)
            life.progress.keep_only(flow.entries)
        driver._plan([flow], WORKFORCE)
        sizes = driver.sizes()
        assert (sizes["rates"], sizes["shown"], sizes["partitions"]) == (2, 2, 2)
        assert max(sizes.values()) <= 2, sizes

    asyncio.run(scenario())


def test_partitions_that_are_gone_have_no_lag() -> None:
    progress = Progress()
    progress.note("gone", 0, ENTRY.moved(source_end=ENTRY.source_offset + 7))
    assert progress.lag == 7
    progress.keep_only({("stays", 0)})
    assert (progress.lag, len(progress)) == (0, 0)


# -- clients


@pytest.mark.usefixtures("own_worker")
def test_a_worker_closes_clients_that_nobody_asks_for_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    monkeypatch.setattr(Cluster, "close", lambda cluster: closed.append(cluster.client_id))
    worker = lane_module._Worker()
    for epoch_id in range(1_000):
        worker.begin(epoch_id)
        worker.cluster(terms_of(f"flow {epoch_id // 10}"), Side.SOURCE, client_id=f"client {epoch_id // 10}")
        worker.cluster(terms_of("stays"), Side.SOURCE, client_id="stays")
    assert len(worker._clusters) == len(worker._used) <= 2 + lane_module.IDLE_EPOCHS // 10 + 1
    assert "stays" not in closed
    assert "client 0" in closed


def test_a_client_forgets_connections_to_brokers_that_moved() -> None:
    async def scenario() -> None:
        async with FakeCluster("a", topics={"t": 1}) as fake, client(fake) as cluster:
            for _ in range(20):
                await cluster.refresh()
                await fake.brokers[1].stop()
                await fake.brokers[1].start()
                cluster._bootstrap = tuple(fake.bootstrap)
            assert cluster.connections <= 2

    asyncio.run(scenario())


def test_coordinators_of_groups_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "MOST_KNOWN", 50)

    async def scenario() -> None:
        async with FakeCluster("a", topics={"t": 1}) as fake, client(fake) as cluster:
            fake.groups["stays"] = FakeGroup(commits={("t", 0): (7, "", -1)})
            for number in range(200):
                name = f"console-consumer-{number}"
                fake.groups[name] = FakeGroup()
                answers = await fetch_commits(cluster, ["stays", name])
                assert set(answers.found) == {"stays", name}
                del fake.groups[name]
                assert len(cluster.coordinators) <= 52

    asyncio.run(scenario())


# -- groups


def test_checkpoints_of_groups_that_are_gone_are_forgotten() -> None:
    async def scenario() -> None:
        async with a_world() as world, world.leader("a->b.topics = t\n") as flow:
            await world.copy(flow, "t", 0)
            await store.read_on(flow.target, LEDGER, flow.ledger)
            checkpoints = carrying.GroupCheckpoints(flow, OffsetSyncSync(flow))
            for number in range(20):
                world.source.groups = {f"batch-{number}": FakeGroup(commits={("t", 0): (5, "", -1)})}
                await checkpoints.refresh_groups()
                checkpoints._emission._due = 0.0
                await checkpoints.sync()
            assert {group for group, _ in checkpoints._last or {}} == {"batch-19"}

    asyncio.run(scenario())


# -- Spark


def test_spark_remembers_few_epochs_and_who_wants_more_may_have_it() -> None:
    kept = {key: int(value) for key, value in DEFAULTS.items() if ".retained" in key}
    assert {
        "spark.ui.retainedJobs",
        "spark.ui.retainedStages",
        "spark.ui.retainedTasks",
        "spark.sql.ui.retainedExecutions",
    } <= kept.keys()
    assert max(kept.values()) <= 1_000
    epochs = SparkEpochs(master=None, slots=1, conf={"spark.ui.retainedJobs": "500"})
    assert epochs.settings["spark.ui.retainedJobs"] == "500"
    epochs.abandon()


# -- a broker that goes


@pytest.fixture
def fetcher() -> Fetcher:
    """One that is never let run."""
    return Fetcher(
        Cluster("a", [], client_id=""),
        terms_of("a->b"),
        on_fetched=lambda _: None,
        on_trouble=lambda *_: None,
        on_change=lambda *_: None,
        time_left_ms=lambda: 0,
        spawn=_not_run,
        memory=FetchMemory(BufferPool()),
    )


class Copy:
    fetch_node: int | None = None


def _not_run(work: Any) -> Any:
    work.close()
    return asyncio.get_running_loop().create_future()


def test_leaving_a_broker_costs_each_partition_the_same_however_many_there_are(fetcher: Fetcher) -> None:
    """A hundred thousand leave within a second; as a list it would be five thousand million comparisons."""

    async def scenario() -> None:
        copies: list[Any] = [Copy() for _ in range(100_000)]
        for copy in copies:
            fetcher._fetch_from(copy, 1)
        began = time.process_time()
        for copy in reversed(copies):
            fetcher._unassign(copy)
        assert time.process_time() - began < 2.0
        assert not fetcher._copies[1]

    asyncio.run(scenario())
