"""Asks what we may do on a cluster, without changing anything.

For an existing topic the broker tells our operations itself (authorized-operations fields). For one that does not
exist, each operation is asked by a request that needs it and can do nothing: validated only, or for a topic that does
not exist. The broker checks the right first, so "not authorized" and "unknown topic" are the two answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from heliograph.errors import UnsupportedVersion
from heliograph.kafka import messages
from heliograph.kafka.admin.acls import Operation, ResourceType, has_authorizer
from heliograph.kafka.admin.topics import TOPIC_RESOURCE
from heliograph.kafka.batch import CRC_AT, NewRecord, encode_batch
from heliograph.kafka.cluster import Cluster, refused
from heliograph.kafka.error_codes import Code

Question = tuple[ResourceType, str, Operation]

_NUMBERS = {operation: number for number, operation in enumerate(Operation, start=2)}
_CHUNK = 500
_SET = 0
_ANYTHING = ("retention.ms", "3600000")
"""A config that every topic accepts, for requests that are only validated."""
_NEED_DESCRIBE = (Operation.READ, Operation.WRITE, Operation.ALTER, Operation.DELETE, Operation.DESCRIBE)
"""Operations that include Describe: who lacks Describe lacks these."""


async def allowed(cluster: Cluster, questions: Iterable[Question]) -> dict[Question, bool]:
    """Return for each question whether we may; raise what keeps the cluster from answering."""
    asked = list(dict.fromkeys(questions))
    if not await has_authorizer(cluster):
        return dict.fromkeys(asked, True)
    topics = [(name, operation) for kind, name, operation in asked if kind is ResourceType.TOPIC]
    groups = [(name, operation) for kind, name, operation in asked if kind is ResourceType.GROUP]
    answers: dict[Question, bool] = {}
    for (name, operation), answer in (await _ask_topics(cluster, topics)).items():
        answers[ResourceType.TOPIC, name, operation] = answer
    for name, operation in groups:
        answers[ResourceType.GROUP, name, operation] = await _ask_group(cluster, name, operation)
    rest = [question for question in asked if question[0] is ResourceType.CLUSTER]
    if rest:
        codes = await _cluster_codes(cluster)
        answers |= {question: _has(codes, question[2]) for question in rest}
    return answers


Codes = frozenset[int]
"""Authorized operations, as the protocol numbers them."""


def _has(codes: Codes, operation: Operation) -> bool:
    return _NUMBERS[operation] in codes


# -- topics


async def _ask_topics(cluster: Cluster, asked: Sequence[tuple[str, Operation]]) -> dict[tuple[str, Operation], bool]:
    states = await _topic_states(cluster, list(dict.fromkeys(name for name, _ in asked)))
    answers: dict[tuple[str, Operation], bool] = {}
    unclear: dict[Operation, list[str]] = {}
    for name, operation in asked:
        code, codes = states[name]
        if code == Code.NONE and (_has(codes, operation) or operation is not Operation.CREATE):
            answers[name, operation] = _has(codes, operation)
        elif code == Code.TOPIC_AUTHORIZATION_FAILED and operation in _NEED_DESCRIBE:
            answers[name, operation] = False
        elif operation is Operation.DESCRIBE:
            answers[name, operation] = True
        else:  # also a right to create that comes with the cluster, which is not among the topic's own
            unclear.setdefault(operation, []).append(name)
    for operation, names in unclear.items():
        for at in range(0, len(names), _CHUNK):
            chunk = names[at : at + _CHUNK]
            refusals = await _PROBES[operation](cluster, chunk)
            answers |= {(name, operation): refusals.get(name) != Code.TOPIC_AUTHORIZATION_FAILED for name in chunk}
    return answers


async def _topic_states(cluster: Cluster, names: Sequence[str]) -> dict[str, tuple[int, Codes]]:
    """Return error code and authorized operations of each topic."""
    topic_class = messages.MetadataRequest.MetadataRequestTopic
    found: dict[str, tuple[int, Codes]] = {}
    for at in range(0, len(names), _CHUNK):
        request = messages.MetadataRequest(
            topics=[topic_class(name=name, topic_id=None) for name in names[at : at + _CHUNK]],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )
        response = await cluster.call(request)
        found |= {
            topic.name: (
                0 if topic.partitions else topic.error_code or Code.UNKNOWN_TOPIC_OR_PARTITION,
                frozenset(topic.authorized_operations or ()),
            )
            for topic in response.topics
        }
    return {name: found.get(name, (Code.UNKNOWN_TOPIC_OR_PARTITION, frozenset())) for name in names}


async def _probe_read(cluster: Cluster, names: Sequence[str]) -> dict[str, int]:
    topic = messages.FetchRequest.FetchTopic
    partition = topic.FetchPartition(
        partition=0, current_leader_epoch=-1, fetch_offset=0, log_start_offset=-1, partition_max_bytes=1
    )
    request = messages.FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[topic(topic=name, partitions=[partition]) for name in names],
        forgotten_topics_data=[],
        rack_id="",
    )
    response = await cluster.call(request)
    return {answer.topic: answer.partitions[0].error_code for answer in response.responses}


async def _probe_write(cluster: Cluster, names: Sequence[str]) -> dict[str, int]:
    """Probe Write with a batch of a wrong checksum, which no broker appends should the topic exist by now."""
    batch = encode_batch([NewRecord(0, None, None)])
    batch[CRC_AT] ^= 0xFF
    topic = messages.ProduceRequest.TopicProduceData
    partition = topic.PartitionProduceData(index=0, records=bytes(batch))
    request = messages.ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=1000,
        topic_data=[topic(name=name, partition_data=[partition]) for name in names],
    )
    response = await cluster.call(request)
    return {answer.name: answer.partition_responses[0].error_code for answer in response.responses}


async def _probe_create(cluster: Cluster, names: Sequence[str]) -> dict[str, int]:
    topic = messages.CreateTopicsRequest.CreatableTopic
    request = messages.CreateTopicsRequest(
        topics=[topic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]) for name in names],
        timeout_ms=10_000,
        validate_only=True,
    )
    response = await cluster.call(request, node_id=await cluster.controller())
    return {answer.name: answer.error_code for answer in response.topics}


async def _probe_alter(cluster: Cluster, names: Sequence[str]) -> dict[str, int]:
    topic = messages.CreatePartitionsRequest.CreatePartitionsTopic
    request = messages.CreatePartitionsRequest(
        topics=[topic(name=name, count=2, assignments=None) for name in names], timeout_ms=10_000, validate_only=True
    )
    response = await cluster.call(request, node_id=await cluster.controller())
    return {answer.name: answer.error_code for answer in response.results}


async def _probe_describe_configs(cluster: Cluster, names: Sequence[str]) -> dict[str, int]:
    resource = messages.DescribeConfigsRequest.DescribeConfigsResource
    request = messages.DescribeConfigsRequest(
        resources=[
            resource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=[_ANYTHING[0]])
            for name in names
        ],
        include_synonyms=False,
        include_documentation=False,
    )
    response = await cluster.call(request)
    return {answer.resource_name: answer.error_code for answer in response.results}


async def _probe_alter_configs(cluster: Cluster, names: Sequence[str]) -> dict[str, int]:
    resource = messages.IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(name=_ANYTHING[0], config_operation=_SET, value=_ANYTHING[1])
    request = messages.IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=[config]) for name in names],
        validate_only=True,
    )
    response = await cluster.call(request, node_id=await cluster.controller())
    return {answer.resource_name: answer.error_code for answer in response.responses}


_PROBES: dict[Operation, Callable[[Cluster, Sequence[str]], Awaitable[dict[str, int]]]] = {
    Operation.READ: _probe_read,
    Operation.WRITE: _probe_write,
    Operation.CREATE: _probe_create,
    Operation.ALTER: _probe_alter,
    Operation.DESCRIBE_CONFIGS: _probe_describe_configs,
    Operation.ALTER_CONFIGS: _probe_alter_configs,
}


# -- groups and the cluster


async def _ask_group(cluster: Cluster, name: str, operation: Operation) -> bool:
    """Ask about a group; any broker checks the right before it answers that it is not the group's coordinator."""
    if operation is Operation.READ:
        response: Any = await cluster.call(
            messages.HeartbeatRequest(group_id=name, generation_id=0, member_id="", group_instance_id=None)
        )
        return bool(response.error_code != Code.GROUP_AUTHORIZATION_FAILED)
    response = await cluster.call(messages.DescribeGroupsRequest(groups=[name]))
    return all(group.error_code != Code.GROUP_AUTHORIZATION_FAILED for group in response.groups)


async def _cluster_codes(cluster: Cluster) -> Codes:
    try:
        response = await cluster.call(messages.DescribeClusterRequest(include_cluster_authorized_operations=True))
    except UnsupportedVersion:  # before 2.8 the metadata had them
        response = await cluster.call(
            messages.MetadataRequest(
                topics=[], allow_auto_topic_creation=False, include_cluster_authorized_operations=True
            )
        )
    code = getattr(response, "error_code", 0)
    if code == Code.CLUSTER_AUTHORIZATION_FAILED:
        return frozenset()
    if code:
        raise refused(code, "DescribeCluster", where=f'"{cluster.alias}"')
    return frozenset(response.authorized_operations or ())
