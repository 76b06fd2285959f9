"""Users of a secured cluster with no rights but those a test gives them."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from heliograph.kafka import cluster as kafka
from heliograph.kafka.admin.acls import CLUSTER_NAME, Acl, Operation, Pattern, ResourceType, create_acls, delete_acls
from heliograph.kafka.admin.allowed_operations import allowed
from heliograph.kafka.security.client_security import PLAINTEXT, Security
from heliograph.kafka.types import BrokerAddress
from heliograph.lab import LabCluster
from heliograph.lab.secured import unsigned_token
from tests.cluster.mirror import wait_until

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Limited:
    """A user of one cluster, who comes with a token; tokens need no registration."""

    cluster: LabCluster
    name: str
    folder: Path

    @property
    def principal(self) -> str:
        return f"User:{self.name}"

    def keys(self) -> dict[str, str]:
        """Client properties."""
        assert self.cluster.secured is not None
        token = self.folder / f"{self.name}.token"
        token.write_text(unsigned_token(self.name))
        return {
            **self.cluster.secured.client_properties("SASL_SSL", mechanism="OAUTHBEARER"),
            "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
            "sasl.oauthbearer.client.credentials.client.id": self.name,
        }

    def grant(self, acls: Iterable[Acl]) -> None:
        """Done when the broker goes by them."""
        wanted = list(acls)
        outcome = self._as_admin(lambda cluster: create_acls(cluster, wanted))
        assert not any(outcome.values())
        self._wait(wanted, there=True)

    def revoke(self, acls: Iterable[Acl]) -> None:
        unwanted = list(acls)
        outcome = self._as_admin(lambda cluster: delete_acls(cluster, unwanted))
        assert not any(isinstance(error, Exception) for error in outcome.values())
        self._wait(unwanted, there=False)

    def _wait(self, acls: list[Acl], *, there: bool) -> None:
        asked = [(acl.resource_type, example(acl), acl.operation) for acl in acls]

        def settled() -> bool:
            answers = self._as_itself(lambda cluster: allowed(cluster, asked))
            return all(answer is there for answer in answers.values())

        wait_until(settled, 20, what=f"{'granting' if there else 'revoking'} {acls}")

    def _as_admin(self, question: Callable[[kafka.Cluster], Awaitable[Answer]]) -> Answer:
        return ask(self.cluster.bootstrap, PLAINTEXT, question)

    def _as_itself(self, question: Callable[[kafka.Cluster], Awaitable[Answer]]) -> Answer:
        keys = self.keys()
        return ask(keys["bootstrap.servers"], Security(keys["security.protocol"], keys), question)


def ask(bootstrap: str, security: Security, question: Callable[[kafka.Cluster], Awaitable[Answer]]) -> Answer:
    async def asked() -> Answer:
        addresses = [BrokerAddress.parse(text) for text in bootstrap.split(",")]
        client = kafka.Cluster("lab", addresses, client_id="test", security=security)
        try:
            await client.refresh([])
            return await question(client)
        finally:
            client.close()

    return asyncio.run(asked())


def example(acl: Acl) -> str:
    return acl.name if acl.pattern is Pattern.LITERAL and acl.name != "*" else f"{acl.name.rstrip('*')}example"


def parse_commands(text: str) -> dict[str, list[Acl]]:
    """What `kafka-acls.sh` commands add, by the address that they are for."""
    found: dict[str, list[Acl]] = {}
    for line in text.splitlines():
        if not line.startswith("kafka-acls.sh"):
            continue
        options: dict[str, list[str]] = {}
        words = shlex.split(line)[1:]
        for at, word in enumerate(words):
            if word.startswith("--"):
                value = words[at + 1] if at + 1 < len(words) and not words[at + 1].startswith("--") else ""
                options.setdefault(word, []).append(value)
        assert "--add" in options
        if "--cluster" in options:
            kind, name = ResourceType.CLUSTER, CLUSTER_NAME
        elif "--topic" in options:
            kind, [name] = ResourceType.TOPIC, options["--topic"]
        else:
            kind, [name] = ResourceType.GROUP, options["--group"]
        pattern = Pattern.PREFIXED if options.get("--resource-pattern-type") == ["prefixed"] else Pattern.LITERAL
        [principal] = options["--allow-principal"]
        [address] = options["--bootstrap-server"]
        found.setdefault(address, []).extend(
            Acl(principal=principal, operation=Operation(word), resource_type=kind, name=name, pattern=pattern)
            for word in options["--operation"]
        )
    return found
