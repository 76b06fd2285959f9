"""Kills, stops and starts brokers of a detached lab from another process, through the keeper's control socket."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from heliograph.errors import LabError
from heliograph.lab.folder import BrokerRecord, LabFolder, LabRecord, read_lab
from heliograph.lab.keeper import CONTROL_SOCKET, short_path
from heliograph.lab.keeper_client import running_process
from heliograph.lab.probe import fetch_broker_ids

_ANSWER_TIMEOUT_S = 10.0
_STOP_TIMEOUT_S = 30.0
_START_TIMEOUT_S = 120.0


class Act(StrEnum):
    KILL = "kill"
    """Like a power cut: SIGKILL."""
    STOP = "stop"
    """A clean shutdown."""
    START = "start"
    """Starts a broker again, on the old port and data."""


def change_brokers(path: Path | str, act: Act, which: str) -> list[BrokerRecord]:
    """Applies the action to `CLUSTER` or `CLUSTER:BROKER`, waits until it is done, and returns these brokers."""
    folder, record = LabFolder(path), read_lab(path)
    chosen = choose_brokers(record, which)
    if act is Act.START:
        idle = [broker for broker in chosen if not _is_alive(broker)]
        if not idle:
            raise LabError(f'"{which}" runs already', where=str(folder.path))
        return _start(folder, record, idle)
    running = [broker for broker in chosen if _is_alive(broker)]
    if not running:
        raise LabError(f'"{which}" is not running', where=str(folder.path), remedy=f'"heliograph lab start {which}"')
    _end(folder, running, signal.SIGKILL if act is Act.KILL else signal.SIGTERM)
    ended = [replace(broker, process=None) for broker in running]
    _keep(folder, record, ended)
    return ended


def choose_brokers(record: LabRecord, which: str) -> list[BrokerRecord]:
    """Returns the brokers of a cluster, or the one that is named with its number."""
    alias, colon, number = which.partition(":")
    found = [broker for broker in record.brokers if broker.alias == alias]
    if not found:
        known = ", ".join(dict.fromkeys(broker.alias for broker in record.brokers))
        raise LabError(f'the lab has no cluster "{alias}"', why=f"it has {known}")
    if colon:
        found = [broker for broker in found if str(broker.broker) == number]
    if not found:
        raise LabError(f'"{alias}" has no broker "{number}"', remedy='"heliograph lab status" lists them')
    return found


def _is_alive(broker: BrokerRecord) -> bool:
    return broker.process is not None and broker.process.is_alive


def _name(broker: BrokerRecord) -> str:
    return f"{broker.alias}-{broker.broker}"


def _end(folder: LabFolder, brokers: Sequence[BrokerRecord], number: signal.Signals) -> None:
    for broker in brokers:
        _ask(folder, "signal", name=_name(broker), signal=int(number))
    if _wait(lambda: not any(map(_is_alive, brokers)), _STOP_TIMEOUT_S, folder):
        return
    # Brokers that are their own controllers wait for each other at the end.
    for broker in filter(_is_alive, brokers):
        _ask(folder, "signal", name=_name(broker), signal=int(signal.SIGKILL))
    if not _wait(lambda: not any(map(_is_alive, brokers)), _STOP_TIMEOUT_S, folder):
        raise LabError(f"{', '.join(map(_name, brokers))}: still running", where=str(folder.path))


def _start(folder: LabFolder, record: LabRecord, brokers: Sequence[BrokerRecord]) -> list[BrokerRecord]:
    started = [
        replace(broker, process=running_process(_ask(folder, "restart", name=_name(broker))["pid"]))
        for broker in brokers
    ]
    _keep(folder, record, started)
    if not _wait(
        lambda: all(fetch_broker_ids(broker.port) is not None for broker in started), _START_TIMEOUT_S, folder
    ):
        raise LabError(
            f"{', '.join(map(_name, started))}: no answer after {_START_TIMEOUT_S:.0f} s",
            where=str(folder.logs),
            remedy="read the logs; a cluster needs most of its brokers to answer",
        )
    return started


def _wait(is_done: Callable[[], bool], timeout_s: float, folder: LabFolder) -> bool:
    deadline = time.monotonic() + timeout_s
    while not is_done():
        if time.monotonic() > deadline:
            return False
        _ask(folder, "poll")  # the keeper takes note of children that have ended
        time.sleep(0.1)
    return True


def _keep(folder: LabFolder, record: LabRecord, changed: Sequence[BrokerRecord]) -> None:
    by_name = {_name(broker): broker for broker in changed}
    brokers = tuple(by_name.get(_name(broker), broker) for broker in record.brokers)
    folder.write_record(replace(record, brokers=brokers))


def _ask(folder: LabFolder, action: str, **arguments: Any) -> dict[str, Any]:
    """Sends one request through the keeper's control socket."""
    request = json.dumps({"id": 0, "do": action, **arguments}).encode() + b"\n"
    directory = -1
    try:
        directory = os.open(folder.data, os.O_RDONLY)
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as control:
            control.settimeout(_ANSWER_TIMEOUT_S)
            control.connect(short_path(directory, folder.data / CONTROL_SOCKET))
            control.sendall(request)
            with control.makefile("rb") as answer:
                reply: dict[str, Any] = json.loads(answer.readline())
    except (OSError, ValueError) as error:
        raise LabError(
            "the lab's keeper does not answer", where=str(folder.path), why=str(error), remedy="start the lab again"
        ) from error
    finally:
        if directory >= 0:
            os.close(directory)
    if "error" in reply:
        raise LabError(f'the lab\'s keeper could not do "{action}"', why=reply["error"])
    return reply
