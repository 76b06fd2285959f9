"""Measures CPU and memory of a process and everything it started.

A process's own time plus that of its children that have ended and were waited for: summed over the tree, nothing is
lost when a worker ends between two samples, and nothing is counted twice. To be cheap enough for twenty samples a
second, only processes not seen before are asked for their parent.
"""

from __future__ import annotations

from dataclasses import dataclass

import psutil

_LANE_ARGUMENTS = {"pyspark.daemon", "pyspark.worker"}
_MB = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSample:
    """A tree at one moment. `lane_rss_mb` is the largest of Spark's Python workers, 0 where there is none."""

    cpu_s: float
    rss_mb: float
    lane_rss_mb: float
    processes: int


class ProcessTree:
    """Follows the descendants of one process, also those whose parent has ended since."""

    def __init__(self, root_pid: int) -> None:
        root = psutil.Process(root_pid)
        self._members = {root_pid: root}
        self._ours = {root_pid}
        self._strangers = set(psutil.pids()) - {root_pid}

    def sample(self) -> TreeSample:
        self._find_new()
        cpu_s = rss = lane_rss = 0.0
        for pid, process in list(self._members.items()):
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    resident = process.memory_info().rss
                    is_lane = _is_lane(process)
            except psutil.NoSuchProcess:
                del self._members[pid]
                continue
            cpu_s += times.user + times.system + times.children_user + times.children_system
            rss += resident
            lane_rss = max(lane_rss, resident if is_lane else 0)
        return TreeSample(cpu_s=cpu_s, rss_mb=rss / _MB, lane_rss_mb=lane_rss / _MB, processes=len(self._members))

    def pss_mb(self) -> float:
        """Returns memory with shared pages counted once. Walks page tables, so not to be called often."""
        total = 0
        for process in list(self._members.values()):
            try:
                total += process.memory_full_info().pss
            except psutil.Error:
                continue
        return total / _MB

    def alive(self) -> list[psutil.Process]:
        """Returns the members that still run."""
        self._find_new()
        return [process for process in self._members.values() if _is_alive(process)]

    def lanes(self) -> list[psutil.Process]:
        """Returns Spark's Python workers, without the daemon that they come from."""
        workers = [process for process in self.alive() if _is_lane(process)]
        parents = {process.ppid() for process in workers}
        return [process for process in workers if process.pid not in parents]

    def _find_new(self) -> None:
        # Parents have lower pids than their children, but for the rare wrap-around.
        for pid in sorted(set(psutil.pids()) - self._ours - self._strangers):
            try:
                process = psutil.Process(pid)
                if process.ppid() in self._ours:
                    self._members[pid] = process
                    self._ours.add(pid)
                else:
                    self._strangers.add(pid)
            except psutil.NoSuchProcess:
                continue


def _is_lane(process: psutil.Process) -> bool:
    try:
        return not _LANE_ARGUMENTS.isdisjoint(process.cmdline())
    except psutil.ZombieProcess:  # ended but not waited for: its time still counts
        return False


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
