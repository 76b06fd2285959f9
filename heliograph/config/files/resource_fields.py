"""Lists the fields of a `KafkaMirrorMaker2` resource, all versions together: where each is known, what it does."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from enum import StrEnum

from heliograph.config.files.yaml_tree import Mapping as Map
from heliograph.config.findings import FilePlace, Report


class FieldRole(StrEnum):
    """The effect of a field."""

    READ = "read"
    PODS = "concerns its pods and is kept for them"
    POINTLESS = "has no effect here"
    LATER = "has no effect yet"


R, P, N, L = FieldRole.READ, FieldRole.PODS, FieldRole.POINTLESS, FieldRole.LATER

DOCUMENT = dict.fromkeys(("apiVersion", "kind", "metadata", "spec"), R) | {"status": N}
METADATA = dict.fromkeys(("name", "namespace", "labels", "annotations"), R)
"""Metadata fields that people write; Kubernetes adds others, so this level is not checked."""
SPEC = {
    **dict.fromkeys(("replicas", "connectCluster", "clusters", "target", "mirrors"), R),
    **dict.fromkeys(
        (
            "version", "image", "resources", "livenessProbe", "readinessProbe", "jvmOptions", "jmxOptions", "logging",
            "clientRackInitImage", "rack", "metricsConfig", "metrics", "tracing", "template", "externalConfiguration",
            "affinity", "tolerations",
        ),
        P,
    ),
}  # fmt: skip
CLUSTER = dict.fromkeys(("alias", "bootstrapServers", "tls", "authentication", "config"), R)
STORAGE = {
    "groupId": "group.id",
    "configStorageTopic": "config.storage.topic",
    "statusStorageTopic": "status.storage.topic",
    "offsetStorageTopic": "offset.storage.topic",
}
"""Fields of the `v1` target with the worker's keys that they stand for."""
TARGET = CLUSTER | dict.fromkeys(STORAGE, R)
PATTERNS = {
    "topicsPattern": "topics",
    "topicsExcludePattern": "topics.exclude",
    "topicsBlacklistPattern": "topics.exclude",
    "groupsPattern": "groups",
    "groupsExcludePattern": "groups.exclude",
    "groupsBlacklistPattern": "groups.exclude",
}
OLD_PATTERNS = {
    "topicsBlacklistPattern": "topicsExcludePattern",
    "groupsBlacklistPattern": "groupsExcludePattern",
}
OLD_ONLY = frozenset(("connectCluster", "clusters", "sourceCluster", "targetCluster"))
V1_ONLY = frozenset(("target", "source"))
"""Fields of one layout that the other does not read."""
MIRROR = dict.fromkeys(
    (
        "source", "sourceCluster", "targetCluster", "sourceConnector", "checkpointConnector", "heartbeatConnector",
        *PATTERNS,
    ),
    R,
)  # fmt: skip
CONNECTOR = {
    **dict.fromkeys(("tasksMax", "config", "state", "pause", "autoRestart"), R),
    "version": N,
    "listOffsets": L,
    "alterOffsets": L,
}
AUTO_RESTART = {
    "enabled": "auto.restart.enabled",
    "maxRestarts": "auto.restart.max.restarts",
    "maxBackoffMinutes": "auto.restart.max.backoff.minutes",
}
"""Fields of `autoRestart` with the keys that they stand for."""
TLS = {"trustedCertificates": R}
CERTIFICATE = dict.fromkeys(("secretName", "certificate", "pattern"), R)
CERTIFICATE_AND_KEY = dict.fromkeys(("secretName", "certificate", "key"), R)
PASSWORD_SECRET = {**dict.fromkeys(("secretName", "password"), R), "key": N}
SECRET = dict.fromkeys(("secretName", "key"), R)
AUTHENTICATION = {
    **dict.fromkeys(
        (
            "type", "certificateAndKey", "username", "passwordSecret", "sasl", "config", "clientId", "clientSecret",
            "tokenEndpointUri", "scope", "accessToken", "accessTokenLocation", "tlsTrustedCertificates",
        ),
        R,
    ),
    **dict.fromkeys(
        (
            "audience", "refreshToken", "clientAssertion", "clientAssertionLocation", "clientAssertionType",
            "connectTimeoutSeconds", "readTimeoutSeconds", "httpRetries", "httpRetryPauseMs", "maxTokenExpirySeconds",
            "accessTokenIsJwt", "disableTlsHostnameVerification", "enableMetrics", "includeAcceptHeader", "grantType",
            "saslExtensions",
        ),
        L,
    ),
}  # fmt: skip
_PASSWORD = frozenset(("username", "passwordSecret"))
USED_BY_TYPE: dict[str, frozenset[str]] = {
    "tls": frozenset(("certificateAndKey",)),
    "plain": _PASSWORD,
    "scram-sha-256": _PASSWORD,
    "scram-sha-512": _PASSWORD,
    "oauth": frozenset(
        (
            "clientId", "clientSecret", "tokenEndpointUri", "scope", "accessToken", "accessTokenLocation",
            "tlsTrustedCertificates",
        )
    ),
    "custom": frozenset(("sasl", "config")),
}  # fmt: skip
"""The fields that are read for each type of authentication."""

LEVELS: dict[str, Mapping[str, FieldRole]] = {
    "the document": DOCUMENT,
    "metadata": METADATA,
    "spec": SPEC,
    "a cluster": CLUSTER,
    "spec.target of v1": dict.fromkeys(STORAGE, R),
    "a mirror": MIRROR,
    "a connector": CONNECTOR,
    "autoRestart": dict.fromkeys(AUTO_RESTART, R),
    "tls": TLS,
    "authentication": AUTHENTICATION,
}


def check_fields(node: Map, known: Mapping[str, FieldRole], path: str, report: Report) -> dict[str, FieldRole]:
    """Reports unknown fields; returns the roles of the known fields that are present."""
    found: dict[str, FieldRole] = {}
    for name, place in node.keys.items():
        role = known.get(name)
        if role is None:
            _report_unknown(name, known, path, place, report)
            continue
        found[name] = role
        if role is not R:
            report.inform("resource-field", f'"{path}.{name}" {role}' if path else f'"{name}" {role}', place)
    return found


def _report_unknown(name: str, known: Mapping[str, FieldRole], path: str, place: FilePlace, report: Report) -> None:
    what = f'"{name}" is not a field of {path or "the document"}'
    levels = {level: fields for level, fields in LEVELS.items() if fields is not known}
    elsewhere = [level for level, fields in levels.items() if name in fields]
    if elsewhere:
        hint = f"it belongs to {' or '.join(elsewhere)}: check the indentation"
        report.error("misplaced-field", what, place, remedy=hint)
    elif "." in name:
        hint = 'a key with a dot belongs to "config": check the indentation'
        report.error("misplaced-field", what, place, remedy=hint)
    elif near := _closest(name, known, 0.6):
        report.error("misspelt-key", what, place, remedy=f'did you mean "{near}"?')
    elif far := _closest(name, (field for fields in levels.values() for field in fields), 0.75):
        level = next(level for level, fields in levels.items() if far in fields)
        hint = f'did you mean "{far}" of {level}? check the indentation'
        report.error("misspelt-key", what, place, remedy=hint)
    else:
        report.warn("unknown-key", what, place, remedy="check the spelling and the indentation")


def _closest(name: str, fields: Iterable[str], cutoff: float) -> str:
    near = difflib.get_close_matches(name, list(fields), n=1, cutoff=cutoff)
    return near[0] if near else ""
