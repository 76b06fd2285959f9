"""Lists the names of Kafka's client settings (clients of 4.3) with their types. Names only: no effects."""

from __future__ import annotations

from enum import StrEnum


class ValueKind(StrEnum):
    """Types of values, as Kafka's ConfigDef names them."""

    BOOLEAN = "boolean"
    SHORT = "short"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    STRING = "string"
    LIST = "list"
    CLASS = "class"
    PASSWORD = "password"


def _all(kind: ValueKind, names: str) -> dict[str, ValueKind]:
    return dict.fromkeys(names.split(), kind)


# fmt: off
CONNECTION: dict[str, ValueKind] = {
    **_all(ValueKind.BOOLEAN, """
        sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.header.urlencode
    """),
    **_all(ValueKind.CLASS, """
        sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class
        sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class ssl.engine.factory.class
    """),
    **_all(ValueKind.DOUBLE, """
        sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.refresh.window.factor
        sasl.login.refresh.window.jitter
    """),
    **_all(ValueKind.INT, """
        sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.oauthbearer.assertion.claim.exp.seconds
        sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.clock.skew.seconds
    """),
    **_all(ValueKind.LIST, """
        bootstrap.servers sasl.oauthbearer.expected.audience ssl.cipher.suites ssl.enabled.protocols
    """),
    **_all(ValueKind.LONG, """
        sasl.kerberos.min.time.before.relogin sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
        sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
    """),
    **_all(ValueKind.PASSWORD, """
        sasl.jaas.config sasl.oauthbearer.assertion.private.key.passphrase
        sasl.oauthbearer.client.credentials.client.secret ssl.key.password ssl.keystore.certificate.chain
        ssl.keystore.key ssl.keystore.password ssl.truststore.certificates ssl.truststore.password
    """),
    **_all(ValueKind.SHORT, """
        sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
    """),
    **_all(ValueKind.STRING, """
        sasl.kerberos.kinit.cmd sasl.kerberos.service.name sasl.mechanism sasl.oauthbearer.assertion.algorithm
        sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.iss
        sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
        sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.template.file
        sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.expected.issuer
        sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name
        sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url security.protocol
        ssl.endpoint.identification.algorithm ssl.keymanager.algorithm ssl.keystore.location ssl.keystore.type
        ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
        ssl.truststore.location ssl.truststore.type
    """),
}
"""Settings that reach every client of a cluster, from `<X>.<key>` or from the top level."""

_COMMON: dict[str, ValueKind] = {
    **_all(ValueKind.BOOLEAN, """
        enable.metrics.push
    """),
    **_all(ValueKind.INT, """
        metrics.num.samples receive.buffer.bytes request.timeout.ms send.buffer.bytes
    """),
    **_all(ValueKind.LIST, """
        config.providers metric.reporters
    """),
    **_all(ValueKind.LONG, """
        connections.max.idle.ms metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms
        metrics.sample.window.ms reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms
        retry.backoff.ms socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    """),
    **_all(ValueKind.STRING, """
        client.dns.lookup client.id metadata.recovery.strategy metrics.recording.level security.providers
    """),
}
"""Settings of all three kinds of client."""

_PRODUCER: dict[str, ValueKind] = {
    **_all(ValueKind.BOOLEAN, """
        enable.idempotence partitioner.adaptive.partitioning.enable partitioner.ignore.keys
        transaction.two.phase.commit.enable
    """),
    **_all(ValueKind.CLASS, """
        key.serializer partitioner.class value.serializer
    """),
    **_all(ValueKind.INT, """
        batch.size compression.gzip.level compression.lz4.level compression.zstd.level delivery.timeout.ms
        max.in.flight.requests.per.connection max.request.size retries transaction.timeout.ms
    """),
    **_all(ValueKind.LIST, """
        interceptor.classes
    """),
    **_all(ValueKind.LONG, """
        buffer.memory linger.ms max.block.ms metadata.max.idle.ms partitioner.availability.timeout.ms
    """),
    **_all(ValueKind.STRING, """
        acks compression.type transactional.id
    """),
}
"""Settings of producers alone."""

_CONSUMER: dict[str, ValueKind] = {
    **_all(ValueKind.BOOLEAN, """
        allow.auto.create.topics check.crcs enable.auto.commit exclude.internal.topics
    """),
    **_all(ValueKind.CLASS, """
        key.deserializer value.deserializer
    """),
    **_all(ValueKind.INT, """
        auto.commit.interval.ms default.api.timeout.ms fetch.max.bytes fetch.max.wait.ms fetch.min.bytes
        heartbeat.interval.ms max.partition.fetch.bytes max.poll.interval.ms max.poll.records session.timeout.ms
    """),
    **_all(ValueKind.LIST, """
        interceptor.classes partition.assignment.strategy
    """),
    **_all(ValueKind.STRING, """
        auto.offset.reset client.rack group.id group.instance.id group.protocol group.remote.assignor
        isolation.level share.acknowledgement.mode share.acquire.mode
    """),
}
"""Settings of consumers alone."""

_ADMIN: dict[str, ValueKind] = {
    **_all(ValueKind.INT, """
        default.api.timeout.ms retries
    """),
    **_all(ValueKind.LIST, """
        bootstrap.controllers
    """),
}
"""Settings of admin clients alone."""

# fmt: on

CLIENT_NAMES = frozenset(CONNECTION)
PRODUCER = CONNECTION | _COMMON | _PRODUCER
CONSUMER = CONNECTION | _COMMON | _CONSUMER
ADMIN = CONNECTION | _COMMON | _ADMIN
ROLES: dict[str, dict[str, ValueKind]] = {"consumer": CONSUMER, "producer": PRODUCER, "admin": ADMIN}
