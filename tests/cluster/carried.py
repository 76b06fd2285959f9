"""A mirror that carries groups, for tests to put topics and groups into."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from heliograph.client import MirrorClient
from heliograph.lab import LabCluster
from heliograph.ledger.mm2.internal_records import Checkpoint
from tests.cluster.consumers import committed
from tests.cluster.mirror import HELIOGRAPH, MirrorProcess, Record, View, create_topic, unique

IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
CARRY = {
    "emit.checkpoints.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "1",
}


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def next_records(records: list[Record], offset: int) -> list[object]:
    return [record.value for record in records if record.offset >= offset]


class Carried:
    """A mirror from primary to backup that carries every group whose name it is given."""

    def __init__(self, folder: Path, primary: LabCluster, backup: LabCluster, **keys: str) -> None:
        self.name = unique("carry")
        self.primary, self.backup = primary, backup
        self.mirror = MirrorProcess(
            folder,
            {"primary": primary, "backup": backup},
            {
                "primary->backup.topics": f"{self.name}.*",
                "primary->backup.groups": f"{self.name}.*",
                **CARRY,
                **{key.replace("_", "."): value for key, value in keys.items()},
            },
        )

    def topic(self, partitions: int = 1, **config: str) -> str:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        return create_topic(self.primary, unique(self.name), partitions, config=settings)

    def group(self) -> str:
        return unique(self.name)

    def wait_copied(self, topic: str) -> None:
        self.mirror.wait_mirrored(View(self.primary, topic), View(self.backup, f"primary.{topic}"))

    def wait_committed(self, group: str, wanted: dict[tuple[str, int], int]) -> None:
        self.mirror.wait_until(
            lambda: committed(self.backup, group) == wanted, 60, what=f"{wanted}, not {committed(self.backup, group)},"
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command, *rest = arguments
        return subprocess.run(
            [HELIOGRAPH, command, str(self.mirror.config), *rest], capture_output=True, text=True, check=False
        )

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        found = self.run(*arguments, "-o", "json")
        assert found.stdout, found.stderr
        rows: list[dict[str, Any]] = json.loads(found.stdout)
        return rows

    def client(self) -> MirrorClient:
        return MirrorClient.from_config(self.mirror.config, "backup")

    def checkpoints(self, group: str) -> list[Checkpoint]:
        [records] = View(self.backup, "primary.checkpoints.internal").read()
        parsed = [Checkpoint.parse(record.key, record.value) for record in records]
        return [item for item in parsed if item is not None and item.group == group]
