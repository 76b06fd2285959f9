"""Secrets that tests plant in order to search for them, each with a connection that needs it.

A row of the table connects with the secret it is given. To be planted, a secret must have been used: the connection is
made with it, and is refused with one character of it changed.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from heliograph.config.files.properties import property_line
from heliograph.config.load import load_settings
from heliograph.errors import HeliographError
from heliograph.kafka import cluster as kafka
from heliograph.kafka.admin.scram_users import set_passwords
from heliograph.kafka.security.client_security import PLAINTEXT, Security
from heliograph.kafka.security.jaas import format_jaas
from heliograph.lab import LabCluster, Secured
from heliograph.lab.listeners import MODULES
from heliograph.lab.pki import write_private
from heliograph.lab.secured import USERS, new_password
from heliograph.ledger.cluster_access import Role, security_of
from tests.cluster.limited import ask

CLUSTERS = ("north", "south")
OF_A_CLUSTER = (
    "store password",
    "key password",
    *(f"{kind} of {user}" for user in USERS for kind in ("password", "token", "key")),
)
PLACEHOLDERS = {
    "file": "${file:FOLDER/used.properties:password}",
    "environment": "${env:PLANTED_PASSWORD}",
    "mount": "${secrets:lab/planted:password}",
}
NAMES = (
    *(f"{alias}: {name}" for alias in CLUSTERS for name in OF_A_CLUSTER),
    *(f"password by {place}" for place in PLACEHOLDERS),
    "OAuth client secret",
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A secret, and what it opens."""

    secret: str = field(repr=False)
    connect: Callable[[str], None]
    """Raises HeliographError if it is not the right one."""
    changed_at: int = 0
    """Which character is changed to show that the secret counts."""
    searched: Mapping[str, str | bytes] = field(default_factory=dict, repr=False)
    """Further forms of it to search for."""

    def altered(self) -> str:
        characters = list(self.secret)
        characters[self.changed_at] = "A" if characters[self.changed_at] != "A" else "B"
        return "".join(characters)


class Planted:
    """The table, and which of its secrets have been used."""

    def __init__(self, rows: Mapping[str, Row]) -> None:
        self.rows = dict(rows)
        self.used: set[str] = set()

    def use(self, name: str) -> None:
        """Show, once, that the secret opens what it is for, and nothing else does."""
        if name in self.used:
            return
        row = self.rows[name]
        row.connect(row.secret)
        with pytest.raises(HeliographError):
            row.connect(row.altered())
        self.used.add(name)

    def secrets(self) -> dict[str, str | bytes]:
        found: dict[str, str | bytes] = {name: row.secret for name, row in self.rows.items()}
        for name, row in self.rows.items():
            found |= {f"{name}, {part}": text for part, text in row.searched.items()}
        return found


@contextmanager
def plant(north: LabCluster, south: LabCluster, folder: Path) -> Iterator[Planted]:
    rows: dict[str, Row] = {}
    for cluster in (north, south):
        rows |= {f"{cluster.alias}: {name}": row for name, row in _rows_of_cluster(secured_of(cluster)).items()}
    rows |= _rows_of_placeholders(north, folder)
    with _token_endpoint(secured_of(north)) as (url, client_secret):
        rows["OAuth client secret"] = Row(secret=client_secret, connect=_by_endpoint(secured_of(north), url))
        yield Planted(rows)


def secured_of(cluster: LabCluster) -> Secured:
    assert cluster.secured is not None
    return cluster.secured


async def _reach(client: kafka.Cluster) -> None:
    for node_id in client.catalogue.brokers:
        await client.connection(node_id)


def _connect(properties: Mapping[str, str], **changed: str) -> None:
    """With keys changed; underscores stand for dots."""
    keys = {**properties, **{name.replace("_", "."): value for name, value in changed.items()}}
    ask(keys["bootstrap.servers"], Security(keys["security.protocol"], keys), _reach)


def _rows_of_cluster(secured: Secured) -> dict[str, Row]:
    store = secured.client_properties("TLS", stores="PKCS12")
    mutual = secured.client_properties("MTLS", stores="INLINE")
    rows = {
        "store password": Row(
            secret=secured.store_password, connect=lambda secret: _connect(store, ssl_truststore_password=secret)
        ),
        "key password": Row(
            secret=secured.key_password, connect=lambda secret: _connect(mutual, ssl_key_password=secret)
        ),
    }
    for user in USERS:
        rows |= {f"{kind} of {user}": make(secured, user) for kind, make in _OF_USER.items()}
    for name, row in rows.items():
        if "password" in name:
            # No escaping changes the beginning.
            rows[name] = Row(secret=row.secret, connect=row.connect, searched={"beginning": row.secret.split('"')[0]})
    return rows


