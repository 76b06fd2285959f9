"""Brokers of a detached lab, ended and started again; here they are processes that sleep."""

from __future__ import annotations

import os
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliograph.config import inspect_file
from heliograph.errors import LabError
from heliograph.lab import broker_control
from heliograph.lab.broker_control import Act, change_brokers, choose_brokers
from heliograph.lab.folder import BrokerRecord, LabFolder, LabRecord, read_lab, stop_lab
from heliograph.lab.jars import JavaCommand
from heliograph.lab.keeper import CONTROL_SOCKET
from heliograph.lab.keeper_client import KeeperClient
from heliograph.lab.starter_files import next_commands, write_ready_files

SLEEPER = JavaCommand([sys.executable, "-c", "import time; time.sleep(600)"], {})
DEEP = "x" * 60


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LabFolder]:
    """A lab that was left running, in a folder whose path is too long for a socket's."""
    monkeypatch.setattr(broker_control, "fetch_broker_ids", lambda _port: frozenset({1}))
    found = LabFolder(tmp_path / DEEP / DEEP)
    keeper = KeeperClient(found)
    brokers = []
    for alias, number in (("a", 1), ("a", 2), ("b", 1)):
        name = f"{alias}-{number}"
        process = keeper.start(name, SLEEPER, cwd=tmp_path, log=found.logs / f"{name}.log")
        brokers.append(BrokerRecord(alias=alias, broker=number, port=1, version="4.3.1", process=process))
    found.write_record(LabRecord(keeper=keeper.process, brokers=tuple(brokers)))
    keeper.detach()
    yield found
    stop_lab(found.path)
    keeper._process.wait()


def alive(folder: LabFolder) -> list[str]:
    brokers = read_lab(folder.path).brokers
    return [f"{one.alias}:{one.broker}" for one in brokers if one.process is not None and one.process.is_alive]


def test_one_broker_is_killed_and_started_again(folder: LabFolder) -> None:
    [before] = [broker for broker in read_lab(folder.path).brokers if (broker.alias, broker.broker) == ("a", 2)]
    change_brokers(folder.path, Act.KILL, "a:2")
    assert alive(folder) == ["a:1", "b:1"]
    [again] = change_brokers(folder.path, Act.START, "a:2")
    assert alive(folder) == ["a:1", "a:2", "b:1"]
    assert again.process != before.process


@pytest.mark.parametrize("act", [Act.KILL, Act.STOP])
def test_a_whole_cluster_is_ended_and_started_again(folder: LabFolder, act: Act) -> None:
    change_brokers(folder.path, act, "a")
    assert alive(folder) == ["b:1"]
    with pytest.raises(LabError, match='"a" is not running'):
        change_brokers(folder.path, act, "a")
    assert len(change_brokers(folder.path, Act.START, "a")) == 2
    with pytest.raises(LabError, match='"a" runs already'):
        change_brokers(folder.path, Act.START, "a")
    assert alive(folder) == ["a:1", "a:2", "b:1"]


def test_a_broker_that_died_by_itself_is_started(folder: LabFolder) -> None:
    [broker] = choose_brokers(read_lab(folder.path), "b")
    assert broker.process is not None
    os.kill(broker.process.pid, signal.SIGKILL)
    while broker.process.is_alive:
        pass
    assert [found.alias for found in change_brokers(folder.path, Act.START, "b")] == ["b"]


def test_unknown_names_are_refused_with_those_there_are(folder: LabFolder) -> None:
    with pytest.raises(LabError, match='no cluster "c"; it has a, b'):
        change_brokers(folder.path, Act.KILL, "c")
    for which in ("a:3", "a:", "a:x"):
        with pytest.raises(LabError, match='"a" has no broker'):
            change_brokers(folder.path, Act.KILL, which)


def test_the_door_is_for_its_owner_and_for_few_requests(folder: LabFolder) -> None:
    mode = (folder.data / CONTROL_SOCKET).stat().st_mode
    assert stat.S_IMODE(mode) & 0o077 == 0
    for action in ("start", "end", "ports", "nonsense"):
        with pytest.raises(LabError):
            broker_control._ask(folder, action)
    assert len(alive(folder)) == 3


class _Spec:
    brokers = 1


class _Cluster:
    secured = None
    spec = _Spec()

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self.bootstrap = f"127.0.0.1:{9000 + ord(alias)}"


def test_a_plain_lab_leaves_a_configuration_that_is_valid(tmp_path: Path) -> None:
    clusters = [_Cluster("p"), _Cluster("q")]
    shown = write_ready_files(tmp_path, clusters, None)  # type: ignore[arg-type]
    assert shown == {"p.bootstrap.servers": "127.0.0.1:9112", "q.bootstrap.servers": "127.0.0.1:9113"}
    loaded = inspect_file(tmp_path / "mm2.properties")
    assert loaded.findings == ()
    assert loaded.settings is not None
    assert [flow.name for flow in loaded.settings.enabled_flows] == ["p->q"]


def test_three_commands_are_offered_for_a_lab_with_a_mirror() -> None:
    run, status, kill = next_commands(Path(".lab"), ["p", "q"])
    assert run.startswith("heliograph run .lab/mm2.properties ")
    assert status.startswith("heliograph status .lab/mm2.properties ")
    assert kill.startswith("heliograph lab kill p ")
    assert "lab kill p --folder else" in next_commands(Path("else"), ["p", "q"])[2]
    assert next_commands(Path(".lab"), ["p"]) == []
