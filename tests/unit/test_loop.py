"""What runs beside the copying may fail by whatever it likes: it is named, counted and tried again; copying goes on."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from heliograph import loop as loop_module
from heliograph.config import parse_settings
from heliograph.control import acls, offset_syncs, source_watch, topic_configs
from heliograph.control import checkpoints as carrying
from heliograph.control.flow_loops import loops_beside
from heliograph.driver.driver import Driver
from heliograph.errors import BrokerRefused, InternalError, ProtocolError, Unreachable, named
from heliograph.flow import supervisor as life_module
from heliograph.flow.assignments import LaneAssignments
from heliograph.flow.epochs import FlowEpochs
from heliograph.flow.flow import FlowDriver
from heliograph.flow.supervisor import FlowSupervisor
from heliograph.flow.topics import FlowTopics
from heliograph.kafka.log import append, fetch_partition
from heliograph.ledger import store
from heliograph.ledger.mm2.internal_records import Checkpoint
from heliograph.ledger.records.condition import Condition
from heliograph.ledger.records.order import Order
from heliograph.ledger.records.seen_group import SeenGroup
from heliograph.ledger.records.table import parse_ledger
from heliograph.loop import Loop, Loops
from heliograph.views.status import read_status
from tests.fake_cluster import METADATA, Call, FakeCluster, FakeGroup
from tests.unit.driver.test_isolation import BROKEN, SOUND, Epochs, running
from tests.unit.flow.test_restarts import NoEpochs
from tests.unit.helpers.placed import GROUP, LEDGER, OFFSETS, PositionsOnFakes, a_world
from tests.unit.kafka.test_cluster import client

CHECKPOINTS = "a.checkpoints.internal"
ALL_ON = "sync.group.offsets.enabled = true\nsync.group.offsets.interval.seconds = 1\n"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "MIN_PAUSE_S", 0.01)
    monkeypatch.setattr(loop_module, "MAX_PAUSE_S", 0.02)
    monkeypatch.setattr(life_module, "RIGHTS_S", 0.01)
    monkeypatch.setattr(life_module, "PROGRESS_S", 0.01)
    monkeypatch.setattr(life_module, "GATHER_S", 0.0)
    monkeypatch.setattr("heliograph.control.flow_loops.WATCH_S", 0.01)
    monkeypatch.setattr("heliograph.control.flow_loops.PRUNE_S", 0.01)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


# -- one loop


def test_what_nobody_foresaw_is_our_mistake_and_its_place_is_told() -> None:
    checkpoint = Checkpoint(group="g", topic="t", partition=0, upstream=0, downstream=0, metadata="m" * 40_000)
    with pytest.raises(ValueError, match="does not fit") as caught:
        checkpoint.encode()
    found = named(caught.value, where="a->b")
    assert isinstance(found, InternalError)
    assert re.match(
        r"INTERNAL: a->b: ValueError: .*; a bug in heliograph, in ledger/mm2/internal_records.py:\d+ \(_text\), "
        r"called by ledger/mm2/internal_records.py:\d+ \(encode\); please report",
        str(found),
    )
    assert named(Unreachable("x")).code == "UNREACHABLE"


def test_a_loop_fails_by_anything_is_counted_told_once_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "heliograph")
    loops = Loops("a->b")
    side = loops.loop("offset syncs")
    faults: list[Exception | None] = [KeyError("x"), KeyError("x"), ValueError("y"), None]
    seen: list[str] = []

    async def step() -> None:
        seen.extend(map(str, loops.failing()))
        if not faults:
            raise asyncio.CancelledError
        if (fault := faults.pop(0)) is not None:
            raise fault

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(side.repeat(step, interval_s=lambda: 0.0))
    assert (side.failures, loops.failures, loops.failing()) == (3, 3, ())
    assert [re.sub(r";.*| after.*", "", text) for text in seen] == [
        "offset syncs: INTERNAL: KeyError: 'x'",
        "offset syncs: INTERNAL: KeyError: 'x'",
        "offset syncs: INTERNAL: ValueError: y",
    ]
    assert "(failed 2 times)" in seen[1]
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "INFO"]
    assert "a->b: offset syncs: works again after" in caplog.text


@pytest.mark.parametrize("asked", ["interval", "due"])
def test_a_loop_that_cannot_tell_when_it_is_due_is_retried_too(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "MIN_PAUSE_S", 0.001)
    side, faults = Loop("a->b", "job"), iter([KeyError("x"), ValueError("y")])

    def fail_twice() -> float:
        for fault in faults:
            raise fault
        return 0.0

    async def due() -> None:
        fail_twice()

    async def job() -> None:
        raise asyncio.CancelledError

    repeating = side.repeat(job, interval_s=fail_twice) if asked == "interval" else side.repeat_when(due, job)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(repeating)
    assert side.failures == 2


def test_a_failure_that_is_kept_keeps_no_frames_alive() -> None:
    side = Loop("a->b", "job")
    with side:
        raise KeyError("x")
    assert side.error is not None
    assert (side.error.__traceback__, side.error.__cause__, side.error.__context__) == (None, None, None)


def test_a_loop_without_an_end_works_again_when_it_has_not_failed_for_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "heliograph")
    monkeypatch.setattr(loop_module, "STEADY_S", 0.05)
    faults = [KeyError("x"), KeyError("x")]

    async def run() -> None:
        if faults:
            raise faults.pop()
        await asyncio.Event().wait()

    async def scenario() -> None:
        side = Loop("a->b", "listening")

        async def keep() -> None:
            while True:
                with side.lasting():
                    await run()
                await asyncio.sleep(side.pause_s)

        keeping = asyncio.ensure_future(keep())
        await until(lambda: side.failures == 2)
        assert side.failing is not None
        await until(lambda: side.failing is None)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    asyncio.run(scenario())
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_pauses_grow_and_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "MIN_PAUSE_S", 1.0)
    monkeypatch.setattr(loop_module, "MAX_PAUSE_S", 10.0)
    monkeypatch.setattr("random.uniform", lambda low, high: 1.0)
    side, pauses = Loop("a->b", "job"), []
    for _ in range(6):
        side.fail(KeyError("x"))
        pauses.append(side.pause_s)
    assert pauses == [1, 2, 4, 8, 10, 10]


# -- those of a flow


@asynccontextmanager
async def led(world: PositionsOnFakes, more: str = ALL_ON) -> AsyncIterator[tuple[Driver, FlowSupervisor]]:
    """A driver with the flow's life as it is while it leads, without lanes and without a lease."""
    driver = Driver(world.settings(more), NoEpochs(), report=lambda _: None, beside=loops_beside)
    [life] = driver._lives
    life.flow.opening.lease_holder = None
    await life.flow.opening.open()
    tasks = [driver._spawn(life._mirror()), driver._spawn(life._following())]
    try:
        await until(lambda: life.is_ready)
        yield driver, life
    finally:
        for task in [*tasks, *driver._tasks]:
            task.cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, *driver._tasks, return_exceptions=True), 10)
        life.flow.close()


