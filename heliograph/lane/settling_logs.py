"""Reads both logs of a partition for settling: the target's as it is, the source's as a copy would take it."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from heliograph.errors import HeliographError, LogTruncated, NotAuthorized
from heliograph.kafka.admin.topics import EARLIEST, end_offsets
from heliograph.kafka.batch import BatchHeader
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.connection import Allowance
from heliograph.kafka.error_codes import Code
from heliograph.kafka.isolation import visible_batches
from heliograph.kafka.log import READ_BYTES, SHOWN_S, fetch_partition, read_batches
from heliograph.ledger.model import Assignment

SOURCE_WAIT_MS = 200


class TargetLog:
    """Reads the batches of a target partition."""

    def __init__(
        self,
        cluster: Cluster,
        assignment: Assignment,
        *,
        max_bytes: int = READ_BYTES,
        allowance: Allowance | None = None,
    ) -> None:
        """`max_bytes` limits a fetch; `allowance` decides when a larger batch may be received."""
        self._cluster = cluster
        self._assignment = assignment
        self._max_bytes = max_bytes
        self._allowance = allowance
        self.is_forbidden = False
        """True if we may not read the topic: our batches there cannot be proved."""

    async def batches(self, start: int, end: int) -> AsyncGenerator[tuple[BatchHeader, memoryview], None]:
        where = self._assignment.target
        log_start = (await end_offsets(self._cluster, [where], timestamp=EARLIEST))[where]
        try:
            start = max(start, log_start)
            async for batch in read_batches(
                self._cluster, *where, start, end, max_bytes=self._max_bytes, allowance=self._allowance
            ):
                yield batch
        except NotAuthorized:
            self.is_forbidden = True
            raise


class SourceLog:
    """Reads the batches that a copy would take from the source."""

    def __init__(
        self,
        cluster: Cluster,
        assignment: Assignment,
        *,
        read_committed: bool,
        max_bytes: int = READ_BYTES,
        allowance: Allowance | None = None,
    ) -> None:
        """`max_bytes` and `allowance` are as in `TargetLog`."""
        self._cluster = cluster
        self._assignment = assignment
        self._read_committed = read_committed
        self._max_bytes = max_bytes
        self._allowance = allowance

    async def batches(self, start: int) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
        """Yield batches up to the log's end; a new leader may not show all at once, so wait for what was copied."""
        offset = start
        give_up = time.monotonic() + SHOWN_S
        while True:
            answer = await self._fetch(offset)
            before = offset
            for header, view in visible_batches(
                answer, offset, read_committed=self._read_committed, where=self._assignment.name
            ):
                yield header, view
                offset = header.next_offset
            if offset > before:
                give_up = time.monotonic() + SHOWN_S
            elif time.monotonic() > give_up:
                return
            else:
                await self._cluster.refresh([self._assignment.topic], elsewhere=True)

    async def _fetch(self, offset: int) -> Any:
        assignment = self._assignment
        try:
            return await fetch_partition(
                self._cluster,
                assignment.topic,
                assignment.partition,
                offset,
                max_bytes=self._max_bytes,
                max_wait_ms=SOURCE_WAIT_MS,
                read_committed=self._read_committed,
                allowance=self._allowance,
            )
        except HeliographError as error:
            if error.details.get("error_code") != Code.OFFSET_OUT_OF_RANGE:
                raise
            led = self._cluster.catalogue.leadership_of(*assignment.source)
            now = await self._cluster.refresh([assignment.topic], elsewhere=True)
            if now.leadership_of(*assignment.source) == led:
                raise LogTruncated(f"the source no longer has offset {offset}", where=assignment.name) from error
        return await self._fetch(offset)  # from the new leader
