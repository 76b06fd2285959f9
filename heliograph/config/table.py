"""Every key of a configuration, once: type, default, where it may stand, what it does here.

The table is the only place with defaults of MM2's and our own settings; docs/configuration.md is made
from it. `find_key` tells what a key means at the place where it was written.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum

from heliograph.config.clients import CLIENT_NAMES, CONNECTION, ROLES, Kind
from heliograph.config.layering import BYTE_ARRAY_CONVERTER, WORKER_PREFIXES
from heliograph.config.parts import Connector, State
from heliograph.naming import POLICIES


class Where(StrEnum):
    """The three places of a file where a key may stand."""

    TOP = "top level"
    FLOW = "<A>-><B>."
    CLUSTER = "<X>."


class Scope(Enum):
    """Who reads a key, and so where it works; `label` is the word of the documents."""

    GLOBAL = ("global", (Where.TOP,))
    FLOW = ("flow", (Where.TOP, Where.FLOW))
    FLOW_ONLY = ("flow", (Where.FLOW,))
    WORKER = ("target", (Where.CLUSTER,))
    WORKER_OR_TOP = ("target", (Where.TOP, Where.CLUSTER))
    ANYWHERE = ("flow or target", (Where.TOP, Where.FLOW, Where.CLUSTER))
    CONNECTION = ("cluster", (Where.TOP, Where.CLUSTER))

    def __init__(self, label: str, places: tuple[Where, ...]) -> None:
        self.label = label
        self.places = places


class Effect(StrEnum):
    HONOURED = "honoured"
    LATER = "no effect yet"
    POINTLESS = "no effect"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One row. A name that ends with `.*` stands for all that begin so."""

    name: str
    kind: Kind
    default: str | None
    scope: Scope
    effect: Effect
    meaning: str
    low: int | None = None
    also: tuple[int, ...] = ()
    choices: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    """Values that a refused key may have, because they ask for nothing."""
    old_names: tuple[str, ...] = ()
    own: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a written key is: known (`key`), ignored at this place (`hint` says where it works), or neither."""

    key: Key | None = None
    hint: str = ""
    replaced_by: str = ""
    nearest: str = field(default="")


H, L, P, R = Effect.HONOURED, Effect.LATER, Effect.POINTLESS, Effect.REFUSED
B, S, INT, N, T, C, LIST = Kind.BOOLEAN, Kind.SHORT, Kind.INT, Kind.LONG, Kind.STRING, Kind.CLASS, Kind.LIST
_MIRROR = "org.apache.kafka.connect.mirror."


def _key(  # noqa: PLR0917  rows read as columns
    name: str, kind: Kind, default: str | None, scope: Scope, effect: Effect, meaning: str, **more: object
) -> Key:
    return replace(Key(name=name, kind=kind, default=default, scope=scope, effect=effect, meaning=meaning), **more)  # type: ignore[arg-type]


def _factor(name: str, default: str, scope: Scope, effect: Effect, meaning: str, *, kind: Kind = S) -> Key:
    return _key(name, kind, default, scope, effect, f"{meaning}; -1: the broker's default", low=1, also=(-1,))


def _interval(name: str, default: str, meaning: str, effect: Effect = L) -> Key:
    return _key(f"{name}.interval.seconds", N, default, Scope.FLOW, effect, meaning, low=1)


def _switch(name: str, default: str, meaning: str, effect: Effect = L) -> Key:
    return _key(f"{name}.enabled", B, default, Scope.FLOW, effect, meaning)


def _converter(name: str) -> Key:
    meaning = "other converters would change the bytes of records"
    return _key(name, C, BYTE_ARRAY_CONVERTER, Scope.ANYWHERE, R, meaning, allowed=(BYTE_ARRAY_CONVERTER,))


def _only_default(name: str, default: str, meaning: str) -> Key:
    return _key(name, C, default, Scope.FLOW, R, meaning, allowed=(default,))


def _rest(name: str, kind: Kind = T, default: str | None = "") -> Key:
    return _key(name, kind, default, Scope.GLOBAL, P, "MM2's REST server between its nodes; there is none here")


def _worker(name: str, kind: Kind, default: str | None, effect: Effect, meaning: str, **more: object) -> Key:
    scope = Scope.WORKER_OR_TOP if name.startswith(WORKER_PREFIXES) else Scope.WORKER
    return _key(name, kind, default, scope, effect, meaning, **more)


_NO_WORKERS = "Connect's workers; there are none here"

_GLOBAL_KEYS = (
    _key("clusters", LIST, None, Scope.GLOBAL, H, "the aliases of all clusters"),
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
    _key("config.providers", LIST, "", Scope.ANYWHERE, L, "names of providers for `${name:path:key}`"),
    _key("config.providers.*", T, None, Scope.ANYWHERE, L, "class and parameters of a provider"),
    _key("spark.*", T, None, Scope.GLOBAL, H, "given to Spark", own=True),
    _key("epoch.ms", N, "60000", Scope.GLOBAL, H, "length of an epoch in milliseconds", low=1000, own=True),
    _key(
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
    _key(
        "lease.ms",
        N,
        "6000",
        Scope.GLOBAL,
        H,
        "how long a silent leader keeps a flow; then a second `heliograph run` of the same file takes over",
        low=1000,
        own=True,
    ),
    _key(
        "executor.packages",
        T,
        "ship",
        Scope.GLOBAL,
        H,
        "Python packages that a lane needs and Spark's executors lack: `ship` sends those of this machine if they fit "
        "there, `installed` only names them",
        choices=("ship", "installed"),
        own=True,
    ),
)

_WORKER_KEYS = (
    _worker("group.id", T, "<source>-mm2", H, "names this mirror among others on the same target"),
    _worker("client.id", T, "<source>-><target>", H, "base of the client ids"),
    _worker("offset.storage.topic", T, "mm2-offsets.<source>.internal", H, "topic of the positions"),
    _worker("offset.storage.partitions", INT, "25", H, "its partitions when it is created", low=1, also=(-1,)),
    _factor("offset.storage.replication.factor", "3", Scope.WORKER_OR_TOP, H, "its replicas, and the ledger's"),
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
    _worker("internal.topics.automatic.creation.enable", B, "true", L, "`false`: storage topics must exist"),
)  # fmt: skip

_CONNECTOR_KEYS = (
    _key("enabled", B, "false", Scope.FLOW, H, "whether the flow runs"),
    _key("name", T, "MirrorSourceConnector", Scope.FLOW, H, "name in the keys of the positions"),
    _key("connector.class", T, f"{_MIRROR}MirrorSourceConnector", Scope.FLOW, P, "there is one kind of flow"),
    _key("connector.plugin.version", T, None, Scope.FLOW, P, "Java classes are not loaded"),
    _key("tasks.max", INT, "1", Scope.FLOW, H, "most lanes of a flow", low=1),
    _key("tasks.max.enforce", B, "true", Scope.FLOW, P, "lanes never exceed tasks.max"),
    _key("transforms", LIST, "", Scope.FLOW, R, "transforms change records", allowed=("",)),
    _key("transforms.*", T, None, Scope.FLOW_ONLY, R, "transforms change records"),
    _key("predicates", LIST, "", Scope.FLOW, R, "predicates decide about records", allowed=("",)),
    _key("predicates.*", T, None, Scope.FLOW_ONLY, R, "predicates decide about records"),
    _key("config.action.reload", T, "restart", Scope.FLOW, P, _NO_WORKERS, choices=("none", "restart")),
    _key("errors.retry.timeout", N, "0", Scope.FLOW, P, "it concerns transforms and converters"),
    _key("errors.retry.delay.max.ms", N, "60000", Scope.FLOW, P, "it concerns transforms and converters"),
    _key(
        "errors.tolerance", T, "none", Scope.FLOW, R, "`all` drops records; see on.record.error", allowed=("none",)
    ),
    _key("errors.log.enable", B, "false", Scope.FLOW, P, "errors are always logged"),
    _key("errors.log.include.messages", B, "false", Scope.FLOW, P, "records are never logged"),
    _converter("key.converter"),
    _converter("value.converter"),
    _converter("header.converter"),
    *(
        _key(f"{which}.converter.plugin.version", T, None, Scope.ANYWHERE, P, "Java classes are not loaded")
        for which in ("key", "value", "header")
    ),
    _key("key.converter.*", T, None, Scope.ANYWHERE, P, "a setting of the converter"),
    _key("value.converter.*", T, None, Scope.ANYWHERE, P, "a setting of the converter"),
    _key("header.converter.*", T, None, Scope.ANYWHERE, P, "a setting of the converter"),
    _key(
        "exactly.once.support", T, "requested", Scope.FLOW_ONLY, P, "copies are exactly-once anyway",
        choices=("requested", "required"),
    ),
    _key("transaction.boundary", T, "poll", Scope.FLOW_ONLY, P, "no transactions are used"),
    _key("transaction.boundary.interval.ms", N, None, Scope.FLOW_ONLY, P, "no transactions are used"),
    _key("offsets.storage.topic", T, None, Scope.FLOW_ONLY, L, "positions of this flow in a topic of their own"),
    _key("topic.creation.*", T, None, Scope.FLOW_ONLY, P, "topics are created with the source's partitions"),
    _key("source.cluster.alias", T, "<A>", Scope.FLOW, H, "must be the flow's source"),
    _key("target.cluster.alias", T, "<B>", Scope.FLOW, H, "must be the flow's target"),
    _key("admin.timeout.ms", N, "60000", Scope.FLOW, L, "longest wait for an administrative request", low=1),
    _key(
        "replication.policy.class", C, f"{_MIRROR}DefaultReplicationPolicy", Scope.ANYWHERE, H,
        "how topics are called on the target", choices=tuple(POLICIES),
    ),
    _key("replication.policy.separator", T, ".", Scope.ANYWHERE, H, "stands between alias and topic"),
    _key(
        "replication.policy.internal.topic.separator.enabled", B, "true", Scope.ANYWHERE, H,
        "`false`: internal topics keep the dot; read only together with the separator",
    ),
    _only_default(
        "forwarding.admin.class", "org.apache.kafka.clients.admin.ForwardingAdmin", "Java classes are not loaded"
    ),
    _key("metric.reporters", LIST, "org.apache.kafka.common.metrics.JmxReporter", Scope.FLOW, P, "Java classes"),
    _key("auto.include.jmx.reporter", B, "true", Scope.FLOW, P, "removed in Kafka 4.0"),
    _key("metric.names.formats", LIST, "legacy", Scope.FLOW, L, "`legacy`, `new` or both"),
    _only_default("topic.filter.class", f"{_MIRROR}DefaultTopicFilter", "Java classes are not loaded"),
    _key("topics", LIST, ".*", Scope.FLOW, H, "patterns of the topics to mirror"),
    _key(
        "topics.exclude", LIST, r"mm2.*\.internal, .*\.replica, __.*", Scope.FLOW, H, "patterns never mirrored",
        old_names=("topics.blacklist",),
    ),
    _only_default(
        "config.property.filter.class", f"{_MIRROR}DefaultConfigPropertyFilter", "Java classes are not loaded"
    ),
    _key(
        "config.properties.exclude", LIST,
        "follower.replication.throttled.replicas, leader.replication.throttled.replicas, "
        "message.timestamp.difference.max.ms, log.message.timestamp.before.max.ms, "
        "log.message.timestamp.after.max.ms, message.timestamp.type, unclean.leader.election.enable, "
        "min.insync.replicas",
        Scope.FLOW, L, "patterns of the topic settings that are not copied", old_names=("config.properties.blacklist",),
    ),
    _key(
        "use.defaults.from", T, "target", Scope.FLOW_ONLY, L, "whose defaults a mirrored topic has",
        choices=("source", "target"),
    ),
    _key("use.incremental.alter.configs", T, "requested", Scope.FLOW, P, "removed in Kafka 4.0"),
    _key("consumer.poll.timeout.ms", N, "1000", Scope.FLOW, P, "see consumer.fetch.max.wait.ms", low=0),
    _switch("refresh.topics", "true", "look for new topics and partitions", H),
    _interval("refresh.topics", "600", "how often", H),
    _switch("sync.topic.configs", "true", "copy the settings of topics"),
    _interval("sync.topic.configs", "600", "how often"),
    _switch("sync.topic.acls", "true", "copy the access rules of topics"),
    _interval("sync.topic.acls", "600", "how often"),
    _factor("replication.factor", "2", Scope.FLOW, H, "replicas of created topics", kind=INT),
    _factor("offset-syncs.topic.replication.factor", "3", Scope.FLOW, H, "replicas of the offset-syncs topic"),
    _key(
        "offset-syncs.topic.location", T, "source", Scope.FLOW, H, "on which cluster it is",
        choices=("source", "target"),
    ),
    _switch("emit.offset-syncs", "true", "write offset-syncs", H),
    _key("offset.lag.max", N, "100", Scope.FLOW, H, "most records between two offset-syncs", low=0),
    _switch("heartbeats.replication", "true", "mirror heartbeats topics whatever the filter says", H),
    _key("add.source.alias.to.metrics", B, "false", Scope.FLOW, P, "removed in Kafka 4.0"),
    _key("groups", LIST, ".*", Scope.FLOW, H, "patterns of the consumer groups to carry over"),
    _key(
        "groups.exclude", LIST, "console-consumer-.*, connect-.*, __.*", Scope.FLOW, H, "patterns of groups left out",
        old_names=("groups.blacklist",),
    ),
    _only_default("group.filter.class", f"{_MIRROR}DefaultGroupFilter", "Java classes are not loaded"),
    _switch("refresh.groups", "true", "look for new groups", H),
    _interval("refresh.groups", "600", "how often", H),
    _switch("emit.checkpoints", "true", "write checkpoints", H),
    _interval("emit.checkpoints", "60", "how often", H),
    _switch("sync.group.offsets", "false", "write translated offsets into groups of the target", H),
    _interval("sync.group.offsets", "60", "how often", H),
    _factor("checkpoints.topic.replication.factor", "3", Scope.FLOW, H, "replicas of the checkpoints topic"),
    _key("group.mirroring.policy.class", C, None, Scope.FLOW, L, "a proposal for MM2 (KIP-1378)"),
    _key("reverse.checkpointing.enabled", B, "false", Scope.FLOW, L, "a proposal for MM2 (KIP-1098)"),
    _switch("emit.heartbeats", "true", "write heartbeats", H),
    _interval("emit.heartbeats", "1", "how often", H),
    _factor("heartbeats.topic.replication.factor", "3", Scope.FLOW, H, "replicas of the heartbeats topic"),
    _key("task.assigned.partitions", LIST, None, Scope.FLOW_ONLY, P, "MM2 sets it for its own tasks"),
    _key("task.assigned.groups", LIST, None, Scope.FLOW_ONLY, P, "MM2 sets it for its own tasks"),
    _key("task.index", INT, None, Scope.FLOW_ONLY, P, "MM2 sets it for its own tasks"),
)  # fmt: skip

_STATES = tuple(State)

_OWN_KEYS = tuple(
    replace(key, own=True)
    for key in (
        _key(
            "on.data.loss", T, "continue", Scope.FLOW, H, "the source deleted records before they were copied",
            choices=("continue", "stop-partition", "stop-flow"),
        ),
        _key(
            "on.topic.recreated", T, "restart", Scope.FLOW, H, "a topic was deleted and created again",
            choices=("restart", "continue", "stop-partition"),
        ),
        _key(
            "on.record.error", T, "stop-partition", Scope.FLOW, H, "the target refuses a record for good",
            choices=("stop-partition", "skip"),
        ),
        _key("max.bytes.per.second", N, "none", Scope.FLOW, L, "limit of a flow; `none`: no limit", low=1),
        _key(
            "auto.restart.enabled", B, "false", Scope.FLOW, H,
            "what failed for good is tried again: at once, then after 2, 6, 12, 20 ... minutes",
        ),
        _key(
            "auto.restart.max.restarts", INT, "none", Scope.FLOW, H, "how often in a row; `none`: no limit", low=0,
        ),
        _key("auto.restart.max.backoff.minutes", INT, "60", Scope.FLOW, H, "longest pause between restarts", low=1),
        _key(
            "offset.translation", T, "exact", Scope.FLOW, H, "positions by the ledger, or by MM2's rule",
            choices=("exact", "mm2"),
        ),
        _key("state", T, "running", Scope.FLOW, H, "`paused`, `stopped`: nothing is copied", choices=_STATES),
        _key("checkpoints.state", T, "running", Scope.FLOW, H, "the same for consumer groups", choices=_STATES),
        _key("heartbeats.state", T, "running", Scope.FLOW, H, "the same for heartbeats", choices=_STATES),
        _key("stall.timeout.ms", N, "30000", Scope.FLOW, L, "waiting records without progress: not ready", low=1),
        _key("sync.topic.acls.delete", B, "false", Scope.FLOW, L, "also delete access rules"),
        _key("write.on.failover", B, "false", Scope.FLOW, L, "give applications write access when failing over"),
        _key("provenance.headers", B, "false", Scope.FLOW, R, "not supported yet", allowed=("false",)),
        _key("partition.remap", T, "none", Scope.FLOW, R, "not supported yet", allowed=("none",)),
        _key("topic.rename.*", T, None, Scope.FLOW, R, "not supported yet"),
        _key("group.rename.*", T, None, Scope.FLOW, R, "not supported yet"),
    )
)  # fmt: skip

KEYS: tuple[Key, ...] = _GLOBAL_KEYS + _WORKER_KEYS + _CONNECTOR_KEYS + _OWN_KEYS

# Written in published files and never read by MM2.
NEVER_READ: dict[str, str] = {
    "internal.topic.replication.factor": "offset.storage.replication.factor and its like",
    "configs.storage.topic": "config.storage.topic",
    "offsets.storage.replication.factor": "offset.storage.replication.factor",
}

_CLIENT_HONOURED: dict[str, dict[str, str]] = {
    "": {
        "bootstrap.servers": "where the cluster is found",
        "security.protocol": "how the cluster is reached",
        "ssl.truststore.location": "a store with the certificates to trust; without one the system's are trusted",
        "ssl.truststore.password": "its password",
        "ssl.truststore.type": "JKS, PKCS12 or PEM; seen from the content anyway",
        "ssl.truststore.certificates": "the certificates themselves, in PEM form",
        "ssl.keystore.location": "a store with our own certificate and key",
        "ssl.keystore.password": "its password",
        "ssl.keystore.type": "JKS, PKCS12 or PEM; seen from the content anyway",
        "ssl.keystore.certificate.chain": "our certificate itself, in PEM form, with its chain",
        "ssl.keystore.key": "our key itself, in PEM form",
        "ssl.key.password": "password of our key",
        "ssl.protocol": "lowest TLS version: TLSv1.2 or TLSv1.3",
        "ssl.enabled.protocols": "the TLS versions to use",
        "ssl.cipher.suites": "the ciphers of TLS 1.2 to use, by Java's names",
        "ssl.endpoint.identification.algorithm": "`https`; empty: host names are not checked",
        "sasl.mechanism": "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER",
        "sasl.jaas.config": "login module with user and password, or with the client of OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "where a token comes from: `https:` or `file:`",
        "sasl.oauthbearer.client.credentials.client.id": "client of the token endpoint",
        "sasl.oauthbearer.client.credentials.client.secret": "its secret",
        "sasl.oauthbearer.scope": "scope of the token",
    },
    "consumer": {
        "isolation.level": "`read_committed`: leave out aborted transactions",
        "auto.offset.reset": "where a partition without a position begins",
        "client.rack": "fetch from the nearest replica",
        "fetch.max.bytes": "most bytes of one answer",
        "fetch.min.bytes": "least bytes of one answer",
        "fetch.max.wait.ms": "longest wait for them",
        "max.partition.fetch.bytes": "most bytes of one partition in an answer",
    },
    "producer": {"compression.type": "`none`: as on the source; anything else compresses again"},
    "admin": {},
}

_CLIENT_CHOICES: dict[str, tuple[str, ...]] = {
    "security.protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "isolation.level": ("read_uncommitted", "read_committed"),
    "auto.offset.reset": ("earliest", "latest"),
    "compression.type": ("none", "gzip", "snappy", "lz4", "zstd"),
}

_NO_GROUP = "no consumer group is used on the source"
_NO_SERIALIZERS = "records are copied as bytes"
_ALWAYS = "copies are always idempotent and acknowledged by all replicas"
_CLIENT_POINTLESS: dict[str, str] = {
    **dict.fromkeys(
        (
            "group.id", "group.instance.id", "group.protocol", "group.remote.assignor", "session.timeout.ms",
            "heartbeat.interval.ms", "max.poll.interval.ms", "partition.assignment.strategy", "enable.auto.commit",
            "auto.commit.interval.ms", "share.acknowledgement.mode", "share.acquire.mode", "exclude.internal.topics",
        ),
        _NO_GROUP,
    ),
    **dict.fromkeys(
        ("key.serializer", "value.serializer", "key.deserializer", "value.deserializer", "max.poll.records"),
        _NO_SERIALIZERS,
    ),
    **dict.fromkeys(
        (
            "acks", "enable.idempotence", "retries", "max.in.flight.requests.per.connection", "transactional.id",
            "transaction.timeout.ms", "transaction.two.phase.commit.enable", "delivery.timeout.ms",
        ),
        _ALWAYS,
    ),
    **dict.fromkeys(
        (
            "partitioner.class", "partitioner.ignore.keys", "partitioner.adaptive.partitioning.enable",
            "partitioner.availability.timeout.ms",
        ),
        "a record keeps its partition",
    ),
    **dict.fromkeys(
        ("batch.size", "linger.ms", "buffer.memory", "max.block.ms"),
        "batches are copied as they are, in bounded memory",
    ),
    **dict.fromkeys(
        ("compression.gzip.level", "compression.lz4.level", "compression.zstd.level"),
        "where batches are compressed anew, it is at the codec's usual level",
    ),
    **dict.fromkeys(
        (
            "metadata.max.age.ms", "metadata.max.idle.ms", "metadata.recovery.strategy",
            "metadata.recovery.rebootstrap.trigger.ms",
        ),
        "leaders are looked up when they move, topics by refresh.topics.interval.seconds; all bootstrap servers are "
        "asked when no broker answers",
    ),
    **dict.fromkeys(
        (
            "reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.ms", "retry.backoff.max.ms",
            "socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms",
        ),
        "pauses grow from 50 ms to 5 s; a connection has 5 s to come about",
    ),
    **dict.fromkeys(
        ("request.timeout.ms", "default.api.timeout.ms"),
        "a request without an answer for 30 s is given up and what became of it is found out",
    ),
    **dict.fromkeys(("send.buffer.bytes", "receive.buffer.bytes"), "the system sizes its buffers by itself"),
    **dict.fromkeys(
        (
            "metrics.num.samples", "metrics.sample.window.ms", "metrics.recording.level", "metric.reporters",
            "enable.metrics.push",
        ),
        "they are about the metrics of Java's clients",
    ),
    **dict.fromkeys(
        (
            "security.providers", "ssl.provider", "ssl.engine.factory.class", "ssl.keymanager.algorithm",
            "ssl.trustmanager.algorithm", "ssl.secure.random.implementation", "sasl.login.class",
            "sasl.client.callback.handler.class", "sasl.login.callback.handler.class",
            "sasl.oauthbearer.jwt.retriever.class", "sasl.oauthbearer.jwt.validator.class",
        ),
        "Java classes are not loaded",
    ),
    **dict.fromkeys(
        (
            "sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer",
            "sasl.oauthbearer.clock.skew.seconds", "sasl.oauthbearer.jwks.endpoint.url",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms", "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", "sasl.oauthbearer.scope.claim.name",
            "sasl.oauthbearer.sub.claim.name",
        ),
        "it is for brokers, which check tokens",
    ),
    **dict.fromkeys(
        (
            "sasl.kerberos.kinit.cmd", "sasl.kerberos.service.name", "sasl.kerberos.min.time.before.relogin",
            "sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor",
        ),
        "Kerberos is not supported, and `run` says so",
    ),
    **dict.fromkeys(
        (
            "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms", "sasl.login.retry.backoff.ms",
            "sasl.login.retry.backoff.max.ms", "sasl.login.refresh.buffer.seconds",
            "sasl.login.refresh.min.period.seconds", "sasl.login.refresh.window.factor",
            "sasl.login.refresh.window.jitter", "sasl.oauthbearer.header.urlencode",
        ),
        "a token is fetched for each login, and has 10 s to come",
    ),
    "max.request.size": "the target topic's max.message.bytes is the limit",
    "client.dns.lookup": "all addresses of a name are tried",
    "connections.max.idle.ms": "connections are kept",
    "client.id": "client ids are made from the flow's name, see the target's client.id",
    "config.providers": "placeholders are resolved before a client gets its keys",
    "bootstrap.controllers": "brokers are asked, not controllers",
    "check.crcs": "checksums are always checked",
    "allow.auto.create.topics": "topics are created explicitly",
}  # fmt: skip


def _client_key(role: str, name: str, kind: Kind) -> Key:
    """A row for a client's key; `role` is empty for those of all clients of a cluster."""
    full = f"{role}.{name}" if role else name
    scope = Scope.WORKER if role else Scope.CONNECTION
    choices = _CLIENT_CHOICES.get(name, ())
    if (meaning := _CLIENT_HONOURED[role].get(name) or _CLIENT_HONOURED[""].get(name)) is not None:
        return _key(full, kind, None, scope, H, meaning, choices=choices)
    if name == "interceptor.classes":
        return _key(full, kind, "", scope, R, "interceptors may change records", allowed=("",))
    if (reason := _CLIENT_POINTLESS.get(name)) is not None:
        return _key(full, kind, None, scope, P, reason)
    assert name.startswith("sasl.oauthbearer.assertion."), name  # every other key of a client has a reason above
    return _key(full, kind, None, scope, R, "tokens come from a file or for client credentials, not for assertions")


