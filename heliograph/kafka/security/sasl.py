"""Logs in over a broker's connection by the SASL mechanism that the client keys name.

The messages of PLAIN and SCRAM are kafka-python's; OAUTHBEARER's token is fetched again for each login. No error
holds anything of a password or token.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kafka.net.sasl.plain import SaslMechanismPlain
from kafka.net.sasl.scram import SaslMechanismScram

from heliograph.errors import AuthenticationFailed, ConfigError
from heliograph.kafka.security.jaas import Jaas, parse_jaas
from heliograph.kafka.security.key_stores import load_trusted
from heliograph.kafka.security.oauth_tokens import fetch_token

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_NOT_HERE = {
    "GSSAPI": "Kerberos is not supported",
    "AWS_MSK_IAM": "MSK's IAM login is not supported",
}
TOKEN_OPTION = "oauth.access.token"
MIN_ITERATIONS, MAX_ITERATIONS = 4096, 1_000_000
"""Limits for SCRAM's iterations. Java's clients refuse fewer too; more would let a broker keep us hashing."""
_ITERATIONS = re.compile(rb",i=([0-9]{1,9})(?:,|$)")
_MAX_SHOWN = 200
_LONG_WORD = re.compile(r"[!-~]{20,}")
_MODULES = {
    "PLAIN": ("PlainLoginModule",),
    "SCRAM-SHA-256": ("ScramLoginModule",),
    "SCRAM-SHA-512": ("ScramLoginModule",),
    "OAUTHBEARER": ("OAuthBearerLoginModule",),
}
_ALL_MODULES = {name for names in _MODULES.values() for name in names}


class Exchange(Protocol):
    """Runs one login: our messages and the broker's, alternating."""

    def auth_bytes(self) -> bytes: ...
    def receive(self, auth_bytes: bytes) -> object: ...
    def is_done(self) -> bool: ...
    def is_authenticated(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Holds who we are to a cluster."""

    mechanism: str
    user: str
    options: Mapping[str, str] = field(repr=False)

    async def begin(self, *, where: str) -> Exchange:
        """Start a new exchange; for OAUTHBEARER the token is fetched first, outside the event loop."""
        if self.mechanism == "OAUTHBEARER":
            return _Bearer(await asyncio.to_thread(fetch_token, self.options, where))
        user, password = self.options["username"], self.options["password"]
        if self.mechanism != "PLAIN":
            return _Scram(user, password, self.mechanism)
        plain: Exchange = SaslMechanismPlain(
            sasl_plain_username=user, sasl_plain_password=password, sasl_mechanism=self.mechanism
        )
        return plain

    def shown(self, text: str) -> str:
        """Return what the broker said as one short line for a log, or nothing if it repeats a secret of ours."""
        secrets = (self.options.get(name) for name in ("password", "client_secret", "token"))
        if any(secret and secret in text for secret in secrets):
            return "(the broker's text shows a secret)"
        if self.mechanism == "OAUTHBEARER":  # a token that was fetched is not among the options
            text = _LONG_WORD.sub("...", text)
        line = "".join(character if character.isprintable() else " " for character in text[:_MAX_SHOWN])
        return line.strip()


class _Scram:
    """Wraps the library's SCRAM, and refuses what makes our proof cheap to guess, or slow to compute."""

    def __init__(self, user: str, password: str, mechanism: str) -> None:
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        self._inner = SaslMechanismScram(
            sasl_plain_username=escaped, sasl_plain_password=password, sasl_mechanism=mechanism
        )
        self.auth_bytes = self._inner.auth_bytes
        self.is_done = self._inner.is_done
        self.is_authenticated = self._inner.is_authenticated
        self._is_first = True

    def receive(self, auth_bytes: bytes) -> object:
        if self._is_first:
            match = _ITERATIONS.search(auth_bytes)
            if match is None or not MIN_ITERATIONS <= int(match[1]) <= MAX_ITERATIONS:
                raise ValueError("the number of iterations")
            self._is_first = False
        return self._inner.receive(auth_bytes)


class _Bearer:
    """Speaks OAUTHBEARER: one message; we acknowledge an error, and the broker refuses us."""

    def __init__(self, token: str) -> None:
        self._message = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
        self._accepted = False

    def auth_bytes(self) -> bytes:
        return self._message

    def receive(self, auth_bytes: bytes) -> object:
        self._accepted = not auth_bytes
        self._message = b"\x01"
        return self._accepted

    def is_done(self) -> bool:
        return self._accepted

    is_authenticated = is_done


def read_login(properties: Mapping[str, str], *, where: str) -> Login:
    """Return the login from `sasl.mechanism`, `sasl.jaas.config` and `sasl.oauthbearer.*`; raises ConfigError."""
    mechanism = properties.get("sasl.mechanism", "GSSAPI").strip().upper()
    if mechanism not in MECHANISMS:
        why = _NOT_HERE.get(mechanism, "it is not known")
        raise ConfigError(
            f'sasl.mechanism "{mechanism}" cannot be used',
            where=where,
            why=why,
            remedy=f"one of {', '.join(MECHANISMS)}",
        )
    text = properties.get("sasl.jaas.config", "").strip()
    jaas = parse_jaas(text, where=where) if text else None
    if jaas is not None and jaas.short_name not in _MODULES[mechanism]:
        # In a damaged line anything may be where the module should be, even a password.
        named = jaas.short_name if jaas.short_name in _ALL_MODULES else "another module"
        raise ConfigError(
            f"sasl.jaas.config names {named}, which does not go with sasl.mechanism {mechanism}", where=where
        )
    if mechanism == "OAUTHBEARER":
        return _oauth_login(properties, jaas, where)
    if jaas is None or not {"username", "password"} <= jaas.options.keys():
        raise ConfigError(
            f"{mechanism} needs a username and a password",
            where=where,
            remedy='sasl.jaas.config = <module> required username="u" password="p";',
        )
    for name in ("username", "password"):
        if not _can_be_sent(jaas.options[name]):
            raise ConfigError(f"the {name} has characters that cannot be sent", where=where)
    return Login(mechanism=mechanism, user=jaas.options["username"], options=jaas.options)


def _can_be_sent(text: str) -> bool:
    """Return whether a text can be sent: NUL ends a field of PLAIN, and a lone surrogate is no UTF-8."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def _oauth_login(properties: Mapping[str, str], jaas: Jaas | None, where: str) -> Login:
    """Return the login by Kafka's own keys first, then by the options of its and of Strimzi's login module.

    Stores among the module's options are for the token endpoint; the cluster's own are not.
    """
    given = jaas.options if jaas is not None else {}
    named = {
        "url": ("sasl.oauthbearer.token.endpoint.url", "oauth.token.endpoint.uri"),
        "client_id": ("sasl.oauthbearer.client.credentials.client.id", "clientId", "oauth.client.id"),
        "client_secret": ("sasl.oauthbearer.client.credentials.client.secret", "clientSecret", "oauth.client.secret"),
        "scope": ("sasl.oauthbearer.scope", "scope", "oauth.scope"),
        "token": (TOKEN_OPTION,),
    }
    options: dict[str, str] = {}
    for name, keys in named.items():
        value = next((v for key in keys if (v := properties.get(key) or given.get(key))), None)
        if value is not None:
            options[name] = value
    trusted = load_trusted(given, where=f"{where} sasl.jaas.config")
    if trusted is not None:
        options["trusted"] = trusted.decode("ascii")
    if "token" not in options and "url" not in options:
        raise ConfigError(
            "OAUTHBEARER needs a token",
            where=where,
            remedy="set sasl.oauthbearer.token.endpoint.url to an https: or a file: address",
        )
    return Login(mechanism="OAUTHBEARER", user=options.get("client_id", ""), options=options)


def inline_token(properties: Mapping[str, str], *, where: str) -> dict[str, str]:
    """Return the settings that carry a token from a file here to another host; send it again before it expires."""
    if not properties.get("sasl.oauthbearer.token.endpoint.url", "").startswith("file:"):
        return {}
    token = fetch_token(read_login(properties, where=where).options, where)
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    jaas = f'{module} required {TOKEN_OPTION}="{token}";'
    return {"sasl.oauthbearer.token.endpoint.url": "", "sasl.jaas.config": jaas}


def refused_login(login: Login, why: str | None, *, where: str) -> AuthenticationFailed:
    return AuthenticationFailed(
        f'login as "{login.user}" with {login.mechanism} was refused',
        where=where,
        why=login.shown(why or ""),
        remedy="check user, password and sasl.mechanism",
    )
