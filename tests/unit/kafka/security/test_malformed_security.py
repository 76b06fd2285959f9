"""Malformed handshakes, logins, token endpoints, stores and login lines: a typed error each, soon, without a secret.

Every case is made from its family and a seed; what fails names both, and `judge` makes that one case again.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import ssl
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from heliograph.errors import HeliographError, StoreUnusable
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.security import key_stores, oauth_tokens
from heliograph.kafka.security.client_security import Security
from heliograph.kafka.security.oauth_tokens import fetch_token
from heliograph.kafka.security.sasl import read_login
from heliograph.lab.pki import Authority, Signed, write_identity, write_trust
from tests.unit.helpers.hostile_peers import MECHANISMS, SaslPeer, damaged, dribble, listening, tls_peer, token_peer

TIMEOUT_S = 0.3
SLACK_S = 2.0
LONGEST_S = 3 * TIMEOUT_S + SLACK_S
"""To connect, to ask for the versions and to log in have a limit each."""
TOGETHER = 12
PASSWORD = "Zq7xKv9wPt3m"
QUICK = {"tls": 120, "sasl": 110, "token": 30, "store": 50, "jaas": 20}
MAY_BE_HARMLESS: dict[str, tuple[str, ...]] = {
    "tls": (),
    "sasl": ("lifetime", "null token", "endless", "damage"),  # the first login is good, or a byte nobody reads is not
    "token": (),
    "store": ("PEM: damaged", "PEM: cut", "PEM: password", "truststore JKS: damaged", "truststore JKS: password"),
    "jaas": ("",),
}
"""What may pass. A PEM file has text that nobody reads and no seal; the seal of a JKS needs a password, as in Java."""
LONG = {"tls": 1500, "sasl": 1500, "token": 300, "store": 1400, "jaas": 300}

Attempt = Callable[[], Awaitable[object]]
Make = Callable[["Material", random.Random], tuple[str, Attempt]]


@dataclass(frozen=True)
class Material:
    """What the cases are made from."""

    folder: Path
    authority: Authority
    client: Signed
    server_context: ssl.SSLContext
    stores: dict[tuple[str, str], bytes]
    """By role and kind."""

    @property
    def secrets(self) -> set[str]:
        """Six characters of the password or of a line of the key are too many."""
        lines = [PASSWORD, *self.client.key_pem().splitlines()[1:-1]]
        return {line[at : at + 6] for line in lines for at in range(len(line) - 5)}


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    folder = tmp_path_factory.mktemp("malformed")
    authority = Authority()
    server, client = authority.sign("broker"), authority.sign("client")
    (folder / "server.pem").write_text(server.pem + server.key_pem())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    found = {}
    for kind in ("PEM", "PKCS12", "JKS"):
        found["truststore", kind] = write_trust(folder, kind, [Authority("other"), authority], PASSWORD).read_bytes()
        found["keystore", kind] = write_identity(folder, kind, client, PASSWORD).read_bytes()
    return Material(folder, authority, client, context, found)


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth_tokens, "TOKEN_TIMEOUT_S", TIMEOUT_S)


# -- one case of each family


def tls_case(material: Material, rng: random.Random) -> tuple[str, Attempt]:
    kind, serve = tls_peer(rng, material.server_context)
    properties = {"ssl.truststore.certificates": material.authority.own.pem}
    if rng.random() < 0.3:
        properties["ssl.enabled.protocols"] = rng.choice(("TLSv1.2", "TLSv1.3"))
    return kind, lambda: connect(serve, Security("SSL", properties))


def sasl_case(_material: Material, rng: random.Random) -> tuple[str, Attempt]:
    mechanism = rng.choice(MECHANISMS)
    peer = SaslPeer(rng, mechanism, PASSWORD)
    module = {"PLAIN": "Plain", "OAUTHBEARER": "OAuthBearer"}.get(mechanism, "Scram")
    options = (
        f'oauth.access.token="{PASSWORD}"' if mechanism == "OAUTHBEARER" else f'username="u" password="{PASSWORD}"'
    )
    properties = {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{module}LoginModule required {options};"}
    return f"{mechanism}: {peer.kind}", lambda: connect(peer.serve, Security("SASL_PLAINTEXT", properties))


async def connect(serve: Any, security: Security) -> None:
    async with listening(serve) as address:
        cluster = Cluster(
            "A", [address], client_id="test", connect_timeout_s=TIMEOUT_S, timeout_s=TIMEOUT_S, security=security
        )
        try:
            await cluster.any_connection()
        finally:
            cluster.close()


def token_case(material: Material, rng: random.Random) -> tuple[str, Attempt]:
    if rng.random() < 0.15:
        nowhere = (
            "http://[::1",
            "http://h:99999/",
            "ftp://h/",
            "file:///",
            "file:///no",
            "//",
            "http://",
            "http://\0/",
        )
        pipe = material.folder / "pipe"
        if not pipe.exists():
            os.mkfifo(pipe)
        url = rng.choice((*nowhere, f"http://u:{PASSWORD}@127.0.0.1:1/?secret={PASSWORD}", pipe.as_uri()))
        return "address", lambda: asyncio.to_thread(fetch_token, {"url": url, "client_secret": PASSWORD}, "test")
    kind, serve = token_peer(rng, PASSWORD)

    async def attempt() -> None:
        async with listening(serve) as address:
            path = rng.choice(("token", "a b", "\n", f"?secret={PASSWORD}", "ä"))
            options = {
                "url": f"http://{address}/{path}",
                "client_id": "me",
                "client_secret": PASSWORD,
                "scope": "\ud800",
            }
            await asyncio.to_thread(fetch_token, options, "test")

    return kind, attempt


def store_case(material: Material, rng: random.Random) -> tuple[str, Attempt]:
    role, kind = rng.choice(list(material.stores))
    how = rng.choice(("damaged",) * 15 + ("cut", "cut", "random", "empty", "folder", "pipe", "password", "inline"))
    content = material.stores[role, kind]
    path = material.folder / f"{role}-{rng.random()}"
    password: str | None = PASSWORD
    if how == "damaged":
        content = damaged(rng, content, 4 if rng.random() < 0.8 else 0)
        password = rng.choice((PASSWORD, PASSWORD, None))
    elif how == "cut":
        content = content[: rng.randrange(len(content))]
    elif how == "random":
        content = content[: rng.choice((0, 0, 4, 12))] + rng.randbytes(rng.randrange(2000))
    elif how == "password":
        password = rng.choice((f"{PASSWORD}x", "", "x" * 5000, f"{PASSWORD}\ud800", f"{PASSWORD}\0"))
    if how == "folder":
        path.mkdir()
    elif how == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(b"" if how == "empty" else content)
    properties = {f"ssl.{role}.location": str(path), "ssl.key.password": password or ""}
    if password is not None:
        properties[f"ssl.{role}.password"] = password
    if role == "keystore":
        properties["ssl.truststore.certificates"] = material.authority.own.pem
    if how == "inline":
        text = damaged(rng, material.client.key_pem().encode()).decode(errors="surrogateescape")
        properties = {"ssl.keystore.key": text, "ssl.keystore.certificate.chain": material.client.pem[:-30]}

    async def attempt() -> None:
        try:
            security = Security("SSL", properties)
            security.stamp()
            security.context(where="test")
        finally:
            path.rmdir() if how == "folder" else path.unlink()

    return how if how in ("inline", "empty", "folder", "pipe") else f"{role} {kind}: {how}", attempt


def jaas_case(_material: Material, rng: random.Random) -> tuple[str, Attempt]:
    mechanism = rng.choice(("SCRAM-SHA-256",) * 9 + MECHANISMS)
    text = list(f'a.b.ScramLoginModule required username="me" password="{PASSWORD}" x=y;')
    for _ in range(rng.choice((1, 2, 5, 20))):
        at = rng.randrange(len(text))
        how = rng.randrange(4)
        if how == 0:
            del text[at : at + rng.choice((1, 1, 5, 40))]
        elif how == 1:
            text.insert(at, rng.choice('";=\\ \n\0\ud800ä'))
        elif how == 2:
            text[at:at] = text[: rng.randrange(len(text) + 1)]
        else:
            text[at:] = rng.sample(text[at:], len(text) - at)
        text = text or [" "]

    async def attempt() -> None:
        login = read_login({"sasl.mechanism": mechanism, "sasl.jaas.config": "".join(text)}, where="test")
        if login.mechanism != "OAUTHBEARER":
            (await login.begin(where="test")).auth_bytes()

    return mechanism, attempt


FAMILIES: dict[str, Make] = {
    "tls": tls_case,
    "sasl": sasl_case,
    "token": token_case,
    "store": store_case,
    "jaas": jaas_case,
}


# -- all of them


@dataclass
class Figures:
    refused: int = 0
    harmless: Counter[str] = field(default_factory=Counter)
    """By kind: made malformed, and still as good as before."""
    codes: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    slowest: str = ""
    failures: list[str] = field(default_factory=list)

    def add(self, kind: str, code: str | None, took_s: float) -> None:
        if code is None:
            self.harmless[kind] += 1
            return
        self.refused += 1
        self.codes[code] += 1
        self.kinds[kind] += 1
        if took_s > self.slowest_s:
            self.slowest_s, self.slowest = round(took_s, 2), kind


def told(error: BaseException | None) -> Iterator[str]:
    """All that a log could show of it."""
    while error is not None:
        yield f"{error} {error!r} {getattr(error, 'details', '')}"
        yield from traceback.format_exception_only(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


async def judge(material: Material, family: str, seed: int, figures: Figures) -> None:
    kind, attempt = FAMILIES[family](material, random.Random(f"{family} {seed}"))
    name = f"{family} seed {seed} ({kind})"
    started = time.monotonic()
    code = None
    try:
        await attempt()
    except HeliographError as error:
        code = error.code
        text = "\n".join(told(error))
        if any(secret in text for secret in material.secrets):
            figures.failures.append(f"{name}: a secret in {text}")
    except Exception as error:  # noqa: BLE001 - just these are looked for
        figures.failures.append(f"{name}: " + "".join(traceback.format_exception(error)))
    took_s = time.monotonic() - started
    if took_s > LONGEST_S:
        figures.failures.append(f"{name}: {took_s:.1f} s")
    figures.add(kind, code, took_s)


def run_family(material: Material, family: str, count: int, first_seed: int) -> Figures:
    """Until so many were refused; what is left open, and what nobody caught, counts as a failure."""
    figures = Figures()
    surprises: list[dict[str, Any]] = []
    seeds = iter(range(first_seed, first_seed + 20 * count))

    async def worker() -> None:
        while figures.refused < count and len(figures.failures) < 5:
            await judge(material, family, next(seeds), figures)

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: surprises.append(context))
        async with asyncio.TaskGroup() as group:
            for _ in range(TOGETHER if family in ("tls", "sasl", "token") else 1):
                group.create_task(worker())

    gc.collect()
    before = open_files()
    asyncio.run(run())
    gc.collect()
    assert not figures.failures, "\n".join(figures.failures)
    wrongly = [kind for kind in figures.harmless if not kind.endswith(MAY_BE_HARMLESS[family])]
    assert not wrongly, f"accepted: {wrongly}"
    assert not surprises, surprises
    assert open_files() <= before
    return figures


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(("family", "first_seed"), [(family, 1) for family in FAMILIES])
def test_malformed_cases_end_in_a_typed_error(material: Material, family: str, first_seed: int) -> None:
    figures = run_family(material, family, QUICK[family], first_seed)
    assert figures.refused >= QUICK[family], f"seeds from {first_seed} on"


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("family", "first_seed"), [(family, 1_000_000) for family in FAMILIES])
def test_five_thousand_malformed_cases_end_in_a_typed_error(
    material: Material, family: str, first_seed: int, record_property: Callable[[str, object], None]
) -> None:
    figures = run_family(material, family, LONG[family], first_seed)
    record_property("harmless", dict(figures.harmless))
    for name in ("refused", "slowest_s", "slowest"):
        record_property(name, getattr(figures, name))
    record_property("first_seed", first_seed)
    record_property("codes", dict(figures.codes.most_common()))
    record_property("kinds", dict(figures.kinds.most_common()))
    assert sum(LONG.values()) == 5000
    assert figures.refused >= LONG[family]


# -- on purpose


def test_a_store_that_asks_for_hours_of_hashing_is_refused_at_once() -> None:
    salt_and_rounds = bytes.fromhex("0408 0102030405060708 0204 7fffffff".replace(" ", ""))
    content = bytes([0x30, len(salt_and_rounds) + 2, 0x30, len(salt_and_rounds)]) + salt_and_rounds
    with pytest.raises(StoreUnusable, match="rounds of hashing"):
        key_stores._pkcs12(content, "x", "test", "ssl.truststore.password")


def test_a_pem_file_of_beginnings_is_read_in_one_pass(tmp_path: Path) -> None:
    path = tmp_path / "many.pem"
    path.write_bytes(b"-----BEGIN CERTIFICATE-----\n" * 140_000)
    started = time.process_time()
    with pytest.raises(StoreUnusable, match="no certificate"):
        Security("SSL", {"ssl.truststore.location": str(path)}).context(where="test")
    assert time.process_time() - started < 1


@pytest.mark.parametrize("wrong", [f"{PASSWORD}\0", f"{PASSWORD}\ud800"])
def test_a_password_that_cannot_be_one_reaches_no_library(
    material: Material, wrong: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = material.folder / "trust.pkcs12"
    properties = {"ssl.truststore.location": str(path), "ssl.truststore.password": wrong}
    with pytest.raises(StoreUnusable, match=r"ssl\.truststore\.password has characters"):
        Security("SSL", properties).context(where="test")
    assert capfd.readouterr().err == ""


def test_a_panic_of_a_library_is_a_typed_error() -> None:
    panic = type("PanicException", (BaseException,), {})
    with pytest.raises(StoreUnusable, match="test"), key_stores._or(StoreUnusable("test")):
        raise panic
    with pytest.raises(KeyboardInterrupt), key_stores._or(StoreUnusable("test")):
        raise KeyboardInterrupt


@pytest.mark.parametrize("protocol", ["SSL", "PLAINTEXT"])
def test_a_dribbling_peer_costs_no_processor_time(material: Material, protocol: str) -> None:
    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await dribble(random.Random(1), writer, b"\x16\x03\x03\x3f\xff" if protocol == "SSL" else b"\0\x10\0\0")

    security = Security(protocol, {"ssl.truststore.certificates": material.authority.own.pem})
    before = time.process_time()
    with pytest.raises(HeliographError):
        asyncio.run(connect(serve, security))
    assert time.process_time() - before < TIMEOUT_S / 2


def test_a_fetched_token_that_the_broker_repeats_is_not_shown(tmp_path: Path) -> None:
    token = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJtZSJ9."
    (tmp_path / "token").write_text(token)
    properties = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": (tmp_path / "token").as_uri()}
    codes = set()
    for seed in range(8):
        peer = SaslPeer(random.Random(seed), "OAUTHBEARER", token)
        peer.kind = "echo"
        with pytest.raises(HeliographError) as caught:
            asyncio.run(connect(peer.serve, Security("SASL_PLAINTEXT", properties)))
        codes.add(caught.value.code)
        assert token not in "".join(told(caught.value)), f"seed {seed}"
    assert codes == {"AUTHENTICATION_FAILED", "PROTOCOL"}  # some repeat it in what is no UTF-8


def test_scram_escapes_what_has_a_meaning_in_its_messages() -> None:
    text = 'ScramLoginModule required username="a,b=c" password="x";'
    login = read_login({"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": text}, where="test")
    assert asyncio.run(login.begin(where="test")).auth_bytes().startswith(b"n,,n=a=2Cb=3Dc,r=")


def test_a_semicolon_may_be_the_password() -> None:
    text = 'ScramLoginModule required username="u" password=";";'
    login = read_login({"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": text}, where="test")
    assert login.options["password"] == ";"
