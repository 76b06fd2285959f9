"""Checks one address step by step: name, TCP, TLS, API versions, login, round trip. Each step needs the one before."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from heliograph.errors import ClusterError, HeliographError, Unreachable
from heliograph.kafka import messages
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.codec import k00_produce, k01_fetch
from heliograph.kafka.connection import BufferPool, Connection, dial, too_slow
from heliograph.kafka.host_names import resolve
from heliograph.kafka.security.client_security import Security
from heliograph.kafka.types import BrokerAddress
from heliograph.kafka.wire import PlainWire, TlsWire, start_tls
from heliograph.preflight.certificate import judge, parse_certificate
from heliograph.preflight.steps import Note, Verdict, failed, passed, warned

STEP_TIMEOUT_S = 5.0
NAME, TCP, TLS, VERSIONS, SASL, ROUND_TRIP = "name", "tcp", "tls", "api versions", "sasl", "round trip"
SLOW_MS = 500.0
_ROUNDS = 3
_PRODUCE, _FETCH = 0, 1


@dataclass(slots=True)
class Probe:
    """What one address answered."""

    address: BrokerAddress
    notes: list[Note] = field(default_factory=list)
    cluster_id: str = ""
    brokers: Mapping[int, BrokerAddress] = field(default_factory=dict)

    @property
    def answers(self) -> bool:
        """Tells whether it answered all the way to the cluster's metadata."""
        return bool(self.brokers)

    @property
    def failure(self) -> Note | None:
        return next((note for note in self.notes if note.verdict is Verdict.FAIL), None)


async def probe(
    cluster: Cluster, security: Security, address: BrokerAddress, *, tls: ssl.SSLContext | None, now: datetime.datetime
) -> Probe:
    """Checks one address.

    `tls` is None without TLS, or where our own stores cannot be used: then nothing after TCP is checked.
    """
    found = Probe(address)
    where = f'"{cluster.alias}" broker {address}'
    with contextlib.ExitStack() as open_ones, _noting(found, where) as doing:
        doing.step = NAME
        async with asyncio.timeout(STEP_TIMEOUT_S):
            infos = await resolve(address, where=where)
        found.notes.append(passed(NAME, ", ".join(dict.fromkeys(info[4][0] for info in infos))))
        doing.step = TCP
        started = time.perf_counter()
        async with asyncio.timeout(STEP_TIMEOUT_S):
            sock = await dial(infos, where=where)
        open_ones.callback(sock.close)
        found.notes.append(passed(TCP, f"connected in {1000 * (time.perf_counter() - started):.1f} ms"))
        if security.uses_tls and tls is None:
            return found
        doing.step = TLS
        wire: PlainWire | TlsWire = PlainWire(sock)
        if tls is not None:
            wire = await _shake_hands(found, sock, tls, security, where=where, now=now)
        connection = Connection(wire, address, where=where, pool=BufferPool(), timeout_s=STEP_TIMEOUT_S)
        open_ones.callback(connection.close)
        doing.step = VERSIONS
        await cluster.greet(connection)
        found.notes.append(judge_versions(connection.versions))
        if security.uses_sasl:
            doing.step = SASL
            await cluster.log_in(connection)
            found.notes.append(passed(SASL, _logged_in(security)))
        doing.step = ROUND_TRIP
        await _go_round(found, cluster, connection)
    if found.failure is not None:
        await _explain(found, security)
    return found


class _Doing:
    """The step that is being taken."""

    step = NAME


@contextlib.contextmanager
def _noting(found: Probe, where: str) -> Iterator[_Doing]:
    """Turns the error of a step into the probe's last note, and ends the probe."""
    doing = _Doing()
    try:
        yield doing
    except HeliographError as error:
        found.notes.append(failed(doing.step, error))
    except TimeoutError:
        found.notes.append(failed(doing.step, too_slow(STEP_TIMEOUT_S, where=where)))