def _password(secured: Secured, user: str) -> Row:
    properties = secured.client_properties("SASL_SSL", user=user)
    return Row(
        secret=secured.password(user),
        connect=lambda secret: _connect(properties, sasl_jaas_config=_scram(user, secret)),
    )


def _scram(user: str, password: str) -> str:
    return format_jaas(MODULES["SCRAM-SHA-512"], {"username": user, "password": password})


def _token(secured: Secured, user: str) -> Row:
    properties = secured.client_properties("SASL_SSL", mechanism="OAUTHBEARER", user=user)
    del properties["sasl.oauthbearer.token.endpoint.url"]

    def connect(secret: str) -> None:
        _connect(properties, sasl_jaas_config=format_jaas(MODULES["OAUTHBEARER"], {"oauth.access.token": secret}))

    token = token_of(secured, user)
    return Row(secret=token, connect=connect, searched={"claims": token.split(".")[1]})


def token_of(secured: Secured, user: str) -> str:
    return (secured.folder / "users" / user / "token").read_text()


def _key(secured: Secured, user: str) -> Row:
    """By the first line of its PEM form, which ends within the private number; that is searched for by itself, too."""
    pem = (secured.folder / "users" / user / "user.key").read_text()
    begin, line, *rest = pem.splitlines()
    properties = secured.client_properties("MTLS", user=user, stores="INLINE")
    del properties["ssl.key.password"]
    key = load_pem_private_key(pem.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return Row(
        secret=line,
        connect=lambda secret: _connect(properties, ssl_keystore_key="\n".join([begin, secret, *rest, ""])),
        changed_at=-5,
        searched={"number": key.private_numbers().private_value.to_bytes(32, "big")},
    )


_OF_USER = {"password": _password, "token": _token, "key": _key}


# -- placeholders


def _rows_of_placeholders(cluster: LabCluster, folder: Path) -> dict[str, Row]:
    """A user of its own for each, so that each has a password of its own."""
    passwords = {f"by-{place}": new_password() for place in PLACEHOLDERS}
    ask(cluster.bootstrap, PLAINTEXT, lambda client: set_passwords(client, passwords))
    return {
        f"password by {place}": Row(
            secret=passwords[f"by-{place}"],
            connect=_by_placeholder(cluster, place, folder / place),
            searched={"beginning": passwords[f"by-{place}"].split('"')[0]},
        )
        for place in PLACEHOLDERS
    }


def _by_placeholder(cluster: LabCluster, place: str, folder: Path) -> Callable[[str], None]:
    placeholder = PLACEHOLDERS[place].replace("FOLDER", str(folder))
    jaas = f'{MODULES["SCRAM-SHA-512"]} required username="by-{place}" password="{placeholder}";'
    keys = secured_of(cluster).client_properties("SASL_SSL")
    keys |= {"sasl.jaas.config": jaas}
    lines = {
        "clusters": "here, there",
        "there.bootstrap.servers": "127.0.0.1:1",
        "here->there.enabled": "true",
        **{f"here.{key}": value for key, value in keys.items()},
    }

    def connect(secret: str) -> None:
        file = write_private(folder / "mm2.properties", "".join(f"{property_line(*pair)}\n" for pair in lines.items()))
        write_private(folder / "used.properties", property_line("password", secret))
        write_private(folder / "planted" / "password", secret)
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("PLANTED_PASSWORD", secret)
            settings = load_settings(file, secrets=folder)
            security = security_of(settings, settings.flows[0], Role.SOURCE_CONSUMER)
            assert "password" not in str(security.properties), "the secret is read when it is needed"
            ask(keys["bootstrap.servers"], security, _reach)

    return connect


# -- a token endpoint


@contextmanager
def _token_endpoint(secured: Secured) -> Iterator[tuple[str, str]]:
    """Gives the mirror's token to whoever has the client's secret."""
    client_secret = new_password()
    expected = "Basic " + base64.b64encode(f"mirror:{client_secret}".encode()).decode()
    token = token_of(secured, "mirror")

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            is_known = self.headers["Authorization"] == expected
            self.send_response(200 if is_known else 401)
            self.end_headers()
            self.wfile.write(f'{{"access_token": "{token}"}}'.encode() if is_known else b"{}")

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/token", client_secret
        server.shutdown()
        thread.join()


def _by_endpoint(secured: Secured, url: str) -> Callable[[str], None]:
    properties = {
        **secured.client_properties("SASL_SSL", mechanism="OAUTHBEARER"),
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.credentials.client.id": "mirror",
    }

    def connect(secret: str) -> None:
        _connect(properties, sasl_oauthbearer_client_credentials_client_secret=secret)

    return connect
