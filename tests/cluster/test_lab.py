"""The lab itself: starts what it promises, and leaves nothing behind."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from heliograph.errors import LabError
from heliograph.lab import ClusterSpec, Lab, LabCluster
from heliograph.lab.probe import fetch_broker_ids

HELIOGRAPH = [sys.executable, "-c", "import sys; from heliograph.cli import main; sys.exit(main())"]
OWNER = """
import sys, time
from heliograph.lab import ClusterSpec, Lab

lab = Lab(sys.argv[1])
lab.start([ClusterSpec(alias="orphan")])
print("up", flush=True)
time.sleep(600)
"""


def wait_until(condition: Callable[[], bool], *, timeout_s: float = 15.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def processes_of(folder: Path) -> list[psutil.Process]:
    """Every process, other than this one, that names the folder on its command line."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        named = any(str(folder) in argument for argument in process.info["cmdline"] or ())
        if named and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def keeper_of(folder: Path) -> psutil.Process:
    return next(process for process in processes_of(folder) if "keeper.py" in " ".join(process.cmdline()))


def produce(cluster: LabCluster, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def consume(cluster: LabCluster, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(count, timeout=30)
        return [message.value() for message in messages]
    finally:
        consumer.close()


def create_topic(cluster: LabCluster, topic: str, *, replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, replicas)])[topic].result(30)


@contextmanager
def started(*command: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def heliograph(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*HELIOGRAPH, *arguments], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("name", ["primary", "mid", "old"])
def test_each_version_stores_and_returns_records(name: str, request: pytest.FixtureRequest) -> None:
    cluster: LabCluster = request.getfixturevalue(name)
    create_topic(cluster, "lab-versions")
    produce(cluster, "lab-versions", b"one", b"two")
    assert consume(cluster, "lab-versions", 2) == [b"one", b"two"]


def test_two_clusters_are_two(primary: LabCluster, backup: LabCluster) -> None:
    ids = {
        AdminClient({"bootstrap.servers": c.bootstrap}).list_topics(timeout=30).cluster_id for c in (primary, backup)
    }
    assert len(ids) == 2


def test_three_brokers_know_each_other(trio: LabCluster) -> None:
    for broker_id in (1, 2, 3):
        assert fetch_broker_ids(trio.port(broker_id)) == frozenset({1, 2, 3})
    create_topic(trio, "lab-three", replicas=3)


def test_restarted_broker_keeps_port_and_data(backup: LabCluster) -> None:
    bootstrap = backup.bootstrap
    create_topic(backup, "lab-restart")
    produce(backup, "lab-restart", b"before")
    backup.stop_broker(1)
    assert fetch_broker_ids(backup.port(1)) is None
    with pytest.raises(LabError, match="is not running"):
        backup.stop_broker(1)
    backup.start_broker(1)
    backup.kill_broker(1)
    assert backup.running_ids == frozenset()
    backup.start_broker(1)
    assert backup.bootstrap == bootstrap
    assert consume(backup, "lab-restart", 1) == [b"before"]


def test_kafka_tools_run_from_the_jars(lab: Lab, primary: LabCluster) -> None:
    command = lab.java("kafka.Kafka", "--version")
    answer = subprocess.run(command.argv, env=command.env, capture_output=True, text=True, timeout=60, check=True)
    assert answer.stdout.startswith("4.3.1")


def test_broker_that_cannot_start_shows_its_log(lab: Lab, primary: LabCluster) -> None:
    # The value passes the format step and is refused by the broker itself.
    broken = ClusterSpec(alias="broken", config={"authorizer.class.name": "no.such.Authorizer"})
    with pytest.raises(LabError) as caught:
        lab.start([broken])
    assert "no.such.Authorizer" in str(caught.value)
    assert "exit code" in str(caught.value)
    assert not (lab.folder.data / "broken-1").exists()
    assert (lab.folder.logs / "broken-1.log").is_file()
    assert fetch_broker_ids(primary.port(1)) == frozenset({1})


def test_alias_twice_is_refused(lab: Lab, primary: LabCluster) -> None:
    with pytest.raises(LabError, match='two clusters "primary"'):
        lab.start([ClusterSpec(alias="primary")])


def test_killed_owner_leaves_nothing(tmp_path: Path) -> None:
    with started(sys.executable, "-c", OWNER, str(tmp_path)) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "up\n"
        assert len(processes_of(tmp_path)) == 3  # owner, keeper, broker
        owner.kill()
        wait_until(lambda: not processes_of(tmp_path))
    assert not (tmp_path / "data").exists()
    assert (tmp_path / "logs" / "orphan-1.log").is_file()


def test_killed_keeper_takes_its_brokers_along(tmp_path: Path) -> None:
    with Lab(tmp_path) as lab:
        lab.start([ClusterSpec(alias="orphan")])
        keeper_of(tmp_path).kill()
        wait_until(lambda: not processes_of(tmp_path))
        with pytest.raises(LabError, match="keeper has ended"):
            lab.cluster("orphan").stop_broker(1)
    with Lab(tmp_path) as lab:
        lab.start([])
        assert list(lab.folder.data.iterdir()) == []


@pytest.mark.parametrize("moment", ["format", "broker"])
def test_interrupted_lab_up_leaves_nothing(moment: str, tmp_path: Path) -> None:
    main_class = {"format": "kafka.tools.StorageTool", "broker": "kafka.Kafka"}[moment]

    def has_come() -> bool:
        try:
            return any(main_class in process.cmdline() for process in processes_of(tmp_path))
        except psutil.NoSuchProcess:  # one that formats a folder ends while we look
            return False

    with started(*HELIOGRAPH, "lab", "up", "--cluster", "a:2", "--folder", str(tmp_path)) as command:
        wait_until(has_come)
        command.send_signal(signal.SIGINT)
        assert command.wait(15) == 130
        assert processes_of(tmp_path) == []
        assert "Traceback" not in command.communicate()[1]
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "lab.json").exists()