@pytest.mark.parametrize(
    ("owner", "method"),
    [
        (FlowTopics, "discover"),
        (FlowSupervisor, "_check_rights"),
        (FlowDriver, "look_at_throttling"),
        (FlowSupervisor, "_hear"),
        (source_watch.LogEndSync, "sync"),
        (source_watch.PageSync, "sync"),
        (offset_syncs.OffsetSyncSync, "sync"),
        (carrying.GroupCheckpoints, "refresh_groups"),
        (carrying.GroupCheckpoints, "sync"),
        (topic_configs.ConfigSync, "sync"),
        (acls.AclSync, "sync"),
    ],
    ids=lambda found: found if isinstance(found, str) else found.__name__,
)
def test_no_side_loop_ends_the_driver_whatever_it_raises(
    owner: type, method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries = 0

    def broken(*_: object) -> Any:
        nonlocal tries
        tries += 1
        raise KeyError("of nobody's")

    async def scenario() -> None:
        if method != "discover":  # which the flow comes up by
            monkeypatch.setattr(owner, method, broken)
        async with a_world() as world, led(world) as (driver, life):
            monkeypatch.setattr(owner, method, broken)
            if method == "discover":
                monkeypatch.setattr(life_module, "INCOMPLETE_S", 0.01)
                life.flow.topics.is_complete = False
                life.flow.opening.changed.set()
            if method == "_hear":
                order = Order(owner="x", end_epoch=0)
                await store.write_records(life.flow.target, LEDGER, GROUP, [order])
            await until(lambda: tries >= (1 if method in ("_hear", "refresh_groups", "sync") else 2))
            await until(lambda: "of nobody's" in caplog.text)
            assert driver._failure is None
            assert not driver._stopping.is_set()
            assert life.is_ready

    asyncio.run(scenario())
    assert 'INTERNAL: KeyError: "of nobody\'s"; a bug in heliograph' in caplog.text


def test_rows_that_cannot_be_answered_are_named_and_the_flow_is_planned_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise KeyError("x")

    async def scenario() -> None:
        async with a_world() as world, led(world) as (driver, life):
            monkeypatch.setattr(FlowEpochs, "take_rows", broken)
            await life.take_rows([])
            assert life.may_be_planned
            assert driver._failure is None

    asyncio.run(scenario())
    assert "lane reports not processed: INTERNAL: KeyError" in caplog.text


def test_a_flow_that_lanes_cannot_be_told_of_for_a_mistake_of_ours_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: LaneAssignments) -> None:
        raise KeyError("x")

    async def scenario() -> None:
        async with a_world() as world, led(world) as (driver, life):
            monkeypatch.setattr(LaneAssignments, "terms", broken)
            assert driver._terms() == {}
            assert life._telling is not None

    asyncio.run(scenario())
    assert "not in the plan: INTERNAL: KeyError" in caplog.text


