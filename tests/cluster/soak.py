"""What a long run does to a mirror: memory and open files of its processes, sampled, what its driver keeps in memory,
and whether they grow."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from statistics import mean
from typing import NamedTuple

import psutil

from tests.background import Background
from tests.cluster.mirror import MirrorProcess

_MB = 1_000_000
_TELLING_SIZES = (
    "import logging, sys; logging.getLogger('heliograph.sizes').setLevel(logging.DEBUG); "
    "from heliograph.cli import main; sys.exit(main(sys.argv[1:]))"
)
Sizes = Mapping[str, int]


class SizedMirror(MirrorProcess):
    """A mirror whose driver tells every few seconds how much it keeps in memory."""

    def command(self) -> list[str]:
        return [sys.executable, "-c", _TELLING_SIZES, *super().command()[1:]]

    def sizes(self) -> list[Sizes]:
        return sizes_in(self.stderr)


def sizes_in(lines: Sequence[str]) -> list[Sizes]:
    """As the driver told them."""
    told = [text for line in lines for _, mark, text in [line.partition("kept: ")] if mark]
    return [{name: int(size) for name, size in re.findall(r"(\w+) (\d+)", text)} for text in told]


def grown(sizes: Sequence[Sizes], *, leeway: int) -> dict[str, tuple[int, int]]:
    """What was larger in the last sixth of a run than in the sixth that follows its first third, by its most."""
    third, sixth = len(sizes) // 3, max(1, len(sizes) // 6)
    early, late = sizes[third : third + sixth], sizes[-sixth:]
    mosts = {name: (max(one[name] for one in early), max(one[name] for one in late)) for name in sizes[0]}
    return {name: (before, after) for name, (before, after) in mosts.items() if after > before + leeway}


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
