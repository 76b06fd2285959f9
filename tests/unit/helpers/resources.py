"""Resources for tests: the two layouts, and ways to put fields into them."""

from __future__ import annotations

import textwrap
from pathlib import Path

from heliograph.config.findings import Finding, Severity
from heliograph.config.load import Loaded, inspect_content
from heliograph.config.secrets import Resolver
from heliograph.config.settings import Settings

OLD = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
metadata:
  name: mirror
spec:
  replicas: 1
  connectCluster: B
  clusters:
  - alias: A
    bootstrapServers: a:9092
  - alias: B
    bootstrapServers: b:9092
  mirrors:
  - sourceCluster: A
    targetCluster: B
    sourceConnector: {}
"""
V1 = """\
apiVersion: kafka.strimzi.io/v1
kind: KafkaMirrorMaker2
metadata:
  name: mirror
spec:
  replicas: 1
  target:
    alias: B
    bootstrapServers: b:9092
    groupId: my-group
    configStorageTopic: my-configs
    statusStorageTopic: my-status
    offsetStorageTopic: my-offsets
  mirrors:
  - source:
      alias: A
      bootstrapServers: a:9092
    sourceConnector: {}
"""
IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def inspect(text: str, secrets: Path | None = None) -> Loaded:
    return inspect_content(text.encode(), "mm2.yaml", resolver=Resolver(folder=secrets))


def load(text: str, secrets: Path | None = None) -> Settings:
    return inspect(text, secrets).valid_settings()


def with_cluster(fields: str) -> str:
    """The old layout with fields added to cluster A."""
    return OLD.replace("    bootstrapServers: a:9092\n", "    bootstrapServers: a:9092\n" + indented(fields, 4))


def with_target(fields: str) -> str:
    return OLD.replace("    bootstrapServers: b:9092\n", "    bootstrapServers: b:9092\n" + indented(fields, 4))


def with_mirror(fields: str) -> str:
    """The old layout with these fields in place of its connector."""
    return OLD.replace("    sourceConnector: {}\n", indented(fields, 4))


def with_spec(fields: str, base: str = OLD) -> str:
    return base + indented(fields, 2)


def indented(fields: str, width: int) -> str:
    return textwrap.indent(textwrap.dedent(fields).strip("\n") + "\n", " " * width)


def of(loaded: Loaded, rule: str) -> list[Finding]:
    return [finding for finding in loaded.findings if finding.rule == rule]


def texts(loaded: Loaded, severity: Severity) -> list[str]:
    return [finding.text for finding in loaded.findings if finding.severity is severity]


def errors(text: str, secrets: Path | None = None) -> list[str]:
    return texts(inspect(text, secrets), Severity.ERROR)


def security(text: str, secrets: Path) -> dict[str, str]:
    cluster = load(text, secrets).clusters["A"]
    return {"security.protocol": cluster.security_protocol, **cluster.properties}
