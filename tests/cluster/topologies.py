"""The layouts that `test_topologies.py` and `test_topologies_apart.py` run, and what is asserted of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from heliograph.lab import LabCluster
from tests.cluster.consumers import commit, consumer, read
from tests.cluster.layouts import RECORDS, Laid, Layout, ResourceProcess
from tests.cluster.mirror import View, assert_equal, topics

NA, SA, EU = "northamerica", "southamerica", "europe"
LOOSEHANGER = {
    "LH.ORDERS": 3,
    "LH.CANCELLATIONS": 3,
    "LH.DOORS": 1,
    "LH.STOCK": 2,
    "LH.CUSTOMERS": 3,
    "LH.SENSORS": 2,
}
REGIONS = {NA: "primary", EU: "backup", SA: "mid"}


def storage(name: str = "") -> set[str]:
    return {f"__mm2_{name}{what}" for what in ("status", "offsets", "configs")}


def ledgers(*sources: str) -> set[str]:
    return {f"mm2-ledger.{source}.internal" for source in sources}


def syncs(*others: str) -> set[str]:
    """Named after the cluster that they are not on."""
    return {f"mm2-offset-syncs.{other}.internal" for other in others}


STORAGE = frozenset(f"mirrormaker2-cluster-{what}" for what in ("offsets", "configs", "status"))
"""Strimzi's, of files that give them no names."""

CENTRAL = Layout(
    title="fan-in, one mirror at the target",
    file="aggregate-central.yaml",
    places=REGIONS,
    own={NA: LOOSEHANGER, SA: LOOSEHANGER},
    copies={EU: {NA: "northamerica.{}", SA: "southamerica.{}"}},
    internal={
        NA: frozenset(syncs(EU)),
        SA: frozenset(syncs(EU)),
        EU: frozenset(storage() | ledgers(NA, SA)),
    },
)
DISTRIBUTED = Layout(
    title="fan-in, a mirror at each source",
    file="aggregate-distributed.yaml",
    places=REGIONS,
    own={NA: LOOSEHANGER, SA: LOOSEHANGER},
    copies={EU: {NA: "northamerica.{}", SA: "southamerica.{}"}},
    internal={
        NA: frozenset(syncs(EU)),
        SA: frozenset(syncs(EU)),
        EU: frozenset(storage("na_") | storage("sa_") | ledgers(NA, SA)),
    },
)
BROADCAST = Layout(
    title="fan-out under the same names",
    file="broadcast.yaml",
    places={EU: "primary", NA: "backup", SA: "mid"},
    own={EU: LOOSEHANGER},
    copies={NA: {EU: "{}"}, SA: {EU: "{}"}},
    internal={
        NA: frozenset(storage("na_") | syncs(EU) | ledgers(EU)),
        SA: frozenset(storage("sa_") | syncs(EU) | ledgers(EU)),
    },
)
MESH = Layout(
    title="full mesh of three",
    file="shared-aggregate.yaml",
    places=REGIONS,
    own={region: {"LH.ORDERS": 3} for region in REGIONS},
    copies={region: {other: f"{other}.{{}}" for other in REGIONS if other != region} for region in REGIONS},
    internal={
        NA: frozenset(storage("na_") | syncs(SA, EU) | ledgers(SA, EU)),
        SA: frozenset(storage("sa_") | syncs(NA, EU) | ledgers(NA, EU)),
        EU: frozenset(storage("eu_") | syncs(NA, SA) | ledgers(NA, SA)),
    },
)
PASSIVE = Layout(
    title="active and passive",
    file="active-passive.yaml",
    places={NA: "primary", EU: "backup"},
    own={NA: LOOSEHANGER},
    copies={EU: {NA: "{}"}},
    internal={EU: frozenset({"northamerica.checkpoints.internal"} | storage() | syncs(NA) | ledgers(NA))},
)
BOTH_WAYS = Layout(
    title="active and active",
    file="us-europe-active-active.yaml",
    places={"us": "primary", EU: "backup"},
    own={"us": {"my-mm2-topic": 3}, EU: {"my-mm2-topic": 3}},
    copies={"us": {EU: "europe.{}"}, EU: {"us": "us.{}"}},
    internal={
        "us": frozenset({"europe.checkpoints.internal", "europe.heartbeats"} | syncs(EU) | ledgers(EU)),
        EU: frozenset({"us.checkpoints.internal", "us.heartbeats"} | syncs("us") | ledgers("us")),
    },
    nameless={"us": STORAGE | {"heartbeats"}, EU: STORAGE | {"heartbeats"}},
    carries_heartbeats=True,
)
ONE_WAY = Layout(
    title="one way",
    file="event-streams-lab.yaml",
    places={"es-src": "primary", "es-tgt": "backup"},
    own={"es-src": {"products": 1, "orders": 2}},
    copies={"es-tgt": {"es-src": "es-src.{}"}},
    internal={"es-src": frozenset(syncs("es-tgt")), "es-tgt": frozenset(ledgers("es-src"))},
    nameless={"es-tgt": STORAGE},
)
CHAIN = Layout(
    title="chain",
    file="".join(
        f"""
kind: KafkaMirrorMaker2
apiVersion: kafka.strimzi.io/v1beta2
metadata: {{name: {source}-to-{target}}}
spec:
  connectCluster: {target}
  clusters: [{{alias: {source}, bootstrapServers: "x:1"}}, {{alias: {target}, bootstrapServers: "x:1"}}]
  mirrors: [{{sourceCluster: {source}, targetCluster: {target}, sourceConnector: {{}}}}]
---"""
        for source, target in ("ab", "bc")
    ).removesuffix("---"),
    places={"a": "primary", "b": "backup", "c": "mid"},
    own={"a": {"x": 2}, "b": {"y": 1}},
    copies={"b": {"a": "a.{}"}, "c": {"b": "b.{}", "a": "b.a.{}"}},
    internal={
        "a": frozenset(syncs("b")),
        "b": frozenset(syncs("c") | ledgers("a")),
        "c": frozenset(ledgers("b")),
    },
    nameless={"b": STORAGE, "c": STORAGE},
)