async def _shake_hands(
    found: Probe,
    sock: socket.socket,
    tls: ssl.SSLContext,
    security: Security,
    *,
    where: str,
    now: datetime.datetime,
) -> TlsWire:
    async with asyncio.timeout(STEP_TIMEOUT_S):
        wire = await start_tls(sock, tls, found.address.host, where=where)
    try:
        certificate = parse_certificate(wire.certificate)
    except ValueError as error:  # OpenSSL accepted it
        found.notes.append(warned(TLS, f"{wire.version}, a certificate that cannot be shown", str(error)))
    else:
        found.notes += judge(certificate, version=wire.version, checks_host=security.checks_host, now=now)
    return wire


def judge_versions(versions: Mapping[int, tuple[int, int]]) -> Note:
    """Tells whether the broker supports the request versions that we need."""
    lacking = messages.lacking(versions, {_PRODUCE: k00_produce.VERSIONS, _FETCH: k01_fetch.VERSIONS})
    if lacking:
        return failed(
            VERSIONS, f"the broker lacks versions of {', '.join(lacking)}", "heliograph works with brokers from 2.4 on"
        )
    return passed(VERSIONS, f"all needed request versions, of {len(versions)} kinds of request")


def _logged_in(security: Security) -> str:
    login = security.login(where="")
    assert login is not None
    return f'logged in as "{login.user}" with {login.mechanism}'


async def _go_round(found: Probe, cluster: Cluster, connection: Connection) -> None:
    """Requests the metadata a few times; the fastest response gives the round-trip time."""
    best = float("inf")
    response: Any = None
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        request = messages.MetadataRequest(topics=[], allow_auto_topic_creation=False)
        response = await cluster.ask(connection, request)
        best = min(best, 1000 * (time.perf_counter() - started))
    found.cluster_id = response.cluster_id or ""
    found.brokers = {node.node_id: BrokerAddress(node.host, node.port) for node in response.brokers}
    text = f"{best:.1f} ms"
    slow = warned(ROUND_TRIP, text, "copying hides most of it; check whether the broker or the network is overloaded")
    found.notes.append(slow if best > SLOW_MS else passed(ROUND_TRIP, text))


# -- a failure, explained by a second attempt in another way


async def _explain(found: Probe, security: Security) -> None:
    """Makes the last note more exact: which protocol the port speaks, whose certificate it shows."""
    note = found.notes[-1]
    better = None
    if note.step == TLS:
        shown = await _shown_certificate(found.address)
        if shown:
            better = Note(Verdict.FAIL, TLS, f"{note.what} ({shown})", note.remedy)
        elif await _speaks_plain(found.address):
            better = failed(TLS, "the port speaks plain text, not TLS", "check security.protocol and the port")
    elif note.step == VERSIONS and not security.uses_tls and await _shown_certificate(found.address):
        wanted = "SASL_SSL" if security.uses_sasl else "SSL"
        better = failed(VERSIONS, "the port speaks TLS, not plain text", f"set security.protocol to {wanted}")
    elif note.step == ROUND_TRIP and not security.uses_sasl and found.failure is note:
        protocol = "SASL_SSL" if security.uses_tls else "SASL_PLAINTEXT"
        better = failed(
            ROUND_TRIP,
            f"{note.what}: the listener may require a login",
            f"if it does, set security.protocol to {protocol} and sasl.*",
        )
    if better is not None:
        found.notes[-1] = better


async def _shown_certificate(address: BrokerAddress) -> str:
    """Reads the certificate for display only: nothing is sent but the handshake, and nothing is trusted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(STEP_TIMEOUT_S):
            sock = await dial(await resolve(address, where=""), where="")
            wire = await start_tls(sock, context, address.host, where="")
        with contextlib.closing(wire):
            return parse_certificate(wire.certificate).text
    except (ClusterError, TimeoutError, ValueError):
        return ""


async def _speaks_plain(address: BrokerAddress) -> bool:
    cluster = Cluster("", [address], client_id="heliograph-check", timeout_s=STEP_TIMEOUT_S)
    with contextlib.closing(cluster):
        try:
            await cluster.any_connection()
        except (ClusterError, Unreachable):
            return False
        return True
