"""What the driver does beside the epochs, without clusters and without Spark."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.config import parse_settings
from heliograph.errors import HeliographError, NotAuthorized, Unreachable
from heliograph.mirror.driver import Driver

CONFIG = """\
clusters = a, b
a.bootstrap.servers = a:9092
b.bootstrap.servers = b:9092
a->b.enabled = true
"""


def driver() -> Driver:
    epochs: Any = SimpleNamespace(is_local=True, slots=1)
    return Driver(parse_settings(CONFIG), epochs, report=lambda _: None)


def test_topics_that_cannot_be_refreshed_are_told_once_and_so_is_the_end(caplog: pytest.LogCaptureFixture) -> None:
    outcomes: list[HeliographError | None] = [
        Unreachable("hung up", where="b"),
        Unreachable("no connection", where="b"),
        NotAuthorized("refused", where="b"),
        None,
        None,
        Unreachable("hung up", where="b"),
    ]

    async def scenario() -> None:
        finished = asyncio.Event()

        async def discover() -> bool:
            if not outcomes:
                finished.set()
                await asyncio.Event().wait()
            flow.changed.set()  # the next look is due at once
            if (error := outcomes.pop(0)) is not None:
                raise error
            return False

        settings = SimpleNamespace(refresh_topics_interval_s=60, refresh_topics_enabled=True, is_running=True)
        flow: Any = SimpleNamespace(
            name="a->b", flow=settings, is_complete=True, changed=asyncio.Event(), discover=discover
        )
        flow.changed.set()
        loop = asyncio.ensure_future(driver()._discover_loop(flow))
        await asyncio.wait_for(finished.wait(), 10)
        loop.cancel()

    with caplog.at_level(logging.INFO, "heliograph"):
        asyncio.run(scenario())
    assert [record.getMessage() for record in caplog.records] == [
        "a->b: topics not refreshed: UNREACHABLE: b: hung up; trying again",
        "a->b: topics not refreshed: NOT_AUTHORIZED: b: refused; trying again",
        "a->b: topics are refreshed again",
        "a->b: topics not refreshed: UNREACHABLE: b: hung up; trying again",
    ]
