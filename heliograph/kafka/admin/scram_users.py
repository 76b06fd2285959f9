"""Sets the passwords that a cluster keeps itself (SCRAM). Only a salted hash of one leaves this process."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any

from heliograph.kafka import messages
from heliograph.kafka.cluster import Cluster, refused

ITERATIONS = 4096
_MECHANISMS = {1: "sha256", 2: "sha512"}
_SALT_BYTES = 24


async def set_passwords(cluster: Cluster, passwords: Mapping[str, str]) -> None:
    """Set the users' passwords for SCRAM-SHA-256 and SCRAM-SHA-512. Raises BrokerRefused."""
    for mechanism, digest in _MECHANISMS.items():  # one request for each: a user may be in it once only
        upsertions = [_upsertion(user, password, mechanism, digest) for user, password in passwords.items()]
        request = messages.AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions)
        response = await cluster.call(request, node_id=await cluster.controller())
        for result in response.results:
            if result.error_code:
                raise refused(
                    result.error_code,
                    f'a new password for "{result.user}"',
                    where=f'"{cluster.alias}"',
                    message=result.error_message,
                )


def _upsertion(user: str, password: str, mechanism: int, digest: str) -> Any:
    salt = secrets.token_bytes(_SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, ITERATIONS)
    return messages.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=ITERATIONS, salt=salt, salted_password=salted
    )
