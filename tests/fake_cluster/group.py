"""A consumer group on its coordinator: commits, and members that are only counted."""

from __future__ import annotations

from dataclasses import dataclass, field

NOT_COORDINATOR = 16


@dataclass
class FakeGroup:
    coordinator: int = 1
    members: int = 0
    protocol_type: str = "consumer"
    group_type: str = "Classic"
    commits: dict[tuple[str, int], tuple[int, str, int]] = field(default_factory=dict)
    """Offset, metadata and leader epoch."""

    @property
    def state(self) -> str:
        return "Stable" if self.members else "Empty"
