"""Lists every key of a configuration once: type, default, scope, effect.

The table is the only place with defaults of MM2's and our own settings; docs/configuration.md is made from it. The
keys of Kafka's clients are in `client_keys`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from heliograph.config.files.layers import BYTE_ARRAY_CONVERTER, WORKER_PREFIXES
from heliograph.config.files.parts import Connector, ConnectorState
from heliograph.config.keys.client_settings import CLIENT_NAMES, ValueKind
from heliograph.config.keys.key import Effect, Key, Scope, row
from heliograph.names.policies import POLICIES

H, L, P, R = Effect.HONOURED, Effect.LATER, Effect.POINTLESS, Effect.REFUSED
B, S, INT, N, T, C, LIST = (
    ValueKind.BOOLEAN,
    ValueKind.SHORT,
    ValueKind.INT,
    ValueKind.LONG,
    ValueKind.STRING,
    ValueKind.CLASS,
    ValueKind.LIST,
)
_MIRROR = "org.apache.kafka.connect.mirror."


def _factor(name: str, default: str, scope: Scope, effect: Effect, meaning: str, *, kind: ValueKind = S) -> Key:
    return row(name, kind, default, scope, effect, f"{meaning}; -1: the broker's default", low=1, also=(-1,))


def _interval(name: str, default: str, meaning: str, effect: Effect = L) -> Key:
    return row(f"{name}.interval.seconds", N, default, Scope.FLOW, effect, meaning, low=1)


def _switch(name: str, default: str, meaning: str, effect: Effect = L) -> Key:
    return row(f"{name}.enabled", B, default, Scope.FLOW, effect, meaning)


def _converter(name: str) -> Key:
    meaning = "other converters would change the bytes of records"
    return row(name, C, BYTE_ARRAY_CONVERTER, Scope.ANYWHERE, R, meaning, allowed=(BYTE_ARRAY_CONVERTER,))


def _only_default(name: str, default: str, meaning: str) -> Key:
    return row(name, C, default, Scope.FLOW, R, meaning, allowed=(default,))


def _filter(name: str, default: str, meaning: str) -> Key:
    return row(name, C, default, Scope.FLOW, H, f"{meaning}, or `python:module.Class`", choices=(default,))


def _rest(name: str, kind: ValueKind = T, default: str | None = "") -> Key:
    return row(name, kind, default, Scope.GLOBAL, P, "MM2's REST server between its nodes; there is none here")


def _worker(name: str, kind: ValueKind, default: str | None, effect: Effect, meaning: str, **more: Any) -> Key:
    scope = Scope.WORKER_OR_TOP if name.startswith(WORKER_PREFIXES) else Scope.WORKER
    return row(name, kind, default, scope, effect, meaning, **more)


_NO_WORKERS = "Connect's workers; there are none here"
_LOST_WITH_SOURCE = "commits between two syncs are read again when the source is lost"

_GLOBAL_KEYS = (
    row("clusters", LIST, None, Scope.GLOBAL, H, "the aliases of all clusters"),
    _rest("dedicated.mode.enable.internal.rest", B, "false"),
    _rest("listeners", LIST, "http://:8083"),
    _rest("rest.advertised.host.name", T, None),
    _rest("rest.advertised.port", INT, None),
    _rest("rest.advertised.listener", T, None),
    _rest("access.control.allow.origin"),
    _rest("access.control.allow.methods"),
    _rest("response.http.headers.config"),
    _rest("listeners.https.*", T, None),
    _rest("ssl.client.auth", T, "none"),
    row(
        "config.providers",
        LIST,
        "",
        Scope.ANYWHERE,
        P,
        "a provider is known by `config.providers.<n>.class`",
    ),
    row(
        "config.providers.*",
        T,
        None,
        Scope.ANYWHERE,
        H,
        "`config.providers.<n>.class`: what `${n:path:key}` stands for, see Secrets; other keys have no effect",
    ),
    row("spark.*", T, None, Scope.GLOBAL, H, "given to Spark", own=True),
    row("epoch.ms", N, "60000", Scope.GLOBAL, H, "length of an epoch in milliseconds", low=1000, own=True),
    row(
        "executor.secrets",
        T,
        "send",
        Scope.GLOBAL,
        H,
        "how secrets reach Spark's executors on other machines: `send` them, which needs an encrypted Spark, or "
        "`mount`: executors read the files and the environment that the configuration names",
        choices=("send", "mount"),
        own=True,
    ),
    row(
        "lease.ms",
        N,
        "6000",
        Scope.GLOBAL,
        H,
        "how long a process keeps a flow without renewing its lease; then another `heliograph run` takes over",
        low=1000,
        own=True,
    ),
    row(
        "executor.packages",
        T,
        "ship",
        Scope.GLOBAL,
        H,
        "Python packages that Spark's executors lack: `ship` sends those of this machine if they are compatible "
        "there, `installed` only reports what is missing",
        choices=("ship", "installed"),
        own=True,
    ),
)

_WORKER_KEYS = (
    _worker("group.id", T, "<source>-mm2", H, "names this mirror among others on the same target"),
    _worker("client.id", T, "<source>-><target>", H, "base of the client ids"),
    _worker("offset.storage.topic", T, "mm2-offsets.<source>.internal", H, "topic of the positions"),
    _worker("offset.storage.partitions", INT, "25", H, "its partitions when it is created", low=1, also=(-1,)),
    _factor("offset.storage.replication.factor", "3", Scope.WORKER_OR_TOP, H, "its replicas, and the ledger topic's"),
    _worker("config.storage.topic", T, "mm2-configs.<source>.internal", H, "Connect's topic; never mirrored"),
    _factor("config.storage.replication.factor", "3", Scope.WORKER_OR_TOP, H, "its replicas"),
    _worker("status.storage.topic", T, "mm2-status.<source>.internal", H, "Connect's topic; never mirrored"),
    _worker("status.storage.partitions", INT, "5", H, "its partitions", low=1, also=(-1,)),
    _factor("status.storage.replication.factor", "3", Scope.WORKER_OR_TOP, H, "its replicas"),
    _worker("offset.flush.interval.ms", N, "1000", H, "how often positions and ledger are written (MM2: 60000)", low=1),
    _worker("offset.flush.timeout.ms", N, "5000", P, "positions are written without blocking the copying"),
    _worker(
        "exactly.once.source.support", T, "disabled", H,
        "`enabled` makes read_committed the source's default; copies are exactly-once either way",
        choices=("disabled", "preparing", "enabled"),
    ),
    _worker("scheduled.rebalance.max.delay.ms", INT, "300000", P, _NO_WORKERS, low=0),
    _worker("worker.sync.timeout.ms", INT, "3000", P, _NO_WORKERS),
    _worker("worker.unsync.backoff.ms", INT, "300000", P, _NO_WORKERS),
    _worker("task.shutdown.graceful.timeout.ms", N, "5000", P, "a stop takes effect within 2 s"),
    _worker("connect.protocol", T, "sessioned", P, _NO_WORKERS, choices=("eager", "compatible", "sessioned")),
    _worker("session.timeout.ms", INT, "10000", P, _NO_WORKERS),
    _worker("heartbeat.interval.ms", INT, "3000", P, _NO_WORKERS),
    _worker("rebalance.timeout.ms", INT, "60000", P, _NO_WORKERS),
    _worker("inter.worker.*", T, None, P, _NO_WORKERS),
    _worker("connector.client.config.override.policy", T, "All", P, "overrides are always allowed"),
    _worker("topic.creation.enable", B, "true", P, "topics are created with the source's partitions"),
    _worker("topic.tracking.enable", B, "true", P, _NO_WORKERS),
    _worker("topic.tracking.allow.reset", B, "true", P, _NO_WORKERS),
    _worker("plugin.path", LIST, None, P, "Java classes are not loaded"),
    _worker("plugin.discovery", T, "hybrid_warn", P, "Java classes are not loaded"),
    _worker("rest.extension.classes", LIST, "", P, "Java classes are not loaded"),
    _worker("admin.listeners", LIST, None, P, _NO_WORKERS),
    _worker("listeners", LIST, "http://:8083", P, _NO_WORKERS),
    _worker(
        "internal.topics.automatic.creation.enable", B, "true", H,
        "`false`: the storage topics must exist; without a topic of its own the ledger is kept with the positions",
    ),
)  # fmt: skip

_CONNECTOR_KEYS = (
    row("enabled", B, "false", Scope.FLOW, H, "whether the flow runs"),
    row("name", T, "MirrorSourceConnector", Scope.FLOW, H, "connector name in the keys of the stored positions"),
    row("connector.class", T, f"{_MIRROR}MirrorSourceConnector", Scope.FLOW, P, "there is one kind of flow"),
    row("connector.plugin.version", T, None, Scope.FLOW, P, "Java classes are not loaded"),
    row("tasks.max", INT, "1", Scope.FLOW, H, "maximum number of lanes of a flow", low=1),
    row("tasks.max.enforce", B, "true", Scope.FLOW, P, "lanes never exceed tasks.max"),
    row("transforms", LIST, "", Scope.FLOW, R, "transforms change records", allowed=("",)),
    row("transforms.*", T, None, Scope.FLOW_ONLY, R, "transforms change records"),
    row("predicates", LIST, "", Scope.FLOW, R, "predicates select records", allowed=("",)),
    row("predicates.*", T, None, Scope.FLOW_ONLY, R, "predicates select records"),
    row("config.action.reload", T, "restart", Scope.FLOW, P, _NO_WORKERS, choices=("none", "restart")),
    row("errors.retry.timeout", N, "0", Scope.FLOW, P, "only transforms and converters use it"),
    row("errors.retry.delay.max.ms", N, "60000", Scope.FLOW, P, "only transforms and converters use it"),
    row(
        "errors.tolerance", T, "none", Scope.FLOW, R, "`all` drops records; see on.record.error", allowed=("none",)
    ),
    row("errors.log.enable", B, "false", Scope.FLOW, P, "errors are always logged"),
    row("errors.log.include.messages", B, "false", Scope.FLOW, P, "records are never logged"),
    _converter("key.converter"),
    _converter("value.converter"),
    _converter("header.converter"),
    *(
        row(f"{which}.converter.plugin.version", T, None, Scope.ANYWHERE, P, "Java classes are not loaded")
        for which in ("key", "value", "header")
    ),
    row("key.converter.*", T, None, Scope.ANYWHERE, P, "a setting of the converter"),
    row("value.converter.*", T, None, Scope.ANYWHERE, P, "a setting of the converter"),
    row("header.converter.*", T, None, Scope.ANYWHERE, P, "a setting of the converter"),
    row(
        "exactly.once.support", T, "requested", Scope.FLOW_ONLY, P, "copies are exactly-once anyway",
        choices=("requested", "required"),
    ),
    row("transaction.boundary", T, "poll", Scope.FLOW_ONLY, P, "no transactions are used"),
    row("transaction.boundary.interval.ms", N, None, Scope.FLOW_ONLY, P, "no transactions are used"),
    row("offsets.storage.topic", T, None, Scope.FLOW_ONLY, L, "positions of this flow in a topic of their own"),
    row("topic.creation.*", T, None, Scope.FLOW_ONLY, P, "topics are created with the source's partitions"),
    row("source.cluster.alias", T, "<A>", Scope.FLOW, H, "must be the flow's source"),
    row("target.cluster.alias", T, "<B>", Scope.FLOW, H, "must be the flow's target"),
    row("admin.timeout.ms", N, "60000", Scope.FLOW, L, "timeout of an admin request", low=1),
    row(
        "replication.policy.class", C, f"{_MIRROR}DefaultReplicationPolicy", Scope.ANYWHERE, H,
        "names of topics on the target; also `python:module.Class`", choices=tuple(POLICIES),
    ),
    row("replication.policy.separator", T, ".", Scope.ANYWHERE, H, "separator between alias and topic"),
    row(
        "replication.policy.internal.topic.separator.enabled", B, "true", Scope.ANYWHERE, H,
        "`false`: internal topics keep the dot; read only together with the separator",
    ),
    _only_default(
        "forwarding.admin.class", "org.apache.kafka.clients.admin.ForwardingAdmin", "Java classes are not loaded"
    ),
    row("metric.reporters", LIST, "org.apache.kafka.common.metrics.JmxReporter", Scope.FLOW, P, "Java classes"),
    row("auto.include.jmx.reporter", B, "true", Scope.FLOW, P, "removed in Kafka 4.0"),
    row("metric.names.formats", LIST, "legacy", Scope.FLOW, L, "`legacy`, `new` or both"),
    _filter("topic.filter.class", f"{_MIRROR}DefaultTopicFilter", "which topics are mirrored"),
    row("topics", LIST, ".*", Scope.FLOW, H, "patterns of the topics to mirror"),
    row(
        "topics.exclude", LIST, r"mm2.*\.internal, .*\.replica, __.*", Scope.FLOW, H, "patterns not mirrored",
        old_names=("topics.blacklist",),
    ),
    _filter("config.property.filter.class", f"{_MIRROR}DefaultConfigPropertyFilter", "which topic settings are copied"),
    row(
        "config.properties.exclude", LIST,
        "follower.replication.throttled.replicas, leader.replication.throttled.replicas, "
        "message.timestamp.difference.max.ms, log.message.timestamp.before.max.ms, "
        "log.message.timestamp.after.max.ms, message.timestamp.type, unclean.leader.election.enable, "
        "min.insync.replicas",
        Scope.FLOW, H,
        "patterns of the topic settings that are not copied; `message.timestamp.before.max.ms` and "
        "`message.timestamp.after.max.ms` never are",
        old_names=("config.properties.blacklist",),
    ),
    row(
        "use.defaults.from", T, "target", Scope.FLOW_ONLY, H,
        "whose defaults a mirrored topic gets; settings in a source broker's file count as defaults",
        choices=("source", "target"),
    ),
    row("use.incremental.alter.configs", T, "requested", Scope.FLOW, P, "removed in Kafka 4.0"),
    row("consumer.poll.timeout.ms", N, "1000", Scope.FLOW, P, "see consumer.fetch.max.wait.ms", low=0),
    _switch("refresh.topics", "true", "look for new topics and partitions", H),
    _interval("refresh.topics", "10", "how often (MM2: 600); less often if a refresh costs over 1 % of a core", H),
    _switch("sync.topic.configs", "true", "sync topic configs from the source; new topics start with them anyway", H),
    _interval("sync.topic.configs", "600", "how often", H),
    _switch("sync.topic.acls", "true", "sync the ACLs of topics, without rights to write", H),
    _interval("sync.topic.acls", "600", "how often", H),
    _factor("replication.factor", "2", Scope.FLOW, H, "replicas of created topics", kind=INT),
    _factor("offset-syncs.topic.replication.factor", "3", Scope.FLOW, H, "replicas of the offset-syncs topic"),
    row(
        "offset-syncs.topic.location", T, "source", Scope.FLOW, H, "the cluster of the offset-syncs topic",
        choices=("source", "target"),
    ),
    _switch("emit.offset-syncs", "true", "write offset-syncs", H),
    row("offset.lag.max", N, "100", Scope.FLOW, H, "maximum number of records between two offset-syncs", low=0),
    _switch("heartbeats.replication", "true", "mirror heartbeats topics even if the filter excludes them", H),
    row("add.source.alias.to.metrics", B, "false", Scope.FLOW, P, "removed in Kafka 4.0"),
    row("groups", LIST, ".*", Scope.FLOW, H, "patterns of the consumer groups to sync"),
    row(
        "groups.exclude", LIST, "console-consumer-.*, connect-.*, __.*", Scope.FLOW, H, "patterns not synced",
        old_names=("groups.blacklist",),
    ),
    _filter("group.filter.class", f"{_MIRROR}DefaultGroupFilter", "which groups are synced"),
    _switch("refresh.groups", "true", "look for new groups", H),
    _interval("refresh.groups", "5", f"how often (MM2: 600): {_LOST_WITH_SOURCE}", H),
    _switch("emit.checkpoints", "true", "write checkpoints", H),
    _interval("emit.checkpoints", "5", f"how often (MM2: 60): {_LOST_WITH_SOURCE}", H),
    _switch("sync.group.offsets", "false", "write translated offsets into groups of the target", H),
    _interval("sync.group.offsets", "5", f"how often (MM2: 60): {_LOST_WITH_SOURCE}", H),
    _factor("checkpoints.topic.replication.factor", "3", Scope.FLOW, H, "replicas of the checkpoints topic"),
    row("group.mirroring.policy.class", C, None, Scope.FLOW, L, "a proposal for MM2 (KIP-1378)"),
    row("reverse.checkpointing.enabled", B, "false", Scope.FLOW, L, "a proposal for MM2 (KIP-1098)"),
    _switch("emit.heartbeats", "true", "write heartbeats", H),
    _interval("emit.heartbeats", "1", "how often", H),
    _factor("heartbeats.topic.replication.factor", "3", Scope.FLOW, H, "replicas of the heartbeats topic"),
    row("task.assigned.partitions", LIST, None, Scope.FLOW_ONLY, P, "MM2 sets it for its own tasks"),
    row("task.assigned.groups", LIST, None, Scope.FLOW_ONLY, P, "MM2 sets it for its own tasks"),
    row("task.index", INT, None, Scope.FLOW_ONLY, P, "MM2 sets it for its own tasks"),
)  # fmt: skip

_STATES = tuple(ConnectorState)

_OWN_KEYS = tuple(
    replace(key, own=True)
    for key in (
        row(
            "on.data.loss", T, "continue", Scope.FLOW, H, "the source deleted records before they were copied",
            choices=("continue", "stop-partition", "stop-flow"),
        ),
        row(
            "on.topic.recreated", T, "restart", Scope.FLOW, H, "a source topic was deleted and created again",
            choices=("restart", "continue", "stop-partition"),
        ),
        row(
            "on.record.error", T, "stop-partition", Scope.FLOW, H, "the target refuses a record for good",
            choices=("stop-partition", "skip"),
        ),
        row(
            "max.bytes.per.second", N, "none", Scope.FLOW, H,
            "maximum bytes per second that a flow writes to its target, all lanes together; `none`: no limit", low=1,
        ),
        row(
            "auto.restart.enabled", B, "false", Scope.FLOW, H,
            "restart a flow that failed for good: at once, then after 2, 6, 12, 20 ... minutes",
        ),
        row(
            "auto.restart.max.restarts", INT, "none", Scope.FLOW, H, "most restarts in a row; `none`: no limit", low=0,
        ),
        row("auto.restart.max.backoff.minutes", INT, "60", Scope.FLOW, H, "longest back-off between restarts", low=1),
        row(
            "offset.translation", T, "exact", Scope.FLOW, H, "group offsets by the ledger, or as MM2 does",
            choices=("exact", "mm2"),
        ),
        row(
            "start.position", T, None, Scope.FLOW, H,
            "where copying starts when a topic is first mirrored: `earliest`, `latest`, or a time such "
            "as `2026-01-31T12:00:00Z`; the default is `consumer.auto.offset.reset`. Partitions added later to "
            "these topics are copied from their first record",
        ),
        row(
            "start.position.*", T, None, Scope.FLOW, H,
            "the same for some topics: `start.position.<n>.topics` has patterns, `start.position.<n>.from` is one "
            "of these values, or offsets by partition, `0:120,1:77`; the lowest number whose patterns match wins",
        ),
        row("state", T, "running", Scope.FLOW, H, "`paused`, `stopped`: nothing is copied", choices=_STATES),
        row("checkpoints.state", T, "running", Scope.FLOW, H, "the same for consumer groups", choices=_STATES),
        row("heartbeats.state", T, "running", Scope.FLOW, H, "the same for heartbeats", choices=_STATES),
        row(
            "stall.timeout.ms", N, "30000", Scope.FLOW, H,
            "not ready: records wait this long without progress, or a cluster does not answer this long", low=1,
        ),
        row(
            "sync.topic.acls.prefixed", B, "false", Scope.FLOW, H,
            "also sync ACLs on prefixes and on all resources (`*`), for groups too",
        ),
        row(
            "sync.topic.acls.delete", B, "false", Scope.FLOW, H,
            "delete ACLs that the mirror created and that were deleted on the source, for groups too",
        ),
        row(
            "sync.group.acls.enabled", B, "false", Scope.FLOW, H,
            "sync the ACLs of groups: rights to read and describe them",
        ),
        row(
            "write.on.failover", B, "false", Scope.FLOW, H,
            "store the rights to write, which the copies do not get, to grant them at a failover",
        ),
        row(
            "topic.rename.*", T, None, Scope.FLOW, H,
            "`topic.rename.1.pattern` and `topic.rename.1.replacement`, and so on: rules for names on the target; "
            "see docs/naming.md",
        ),
        row("group.rename.*", T, None, Scope.FLOW, H, "the same for consumer groups"),
        row("python.*", T, None, Scope.FLOW, H, "given to custom classes, `python:module.Class`"),
        row(
            "partition.remap", T, "none", Scope.FLOW, H,
            "`modulo`: a target with fewer partitions keeps them, source partition p goes to p modulo their number",
            choices=("none", "modulo"),
        ),
        row(
            "provenance.headers", B, "false", Scope.FLOW, H,
            "add headers that name a record's origin, and skip records that return to it: for flows that form a cycle "
            "with the same topic names; only one direction may sync configs and ACLs",
        ),
    )
)  # fmt: skip

KEYS: tuple[Key, ...] = _GLOBAL_KEYS + _WORKER_KEYS + _CONNECTOR_KEYS + _OWN_KEYS

# Keys that published files contain and MM2 never reads.
NEVER_READ: dict[str, str] = {
    "internal.topic.replication.factor": "offset.storage.replication.factor and its like",
    "configs.storage.topic": "config.storage.topic",
    "offsets.storage.replication.factor": "offset.storage.replication.factor",
}

OF_THE_WHOLE = tuple(key.name.removesuffix("*") for key in KEYS if key.scope is Scope.GLOBAL and key.own)
"""Prefixes of heliograph's own keys that concern the whole mirror."""
OTHER_HEARTBEATS = (
    "emit.heartbeats.enabled", "emit.heartbeats.interval.seconds", "heartbeats.topic.replication.factor",
    "heartbeats.state",
)  # fmt: skip
"""Keys that at the top level also configure pairs of clusters without a flow."""

