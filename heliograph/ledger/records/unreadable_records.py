"""Records of an internal topic that are not what the topic is for: counted, and each named once. Pure.

They are passed over: none ends a process, and none stands for an honest one. Somebody may write a million of them,
so the first ones are named one by one, and the rest whenever their number has doubled.
"""

from __future__ import annotations

NAMED = 5
"""Maximum number of places listed in a message."""


class RefusedRecords:
    """Counts the records of one topic that one reader refused."""

    def __init__(self, topic: str = "") -> None:
        self.topic = topic
        self.number = 0
        self._told = 0
        self._tell_at = 1
        self._unnamed: list[tuple[int, int]] = []
        self._last: dict[int, int] = {}
        """By partition, the offset of the last one: a reader that begins again counts none twice."""

    def note(self, partition: int, offset: int) -> None:
        if 0 <= offset <= self._last.get(partition, -1):
            return
        self._last[partition] = offset
        self.number += 1
        if len(self._unnamed) < NAMED:
            self._unnamed.append((partition, offset))

    def forget_from(self, partition: int, end: int) -> None:
        """The log was truncated: other records will get the offsets from `end` on."""
        if self._last.get(partition, -1) >= end:
            self._last[partition] = end - 1

    def news(self) -> str:
        """Return the message about records that were not reported yet; empty if it is not time for one."""
        if self.number < self._tell_at:
            return ""
        count, places = self.number - self._told, self._unnamed
        self._told, self._unnamed = self.number, []
        self._tell_at = self.number + 1 if self.number < NAMED else 2 * self.number
        named = ", ".join(f"partition {partition} offset {offset}" for partition, offset in places)
        more = f" and {count - len(places):,} more" if count > len(places) else ""
        noun, verb = ("record", "is") if count == 1 else ("records", "are")
        return f'{count:,} {noun} of "{self.topic}" could not be read, and {verb} ignored: {named}{more}'
