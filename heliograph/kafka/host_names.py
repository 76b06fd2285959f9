"""Host names to addresses, looked up beside the event loop; knows no sockets."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from heliograph.errors import Unreachable
from heliograph.kafka.types import BrokerAddress

Resolved = tuple[Any, ...]
"""As getaddrinfo gives it."""
LOOKUP_THREADS = 64
"""Python's own number, four more than processors, is less than the brokers of one cluster may be."""

_lookups: dict[tuple[asyncio.AbstractEventLoop, str, int], asyncio.Task[list[Any]]] = {}
"""Under way. A name server that is silent holds a thread for each, whatever we wait for: one a name, no more."""


def give_threads(loop: asyncio.AbstractEventLoop) -> None:
    """For lookups: the names of a cluster whose name server is silent must not keep those of another waiting."""
    loop.set_default_executor(ThreadPoolExecutor(LOOKUP_THREADS, thread_name_prefix="lookup"))


async def resolve(address: BrokerAddress, *, where: str) -> list[Resolved]:
    """All addresses of a host name, looked up beside the event loop; raises Unreachable."""
    loop = asyncio.get_running_loop()
    key = loop, loopback_or_same(address.host), address.port
    lookup = _lookups.get(key)
    if lookup is None:
        lookup = _lookups[key] = loop.create_task(loop.getaddrinfo(*key[1:], type=socket.SOCK_STREAM))
        lookup.add_done_callback(lambda task: _forget_lookup(key, task))
    try:
        return await asyncio.shield(lookup)
    except (socket.gaierror, UnicodeError) as error:
        raise unresolved(address, getattr(error, "strerror", "") or str(error), where=where) from error


def _forget_lookup(key: tuple[asyncio.AbstractEventLoop, str, int], task: asyncio.Task[list[Any]]) -> None:
    _lookups.pop(key, None)
    if not task.cancelled():
        task.exception()  # a failure nobody waits for any more is no news


def unresolved(address: BrokerAddress, why: str, *, where: str) -> Unreachable:
    return Unreachable(
        f'host name "{address.host}" cannot be resolved',
        where=where,
        why=why,
        remedy="check the name, and what resolves names here (DNS)",
    )


def loopback_or_same(host: str) -> str:
    """Names under localhost are this machine (RFC 6761, 6.3); many resolvers do not know."""
    return "127.0.0.1" if host.rstrip(".").lower().endswith(".localhost") else host