# Names that people write for another key; by spelling they resemble the opposite of what is meant.
MEANT: dict[str, str] = {
    "topics.whitelist": "topics",
    "topics.include": "topics",
    "groups.whitelist": "groups",
    "groups.include": "groups",
    "whitelist": "topics",
    "blacklist": "topics.exclude",
}

DEFAULTS: dict[str, Key] = {key.name: key for key in KEYS}

CONNECTOR_NAMES = frozenset(
    name
    for key in KEYS
    if key.scope in (Scope.FLOW, Scope.ANYWHERE)
    for name in (key.name, *key.old_names)
    if not name.endswith(".*")
) | (CLIENT_NAMES - {"bootstrap.servers"})
"""Keys that a connector takes from the top level: MM2's, and our own per-flow settings."""

_CHECKPOINT_NAMES = (
    "groups", "group.filter.", "group.mirroring.", "group.rename.", "refresh.groups.", "emit.checkpoints.",
    "sync.group.offsets.", "checkpoints.topic.", "checkpoints.state", "reverse.checkpointing.",
)  # fmt: skip
_HEARTBEAT_NAMES = ("emit.heartbeats.", "heartbeats.topic.", "heartbeats.state")


def owner_of(name: str) -> Connector:
    """Returns the connector of a flow that uses a key; a key that several read is the source connector's."""
    if name.startswith(_CHECKPOINT_NAMES):
        return Connector.CHECKPOINT
    return Connector.HEARTBEAT if name.startswith(_HEARTBEAT_NAMES) else Connector.SOURCE
