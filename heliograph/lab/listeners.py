"""Defines the listeners of a secured cluster, and the broker settings for them. Pure.

Beside the plain one, which the lab itself uses, every secured cluster has all of these, so that one cluster
serves every test:

    TLS             server certificate only              MTLS         wants the client's certificate
    SASL_PLAINTEXT  every mechanism, no TLS              SASL_SSL     every mechanism, in TLS
    EXPIRED         TLS, certificate of the past         WRONG_HOST   TLS, certificate of another host
    SNI             as SASL_SSL, behind the proxy: every broker advertises the proxy's port, under its own name
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from heliograph.kafka.security.jaas import format_jaas

LISTENERS: Mapping[str, str] = {
    "TLS": "SSL",
    "MTLS": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "EXPIRED": "SSL",
    "WRONG_HOST": "SSL",
    "SNI": "SASL_SSL",
}
"""Protocols by listener."""
DETOUR = "DETOUR"
DETOUR_ENTRY = "DETOUR_ENTRY"
"""The advertised port of the listener DETOUR: a test's proxy listens there."""
CONTROLLER = "CONTROLLER"
CONTROLLER_ENTRY = "CONTROLLER_ENTRY"
REPLICATION = "REPLICATION"
REPLICATION_ENTRY = "REPLICATION_ENTRY"
"""The same for traffic between brokers and controllers: their listeners, and the ports advertised for them."""
WRONG_HOST = "elsewhere.example"
_SECURITY = "org.apache.kafka.common.security"
MODULES: Mapping[str, str] = {
    "PLAIN": f"{_SECURITY}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_SECURITY}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_SECURITY}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule",
}
_ANY_TOKEN = f"{_SECURITY}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
_CLOCK_SKEW_MS = "3000"


def domain(alias: str) -> str:
    """Returns the domain of a cluster's names behind the proxy; an alias may have letters that a host name may not."""
    return re.sub(r"[^a-z0-9-]", "-", alias.lower()).strip("-") + ".localhost"


def broker_name(alias: str, broker_id: int) -> str:
    return f"broker-{broker_id}.{domain(alias)}"


def bootstrap_name(alias: str) -> str:
    return f"bootstrap.{domain(alias)}"


def security_properties(
    broker: Path, trust: Path, *, store_password: str, passwords: Mapping[str, str]
) -> dict[str, str]:
    """Builds a broker's keys for all listeners; its stores are in the folder `broker`, `passwords` are the users'."""
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # Clients of the plain listener, or of TLS without a certificate, are ANONYMOUS.
        "super.users": "User:ANONYMOUS;User:admin",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(trust),
        "ssl.truststore.password": store_password,
        "listener.name.mtls.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MODULES),
    }
    for prefix, store in (("", "server"), *((f"listener.name.{n}.", n) for n in ("expired", "wrong_host"))):
        properties |= {
            f"{prefix}ssl.keystore.type": "PKCS12",
            f"{prefix}ssl.keystore.location": str(broker / f"{store}.p12"),
            f"{prefix}ssl.keystore.password": store_password,
            f"{prefix}ssl.key.password": store_password,
        }
    for listener, protocol in LISTENERS.items():
        if protocol.startswith("SASL"):
            properties |= _login_properties(f"listener.name.{listener.lower()}", passwords)
    return properties


def _login_properties(prefix: str, passwords: Mapping[str, str]) -> dict[str, str]:
    options: dict[str, dict[str, str]] = {
        "PLAIN": {f"user_{user}": password for user, password in passwords.items()},
        "OAUTHBEARER": {
            "unsecuredLoginStringClaim_sub": "admin",
            "unsecuredValidatorAllowableClockSkewMs": _CLOCK_SKEW_MS,
        },
    }
    properties = {
        f"{prefix}.{mechanism.lower()}.sasl.jaas.config": format_jaas(module, options.get(mechanism, {}))
        for mechanism, module in MODULES.items()
    }
    # Accepts unsigned tokens: good enough where only this machine can connect.
    properties[f"{prefix}.oauthbearer.sasl.server.callback.handler.class"] = _ANY_TOKEN
    return properties
