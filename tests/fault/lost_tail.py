"""Takes the newest records of a partition from the disks of all its replicas, as an unclean restart may."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from heliograph.lab import LabCluster
from tests.cluster.mirror import Batch, batches_of_file

_READY_S = 120.0
_OFFSETS_BY_PARTITION = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
)


class Lost(NamedTuple):
    """The offsets from `start` to `end`, half-open, are gone; so many records stood there."""

    start: int
    end: int
    records: int


def lose_tail(cluster: LabCluster, topic: str, partition: int = 0, *, records: int) -> Lost:
    """Kill the brokers that hold a partition, take at least so many records (whole batches), start them again.

    At least one batch stays. All replicas end at the same offset then, whichever of them leads.
    """
    name = f"{topic}-{partition}"
    holders = [node for node in cluster.brokers if (node.folder / "log" / name).is_dir()]
    running = [node for node in holders if node.node_id in cluster.running_ids]
    for node in running:
        cluster.kill_broker(node.node_id)
    logs = [batches_in(node.folder / "log" / name) for node in holders]
    longest = max(logs, key=lambda batches: batches[-1].end if batches else 0)
    lost = plan_loss(longest, records)
    for node in holders:
        cut_partition(node.folder / "log", name, lost.start)
    cluster.launch(running)
    cluster.wait_until_ready(timeout_s=_READY_S)
    return lost


def plan_loss(batches: Sequence[Batch], records: int) -> Lost:
    """Where a log is to end so that at least so many of its newest records are gone; its first batch stays."""
    taken = 0
    start = end = batches[-1].end if batches else 0
    for batch in reversed(batches[1:]):
        if taken >= records:
            break
        taken += batch.count
        start = batch.base_offset
    return Lost(start, end, taken)


def batches_in(folder: Path) -> list[Batch]:
    return [batch for file in sorted(folder.glob("*.log")) for batch in batches_of_file(file)]


def cut_partition(log_folder: Path, name: str, end: int) -> None:
    """Let a stopped broker's log of a partition end at an offset, and all that it keeps beside it."""
    folder = log_folder / name
    for file in folder.glob("*.log"):
        _cut_segment(file, end)
    for index in (*folder.glob("*.index"), *folder.glob("*.timeindex"), *folder.glob("*.txnindex")):
        index.unlink()  # made again from the log
    for snapshot in folder.glob("*.snapshot"):
        if int(snapshot.stem) > end:
            snapshot.unlink()
    _rewrite(folder / "leader-epoch-checkpoint", lambda line: line if int(line.split()[1]) < end else None)
    for checkpoint in _OFFSETS_BY_PARTITION:
        _rewrite(log_folder / checkpoint, lambda line: _lowered(line, name, end))


def _cut_segment(file: Path, end: int) -> None:
    if int(file.stem) >= end:
        file.unlink()
        return
    size = sum(batch.size for batch in batches_of_file(file) if batch.base_offset < end)
    with file.open("r+b") as log:
        log.truncate(size)


def _lowered(line: str, name: str, end: int) -> str:
    """A line `topic partition offset` whose offset is not beyond the end, if it is this partition's."""
    topic, partition, offset = line.split()
    return f"{topic} {partition} {min(int(offset), end)}" if f"{topic}-{partition}" == name else line


def _rewrite(checkpoint: Path, change: Callable[[str], str | None]) -> None:
    """Change the lines of one of Kafka's checkpoint files, behind its version and their number; it may be empty."""
    lines = checkpoint.read_text().splitlines() if checkpoint.is_file() else []
    if lines:
        kept = [changed for line in lines[2:] if (changed := change(line)) is not None]
        checkpoint.write_text("\n".join([lines[0], str(len(kept)), *kept]) + "\n")