def title_of(layout: Layout) -> str:
    return layout.title.replace(" ", "-")


def lay_out(layouts: Sequence[Layout], clusters: Mapping[str, LabCluster]) -> dict[str, Laid]:
    """Layouts with their applications' records, by title; where groups are carried, with a group."""
    found = {layout.title: Laid(layout, clusters) for layout in layouts}
    for laid in found.values():
        laid.fill()
        for alias, own in laid.layout.own.items() if laid.layout.carries_groups else ():
            commit(laid.clusters[alias], laid.name("consumer-southamerica"), {(laid.topic(next(iter(own))), 0): 4})
    return found


@dataclass(frozen=True, slots=True)
class World:
    """Mirrors at work on layouts."""

    mirrors: Sequence[ResourceProcess]
    laid: Mapping[str, Laid]

    def wait_until(self, condition: Callable[[], object], *, what: str) -> None:
        def all_run_and() -> object:
            for mirror in self.mirrors:
                assert mirror.is_running, mirror.output
            return condition()

        self.mirrors[0].wait_until(all_run_and, 150, what=what)

    def assert_as_published(self, layout: Layout) -> None:
        """When all is copied and every flow has looked at topics once more, there is what should be and no more; nor is
        there anything on the clusters that is in no layout."""
        laid = self.laid[layout.title]
        self._wait_for_all(laid)
        laid.add_late()
        self._wait_for_all(laid)
        found = laid.records()
        for source, copy in laid.pairs():
            records = found[source.cluster.alias, source.topic]
            assert [len(partition) for partition in records] == [RECORDS] * len(records), "nothing came back"
            assert_equal(records, found[copy.cluster.alias, copy.topic])
        assert {alias: laid.topics(alias) for alias in laid.clusters} == {
            alias: laid.expected(alias) for alias in laid.clusters
        }
        assert self._strays() == set()

    def _strays(self) -> set[tuple[str, str]]:
        """Clusters and topics on them that are in no layout, by token or by name."""
        clusters = {cluster.alias: cluster for laid in self.laid.values() for cluster in laid.clusters.values()}
        tokens = [laid.token for laid in self.laid.values()]
        nameless = {
            (laid.clusters[alias].alias, name)
            for laid in self.laid.values()
            for alias, names in laid.layout.nameless.items()
            for name in names
        }
        found = {(alias, topic) for alias, cluster in clusters.items() for topic in topics(cluster)}
        return {place for place in found - nameless if not any(token in place[1] for token in tokens)}

    def assert_seen_once(self, layout: Layout, alias: str, topic: str, pattern: str) -> None:
        """A group that subscribes to a pattern reads every record of that topic, on whatever cluster, once."""
        laid = self.laid[layout.title]
        self._wait_copied([pair for pair in laid.pairs(alias) if pair[0].topic == laid.topic(topic)])
        partitions = layout.own[alias][topic]
        written = [
            f"{origin} {laid.topic(topic)} {partition} {number}"
            for origin in laid.clusters
            for partition in range(partitions)
            for number in range(RECORDS)
        ]
        reader = consumer(laid.clusters[alias], laid.name("reader"))
        try:
            reader.subscribe([pattern.format(token=laid.token)])
            seen = [message.value() or b"" for message in read(reader, len(written))]
            assert reader.poll(1.0) is None, "more than was written"
        finally:
            reader.close()
        assert Counter(value.decode() for value in seen) == Counter(written)

    def _wait_for_all(self, laid: Laid) -> None:
        def missing() -> dict[str, set[str]]:
            return {alias: laid.expected(alias) - laid.topics(alias) for alias in laid.clusters}

        try:
            self.wait_until(lambda: not any(missing().values()), what="every topic")
        except AssertionError as error:
            raise AssertionError(f"{missing()} are missing: {error}") from None
        self._wait_copied(laid.pairs())

    def _wait_copied(self, pairs: Sequence[tuple[View, View]]) -> None:
        def waiting() -> list[str]:
            return [copy.topic for source, copy in pairs if source.counts() != copy.counts()]

        self.wait_until(lambda: not waiting(), what=f"the copy of {[copy.topic for _, copy in pairs]}")
