"""Settings of topics as an administrator sees and changes them, with other clients than the mirror's."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource

from heliograph.lab import Lab, LabCluster
from tests.cluster.mirror import MirrorProcess, admin, partition_count

_TOOLS = {
    "kafka-topics.sh": ("kafka.admin.TopicCommand", "2.4.1"),  # later ones are in a jar that brokers do not need
    "kafka-configs.sh": ("kafka.admin.ConfigCommand", "4.3.1"),
}


class Setting(NamedTuple):
    value: str
    is_own: bool
    """Set on the topic itself."""


def settings_of(cluster: LabCluster, topic: str) -> dict[str, Setting]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    entries = admin(cluster).describe_configs([resource])[resource].result(30)
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {name: Setting(entry.value, entry.source == own) for name, entry in entries.items()}


def own_settings(cluster: LabCluster, topic: str) -> dict[str, str]:
    return {name: found.value for name, found in settings_of(cluster, topic).items() if found.is_own}


def change_settings(cluster: LabCluster, topic: str, changes: Mapping[str, str | None]) -> None:
    """Set values on a topic; None takes one away."""
    entries = [
        ConfigEntry(
            name,
            value or "",
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for name, value in changes.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin(cluster).incremental_alter_configs([resource])[resource].result(30)


def wait_own(mirror: MirrorProcess, cluster: LabCluster, topic: str, wanted: Mapping[str, str]) -> None:
    """Until a topic has these settings of its own, and no others."""
    mirror.wait_until(
        lambda: partition_count(cluster, topic) and own_settings(cluster, topic) == wanted, what=f"{wanted} of {topic}"
    )


def wait_set(mirror: MirrorProcess, cluster: LabCluster, topic: str, key: str, wanted: Setting) -> None:
    mirror.wait_until(
        lambda: partition_count(cluster, topic) and settings_of(cluster, topic)[key] == wanted,
        what=f"{wanted} of {topic}",
    )


def wait_changes(mirror: MirrorProcess, topic: str, count: int) -> list[str]:
    """What the mirror says of so many changes, a moment after each."""
    mirror.wait_until(lambda: len(changes_told(mirror, topic)) >= count, what=f"{count} lines about {topic}")
    return changes_told(mirror, topic)


def changes_told(mirror: MirrorProcess, topic: str) -> list[str]:
    """What a mirror said of changes of a topic's settings."""
    about = f'settings of "{topic}": '
    return [line.partition(about)[2] for line in mirror.stderr if about in line]


def run_command(lab: Lab, cluster: LabCluster, command: str) -> None:
    """A command that a message tells administrators to run, by Kafka's own tool."""
    script, *arguments = shlex.split(command.replace("<address>", cluster.bootstrap))
    main_class, version = _TOOLS[script]
    java = lab.java(main_class, *arguments, version=version)
    done = subprocess.run(java.argv, env=java.env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
