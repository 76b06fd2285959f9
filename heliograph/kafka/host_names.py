"""Resolves host names to addresses outside the event loop; knows no sockets."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from heliograph.errors import Unreachable
from heliograph.kafka.types import BrokerAddress

Resolved = tuple[Any, ...]
"""An address as getaddrinfo gives it."""
LOOKUP_THREADS = 64
"""Threads for lookups; Python's own number, processors plus four, is less than one cluster may have brokers."""

_lookups: dict[tuple[asyncio.AbstractEventLoop, str, int], asyncio.Task[list[Any]]] = {}
"""Lookups in progress: one per name, since a name server that does not answer blocks a thread for each."""


def give_threads(loop: asyncio.AbstractEventLoop) -> None:
    """Give the loop more threads for lookups: a silent name server of one cluster must not delay another."""
    loop.set_default_executor(ThreadPoolExecutor(LOOKUP_THREADS, thread_name_prefix="lookup"))


async def resolve(address: BrokerAddress, *, where: str) -> list[Resolved]:
    """Return all addresses of a host name, looked up outside the event loop; raises Unreachable."""
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
        task.exception()  # nobody waits for it any more: asyncio must not log its failure


def unresolved(address: BrokerAddress, why: str, *, where: str) -> Unreachable:
    return Unreachable(
        f'host name "{address.host}" cannot be resolved',
        where=where,
        why=why,
        remedy="check the name, and what resolves names here (DNS)",
    )


def loopback_or_same(host: str) -> str:
    """Return this machine's address for names under localhost (RFC 6761, 6.3), which many resolvers do not know."""
    return "127.0.0.1" if host.rstrip(".").lower().endswith(".localhost") else host
