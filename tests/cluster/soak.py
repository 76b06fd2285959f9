"""What a long run does to a mirror's processes: memory and open files, sampled, and whether they grow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from statistics import mean
from typing import NamedTuple

import psutil

from tests.background import Background
from tests.cluster.mirror import MirrorProcess

_MB = 1_000_000


class Sample(NamedTuple):
    """One kind of process at one moment, all of that kind together."""

    rss_mb: float
    files: int


class Growth(NamedTuple):
    """From the sixth of a run that follows its first third to its last sixth."""

    rss_mb: tuple[float, float]
    files: tuple[int, int]

    @property
    def rss_percent(self) -> float:
        before, after = self.rss_mb
        return round(100 * (after - before) / before, 2)


def growth_of(samples: Sequence[Sample]) -> Growth:
    """Memory by its mean, files by their most."""
    third, sixth = len(samples) // 3, max(1, len(samples) // 6)
    early, late = samples[third : third + sixth], samples[-sixth:]
    return Growth(
        (round(mean(s.rss_mb for s in early), 1), round(mean(s.rss_mb for s in late), 1)),
        (max(s.files for s in early), max(s.files for s in late)),
    )


class Sampler(Background):
    """Samples a mirror's driver, JVM and lanes from a thread of its own."""

    def __init__(self, mirror: MirrorProcess, *, every_s: float) -> None:
        super().__init__()
        self._mirror = mirror
        self._every_s = every_s
        self.samples: dict[str, list[Sample]] = defaultdict(list)

    def run(self) -> None:
        while not self.over.wait(self._every_s):
            totals: dict[str, Sample] = {}
            for process in self._mirror.processes():
                with suppress(psutil.NoSuchProcess):
                    kind, now = _kind_of(process), Sample(process.memory_info().rss / _MB, process.num_fds())
                    before = totals.get(kind, Sample(0, 0))
                    totals[kind] = Sample(before.rss_mb + now.rss_mb, before.files + now.files)
            for kind, total in totals.items():
                self.samples[kind].append(total)


def _kind_of(process: psutil.Process) -> str:
    command = process.cmdline()
    if any(part in ("pyspark.daemon", "pyspark.worker") for part in command):
        return "lanes"
    return "jvm" if command and command[0].endswith("java") else "driver"
