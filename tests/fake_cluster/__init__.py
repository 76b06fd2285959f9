"""A steerable Kafka cluster on loopback, one file per request (`k01_fetch.py` answers Fetch, api key 1).

    async with FakeCluster("a", topics={"t": 2}) as source:
        source.append("t", 0, new_records(0, 10))
        source.refuse(PRODUCE, "t", 0, 45)            one partition answers with an error, once
        source.control(FETCH, hook)                   a hook sees every Fetch, and may delay, cut or garble it

Requests are decoded and answers encoded by kafka-python's message classes, batches by the product's own
code. What real brokers do and this does not stands at the head of each file; tests/cluster proves the rest.
"""

from tests.fake_cluster.cluster import SILENCE, Call, Cut, FakeCluster, Hook
from tests.fake_cluster.group import FakeGroup
from tests.fake_cluster.partition import FakePartition, FakeTopic

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 1, 2, 3, 18
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, DESCRIBE_GROUPS, LIST_GROUPS = 8, 9, 10, 15, 16
CREATE_TOPICS, DESCRIBE_CONFIGS, CREATE_PARTITIONS = 19, 32, 37

__all__ = [
    "API_VERSIONS",
    "CREATE_PARTITIONS",
    "CREATE_TOPICS",
    "DESCRIBE_CONFIGS",
    "DESCRIBE_GROUPS",
    "FETCH",
    "FIND_COORDINATOR",
    "LIST_GROUPS",
    "LIST_OFFSETS",
    "METADATA",
    "OFFSET_COMMIT",
    "OFFSET_FETCH",
    "PRODUCE",
    "SILENCE",
    "Call",
    "Cut",
    "FakeCluster",
    "FakeGroup",
    "FakePartition",
    "FakeTopic",
    "Hook",
]
