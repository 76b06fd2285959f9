"""Writes rights as an administrator grants them: `kafka-acls` commands and Strimzi's `KafkaUser`. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from heliograph.kafka.admin.acls import Pattern, ResourceType
from heliograph.rights.required import Resource, Right

_OPTIONS = {ResourceType.TOPIC: "--topic", ResourceType.GROUP: "--group"}
_API_VERSION = "kafka.strimzi.io/v1beta2"
_NAME = re.compile(r"(?:^|,)\s*CN=([^,]+)")


def add_command(right: Right, user: str) -> str:
    """Return the command that grants one right, for the remedy of an error."""
    return _command([right], user, "<address>")


def commands(rights: Iterable[Right], user: str, bootstrap: Sequence[str]) -> list[str]:
    """Return a `kafka-acls` command for each resource."""
    address = ",".join(bootstrap) or "<address>"
    return [_command(group, user, address) for group in _by_resource(rights).values()]


def _command(rights: Sequence[Right], user: str, address: str) -> str:
    resource = rights[0].resource
    words = ["kafka-acls.sh", "--bootstrap-server", address, "--add", "--allow-principal", user]
    for right in rights:
        words += ["--operation", str(right.operation)]
    if resource.kind is ResourceType.CLUSTER:
        words.append("--cluster")
    else:
        words += [_OPTIONS[resource.kind], resource.name]
        words += ["--resource-pattern-type", "prefixed"] if resource.pattern is Pattern.PREFIXED else []
    return shlex.join(words).replace("'<address>'", "<address>")


def kafka_user(rights: Iterable[Right], user: str, cluster: str, authentication: str) -> str:
    """Return a `KafkaUser` resource; its label assumes that the Kafka cluster is named like its alias."""
    name = user.removeprefix("User:")
    common = _NAME.search(name)
    document: dict[str, Any] = {
        "apiVersion": _API_VERSION,
        "kind": "KafkaUser",
        "metadata": {"name": common[1] if common else name, "labels": {"strimzi.io/cluster": cluster}},
        "spec": {
            "authentication": {"type": authentication},
            "authorization": {
                "type": "simple",
                "acls": [
                    {"resource": _strimzi(resource), "operations": [str(right.operation) for right in group]}
                    for resource, group in _by_resource(rights).items()
                ],
            },
        },
    }
    if not authentication:
        del document["spec"]["authentication"]
    return yaml.safe_dump(document, explicit_start=True, sort_keys=False, allow_unicode=True, width=1_000_000)


def _strimzi(resource: Resource) -> dict[str, str]:
    if resource.kind is ResourceType.CLUSTER:
        return {"type": "cluster"}
    kind = resource.kind.value.lower()
    if resource.pattern is Pattern.PREFIXED:
        return {"type": kind, "name": resource.name, "patternType": "prefix"}
    return {"type": kind, "name": resource.name, "patternType": "literal"}


def _by_resource(rights: Iterable[Right]) -> dict[Resource, list[Right]]:
    found: dict[Resource, list[Right]] = {}
    for right in rights:
        found.setdefault(right.resource, []).append(right)
    return found
