"""What keeps a flow from being mirrored, found on the clusters before anything is made there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any
from uuid import UUID

import pytest

from heliograph.config.load import parse_settings
from heliograph.config.settings import Settings
from heliograph.errors import ConfigError
from heliograph.flow import start_checks
from heliograph.flow.required_topics import internal_topics
from heliograph.kafka.batch import NewRecord
from heliograph.kafka.catalogue import Catalogue, TopicMeta
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.types import BrokerAddress
from heliograph.ledger.records.entry import encode_entry, encode_entry_key
from heliograph.ledger.records.lease import Lease, LeaseState, Process
from heliograph.ledger.records.producer_claim import ProducerClaim
from tests.fake_cluster import FETCH, Call, FakeCluster
from tests.unit.helpers.logs import ENTRY

IDENTITY = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"
MARKS = "provenance.headers = true\n"
LEDGER, GROUP = "mm2-ledger.other.internal", "other-mm2"


def settings_of(more: str = IDENTITY) -> Settings:
    return parse_settings(
        "clusters = a, b\na.bootstrap.servers = a:9092\nb.bootstrap.servers = b:9092\na->b.enabled = true\n" + more
    )


def known(cluster_id: str) -> Catalogue:
    return Catalogue(cluster_id=cluster_id, brokers={})


def test_source_and_target_with_one_cluster_id_are_refused() -> None:
    [flow] = settings_of().flows
    with pytest.raises(ConfigError, match=r'"a" and "b" are the same cluster \(x\)'):
        start_checks.refuse_one_cluster(flow, known("x"), known("x"))
    start_checks.refuse_one_cluster(flow, known("x"), known("y"))
    start_checks.refuse_one_cluster(flow, known(""), known(""))


def test_too_few_brokers_for_new_copies_end_a_first_start_and_not_one_while_brokers_are_down() -> None:
    [flow] = settings_of("replication.factor = 2\noffset.storage.replication.factor = 1\n").flows
    internal = [topic.name for topic in internal_topics(flow)]
    for copies, is_refused in (([], True), (["a.begun"], False)):
        topics = {name: TopicMeta(name, UUID(int=1), ()) for name in (*internal, *copies)}
        target = Catalogue(cluster_id="c", brokers={1: BrokerAddress("b", 9092)}, topics=topics)
        with pytest.raises(ConfigError, match="1 broker, too few") if is_refused else contextlib.nullcontext():
            start_checks.refuse_too_many_replicas(flow, target, ["a.begun", "a.new"])


def test_marks_want_clusters_with_an_id() -> None:
    for more, ids, is_refused in (
        (MARKS, ("x", ""), True),
        (MARKS, ("", "y"), True),
        (MARKS, ("x", "y"), False),
        ("", ("", ""), False),
    ):
        [flow] = settings_of(more).flows
        if is_refused:
            with pytest.raises(ConfigError, match="tells no cluster id"):
                start_checks.refuse_nameless(flow, *map(known, ids))
        else:
            start_checks.refuse_nameless(flow, *map(known, ids))


class Other:
    """The ledger on the source of a flow from cluster-b to cluster-a, led by another process."""

    def __init__(self, topic_id: UUID, **changes: Any) -> None:
        self.is_led = changes.pop("is_led", True)
        self.age_ms = changes.pop("age_ms", 1_000)
        self.claim = {"source_cluster_id": "cluster-b", "target_cluster_id": "cluster-a", **changes.pop("claim", {})}
        self.topic = changes.pop("topic", "t")
        self.entry = ENTRY.moved(**{"target_topic_id": topic_id.hex, "rule": "all", **changes})

    def records(self) -> list[NewRecord]:
        lease = Lease(
            holder=Process(owner="o", host="h", pid=1),
            term=1,
            state=LeaseState.HELD if self.is_led else LeaseState.RELEASED,
            since_ms=0,
            time_ms=int(time.time() * 1000) - self.age_ms,
            lease_ms=6000,
        )
        pairs = (
            ProducerClaim(token="x", producer_id=1, **self.claim).encode(GROUP),
            lease.encode(GROUP),
            (encode_entry_key(GROUP, self.topic, 0), encode_entry(self.entry)),
        )
        return [NewRecord(0, key, value) for key, value in pairs]


async def look(more: str = IDENTITY, *, forbid: bool = False, **changes: Any) -> None:
    """Look for a way back, with such a ledger on the source."""

    async def refuse(call: Call) -> Any:
        response = await call.proceed()
        for topic in response.responses:
            topic.partitions[0].error_code = 29
        return response

    async with FakeCluster("a", topics={"t": 1, "u": 1, LEDGER: 1}) as fake:
        other = Other(fake.topics[changes.pop("copy", "t")].topic_id, **changes)
        fake.append(LEDGER, 0, other.records())
        if forbid:
            fake.control(FETCH, refuse)
        source = Cluster("a", fake.bootstrap, client_id="test")
        try:
            await source.refresh()
            settings = settings_of(more)
            await start_checks.refuse_way_back(settings.flows[0], settings, source, known("cluster-b"))
        finally:
            source.close()


def test_another_process_that_copies_the_same_topics_back_is_found_by_its_ledger() -> None:
    with pytest.raises(ConfigError) as caught:
        asyncio.run(look())
    assert str(caught.value) == (
        'CONFIG: a->b: another process (group.id "other-mm2") copies "t" from "b" to "a" under the same name: records '
        "would go round for ever; set provenance.headers = true for both flows, or stop the other one"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"more": ""},
        {"more": IDENTITY + "topics = u\n"},
        {"copy": "u"},
        {"topic": "u"},
        {"is_led": False},
        {"age_ms": 10 * start_checks.ALIVE_MS},
        {"claim": {"source_cluster_id": "cluster-c"}},
        {"claim": {"target_cluster_id": "cluster-c"}},
        {"more": IDENTITY + MARKS, "rule": "all marked"},
        {"more": IDENTITY + MARKS, "rule": "committed marked"},
    ],
    ids=str,
)
def test_what_leads_nothing_back_is_no_obstacle(changes: dict[str, Any]) -> None:
    asyncio.run(look(**changes))


@pytest.mark.parametrize("changes", [{"more": IDENTITY + MARKS}, {"rule": "all marked"}], ids=str)
def test_marks_on_one_way_alone_are_not_enough(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="round for ever"):
        asyncio.run(look(**changes))


def test_a_ledger_that_may_not_be_read_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "heliograph")
    asyncio.run(look(forbid=True))
    assert caplog.messages == [
        f'a->b: "{LEDGER}" may not be read on "a": whether another process copies the same topics back is not known'
    ]
