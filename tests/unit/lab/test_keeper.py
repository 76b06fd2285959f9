from __future__ import annotations

import socket
from pathlib import Path

from heliograph.lab.keeper import Keeper, Ports


def test_ports_are_free_distinct_and_local(tmp_path: Path) -> None:
    ports = Ports(tmp_path / "ports.lock").take(20)
    assert len(set(ports)) == 20
    with socket.socket() as server:
        server.bind(("127.0.0.1", ports[0]))


def test_a_failed_request_is_an_answer(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, Ports(tmp_path / "ports.lock"))
    answer = keeper.answer({"id": 7, "do": "signal", "name": "nobody", "signal": 15})
    assert answer["id"] == 7
    assert "nobody" in answer["error"]
    assert "error" in keeper.answer({"id": 8, "do": "nonsense"})


def test_end_removes_the_data(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    keeper = Keeper(data, Ports(tmp_path / "ports.lock"))
    assert keeper.answer({"id": 1, "do": "end", "grace_s": 0}) == {"id": 1}
    assert keeper.ended
    assert not data.exists()
