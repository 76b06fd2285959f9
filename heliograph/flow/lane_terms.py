"""What the lanes of an epoch are told of a flow, made from its settings. No IO but for secrets.

Made anew for every epoch, so that changed settings and secrets reach the lanes with the next.
"""

from __future__ import annotations

from collections.abc import Mapping

from heliograph.config.settings import Flow, Settings
from heliograph.kafka.compression import Codec
from heliograph.kafka.security.client_security import Security
from heliograph.ledger.cluster_access import Role, bootstrap_of, for_executors, metadata_max_age_ms, security_of
from heliograph.ledger.model import MEMORY_MS, FlowTerms

FETCH_MAX_BYTES = 8 * 1024 * 1024
PARTITION_BYTES = 2 * 1024 * 1024
"""Larger fetches bring no more speed and cost the lane's memory: these are the upper limits of Kafka's keys."""


def terms_of(
    flow: Flow,
    settings: Settings,
    *,
    is_local: bool,
    producer_ids: Mapping[int, int],
    ledger_topic: str,
    ledger_end: int,
    offset_partitions: int,
    append_bytes: int,
    term: int | None,
    source_cluster_id: str = "",
    target_cluster_id: str = "",
    memory_ms: int = MEMORY_MS,
) -> FlowTerms:
    """`producer_ids` are by row, `ledger_end` is from where lanes listen, `term` that of our lease, if the flow has
    one."""
    consumer = flow.source_consumer
    return FlowTerms(
        name=flow.name,
        source=flow.source,
        target=flow.target,
        source_bootstrap=bootstrap_of(settings, flow, Role.SOURCE_CONSUMER),
        target_bootstrap=bootstrap_of(settings, flow, Role.TARGET_PRODUCER),
        group_id=flow.group_id,
        connector=flow.connector_name,
        client_id=client_id_of(flow),
        producer_id=producer_ids.get(0, -1),
        further_ids=tuple(sorted((row, found) for row, found in producer_ids.items() if row)),
        ledger_topic=ledger_topic,
        ledger_end=ledger_end,
        offset_topic=flow.offset_storage_topic,
        offset_partitions=offset_partitions,
        append_bytes=append_bytes,
        flush_ms=flow.offset_flush_interval_ms,
        read_committed=flow.isolation_level == "read_committed",
        client_rack=consumer.get("client.rack", ""),
        fetch_max_wait_ms=int(consumer.get("fetch.max.wait.ms", 500)),
        fetch_min_bytes=int(consumer.get("fetch.min.bytes", 1)),
        fetch_max_bytes=min(FETCH_MAX_BYTES, int(consumer.get("fetch.max.bytes", FETCH_MAX_BYTES))),
        partition_bytes=min(PARTITION_BYTES, int(consumer.get("max.partition.fetch.bytes", PARTITION_BYTES))),
        compression=None if flow.compression == "none" else int(Codec[flow.compression.upper()]),
        marks=flow.provenance_headers,
        source_cluster_id=source_cluster_id,
        target_cluster_id=target_cluster_id,
        source_metadata_max_age_ms=metadata_max_age_ms(flow, Role.SOURCE_CONSUMER),
        target_metadata_max_age_ms=metadata_max_age_ms(flow, Role.TARGET_PRODUCER),
        source_security=_security(settings, flow, Role.SOURCE_CONSUMER, is_local=is_local),
        target_security=_security(settings, flow, Role.TARGET_PRODUCER, is_local=is_local),
        memory_ms=memory_ms,
        term=term or 0,
        lease_ms=settings.lease_ms if term is not None else 0,
    )


def client_id_of(flow: Flow) -> str:
    """Make the beginning of a flow's client ids."""
    user = "" if flow.client_id == flow.name else f"{flow.client_id}|"
    return f"{user}{flow.name}|{flow.connector_name}"


def _security(settings: Settings, flow: Flow, role: Role, *, is_local: bool) -> Security:
    """Make the security of a role, with the secrets as they are now."""
    where = f'"{role.alias(flow)}"'
    return for_executors(security_of(settings, flow, role), settings, is_local=is_local, where=where)
