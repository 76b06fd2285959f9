"""Published layouts of clusters and mirrors, on the tests' own clusters.

The resources are those of `tests/published_configs`, changed in what the clusters at hand ask for (addresses, logins,
replicas, intervals) and in their names: every alias, storage topic, group and topic gets a token, so that layouts share
clusters and processes. `Laid.topics` takes the token away again: a test compares with the names as published. Topics
whose names are the same in every file have no token, and belong to all layouts that have them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic

from heliograph.lab import LabCluster
from tests.cluster.mirror import MirrorProcess, Record, View, admin, partition_count, producer, record_of, topics
from tests.unit.helpers.published import CONFIGS

Document = dict[str, Any]
RECORDS = 10
"""In every partition."""
_SECONDS = frozenset(
    f"{what}.interval.seconds"
    for what in ("refresh.topics", "refresh.groups", "emit.checkpoints", "sync.group.offsets")
)
_STORAGE = {
    "offset.storage.partitions": 2,  # MM2's 25 and 5, of fourteen flows, keep a broker busy
    "status.storage.partitions": 1,
    **{f"{what}.storage.replication.factor": 1 for what in ("offset", "config", "status")},
}
_NAMES = frozenset({"offset.storage.topic", "config.storage.topic", "status.storage.topic", "group.id"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What a file is to make of clusters; all names are as published."""

    title: str
    file: str
    """A published one, or the text of a resource."""
    places: Mapping[str, str]
    """By alias: which of the tests' clusters it is."""
    own: Mapping[str, Mapping[str, int]]
    """The topics that applications write on each cluster, and their partitions."""
    copies: Mapping[str, Mapping[str, str]]
    """On each cluster, from which others their own topics come, and what they are called there: `northamerica.{}`."""
    internal: Mapping[str, frozenset[str]]
    """What else is on each cluster in the end, with an alias or a name of the file's own in its name."""
    nameless: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """And what has neither, so that it is the same in every layout."""
    carries_heartbeats: bool = False

    @property
    def carries_groups(self) -> bool:
        return any(name.endswith(".checkpoints.internal") for names in self.internal.values() for name in names)