def test_lab_stays_up_between_commands_until_down(tmp_path: Path) -> None:
    folder = ("--folder", str(tmp_path))
    up = heliograph("lab", "up", "--cluster", "solo", *folder)
    assert up.returncode == 0, up.stderr
    try:
        assert up.stdout.startswith("solo.bootstrap.servers=127.0.0.1:")
        status = heliograph("lab", "status", "-o", "json", *folder)
        (row,) = json.loads(status.stdout)
        assert (row["alias"], row["broker"], row["state"], row["version"]) == ("solo", 1, "running", "4.3.1")

        assert heliograph("lab", "kill", "solo", *folder).stdout == "solo:1 killed\n"
        status = heliograph("lab", "status", "-o", "json", *folder)
        assert (status.returncode, json.loads(status.stdout)[0]["state"]) == (1, "stopped")
        started_again = heliograph("lab", "start", "solo:1", *folder)
        assert started_again.returncode == 0, started_again.stderr

        again = heliograph("lab", "up", *folder)
        assert again.returncode == 1
        assert "a lab runs in this folder already" in again.stderr
        assert "clusters solo" in again.stderr
        assert f"heliograph lab down --folder {tmp_path}" in again.stderr
    finally:
        down = heliograph("lab", "down", *folder)
    assert down.returncode == 0, down.stderr
    assert processes_of(tmp_path) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lab.lock", "logs"]
    assert heliograph("lab", "down", "--purge", *folder).returncode == 0
    assert not tmp_path.exists()


def test_secured_lab_leaves_files_to_begin_with_and_takes_them_away(tmp_path: Path) -> None:
    folder = ("--folder", str(tmp_path))
    up = heliograph("lab", "up", "--security", "scram", "--cluster", "a", "--cluster", "b", *folder)
    assert up.returncode == 0, up.stderr
    try:
        assert "a.security.protocol=SASL_SSL\n" in up.stdout
        secrets = (tmp_path / "data" / "a-security" / "client-secrets.properties").read_text()
        password = re.search(r'password=\\*"(\w+)', secrets)
        assert password
        assert password[1] not in up.stdout + up.stderr
        check = heliograph("check", str(tmp_path / "mm2.properties"))
        assert check.returncode == 0, check.stdout
        assert "0 errors, 0 warnings" in check.stdout
    finally:
        down = heliograph("lab", "down", *folder)
    assert down.returncode == 0, down.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lab.lock", "logs"]
