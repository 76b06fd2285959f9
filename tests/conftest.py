"""What all tests share: real clusters, started when first asked for, once per pytest process.

    primary, backup   one broker each, 4.3.1, started together
    north, south      the same, secured
    trio              three brokers, 4.3.1, with racks, secured, reached through its proxy too
    mid, mid_too      one broker each, 3.9.1
    old               one broker, 2.4.1, with ZooKeeper

Each is a `heliograph.lab.LabCluster`. A broker that a test stopped or killed is started again after the test.
Topics are the test's own affair: use names of your own. After a module its topics are deleted, and so are the clusters
that it started for itself: what it leaves, under names that others use too, is in nobody's way.

`pytest -n 3 --dist loadfile --no-loadscope-reorder` shares the files of tests out to three processes, each with
clusters and folders of its own. All files of a run are in build/ of the checkout. When a process ends, all that its
tests have left is searched for the secrets they used. Logs of a failed run are copied to artifacts/.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from heliograph.lab import Authority, ClusterSpec, Lab, LabCluster
from tests.cluster.mirror import ALL_ON_SPARK, delete_topics, topics
from tests.evidence import Evidence
from tests.longreport import LongReport
from tests.slowest import LONGEST_FIRST, SLOW_UNIT_TESTS, Slowest

hypothesis.settings.register_profile("shared", deadline=None)  # machines are shared, and speed is no test's affair
hypothesis.settings.register_profile("fast", deadline=None, max_examples=20)  # of `make test-fast`
hypothesis.settings.load_profile("shared")

SHARED = frozenset({"primary", "backup", "trio", "old", "mid", "mid-too", "north", "south"})
CHECKOUT = Path(__file__).parent.parent
ARTIFACTS = CHECKOUT / "artifacts"
BUILD = CHECKOUT / "build"
_TEMPORARY = "PYTEST_DEBUG_TEMPROOT"
"""pytest's own name for the folder that it makes its temporary folders in."""
_WORKER = "PYTEST_XDIST_WORKER"
"""Set in a process that runs a share of the tests."""
_LAB = pytest.StashKey[Lab]()
_EVIDENCE = pytest.StashKey[Evidence]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="a skipped test makes the run fail")
    parser.addoption("--spark", action="store_true", help="every mirror has its lanes on Spark")
    parser.addoption("--report", type=Path, metavar="FOLDER", help="write a JSON report of the run to this folder")
    slowest = BUILD / "slowest-tests.txt"
    parser.addoption("--slowest", type=Path, metavar="FILE", default=slowest, help="keep the slowest tests here")


def pytest_configure(config: pytest.Config) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what is started in the background ignores it
    if config.getoption("--spark"):
        os.environ[ALL_ON_SPARK] = "1"
    if _TEMPORARY not in os.environ:
        (BUILD / "tmp").mkdir(parents=True, exist_ok=True)
        os.environ[_TEMPORARY] = str(BUILD / "tmp")
    config.stash[_EVIDENCE] = Evidence()
    config.pluginmanager.register(config.stash[_EVIDENCE])
    if _WORKER in os.environ:
        return  # who shares the tests out makes the reports
    config.pluginmanager.register(Slowest(config.getoption("--slowest")))
    folder = config.getoption("--report")
    if folder is not None:
        config.pluginmanager.register(LongReport(folder))


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.name.partition("[")[0] in SLOW_UNIT_TESTS:
        item.add_marker("slow")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first. Whatever order the others have, the tests of a story (`in_order`) keep theirs."""
    ranks = {name: rank for rank, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.location[0], len(ranks)))
    stories: dict[str, list[int]] = {}
    for place, item in enumerate(items):
        if item.get_closest_marker("in_order"):
            stories.setdefault(item.location[0], []).append(place)
    for places in stories.values():
        told = sorted((items[place] for place in places), key=lambda item: item.location[1] or 0)
        for place, item in zip(places, told, strict=True):
            items[place] = item


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("--no-skips") and terminalreporter.stats.get("skipped"):
        terminalreporter.write_line("skipped tests count as failures here (--no-skips)", red=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped") if reporter else None
    if session.config.getoption("--no-skips") and skipped and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def run_seed(request: pytest.FixtureRequest) -> int:
    """Of all that a run draws: always the same in `make test`, another one each time elsewhere."""
    seed = request.config.getoption("randomly_seed", None)
    return seed if isinstance(seed, int) else random.SystemRandom().getrandbits(31)


@pytest.fixture(scope="session")
def evidence(request: pytest.FixtureRequest) -> Evidence:
    """What the run has left so far."""
    return request.config.stash[_EVIDENCE]


@pytest.fixture(scope="session", autouse=True)
def _temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests and their processes make somewhere is among the run's own files."""
    with pytest.MonkeyPatch.context() as patches:
        folder = tmp_path_factory.mktemp("tmp")
        patches.setenv("TMPDIR", str(folder))
        patches.setenv("SPARK_SUBMIT_OPTS", f"-Djava.io.tmpdir={folder}")
        patches.setattr(tempfile, "tempdir", None)
        yield


