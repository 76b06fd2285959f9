"""A TCP proxy of the tests' own, between one broker and those who talk to it, that can be made to misbehave."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How the network behaves; the default is well."""

    delay_s: float = 0.0
    """Every chunk of bytes waits so long."""
    stall_share: float = 0.0
    """This share of chunks waits 1 to 3 s."""
    is_cut: bool = False
    """Open connections are reset, and so is every new one."""
    swallows: bool = False
    """Bytes vanish both ways and nobody is told; a connection that lost some stays dead in fine weather too."""
    loses_answers: bool = False
    """Requests arrive, their answers do not."""
    resets_per_s: float = 0.0
    """So often all open connections are reset."""


FINE = Weather()
Whose = Callable[[int], bool]
"""Says of a client's port whether its connections are meant."""


def nobody(_port: int) -> bool:
    return False


@dataclass(eq=False, slots=True)
class _Link:
    """One connection through the proxy."""

    client_port: int
    ends: list[asyncio.StreamWriter] = field(default_factory=list)
    is_dead: bool = False
    """Nothing passes any more."""
    is_silenced: bool = False
    """Nor does anything as long as those whose it is are silenced."""


class Proxy:
    """Listens on a port of 127.0.0.1 and passes bytes to another, in a thread of its own."""

    def __init__(self, port: int, onward: int, *, seed: int = 0) -> None:
        self._port = port
        self._onward = onward
        self._chance = random.Random(seed)
        self._weather = FINE
        self._silences: Whose = nobody
        self._links: set[_Link] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy-{port}", daemon=True)
        self._server: asyncio.Server | None = None
        self._resetting: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def become(self, weather: Weather) -> None:
        """Takes effect at once, also on open connections."""
        asyncio.run_coroutine_threadsafe(self._become(weather), self._loop).result(10)

    def silence(self, whose: Whose) -> None:
        """Let nothing pass on the connections of these clients, open and new; those silenced before are reset."""
        asyncio.run_coroutine_threadsafe(self._silence(whose), self._loop).result(10)

    # -- in the proxy's thread

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._become(FINE)
        self._reset_all()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if tasks:
            await asyncio.wait(tasks, timeout=1)  # most end by themselves, since their connections did
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _become(self, weather: Weather) -> None:
        self._weather = weather
        if self._resetting is not None:
            self._resetting.cancel()
            self._resetting = None
        if weather.is_cut:
            self._reset_all()
        if weather.resets_per_s:
            self._resetting = asyncio.ensure_future(self._reset_often(1 / weather.resets_per_s))

    async def _silence(self, whose: Whose) -> None:
        self._silences = whose
        for link in list(self._links):
            if link.is_silenced:
                _reset(link)
            link.is_silenced = whose(link.client_port)

    async def _reset_often(self, pause_s: float) -> None:
        while True:
            self._reset_all()
            await asyncio.sleep(pause_s)

    def _reset_all(self) -> None:
        for link in self._links:
            _reset(link)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(writer.get_extra_info("peername")[1], [writer])
        link.is_silenced = self._silences(link.client_port)
        if self._weather.is_cut:
            _reset(link)
            return
        self._links.add(link)
        try:
            onward_reader, onward_writer = await asyncio.open_connection("127.0.0.1", self._onward)
            link.ends.append(onward_writer)
            await asyncio.gather(
                self._pump(link, reader, onward_writer), self._pump(link, onward_reader, writer, are_answers=True)
            )
        except OSError:
            _reset(link)
        finally:
            self._links.discard(link)
            for end in link.ends:
                end.close()

    async def _pump(
        self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, are_answers: bool = False
    ) -> None:
        """One direction; its end closes the other side, and so ends the other direction."""
        with suppress(OSError):
            while chunk := await reader.read(_CHUNK_BYTES):
                if self._is_dropped(link, are_answers=are_answers):
                    continue
                pause_s = self._weather.delay_s
                if self._chance.random() < self._weather.stall_share:
                    pause_s += self._chance.uniform(1, 3)
                if pause_s:
                    await asyncio.sleep(pause_s)
                writer.write(chunk)
                await writer.drain()
        writer.close()

    def _is_dropped(self, link: _Link, *, are_answers: bool) -> bool:
        """Whether bytes that have come are not to go on."""
        link.is_dead = link.is_dead or self._weather.swallows
        return link.is_dead or link.is_silenced or (are_answers and self._weather.loses_answers)


def _reset(link: _Link) -> None:
    """An RST to both sides."""
    for end in link.ends:
        with suppress(OSError):
            sock = end.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        end.transport.abort()