def test_a_flow_whose_partitions_cannot_be_given_out_is_left_out_until_they_can(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        epochs = Epochs()
        async with running(epochs) as (driver, broken, _):
            await until(lambda: epochs.planned == [{BROKEN, SOUND}])
            assignments = broken.assignments.all
            broken.assignments.all = None  # which cannot be called
            driver._replan.set()
            await until(lambda: len(epochs.planned) == 2)
            assert epochs.planned[1] == {SOUND}
            broken.assignments.all = assignments
            driver._replan.set()
            await until(lambda: len(epochs.planned) == 3)
            assert epochs.planned[2] == {BROKEN, SOUND}

    asyncio.run(scenario())
    assert "a->b: partitions not given to lanes: INTERNAL: TypeError" in caplog.text


def test_status_shows_what_fails_beside_the_copying_and_no_longer_when_it_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fault: list[Exception] = [KeyError("x")]

    async def look(*_: object) -> None:
        if fault:
            raise fault[0]

    async def trouble(world: PositionsOnFakes) -> str:
        [found] = await read_status(world.settings(ALL_ON))
        return str(found.row()["trouble"])

    monkeypatch.setattr(source_watch.LogEndSync, "sync", look)

    async def scenario() -> None:
        async with a_world() as world, led(world) as (_, life):
            await until(lambda: life.flow.ledger.condition and life.flow.ledger.condition.failing)
            assert re.search(r'watching "a": INTERNAL: KeyError: \'x\'; a bug in heliograph', await trouble(world))
            fault.clear()
            await until(lambda: life.flow.ledger.condition and not life.flow.ledger.condition.failing)
            assert "watching" not in await trouble(world)

    asyncio.run(scenario())


def test_a_condition_tells_what_fails_and_one_without_that_is_read_as_before() -> None:
    told = Condition(lacks=("x",), is_blocked=False, time_ms=7, failing=("offset syncs: y",))
    assert parse_ledger("g", *told.encode("g")) == told
    key, _ = told.encode("g")
    before = parse_ledger("g", key, b'{"v":1,"lacks":["x"],"blocked":false,"ms":7}')
    assert before == Condition(lacks=("x",), is_blocked=False, time_ms=7)


# -- coming up


def brought_up(monkeypatch: pytest.MonkeyPatch, fault: Callable[[], Exception], failures: int) -> Driver:
    """A flow whose preparation fails so many times, and is then ready."""
    settings = parse_settings(
        "clusters = a, b\na.bootstrap.servers = a:9092\nb.bootstrap.servers = b:9092\na->b.enabled = true\n"
    )
    left = failures

    async def prepare(_: FlowDriver) -> None:
        nonlocal left
        if left:
            left -= 1
            raise fault()

    async def test() -> Driver:
        driver = Driver(settings, NoEpochs(), report=lambda _: None)
        [life] = driver._lives
        life.is_ready = await asyncio.wait_for(life._until_done(life.flow.prepare), 10)
        assert left == 0
        return driver

    monkeypatch.setattr(FlowDriver, "prepare", prepare)
    return asyncio.run(test())


@pytest.mark.parametrize(
    "fault", [lambda: ProtocolError("a truncated answer"), lambda: KeyError("x")], ids=["protocol", "our own mistake"]
)
def test_what_may_pass_while_a_flow_is_opened_is_tried_again_until_it_does(
    fault: Callable[[], Exception], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    driver = brought_up(monkeypatch, fault, failures=3)
    assert [life.is_ready for life in driver._lives] == [True]
    [line] = caplog.messages
    assert line.startswith("a->b: not started yet: ")


def test_a_lease_that_cannot_be_held_for_a_mistake_of_ours_is_given_back_and_bid_for_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with a_world() as world:
            driver = Driver(world.settings(), NoEpochs(), report=lambda _: None)
            [life] = driver._lives
            hold, faults = life.lease_holder.hold, [KeyError("x")]

            async def broken(*arguments: Any) -> None:
                if faults:
                    raise faults.pop()
                await hold(*arguments)

            monkeypatch.setattr(life.lease_holder, "hold", broken)
            task = driver._spawn(life.run())
            await until(lambda: not faults and life.is_ready)
            assert driver._failure is None
            assert life.lease_holder.leads()
            task.cancel()
            await asyncio.gather(task, *driver._tasks, return_exceptions=True)
            life.flow.close()

    asyncio.run(scenario())
    assert "a->b: leading: INTERNAL: KeyError" in caplog.text


# -- topics that are not there


async def without(call: Call, topic: str) -> Any:
    answer = await call.proceed()
    answer.topics = [found for found in answer.topics if found.name != topic]
    return answer


def test_a_ledger_that_cannot_be_described_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with a_world() as world:
            settings = world.settings("emit.checkpoints.enabled = false\n")
            flow = FlowDriver(settings.flows[0], settings, is_local=True)
            monkeypatch.setattr(flow.opening, "_ensure_internal", _nothing)
            world.target.control(METADATA, lambda call: without(call, LEDGER))
            try:
                with pytest.raises(BrokerRefused, match=f'there is no topic "{LEDGER}"'):
                    await flow.opening.open()
            finally:
                flow.close()

    asyncio.run(scenario())


async def _nothing(*_: object, **__: object) -> None: ...


def test_positions_that_cannot_be_described_are_named() -> None:
    async def scenario() -> None:
        async with FakeCluster("b") as fake, client(fake) as cluster:
            with pytest.raises(BrokerRefused, match=f'there is no topic "{OFFSETS}"'):
                await store.read_positions(cluster, OFFSETS, "a")

    asyncio.run(scenario())


def test_a_topic_that_vanishes_while_it_is_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliograph.kafka.log.RETRY_FOR_S", 0.1)

    async def scenario() -> None:
        async with FakeCluster("b", topics={"t": 1}) as fake, client(fake) as cluster:
            await cluster.refresh()

            async def gone_meanwhile(node_id: int, channel: str = "main") -> Any:
                del fake.topics["t"]
                await cluster.refresh()
                monkeypatch.setattr(cluster, "connection", connection)
                return await connection(node_id, channel)

            connection = cluster.connection
            monkeypatch.setattr(cluster, "connection", gone_meanwhile)
            with pytest.raises(BrokerRefused, match=r'there is no topic "t"|UNKNOWN_TOPIC'):
                await fetch_partition(cluster, "t", 0, 0)

    asyncio.run(scenario())


# -- groups that cannot be carried


def checkpoints_of(target: FakeCluster) -> set[str]:
    found = [Checkpoint.parse(r.key, r.value) for r in target.partition(CHECKPOINTS, 0).records()]
    return {item.group for item in found if item is not None}


def written_down(target: FakeCluster) -> set[str]:
    return {
        word.group
        for record in target.partition(LEDGER, 0).records()
        if isinstance(word := parse_ledger(GROUP, record.key, record.value), SeenGroup)
    }


@pytest.mark.parametrize(
    ("metadata", "partitions", "without_checkpoint", "not_written_down"),
    [("m" * 32_768, 1, {"odd"}, set()), ("m" * 30_000, 40, set(), {"odd"})],
    ids=["metadata over 32,767 bytes", "a record over 1 MB"],
)
def test_a_group_that_cannot_be_carried_costs_itself_alone_and_is_carried_when_it_can_be(
    metadata: str,
    partitions: int,
    without_checkpoint: set[str],
    not_written_down: set[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "heliograph")
    all_groups = {"before", "odd", "other"}

    async def scenario() -> None:
        world = PositionsOnFakes()
        world.source = FakeCluster("a", topics={"t": partitions})
        world.target = FakeCluster("b", topics={"a.t": partitions, CHECKPOINTS: 1, LEDGER: 1, OFFSETS: 1})
        async with world.source, world.target, world.leader("a->b.topics = t\n") as flow:
            await store.read_on(flow.target, LEDGER, flow.ledger)
            world.source.groups = {
                "before": FakeGroup(commits={("t", 0): (0, "", -1)}),
                "odd": FakeGroup(commits={("t", p): (0, metadata, -1) for p in range(partitions)}),
                "other": FakeGroup(commits={("t", 0): (0, "", -1)}),
            }
            checkpoints = carrying.GroupCheckpoints(flow, offset_syncs.OffsetSyncSync(flow))
            for _ in range(2):
                checkpoints._emission._due = 0.0
                await checkpoints.read()
                await checkpoints.sync()
            assert checkpoints_of(world.target) == all_groups - without_checkpoint
            assert written_down(world.target) == all_groups - not_written_down
            world.source.groups["odd"].commits = {("t", 0): (0, "less", -1)}
            checkpoints._emission._due = 0.0
            await checkpoints.read()
            await checkpoints.sync()
            assert checkpoints_of(world.target) == written_down(world.target) == all_groups

    asyncio.run(scenario())
    told = [record.getMessage() for record in caplog.records if '"odd"' in record.getMessage()]
    assert len(told) == 2, "once when it begins, once when it is over"
    assert "GROUP_REFUSED" in told[0]
    assert told[1].endswith("again")


def test_a_large_record_does_not_make_the_batch_of_its_neighbours_too_large() -> None:
    async def scenario() -> None:
        async with FakeCluster("b", topics={"t": 1}) as fake, client(fake) as cluster:
            await cluster.refresh()
            records = [(b"%d" % number, bytes(size)) for number, size in enumerate((500_000, 900_000, 500_000))]
            await append(cluster, "t", 0, records, now_ms=1)
            assert [len(r.value or b"") for r in fake.partition("t", 0).records()] == [500_000, 900_000, 500_000]

    asyncio.run(scenario())