@pytest.fixture(scope="session")
def lab(request: pytest.FixtureRequest, evidence: Evidence, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The run's lab; a test may start further clusters in it. At its end no secret of it is seen anywhere."""
    with Lab(tmp_path_factory.mktemp("lab")) as lab:
        request.config.stash[_LAB] = lab
        yield lab
        if request.session.testsfailed:
            logs = ARTIFACTS / "lab-logs" / os.environ.get(_WORKER, "")
            shutil.copytree(lab.folder.logs, logs, dirs_exist_ok=True)
        assert evidence.find_leaks(tmp_path_factory.getbasetemp(), without=[lab.folder.data]) == []


@pytest.fixture(autouse=True)
def _brokers_back(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    lab = request.config.stash.get(_LAB, None)
    for cluster in lab.clusters if lab else ():
        for node in cluster.brokers:
            if node.node_id not in cluster.running_ids:
                cluster.start_broker(node.node_id)


@pytest.fixture(scope="module", autouse=True)
def _clean_clusters(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    lab = request.config.stash.get(_LAB, None)
    if lab is None:
        return
    evidence = request.config.stash[_EVIDENCE]
    for cluster in lab.clusters:
        if cluster.secured is not None:
            evidence.add_secrets({f"{cluster.alias}: {name}": text for name, text in cluster.secured.secrets().items()})
    lab.remove([cluster for cluster in lab.clusters if cluster.alias not in SHARED])
    for cluster in lab.clusters:
        delete_topics(cluster, topics(cluster))


@pytest.fixture(scope="session")
def pair(lab: Lab) -> tuple[LabCluster, LabCluster]:
    lab.start([ClusterSpec(alias="primary"), ClusterSpec(alias="backup")])
    return lab.cluster("primary"), lab.cluster("backup")


@pytest.fixture(scope="session")
def primary(pair: tuple[LabCluster, LabCluster]) -> LabCluster:
    return pair[0]


@pytest.fixture(scope="session")
def backup(pair: tuple[LabCluster, LabCluster]) -> LabCluster:
    return pair[1]


@pytest.fixture(scope="session")
def trio(lab: Lab) -> LabCluster:
    config = {
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "default.replication.factor": "2",
    }
    lab.start([ClusterSpec(alias="trio", brokers=3, racks=("a", "b", "c"), config=config, authority=Authority())])
    return lab.cluster("trio")


@pytest.fixture(scope="session")
def old(lab: Lab) -> LabCluster:
    lab.start([ClusterSpec(alias="old", version="2.4.1")])
    return lab.cluster("old")


@pytest.fixture(scope="session")
def mid(lab: Lab) -> LabCluster:
    lab.start([ClusterSpec(alias="mid", version="3.9.1")])
    return lab.cluster("mid")


@pytest.fixture(scope="session")
def mid_too(lab: Lab) -> LabCluster:
    lab.start([ClusterSpec(alias="mid-too", version="3.9.1")])
    return lab.cluster("mid-too")


@pytest.fixture(scope="session")
def secured(lab: Lab) -> tuple[LabCluster, LabCluster]:
    """Sessions end after 10 s, so that whoever stays longer has to log in again."""
    brief = {"connections.max.reauth.ms": "10000"}
    lab.start([ClusterSpec(alias=alias, authority=Authority(), config=brief) for alias in ("north", "south")])
    return lab.cluster("north"), lab.cluster("south")


@pytest.fixture(scope="session")
def north(secured: tuple[LabCluster, LabCluster]) -> LabCluster:
    return secured[0]


@pytest.fixture(scope="session")
def south(secured: tuple[LabCluster, LabCluster]) -> LabCluster:
    return secured[1]
