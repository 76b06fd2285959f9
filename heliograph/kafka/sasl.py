"""Logging in: SASL mechanisms over a broker's connection, by what the client keys say.

The exchange of tokens of PLAIN and SCRAM is kafka-python's; OAUTHBEARER's token comes from a file or from a
client-credentials endpoint, and is fetched anew for each login. Nothing of a password or token is in any error.
"""

from __future__ import annotations

import asyncio
import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from kafka.net.sasl.oauth import AbstractTokenProvider, SaslMechanismOAuth
from kafka.net.sasl.plain import SaslMechanismPlain
from kafka.net.sasl.scram import SaslMechanismScram

from heliograph.errors import AuthenticationFailed, ConfigError
from heliograph.kafka.jaas import Jaas, parse_jaas

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_NOT_HERE = {
    "GSSAPI": "Kerberos is not supported",
    "AWS_MSK_IAM": "MSK's IAM login is not supported",
}
TOKEN_TIMEOUT_S = 10.0
TOKEN_OPTION = "oauth.access.token"
_MAX_TOKEN_BYTES = 1024 * 1024
_MODULES = {
    "PLAIN": ("PlainLoginModule",),
    "SCRAM-SHA-256": ("ScramLoginModule",),
    "SCRAM-SHA-512": ("ScramLoginModule",),
    "OAUTHBEARER": ("OAuthBearerLoginModule",),
}


class Exchange(Protocol):
    """One login: our messages and the broker's, in turn."""

    def auth_bytes(self) -> bytes: ...
    def receive(self, auth_bytes: bytes) -> object: ...
    def is_done(self) -> bool: ...
    def is_authenticated(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Who we are to a cluster."""

    mechanism: str
    user: str
    options: Mapping[str, str] = field(repr=False)

    async def begin(self, *, where: str) -> Exchange:
        """A new exchange; of OAUTHBEARER the token is fetched first, beside the event loop."""
        if self.mechanism != "OAUTHBEARER":
            kind = SaslMechanismPlain if self.mechanism == "PLAIN" else SaslMechanismScram
            exchange: Exchange = kind(
                sasl_plain_username=self.options["username"],
                sasl_plain_password=self.options["password"],
                sasl_mechanism=self.mechanism,
            )
            return exchange
        token = await asyncio.to_thread(fetch_token, self.options, where)
        bearer: Exchange = SaslMechanismOAuth(sasl_oauth_token_provider=_FixedToken(token))
        return bearer


class _FixedToken(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token


def read_login(properties: Mapping[str, str], *, where: str) -> Login:
    """From `sasl.mechanism`, `sasl.jaas.config` and `sasl.oauthbearer.*`; raises ConfigError."""
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
        raise ConfigError(
            f"sasl.jaas.config names {jaas.short_name}, which does not go with sasl.mechanism {mechanism}", where=where
        )
    if mechanism == "OAUTHBEARER":
        return _oauth_login(properties, jaas, where)
    if jaas is None or not {"username", "password"} <= jaas.options.keys():
        raise ConfigError(
            f"{mechanism} needs a username and a password",
            where=where,
            remedy='sasl.jaas.config = <module> required username="u" password="p";',
        )
    return Login(mechanism=mechanism, user=jaas.options["username"], options=jaas.options)


def _oauth_login(properties: Mapping[str, str], jaas: Jaas | None, where: str) -> Login:
    """Kafka's own keys first, then the options of its and of Strimzi's login module."""
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
    if "token" not in options and "url" not in options:
        raise ConfigError(
            "OAUTHBEARER needs a token",
            where=where,
            remedy="set sasl.oauthbearer.token.endpoint.url to an https: or a file: address",
        )
    return Login(mechanism="OAUTHBEARER", user=options.get("client_id", ""), options=options)


def inline_token(properties: Mapping[str, str], *, where: str) -> dict[str, str]:
    """What to set so that a token in a file here is at hand elsewhere; it has to be sent again before it expires."""
    if not properties.get("sasl.oauthbearer.token.endpoint.url", "").startswith("file:"):
        return {}
    token = fetch_token(read_login(properties, where=where).options, where)
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    jaas = f'{module} required {TOKEN_OPTION}="{token}";'
    return {"sasl.oauthbearer.token.endpoint.url": "", "sasl.jaas.config": jaas}


def fetch_token(options: Mapping[str, str], where: str) -> str:
    """A token: as given, from a file, or from a client-credentials endpoint. Blocking."""
    if "token" in options:
        return options["token"]
    url = urllib.parse.urlsplit(options["url"])
    if url.scheme == "file":
        try:
            return Path(urllib.parse.unquote(url.path)).read_text().strip()
        except (OSError, ValueError) as error:
            raise AuthenticationFailed(f'the token file "{url.path}" cannot be read', where=where) from error
    if url.scheme not in ("http", "https"):
        raise AuthenticationFailed(f'a token cannot be fetched from "{url.scheme}:"', where=where)
    return _ask_endpoint(options, where)


def _ask_endpoint(options: Mapping[str, str], where: str) -> str:
    url = options["url"]
    form = {"grant_type": "client_credentials"}
    if "scope" in options:
        form["scope"] = options["scope"]
    pair = f"{options.get('client_id', '')}:{options.get('client_secret', '')}"
    request = urllib.request.Request(  # the scheme was checked
        url,
        data=urllib.parse.urlencode(form).encode(),
        headers={"Authorization": "Basic " + base64.b64encode(pair.encode()).decode(), "Accept": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=TOKEN_TIMEOUT_S) as answer:
            body = answer.read(_MAX_TOKEN_BYTES)
    except urllib.error.HTTPError as error:
        raise AuthenticationFailed(
            f"the token endpoint answered {error.code}", where=f"{where} {url}", remedy="check client id and secret"
        ) from None
    except OSError as error:
        raise AuthenticationFailed(
            "the token endpoint does not answer", where=f"{where} {url}", why=str(error)
        ) from None
    try:
        token = json.loads(body)["access_token"]
    except (ValueError, KeyError, TypeError):
        raise AuthenticationFailed("the token endpoint's answer has no access_token", where=f"{where} {url}") from None
    return str(token)


def refused_login(login: Login, why: str | None, *, where: str) -> AuthenticationFailed:
    return AuthenticationFailed(
        f'login as "{login.user}" with {login.mechanism} was refused',
        where=where,
        why=why or "",
        remedy="check user, password and sasl.mechanism",
    )
