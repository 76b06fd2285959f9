"""The published configurations, and short ways to look at one."""

from __future__ import annotations

from pathlib import Path

from heliograph.config.findings import Finding
from heliograph.config.load import Loaded, inspect_file
from heliograph.config.settings import Checkpoints, ClusterSettings, Flow, Settings

CONFIGS = Path(__file__).parents[2] / "published_configs"
SECRETS = CONFIGS / "secrets"
PUBLISHED = sorted(path.name for path in CONFIGS.iterdir() if path.is_file())

NA, SA, EU = "northamerica", "southamerica", "europe"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def inspect(name: str) -> Loaded:
    return inspect_file(CONFIGS / name, secrets=SECRETS)


def load(name: str) -> Settings:
    return inspect(name).valid_settings()


def only_flow(name: str) -> Flow:
    (flow,) = load(name).flows
    return flow


def named(findings: tuple[Finding, ...], rule: str) -> list[Finding]:
    return [finding for finding in findings if finding.rule == rule]


def lines(settings: Settings, rule: str) -> list[int]:
    return [finding.place.line for finding in named(settings.findings, rule) if finding.place is not None]


def warnings(settings: Settings) -> list[str]:
    return [finding.rule for finding in settings.warnings]


def checkpoints_of(flow: Flow) -> Checkpoints:
    assert flow.checkpoints is not None
    return flow.checkpoints


def storage_topics(flow: Flow) -> tuple[str, str, str]:
    return flow.status_storage_topic, flow.offset_storage_topic, flow.config_storage_topic


def storage_factors(flow: Flow) -> tuple[int, int, int]:
    return (
        flow.status_storage_replication_factor,
        flow.offset_storage_replication_factor,
        flow.config_storage_replication_factor,
    )


def security(cluster: ClusterSettings) -> dict[str, str]:
    return {"security.protocol": cluster.security_protocol, **cluster.properties}


def scram(user: str, password: str) -> str:
    return f'{SCRAM} required username="{user}" password="{password}";'
