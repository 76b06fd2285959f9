"""Finds the coordinators of consumer groups, and asks those of many groups at once.

Follows a coordinator that moves. If the broker supports many groups in one request they go together, else the requests
are pipelined. A group that fails does not affect the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from heliograph.errors import BrokerRefused, HeliographError, NotAuthorized, ProtocolError, Unreachable
from heliograph.kafka import messages
from heliograph.kafka.cluster import Cluster, refused
from heliograph.kafka.connection import Connection
from heliograph.kafka.error_codes import Code

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

CHANNEL = "groups"
RETRY_FOR_S = 15.0
GROUPS_PER_REQUEST = 500
"""Maximum number of groups per request: an answer of some 50 kB, decoded within 10 ms."""
IN_FLIGHT = 32
"""Maximum number of requests in flight to one broker, or on one connection."""
MOST_KNOWN = 20_000
"""Maximum number of coordinators that are remembered, or twice as many as are asked for."""
NO_COORDINATOR = (Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR)
_SEVERAL_COORDINATORS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers(Generic[T]):
    """Holds the outcome of each group that was asked for, in one of the two."""

    found: dict[str, T] = field(default_factory=dict)
    failed: dict[str, HeliographError] = field(default_factory=dict)

    def the(self, group_id: str) -> T:
        """Return the answer for one group; raise its error."""
        if group_id in self.failed:
            raise self.failed[group_id]
        return self.found[group_id]


async def at_coordinators(
    cluster: Cluster, groups: Iterable[str], ask: Callable[[int, list[str]], Awaitable[Answers[T]]]
) -> Answers[T]:
    """Ask each group's coordinator; find it again if it moved, does not answer or is not ready."""
    answers: Answers[T] = Answers()
    pending = list(groups)
    async for _ in tries():
        latest = await _one_round(cluster, pending, ask)
        answers = merged_answers([answers, latest])
        pending = [group_id for group_id, error in latest.failed.items() if _may_pass(error)]
        for group_id in pending:
            cluster.coordinators.pop(group_id, None)
        if not pending:
            break
    return answers


async def _one_round(
    cluster: Cluster, group_ids: list[str], ask: Callable[[int, list[str]], Awaitable[Answers[T]]]
) -> Answers[T]:
    try:
        coordinators = await _find_coordinators(cluster, group_ids)
        if not cluster.catalogue.brokers.keys() >= set(coordinators.found.values()):
            await cluster.refresh([])
    except HeliographError as error:
        return Answers(failed=dict.fromkeys(group_ids, error))

    async def ask_one(node_id: int, group_ids: list[str]) -> Answers[T]:
        try:
            return await ask(node_id, group_ids)
        except HeliographError as error:
            return Answers(failed=dict.fromkeys(group_ids, error))

    by_node = grouped((node_id, group_id) for group_id, node_id in coordinators.found.items())
    answers = await asyncio.gather(*(ask_one(node_id, asked) for node_id, asked in by_node.items()))
    return merged_answers([Answers(failed=coordinators.failed), *answers])


async def _find_coordinators(cluster: Cluster, group_ids: list[str]) -> Answers[int]:
    """Return the coordinator of each group; known ones are not asked for again."""
    known = cluster.coordinators
    unknown = [group_id for group_id in group_ids if group_id not in known]
    answers: Answers[int] = Answers()
    if unknown:
        connection = await cluster.any_connection()
        version = messages.pick_version(
            messages.FindCoordinatorRequest.API_KEY, connection.versions, where=connection.where
        )
        way, size = (_find_several, GROUPS_PER_REQUEST) if version >= _SEVERAL_COORDINATORS else (_find_one, 1)
        answers = await in_chunks(connection, unknown, partial(way, cluster), size=size)
        known.update(answers.found)
    found = {group_id: known[group_id] for group_id in group_ids if group_id in known}
    if len(known) > max(MOST_KNOWN, 2 * len(found)):
        known.clear()  # groups come and go; those that stay and are not asked for now are found again
        known.update(found)
    return Answers(found=found, failed=answers.failed)


async def _find_several(cluster: Cluster, connection: Connection, group_ids: list[str]) -> Answers[int]:
    request = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=group_ids)
    response = await cluster.call_on(connection, request)
    return merged_answers(_coordinator_of(cluster, found.key, found) for found in response.coordinators or ())


async def _find_one(cluster: Cluster, connection: Connection, group_ids: list[str]) -> Answers[int]:
    """Find the coordinator of one group (brokers before 3.0)."""
    [group_id] = group_ids
    request = messages.FindCoordinatorRequest(key_type=0, key=group_id)
    return _coordinator_of(cluster, group_id, await cluster.call_on(connection, request))


def _coordinator_of(cluster: Cluster, group_id: str, found: Any) -> Answers[int]:
    if found.error_code:
        return Answers(failed={group_id: refused_for(cluster, found.error_code, "FindCoordinator", group_id)})
    return Answers(found={group_id: found.node_id})


async def in_chunks(
    connection: Connection,
    group_ids: Sequence[str],
    ask: Callable[[Connection, list[str]], Awaitable[Answers[T]]],
    *,
    size: int = GROUPS_PER_REQUEST,
) -> Answers[T]:
    """Ask for some groups at a time, several requests in flight; an error of a request concerns its groups only."""
    room = asyncio.Semaphore(IN_FLIGHT)

    async def ask_chunk(chunk: list[str]) -> Answers[T]:
        async with room:
            try:
                answers = await ask(connection, chunk)
            except HeliographError as error:
                return Answers(failed=dict.fromkeys(chunk, error))
        if answers.found.keys() | answers.failed.keys() != set(chunk):
            odd = ProtocolError("an answer has other groups than the request", where=connection.where)
            return Answers(failed=dict.fromkeys(chunk, odd))
        return answers

    chunks = [list(group_ids[start : start + size]) for start in range(0, len(group_ids), size)]
    return merged_answers(await asyncio.gather(*map(ask_chunk, chunks)))


def merged_answers(parts: Iterable[Answers[T]]) -> Answers[T]:
    """Merge answers; for a group that is in several the last counts."""
    merged: Answers[T] = Answers()
    for part in parts:
        for group_id in merged.failed.keys() & part.found.keys():
            del merged.failed[group_id]
        for group_id in merged.found.keys() & part.failed.keys():
            del merged.found[group_id]
        merged.found.update(part.found)
        merged.failed.update(part.failed)
    return merged


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    grouped: dict[K, list[V]] = {}
    for key, value in pairs:
        grouped.setdefault(key, []).append(value)
    return grouped


def _may_pass(error: HeliographError) -> bool:
    return isinstance(error, Unreachable) or error.details.get("error_code") in NO_COORDINATOR


async def tries() -> AsyncIterator[None]:
    """Yield now, and again after growing pauses until time is up."""
    loop = asyncio.get_running_loop()
    give_up = loop.time() + RETRY_FOR_S
    pause = 0.05
    yield
    while loop.time() <= give_up:
        await asyncio.sleep(pause)
        pause = min(pause * 2, 1.0)
        yield


def refused_for(
    cluster: Cluster, code: int, what: str, group_id: str, *, message: str | None = None
) -> BrokerRefused | NotAuthorized:
    return refused(code, f'{what} for group "{group_id}"', where=f'"{cluster.alias}"', message=message)
