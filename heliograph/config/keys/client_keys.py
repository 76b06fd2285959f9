"""Lists the keys of Kafka's own clients: which have an effect here, and why the others do not."""

from __future__ import annotations

from heliograph.config.keys.client_settings import CONNECTION, ROLES, ValueKind
from heliograph.config.keys.key import Effect, Key, Scope, row

_MAX_AGE = "how often metadata is refreshed although nothing failed (default 300000)"
_HONOURED: dict[str, dict[str, str]] = {
    "": {
        "bootstrap.servers": "the brokers to connect to first",
        "security.protocol": "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
        "ssl.truststore.location": "a store with the certificates to trust; without one the system's are trusted",
        "ssl.truststore.password": "its password",
        "ssl.truststore.type": "JKS, PKCS12 or PEM; detected from the content anyway",
        "ssl.truststore.certificates": "the trusted certificates, in PEM form",
        "ssl.keystore.location": "a store with our own certificate and key",
        "ssl.keystore.password": "its password",
        "ssl.keystore.type": "JKS, PKCS12 or PEM; detected from the content anyway",
        "ssl.keystore.certificate.chain": "our certificate with its chain, in PEM form",
        "ssl.keystore.key": "our private key, in PEM form",
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
        "fetch.max.bytes": "maximum bytes of one response",
        "fetch.min.bytes": "minimum bytes of one response",
        "fetch.max.wait.ms": "longest wait for the minimum",
        "max.partition.fetch.bytes": "maximum bytes of one partition in a response",
        "metadata.max.age.ms": _MAX_AGE,
    },
    "producer": {
        "compression.type": "`none`: as on the source; anything else compresses again",
        "metadata.max.age.ms": _MAX_AGE,
    },
    "admin": {"metadata.max.age.ms": _MAX_AGE},
}

_CHOICES: dict[str, tuple[str, ...]] = {
    "security.protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "isolation.level": ("read_uncommitted", "read_committed"),
    "auto.offset.reset": ("earliest", "latest"),
    "compression.type": ("none", "gzip", "snappy", "lz4", "zstd"),
}

_NO_GROUP = "no consumer group is used on the source"
_NO_SERIALIZERS = "records are copied as bytes"
_ALWAYS = "copies are always idempotent and acknowledged by all replicas"
_POINTLESS: dict[str, str] = {
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
        "batches that are compressed again use the codec's default level",
    ),
    **dict.fromkeys(
        (
            "metadata.max.idle.ms", "metadata.recovery.strategy", "metadata.recovery.rebootstrap.trigger.ms",
        ),
        "leaders are looked up when they change, topics by refresh.topics.interval.seconds; all bootstrap servers are "
        "asked when no broker answers",
    ),
    **dict.fromkeys(
        (
            "reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.ms", "retry.backoff.max.ms",
            "socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms",
        ),
        "back-off grows from 50 ms to 5 s; a connection must be set up within 5 s",
    ),
    **dict.fromkeys(
        ("request.timeout.ms", "default.api.timeout.ms"),
        "a request times out after 30 s; its outcome is then read from the target's log",
    ),
    **dict.fromkeys(("send.buffer.bytes", "receive.buffer.bytes"), "the system sizes its buffers by itself"),
    **dict.fromkeys(
        (
            "metrics.num.samples", "metrics.sample.window.ms", "metrics.recording.level", "metric.reporters",
            "enable.metrics.push",
        ),
        "only Java's clients have these metrics",
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
        "only brokers use it, to check tokens",
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
        "a token is fetched for each login, within 10 s",
    ),
    "max.request.size": "the target topic's max.message.bytes is the limit",
    "client.dns.lookup": "all addresses of a name are tried",
    "connections.max.idle.ms": "idle connections are kept open",
    "client.id": "client ids are made from the flow's name, see the target's client.id",
    "config.providers": "placeholders are resolved before a client gets its keys",
    "bootstrap.controllers": "requests go to brokers, not to controllers",
    "check.crcs": "checksums are always checked",
    "allow.auto.create.topics": "topics are created explicitly",
}  # fmt: skip


def _client_key(role: str, name: str, kind: ValueKind) -> Key:
    """Builds the table entry of a client's key; `role` is empty for those of all clients of a cluster."""
    full = f"{role}.{name}" if role else name
    scope = Scope.WORKER if role else Scope.CONNECTION
    choices = _CHOICES.get(name, ())
    if (meaning := _HONOURED[role].get(name) or _HONOURED[""].get(name)) is not None:
        return row(full, kind, None, scope, Effect.HONOURED, meaning, choices=choices)
    if name == "interceptor.classes":
        return row(full, kind, "", scope, Effect.REFUSED, "interceptors may change records", allowed=("",))
    if (reason := _POINTLESS.get(name)) is not None:
        return row(full, kind, None, scope, Effect.POINTLESS, reason)
    assert name.startswith("sasl.oauthbearer.assertion."), name  # every other key of a client has a reason above
    return row(
        full, kind, None, scope, Effect.REFUSED, "tokens come from a file or by client credentials, not by assertions"
    )


CONNECTION_KEYS = {name: _client_key("", name, kind) for name, kind in CONNECTION.items()}
CLIENT_KEYS = {
    role: {name: _client_key(role, name, kind) for name, kind in names.items()} for role, names in ROLES.items()
}
