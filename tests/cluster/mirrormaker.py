"""The real MirrorMaker 2 as a process, on the keys that a `MirrorProcess` takes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from heliograph.lab import Cluster, Jvm, Lab
from tests.cluster.mirror import MirrorProcess

_CLASS = "org.apache.kafka.connect.mirror.MirrorMaker"
_SMALL = Jvm(heap="256m")


class MirrorMaker(MirrorProcess):
    """Runs the flows into one cluster; a clean stop (SIGTERM) commits what it has copied."""

    def __init__(
        self, lab: Lab, folder: Path, clusters: Mapping[str, Cluster | str], keys: Mapping[str, str], *, target: str
    ) -> None:
        self._java = lab.java(_CLASS, jvm=_SMALL)
        self._target = target
        # Else the worker of a second start waits minutes for the one of the first to come back.
        patience = {f"{target}.scheduled.rebalance.max.delay.ms": "0"}
        super().__init__(folder, clusters, {**keys, **patience}, environment=self._java.env)

    def command(self) -> list[str]:
        return [*self._java.argv, str(self.config), "--clusters", self._target]