CONNECTION_KEYS = {name: _client_key("", name, kind) for name, kind in CONNECTION.items()}
CLIENT_KEYS = {
    role: {name: _client_key(role, name, kind) for name, kind in names.items()} for role, names in ROLES.items()
}

_BY_NAME: dict[str, list[Key]] = {}
for _row in KEYS:
    for _name in (_row.name, *_row.old_names):
        _BY_NAME.setdefault(_name, []).append(_row)
_FAMILIES = [(key.name[:-1], key) for key in KEYS if key.name.endswith(".*")]

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
    """The connector of a flow that acts on a key; a key that several read is the source connector's."""
    if name.startswith(_CHECKPOINT_NAMES):
        return Connector.CHECKPOINT
    return Connector.HEARTBEAT if name.startswith(_HEARTBEAT_NAMES) else Connector.SOURCE


_FLOW_SIDES = ("source.", "target.")


def find_key(where: Where, name: str) -> Found:
    """What a key is at a place; `name` is without the prefix of its flow or cluster."""
    rows = _BY_NAME.get(name) or [key for prefix, key in _FAMILIES if name.startswith(prefix) and name != prefix]
    for row in rows:
        if where in row.scope.places:
            return Found(key=row, replaced_by=row.name if name in row.old_names else "")
    client = _find_client(where, name)
    if client is not None and (client.key is not None or not rows):
        return client
    if rows:
        return Found(hint=_place_hint(rows[0], name))
    if name in NEVER_READ:
        return Found(hint=f"MM2 never reads it; it may mean {NEVER_READ[name]}")
    return Found(nearest=_nearest(where, name))


