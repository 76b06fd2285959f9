"""What is flowing: a flow's rate, lag and time to catch up, from its ledger entries. Pure."""

from __future__ import annotations

from collections.abc import Collection

from heliograph.ledger.records.entry import Entry


class Progress:
    """Sums the entries that lanes write; `line` tells what moved since the last call."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, int], Entry] = {}
        self._records = 0
        self._bytes = 0
        self._since: float | None = None

    def note(self, topic: str, partition: int, entry: Entry) -> None:
        before = self._entries.get((topic, partition))
        if before is not None and before.count == entry.count:
            self._records += max(0, entry.n - before.n)
            self._bytes += max(0, entry.bytes_copied - before.bytes_copied)
        elif before is not None:
            self._records += entry.n
            self._bytes += entry.bytes_copied
        self._entries[topic, partition] = entry

    def __len__(self) -> int:
        return len(self._entries)

    def keep_only(self, present: Collection[tuple[str, int]]) -> None:
        """Others are not copied any more: they have no lag."""
        self._entries = {where: entry for where, entry in self._entries.items() if where in present}

    @property
    def lag(self) -> int:
        return sum(max(0, entry.source_end - entry.source_offset) for entry in self._entries.values())

    def line(self, now_s: float) -> str:
        seconds = now_s - self._since if self._since is not None else 0.0
        rate = self._records / seconds if seconds else 0.0
        megabytes = self._bytes / seconds / 1e6 if seconds else 0.0
        self._since, self._records, self._bytes = now_s, 0, 0
        text = f"{rate:,.0f} records/s, {megabytes:.1f} MB/s, lag {self.lag:,} records"
        if not self.lag:
            return text + ", up to date"
        return text + (f", caught up in {_duration(self.lag / rate)}" if rate else ", standing still")


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
