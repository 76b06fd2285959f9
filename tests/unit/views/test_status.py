"""What `status` says of flows, by what stands on their targets and by what it asks itself."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from heliograph.config import load_settings
from heliograph.kafka.batch import NewRecord
from heliograph.ledger.mm2.internal_records import Heartbeat
from heliograph.ledger.process_identity import this_process
from heliograph.ledger.records.contact import Contact
from heliograph.ledger.records.group_pass import GroupPass, PassKind
from heliograph.ledger.records.lease import Lease, LeaseState, Process
from heliograph.ledger.records.producer_claim import ProducerClaim
from heliograph.views.conditions import ConditionKind
from heliograph.views.status import FlowStatus, Leader, read_status
from tests.fake_cluster import FakeCluster
from tests.unit.cli.test_cli import run
from tests.unit.helpers.lanes import GROUP, LEDGER

LEASE = Lease(
    holder=Process(owner="x", host="h1", pid=77),
    term=1,
    state=LeaseState.HELD,
    since_ms=1_700_000_000_000,
    time_ms=1_700_000_060_000,
    lease_ms=6000,
)
CLAIM = ProducerClaim(token="t", producer_id=5, source_cluster_id="a", target_cluster_id="b")
CONFIG = """\
clusters = a, b
a.bootstrap.servers = {a}
b.bootstrap.servers = {b}
b.group.id = a-mm2
a->b.enabled = true
"""
NOWHERE = "127.0.0.1:1"


def test_a_leader_is_shown_with_the_time_it_has() -> None:
    leader = Leader.of(LEASE, now_ms=LEASE.time_ms + 5999)
    row = FlowStatus(flow="a->b", state="running", leader=leader, standbys=1, restarts=3).row()
    assert row["leader"] == "h1 (pid 77)"
    assert row["leads since"] == "2023-11-14T22:13:20+00:00"
    assert row["leads until"] == "2023-11-14T22:14:26+00:00"
    assert (row["standbys"], row["restarts"]) == (1, 3)


def test_a_leader_whose_time_is_up_leads_no_more() -> None:
    assert str(Leader.of(LEASE, now_ms=LEASE.time_ms + 18_000)) == "nobody (h1 until 12 s ago)"


def test_a_lease_given_back_ended_then() -> None:
    given_back = LEASE.moved(LeaseState.RELEASED, LEASE.time_ms)
    assert str(Leader.of(given_back, now_ms=LEASE.time_ms + 3000)) == "nobody (h1 until 3 s ago)"


# -- on a target


@dataclass(frozen=True, slots=True)
class WrittenTarget:
    target: FakeCluster
    config: Path

    def tell(self, age_ms: int = 500, *, holder: Process = LEASE.holder, lease_ms: int = 6000) -> None:
        """A mirror that is well wrote all that it writes, so long ago by our clock."""
        now_ms = int(time.time() * 1000) - age_ms
        lease = Lease(holder=holder, term=1, state=LeaseState.HELD, since_ms=now_ms, time_ms=now_ms, lease_ms=lease_ms)
        self.write(CLAIM.encode(GROUP), lease.encode(GROUP))
        self.write(Contact(time_ms=now_ms, since_ms=now_ms).encode(GROUP))
        for kind in PassKind:
            last = GroupPass(kind=kind, time_ms=now_ms, every_ms=1000, groups=1)
            self.write(last.encode(GROUP))
        beat = Heartbeat(source="a", target="b", time_ms=now_ms).encode()
        self.target.append("heartbeats", 0, [NewRecord(now_ms, *beat)])

    def write(self, *records: tuple[bytes, bytes | None]) -> None:
        self.target.append(LEDGER, 0, [NewRecord(0, *record) for record in records])

    async def status(self) -> FlowStatus:
        [found] = await read_status(load_settings(self.config))
        return found

    async def reasons(self) -> dict[str, str]:
        """Of the conditions that are not true."""
        found = await self.status()
        return {condition.kind: condition.reason for condition in found.conditions if not condition.is_true}


@asynccontextmanager
async def a_target(folder: Path, *, source: str = NOWHERE, more: str = "") -> AsyncIterator[WrittenTarget]:
    async with FakeCluster("b", topics={LEDGER: 1, "heartbeats": 1}) as target:
        config = folder / "mm2.properties"
        config.write_text(CONFIG.format(a=source, b=f"127.0.0.1:{target.brokers[1].port}") + more)
        yield WrittenTarget(target, config)


def test_a_flow_that_a_mirror_keeps_going_is_ready(tmp_path: Path) -> None:
    async def test() -> None:
        async with a_target(tmp_path) as world:
            world.tell()
            found = await world.status()
            assert found.is_ready
            assert found.row()["reason"] is None
            assert str(found.row()["commits read"]).endswith("s ago, every 1 s")

    asyncio.run(test())


def test_a_dead_mirror_with_a_dead_source_is_not_ready(tmp_path: Path) -> None:
    async def test() -> None:
        async with a_target(tmp_path) as world:
            world.tell(45_000, lease_ms=300)
            assert await world.reasons() == {
                ConditionKind.LEADING: "LeaseExpired",
                ConditionKind.SOURCE_REACHABLE: "NoAnswer",
                ConditionKind.PROGRESSING: "NobodyLeads",
                ConditionKind.GROUPS_SYNCED: "PassOverdue",
            }

    asyncio.run(test())


def test_a_source_that_the_mirror_does_not_ask_any_more_is_asked(tmp_path: Path) -> None:
    async def test() -> None:
        async with FakeCluster("a") as source, a_target(tmp_path, source=str(source.bootstrap[0])) as world:
            world.tell(45_000, lease_ms=300)
            assert ConditionKind.SOURCE_REACHABLE not in await world.reasons()

    asyncio.run(test())


@pytest.mark.parametrize("ahead_ms", [600_000, -600_000], ids=["ahead", "behind"])
def test_a_mirror_whose_clock_differs_is_believed_as_soon_as_it_renews_its_lease(ahead_ms: int, tmp_path: Path) -> None:
    """Ages are by its clock: nothing is old although all times are ten minutes off."""

    async def test() -> None:
        async with a_target(tmp_path) as world:

            async def renew() -> None:
                while True:
                    world.tell(-ahead_ms)
                    await asyncio.sleep(0.2)

            renewing = asyncio.ensure_future(renew())
            await asyncio.sleep(0)
            found = await world.status()
            renewing.cancel()
            assert found.is_ready
            assert found.last_contact_s is not None
            assert found.last_contact_s < 5

    asyncio.run(test())


@pytest.mark.parametrize("ahead_ms", [600_000, -600_000], ids=["ahead", "behind"])
def test_a_mirror_that_renews_no_more_does_not_lead_whatever_its_clock_says(ahead_ms: int, tmp_path: Path) -> None:
    async def test() -> None:
        async with a_target(tmp_path) as world:
            world.tell(-ahead_ms, lease_ms=300)
            assert (await world.reasons())[ConditionKind.LEADING] == "LeaseExpired"

    asyncio.run(test())


def test_a_leader_of_this_host_that_is_dead_is_known_at_once(tmp_path: Path) -> None:
    here = this_process()
    dead = Process(owner="x", host=here.host, pid=here.pid, place=here.place, born=here.born + 1)

    async def test() -> None:
        async with a_target(tmp_path) as world:
            world.tell(100, holder=dead)
            assert (await world.reasons())[ConditionKind.LEADING] == "LeaderDead"

    asyncio.run(test())


def test_the_last_heartbeat_is_that_of_the_flow(tmp_path: Path) -> None:
    async def test() -> None:
        async with a_target(tmp_path) as world:
            world.tell()
            other = Heartbeat(source="c", target="b", time_ms=int(time.time() * 1000)).encode()
            world.target.topics["heartbeats"] = world.target.create("heartbeats", 1)
            world.target.append("heartbeats", 0, [NewRecord(0, *other)])
            assert await world.reasons() == {ConditionKind.GROUPS_SYNCED: "NoHeartbeat"}

    asyncio.run(test())


# -- the command


def run_status(*arguments: str) -> int:
    return run("status", *arguments)


def test_a_dead_target_fails_the_command_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "mm2.properties"
    config.write_text(CONFIG.format(a=NOWHERE, b="127.0.0.1:2"))
    assert run_status(str(config)) == 1
    lines = capsys.readouterr().out.splitlines()
    [line] = [line for line in lines if "UNREACHABLE" in line]
    assert line.startswith('a->b: TargetReachable is False: Unreachable: UNREACHABLE: "b" broker 127.0.0.1:2')
    assert lines[-1] == "0 of 1 flow ready"
    assert run_status(str(config), "-o", "json") == 1
    [flow] = json.loads(capsys.readouterr().out)
    found = {condition["type"]: (condition["status"], condition["reason"]) for condition in flow["conditions"]}
    assert found["TargetReachable"] == ("False", "Unreachable")
    assert {value for kind, value in found.items() if kind != "TargetReachable"} == {("Unknown", "TargetUnreachable")}
    assert flow["conditions"][0].keys() == {"type", "status", "reason", "message", "since"}


@pytest.mark.parametrize(
    ("more", "state"),
    [
        ("a->b.state = paused\n", "paused"),
        ("a->b.state = stopped\n", "stopped"),
        ("a->b.enabled = false\n", "disabled"),
    ],
)
def test_a_flow_that_is_not_to_run_is_shown_as_such_and_does_not_fail_the_command(
    more: str, state: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "mm2.properties"
    config.write_text(CONFIG.format(a=NOWHERE, b="127.0.0.1:2").replace("a->b.enabled = true\n", "") + more)
    if state != "disabled":
        config.write_text(config.read_text() + "a->b.enabled = true\n")
    assert run_status(str(config), "-o", "json") == 0
    [flow] = json.loads(capsys.readouterr().out)
    assert (flow["state"], flow["ready"], flow["conditions"]) == (state, None, [])
    assert run_status(str(config)) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"0 of 0 flows ready, 1 {state}"


def test_the_worst_flow_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "mm2.properties"
    config.write_text(
        CONFIG.format(a=NOWHERE, b="127.0.0.1:2").replace("clusters = a, b", "clusters = a, b, c")
        + "c.bootstrap.servers = 127.0.0.1:3\na->b.state = paused\na->c.enabled = true\n"
    )
    assert run_status(str(config)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["a->c", "a->b"]
    assert lines[-1] == "0 of 1 flow ready, 1 paused"