def _find_client(where: Where, name: str) -> Found | None:
    """Keys of Kafka's clients, with the prefixes that are allowed at the place."""
    if where is not Where.FLOW and name in CONNECTION_KEYS:
        return Found(key=CONNECTION_KEYS[name])
    if where is Where.CLUSTER and (worker := CLIENT_KEYS["admin"].get(name)) is not None:
        return Found(key=worker)
    role, rest, prefixed = _split_role(name)
    if prefixed and where is not Where.FLOW and name.startswith(_FLOW_SIDES):
        return Found(hint=f"write <A>-><B>.{name}")
    if role == "cluster" and where is Where.FLOW:
        return Found(key=CONNECTION_KEYS[rest]) if rest in CONNECTION_KEYS else None
    if role in CLIENT_KEYS and rest in CLIENT_KEYS[role]:
        if where is Where.TOP:
            return Found(hint=f"write {_side(role)}{role}.{rest}")
        if where is Where.CLUSTER and ".override." in name:
            return Found(hint=f"write <A>-><B>.{name}")
        return Found(key=_at_flow(name, CLIENT_KEYS[role][rest]) if where is Where.FLOW else CLIENT_KEYS[role][rest])
    if name in CONNECTION_KEYS:
        return Found(hint=f"write <X>.{name}")
    for role, keys in CLIENT_KEYS.items():
        if name in keys:
            return Found(hint=f"write {_side(role)}{role}.{name}")
    return None


