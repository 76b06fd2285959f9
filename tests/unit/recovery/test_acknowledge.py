"""Losses on a target of which nothing but itself is alive: shown, acknowledged, and shown no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.cli import main
from heliograph.config import Settings, parse_settings
from heliograph.errors import ClusterChanged
from heliograph.flow.loss_book import LossBook
from heliograph.kafka.batch import NewRecord
from heliograph.kafka.cluster import Cluster
from heliograph.ledger import store
from heliograph.ledger.records.loss import Loss
from heliograph.ledger.records.producer_claim import ProducerClaim
from heliograph.recovery.acknowledge import acknowledge
from heliograph.views.conditions import ConditionKind
from heliograph.views.status import FlowStatus, read_status
from tests.fake_cluster import FakeCluster
from tests.unit.helpers.lanes import GROUP, LEDGER
from tests.unit.ledger.test_formats import LOSS

CONFIG = """\
clusters = a, b
a.bootstrap.servers = 127.0.0.1:1
b.bootstrap.servers = {address}
b.group.id = a-mm2
a->b.enabled = true
"""
CLAIM = ProducerClaim(token="t", producer_id=5, source_cluster_id="source-then", target_cluster_id="cluster-b")
FOREIGN = replace(LOSS, code="FOREIGN_WRITES", on_target=True)
OTHER = replace(LOSS, topic="bar")


def has_losses(status: FlowStatus) -> bool:
    """Whether the flow is not ready for what happened to its records; nobody leads it here in any case."""
    [found] = [condition for condition in status.conditions if condition.kind is ConditionKind.NO_LOSSES]
    return not found.is_true


class TargetWithLosses:
    def __init__(self, target: FakeCluster) -> None:
        self.target = target
        self.settings: Settings = parse_settings(CONFIG.format(address=f"127.0.0.1:{target.brokers[1].port}"))
        self.flow = self.settings.flows[0]

    async def status(self) -> FlowStatus:
        (status,) = await read_status(self.settings)
        return status

    async def acknowledge(self, **options: Any) -> list[Loss]:
        return await acknowledge(self.settings, self.flow, **{"topic": None, "dry_run": False, **options})


@asynccontextmanager
async def a_target(*losses: Loss) -> AsyncIterator[TargetWithLosses]:
    async with FakeCluster("b", topics={LEDGER: 1}) as target:
        for key, value in [CLAIM.encode(GROUP), *(loss.encode(GROUP) for loss in losses)]:
            target.append(LEDGER, 0, [NewRecord(0, key, value)])
        yield TargetWithLosses(target)


def test_a_flow_with_a_loss_is_not_ready_until_it_is_acknowledged() -> None:
    async def test() -> None:
        async with a_target(LOSS, FOREIGN, OTHER) as world:
            status = await world.status()
            assert has_losses(status)
            assert status.row()["trouble"] == (
                "DATA_LOST bar-7: 120 records (offsets 40 to 159), 2 times; "
                "DATA_LOST foo-7: 120 records (offsets 40 to 159), 2 times; "
                "FOREIGN_WRITES foo-7: 120 records (target offsets 40 to 159), 2 times"
            )
            full: Any = status.full_row()["losses"]
            assert [(loss["code"], loss["topic"], loss["records"]) for loss in full] == [
                ("DATA_LOST", "bar", 120),
                ("DATA_LOST", "foo", 120),
                ("FOREIGN_WRITES", "foo", 120),
            ]
            assert len(await world.acknowledge(dry_run=True)) == 3
            assert len((await world.status()).losses) == 3
            assert [loss.topic for loss in await world.acknowledge(topic="bar")] == ["bar"]
            assert has_losses(await world.status())
            assert {loss.code for loss in await world.acknowledge()} == {"DATA_LOST", "FOREIGN_WRITES"}
            status = await world.status()
            assert (has_losses(status), status.losses, status.row()["trouble"]) == (False, (), None)
            assert await world.acknowledge() == []

    asyncio.run(test())


def test_records_of_others_are_shown_and_leave_the_flow_ready() -> None:
    async def test() -> None:
        async with a_target(FOREIGN) as world:
            status = await world.status()
            assert not has_losses(status)
            assert [loss.code for loss in status.losses] == ["FOREIGN_WRITES"]

    asyncio.run(test())


def test_a_flow_that_has_not_run_has_nothing_to_acknowledge() -> None:
    async def test() -> None:
        async with FakeCluster("b") as target:
            assert await TargetWithLosses(target).acknowledge() == []

    asyncio.run(test())


def test_another_cluster_is_kept_as_long_as_it_is_so() -> None:
    """The flow does not start; acknowledging it does not make it ready once it is found again."""

    async def test() -> None:
        async with a_target() as world:
            cluster = Cluster("b", world.target.bootstrap, client_id="test")
            await cluster.refresh()
            for _ in range(2):
                ledger = await store.read_ledger(cluster, LEDGER, GROUP)
                opening: Any = SimpleNamespace(flow=world.flow, target=cluster, ledger=ledger, ledger_topic=LEDGER)
                losses = LossBook(opening)
                with pytest.raises(ClusterChanged) as caught:
                    await store.claim_producer_id(
                        cluster, LEDGER, ledger, source_cluster_id="source-now", target_cluster_id="cluster-b"
                    )
                await losses.keep_changed(caught.value)
                status = await world.status()
                assert has_losses(status)
                (loss,) = status.losses
                assert (loss.code, loss.topic, loss.partition, loss.times) == ("CLUSTER_CHANGED", "", -1, 1)
                assert "the source is cluster source-now, the ledger was written for source-then" in loss.text
                await world.acknowledge()
            assert not has_losses(await world.status())
            cluster.close()

    asyncio.run(test())


def test_an_unknown_flow_is_bad_arguments_and_the_known_ones_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(CONFIG.format(address="127.0.0.1:2"))
    with pytest.raises(SystemExit) as caught:
        main(["acknowledge", str(file), "--flow", "b->a"])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert "b->a" in error
    assert "a->b" in error
