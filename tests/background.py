"""Something that goes on beside a test, in a thread of its own, until the block is over."""

from __future__ import annotations

from abc import ABC, abstractmethod
from threading import Event, Thread
from types import TracebackType
from typing import Self

_PATIENCE_S = 60.0


class Background(ABC):
    def __init__(self) -> None:
        self.over = Event()
        self._thread = Thread(target=self.run, name=type(self).__name__, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self.over.set()
        self._thread.join(_PATIENCE_S)

    @abstractmethod
    def run(self) -> None:
        """Go on until `over` is set."""