def _at_flow(name: str, key: Key) -> Key:
    """Under a flow only these reach the data; `producer.` means the producer of offset-syncs."""
    admins = ("admin.", "source.admin.", "target.admin.")
    reaches = name.startswith(("consumer.", "source.consumer.", "producer.override.", *admins))
    return key if reaches or key.effect is not H else replace(key, effect=L)


def _split_role(name: str) -> tuple[str, str, bool]:
    """`source.consumer.x`, `consumer.x` or `producer.override.x` as role and rest; whether a side was named."""
    sided = name.startswith(_FLOW_SIDES)
    rest = name.split(".", 1)[1] if sided else name
    role, _, key = rest.partition(".")
    return role, key if sided else key.removeprefix("override."), sided


def _side(role: str) -> str:
    return {"consumer": "<source>.", "producer": "<target>."}.get(role, "<X>.")


def _place_hint(row: Key, name: str) -> str:
    places = {
        Where.TOP: f"{name} at the top level",
        Where.FLOW: f"<A>-><B>.{name}",
        Where.CLUSTER: f"<target>.{name}",
    }
    return "write " + " or ".join(places[place] for place in row.scope.places)


def _nearest(where: Where, name: str) -> str:
    role, rest, sided = _split_role(name)
    if role in CLIENT_KEYS and where is not Where.TOP:
        prefix = name[: len(name) - len(rest)]
        return prefix + best if (best := _closest(rest, CLIENT_KEYS[role])) else ""
    if sided and role == "cluster":
        return name[: len(name) - len(rest)] + best if (best := _closest(rest, CONNECTION_KEYS)) else ""
    names = [n for n, rows in _BY_NAME.items() if any(where in row.scope.places for row in rows)]
    if where is not Where.FLOW:
        names += CONNECTION_KEYS
    return _closest(name, (n for n in names if not n.endswith(".*")))


def _closest(name: str, candidates: Iterable[str]) -> str:
    best = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.6)
    return best[0] if best else ""
