"""Metadata, versions 0 to 12: all topics, or some by name; ids from 10 on. Topics are never created by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from tests.fake_cluster.cluster import Call
    from tests.fake_cluster.partition import FakePartition

REQUEST = MetadataRequest
VERSIONS = (0, 12)
UNKNOWN_TOPIC_OR_PARTITION = 3

_Topic = MetadataResponse.MetadataResponseTopic


async def answer(call: Call) -> Any:
    sight = call.sight
    wanted = call.request.topics
    names = list(sight.topics) if wanted is None else [topic.name for topic in wanted]
    return MetadataResponse(
        throttle_time_ms=0,
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=broker.node_id, host=broker.address.host, port=broker.port, rack=None
            )
            for broker in sight.brokers.values()
        ],
        cluster_id=call.cluster.cluster_id,
        controller_id=min(sight.brokers),
        topics=[_topic(call, name) for name in names],
    )


def _topic(call: Call, name: str) -> Any:
    topic = call.sight.topics.get(name)
    if topic is None:
        return _Topic(error_code=UNKNOWN_TOPIC_OR_PARTITION, name=name, is_internal=False, partitions=[])
    return _Topic(
        error_code=0,
        name=name,
        topic_id=topic.topic_id,
        is_internal=False,
        partitions=[_partition(index, partition) for index, partition in enumerate(topic.partitions)],
    )


def _partition(index: int, partition: FakePartition) -> Any:
    return _Topic.MetadataResponsePartition(
        error_code=0,
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.replicas),
        offline_replicas=[],
    )