class Laid:
    """A layout under names of its own."""

    def __init__(self, layout: Layout, clusters: Mapping[str, LabCluster]) -> None:
        self.layout = layout
        self.token = uuid.uuid4().hex[:8]
        self.clusters = {alias: clusters[place] for alias, place in layout.places.items()}
        self._late = 0
        self._own = {alias: dict(layout.own.get(alias, {})) for alias in layout.places}
        text = (CONFIGS / layout.file).read_text() if layout.file.endswith(".yaml") else layout.file
        self.documents = [self._adapted(document) for document in yaml.safe_load_all(text)]
        """One for each mirror of the published file."""

    # -- names

    def name(self, published: str) -> str:
        """An alias, group or internal topic as it is called here."""
        return f"{published}-{self.token}"

    def topic(self, published: str) -> str:
        """`LH.ORDERS` is `LH-token.ORDERS` here: patterns name what is before the dot."""
        first, dot, rest = published.partition(".")
        return f"{self.name(first)}{dot}{rest}"

    def remote(self, style: str, published: str) -> str:
        """Of a copy: the aliases in front, and the topic."""
        aliases = style.split(".")[:-1]
        return ".".join([*map(self.name, aliases), self.topic(published)])

    @property
    def flows(self) -> set[str]:
        mirrors = [mirror for document in self.documents for mirror in document["spec"]["mirrors"]]
        return {f"{mirror['sourceCluster']}->{mirror['targetCluster']}" for mirror in mirrors}

    # -- the file

    def _adapted(self, document: Document) -> Document:
        spec = document["spec"]
        for cluster in spec["clusters"]:
            self._adapt_cluster(cluster, stores=cluster["alias"] == spec["connectCluster"])
        spec["connectCluster"] = self.name(spec["connectCluster"])
        for mirror in spec["mirrors"]:
            self._adapt_mirror(mirror)
        return document

    def _adapt_cluster(self, cluster: Document, *, stores: bool) -> None:
        alias = cluster["alias"]
        place = self.clusters[alias]
        # A cluster has a name in each layout, and names under localhost are all this machine.
        host = f"{self.name(alias)}.localhost"
        cluster |= {"alias": self.name(alias), "bootstrapServers": f"{host}:{place.port(place.brokers[0].node_id)}"}
        for key in ("authentication", "tls"):
            cluster.pop(key, None)
        cluster["config"] = {**self._config(cluster.get("config", {})), **(_STORAGE if stores else {})}

    def _adapt_mirror(self, mirror: Document) -> None:
        for key in ("sourceCluster", "targetCluster"):
            mirror[key] = self.name(mirror[key])
        prefix = mirror.get("topicsPattern", ".*").removesuffix(".*") or ".*"
        mirror["topicsPattern"] = f"{prefix}-{self.token}.*"
        if "groupsPattern" in mirror:
            mirror["groupsPattern"] = f"{mirror['groupsPattern']}-{self.token}"
        for connector in ("sourceConnector", "checkpointConnector", "heartbeatConnector"):
            if connector in mirror:
                mirror[connector]["config"] = self._config(mirror[connector].get("config", {}))
        mirror["sourceConnector"]["config"] |= {
            "heartbeats.replication.enabled": self.layout.carries_heartbeats,
            "offset-syncs.topic.replication.factor": 1,
            "refresh.topics.interval.seconds": 1,
            "replication.factor": 1,
        }

    def _config(self, config: Mapping[str, Any]) -> Document:
        adapted: Document = {}
        for key, value in config.items():
            if key in _NAMES:
                adapted[key] = self.name(value)
            elif key.endswith("replication.factor") or key in _SECONDS:
                adapted[key] = 1
            elif not key.startswith("ssl."):
                adapted[key] = value
        return adapted

    # -- what applications write

    def fill(self) -> None:
        """Make every cluster's own topics, with records that say where they are from."""
        for alias, own in self._own.items():
            if own:
                _write(self.clusters[alias], {self.topic(name): partitions for name, partitions in own.items()}, alias)

    def add_late(self) -> None:
        """One more topic wherever there are some: its copies show that all flows have looked at topics once more."""
        self._late += 1
        for alias, own in self._own.items():
            if own:
                name = f"LH.LATE{self._late}"
                _write(self.clusters[alias], {self.topic(name): 1}, alias)
                own[name] = 1

    # -- what is found

    def topics(self, alias: str) -> set[str]:
        """All topics of this layout on a cluster, as published."""
        found = topics(self.clusters[alias])
        own = {topic.replace(f"-{self.token}", "") for topic in found if self.token in topic}
        return own | (found & self._nameless(alias))

    def _nameless(self, alias: str) -> frozenset[str]:
        return self.layout.nameless.get(alias, frozenset())

    def expected(self, alias: str) -> set[str]:
        copied = {
            style.format(topic)
            for source, style in self.layout.copies.get(alias, {}).items()
            for topic in self._own[source]
        }
        return {*self._own[alias], *copied, *self.layout.internal.get(alias, ()), *self._nameless(alias)}

    def pairs(self, alias: str | None = None) -> list[tuple[View, View]]:
        """Every topic and its copy, or those that are on one cluster."""
        return [
            (View(self.clusters[source], self.topic(topic)), View(self.clusters[target], self.remote(style, topic)))
            for target, sources in self.layout.copies.items()
            if alias in (None, target)
            for source, style in sources.items()
            for topic in self._own[source]
        ]

    def records(self) -> dict[tuple[str, str], list[list[Record]]]:
        """Of every topic and copy, by cluster and name."""
        places = {(view.cluster.alias, view.topic) for pair in self.pairs() for view in pair}
        return {
            (cluster.alias, topic): records
            for cluster in self.clusters.values()
            for topic, records in _read(cluster, [topic for alias, topic in places if alias == cluster.alias]).items()
        }


def _write(cluster: LabCluster, partitions: Mapping[str, int], origin: str) -> None:
    """Create topics together, and write `RECORDS` to every partition."""
    created = admin(cluster).create_topics([NewTopic(name, count, 1) for name, count in partitions.items()])
    for future in created.values():
        future.result(30)
    sender = producer(cluster)
    for name, count in partitions.items():
        for partition in range(count):
            for number in range(RECORDS):
                value = f"{origin} {name} {partition} {number}".encode()
                sender.produce(name, value, str(number).encode(), partition)
    assert sender.flush(60) == 0


def _read(cluster: LabCluster, names: Iterable[str]) -> dict[str, list[list[Record]]]:
    """All records of some topics, by one consumer."""
    found: dict[str, list[list[Record]]] = {name: [[] for _ in range(partition_count(cluster, name))] for name in names}
    places = [(name, partition) for name, parts in found.items() for partition in range(len(parts))]
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            "log_level": 0,
        }
    )
    waiting = set(places)
    try:
        consumer.assign([TopicPartition(name, partition, OFFSET_BEGINNING) for name, partition in places])
        deadline = time.monotonic() + 60
        while waiting:
            assert time.monotonic() < deadline, f"{waiting} were not read to their end"
            for message in consumer.consume(1000, timeout=0.2):
                error, name, partition = message.error(), str(message.topic()), message.partition()
                assert partition is not None
                if error is None:
                    found[name][partition].append(record_of(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    waiting.discard((name, partition))
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return found


class ResourceProcess(MirrorProcess):
    """`heliograph run` on a file of resources."""

    def __init__(self, folder: Path, documents: Sequence[Document], *, arguments: Sequence[str] = ()) -> None:
        super().__init__(folder, {}, {}, arguments=("--conf", "spark.heliograph.warmUpJobs=1", *arguments))
        self.config = self.folder / "mm2.yaml"
        self.config.write_text(yaml.safe_dump_all(documents))
