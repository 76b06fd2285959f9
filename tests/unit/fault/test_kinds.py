"""The faults of a run are drawn so that a short one has every kind, and what they do beside processes is exact."""

from __future__ import annotations

import random
import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.cluster.mirror import Batch
from tests.fault.faults import catalogue, choose
from tests.fault.lost_tail import Lost, batches_in, cut_partition, plan_loss
from tests.fault.network import is_severed
from tests.fault.world import FaultStage


def drawn(number: int, seed: int) -> list[str]:
    """The kinds of so many faults, in a world where all of them are possible."""
    kinds = [replace(fault, is_possible=lambda _: True) for fault in catalogue(frozen_s=(1.0, 1.0))]
    return [fault.name for fault in choose(kinds, number, Mock(spec=FaultStage), random.Random(seed))]


@pytest.mark.parametrize("seed", range(20))
def test_fifty_faults_have_every_kind_and_some_of_them_often(seed: int) -> None:
    times = Counter(drawn(50, seed))
    assert times.total() == 50
    assert set(times) == {fault.name for fault in catalogue(frozen_s=(1.0, 1.0))}
    for name in ("cut off source broker", "cut off target broker", "lose ledger tail"):
        assert times[name] >= 3


def test_the_same_seed_draws_the_same_faults() -> None:
    assert drawn(60, seed=5) == drawn(60, seed=5)


def test_what_crosses_the_cut_is_severed_both_ways_and_nothing_else() -> None:
    ports = {1: {101, 102}, 2: {201}, 3: {301}}

    def is_of(broker: int, port: int) -> bool:
        return port in ports[broker]

    severed = {
        (origin, destination)
        for origin, own in ports.items()
        for destination in ports
        for port in own
        if is_severed(2, is_of, destination, port)
    }
    assert severed == {(1, 2), (3, 2), (2, 1), (2, 3)}


# -- a log that loses its tail


def batch(base: int, records: int) -> bytes:
    return struct.pack(
        ">qiibIhiqqqhii", base, 61 - 12 + records, 0, 2, 0, 0, records - 1, 0, 0, -1, -1, -1, records
    ) + (b"x" * records)


def write_log(log_folder: Path) -> Path:
    """Batches of 3 records from offset 0 to 30, in segments from 0, 12 and 24 on, as a broker keeps them."""
    folder = log_folder / "ledger-0"
    folder.mkdir()
    for start, end in ((0, 12), (12, 24), (24, 30)):
        stem = f"{start:020d}"
        (folder / f"{stem}.log").write_bytes(b"".join(batch(base, 3) for base in range(start, end, 3)))
        for kind in ("index", "timeindex", "snapshot"):
            (folder / f"{stem}.{kind}").write_bytes(b"kept")
    (folder / "leader-epoch-checkpoint").write_text("0\n3\n0 0\n2 9\n4 24\n")
    (log_folder / "recovery-point-offset-checkpoint").write_text("0\n2\nledger 0 24\nledger 1 24\n")
    (log_folder / "replication-offset-checkpoint").write_text("0\n2\nledger 0 30\nother 0 30\n")
    (log_folder / "cleaner-offset-checkpoint").write_text("")
    return folder


@pytest.mark.parametrize(
    ("records", "lost"),
    [(0, Lost(30, 30, 0)), (1, Lost(27, 30, 3)), (7, Lost(21, 30, 9)), (1000, Lost(3, 30, 27))],
)
def test_whole_batches_are_lost_and_the_first_one_stays(tmp_path: Path, records: int, lost: Lost) -> None:
    assert plan_loss(batches_in(write_log(tmp_path)), records) == lost


def test_an_empty_log_has_nothing_to_lose() -> None:
    empty: list[Batch] = []
    assert plan_loss(empty, 5) == Lost(0, 0, 0)


@pytest.mark.parametrize("end", [3, 12, 21, 24, 27])
def test_a_log_ends_where_it_was_cut_and_so_does_all_beside_it(tmp_path: Path, end: int) -> None:
    folder = write_log(tmp_path)
    cut_partition(tmp_path, "ledger-0", end)
    kept = batches_in(folder)
    assert [each.base_offset for each in kept] == list(range(0, end, 3))
    assert sorted(int(file.stem) for file in folder.glob("*.log")) == [start for start in (0, 12, 24) if start < end]
    assert not list(folder.glob("*index"))
    assert all(int(snapshot.stem) <= end for snapshot in folder.glob("*.snapshot"))
    epochs = [line for line in ("0 0", "2 9", "4 24") if int(line.split()[1]) < end]
    assert (folder / "leader-epoch-checkpoint").read_text().splitlines() == ["0", str(len(epochs)), *epochs]
    recovery = (tmp_path / "recovery-point-offset-checkpoint").read_text().splitlines()
    assert recovery == ["0", "2", f"ledger 0 {min(24, end)}", "ledger 1 24"]
    assert f"ledger 0 {end}\nother 0 30" in (tmp_path / "replication-offset-checkpoint").read_text()
    assert not (tmp_path / "cleaner-offset-checkpoint").read_text()
