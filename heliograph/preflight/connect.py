"""Checks one login to one cluster: its bootstrap addresses, the cluster they lead to, every advertised broker."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from heliograph.errors import HeliographError
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.types import BrokerAddress
from heliograph.preflight.logins import ClusterLogin
from heliograph.preflight.probe import NAME, TCP, Probe, probe
from heliograph.preflight.steps import Note, Step, Verdict, failed, passed

CLIENT_ID = "heliograph-check"
TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Look:
    """The result of checking one login."""

    access: ClusterLogin
    steps: tuple[Step, ...]
    cluster: Cluster | None = None
    """A client for the addresses that answered, closed by the caller; None if none did."""
    cluster_id: str = ""


async def look_at(access: ClusterLogin, *, now: datetime.datetime | None = None) -> Look:
    """Checks every address of a login, all at the same time; the steps are in a stable order."""
    now = now or datetime.datetime.now(datetime.UTC)
    prober = Cluster(access.alias, access.bootstrap, client_id=CLIENT_ID, timeout_s=TIMEOUT_S, security=access.security)
    context, store_notes = _context(prober)
    steps = [note.of(access.alias, access.role, "stores") for note in store_notes]
    steps += [note.of(access.alias, access.role, "settings") for note in _login_notes(access)]

    async def probe_all(addresses: Iterable[BrokerAddress]) -> dict[BrokerAddress, Probe]:
        wanted = list(dict.fromkeys(addresses))
        found = await asyncio.gather(
            *(probe(prober, access.security, address, tls=context, now=now) for address in wanted)
        )
        return dict(zip(wanted, found, strict=True))

    probes = await probe_all(access.bootstrap)
    answering = [probe for probe in probes.values() if probe.answers]
    steps += [note.of(access.alias, access.role, str(address)) for address, note in _bootstrap_notes(probes)]
    if not answering:
        return Look(access, tuple(steps))
    brokers = dict(sorted(answering[0].brokers.items()))
    steps.append(_judge_cluster(answering).of(access.alias, access.role))
    probes |= await probe_all(address for address in brokers.values() if address not in probes)
    for node_id, address in brokers.items():
        subject = f"broker {node_id} at {address}"
        is_known = address in access.bootstrap
        notes = broker_notes(node_id, probes[address], is_known=is_known)
        steps += [note.of(access.alias, access.role, subject) for note in notes]
    cluster = Cluster(
        access.alias,
        [probe.address for probe in answering],
        client_id=CLIENT_ID,
        timeout_s=TIMEOUT_S,
        security=access.security,
    )
    return Look(access, tuple(steps), cluster, answering[0].cluster_id)


def _context(cluster: Cluster) -> tuple[ssl.SSLContext | None, list[Note]]:
    """Loads our own stores; reports once what is wrong with them."""
    try:
        return cluster.tls_context(), []
    except HeliographError as error:
        return None, [failed("tls", error)]


def _login_notes(access: ClusterLogin) -> list[Note]:
    """Reports a login that cannot be started; known before any broker answers, and when none does."""
    try:
        access.security.login(where=f'"{access.alias}"')
    except HeliographError as error:
        return [failed("sasl", error)]
    return []


def _bootstrap_notes(probes: dict[BrokerAddress, Probe]) -> Iterator[tuple[BrokerAddress, Note]]:
    """Yields a note per bootstrap address; one that answers is enough, so that others may fail with a warning."""
    is_enough = any(probe.answers for probe in probes.values())
    for address, found in probes.items():
        for note in found.notes:
            lesser = is_enough and not found.answers and note.verdict is Verdict.FAIL
            yield address, replace(note, verdict=Verdict.WARN) if lesser else note


def _judge_cluster(answering: list[Probe]) -> Note:
    ids = {probe.cluster_id: probe.address for probe in answering}
    if len(ids) > 1:
        found = ", ".join(f"{address} to {cluster_id}" for cluster_id, address in ids.items())
        return failed("cluster", f"the addresses lead to different clusters: {found}", "check bootstrap.servers")
    brokers = len(answering[0].brokers)
    return passed("cluster", f"id {answering[0].cluster_id}, {brokers} broker{'' if brokers == 1 else 's'}")


def broker_notes(node_id: int, found: Probe, *, is_known: bool) -> list[Note]:
    """Judges an advertised broker; what its bootstrap address has shown is not repeated, unless it fails."""
    failure = found.failure
    if is_known and failure is None:
        return [passed("advertised", "the address is one of bootstrap.servers")]
    if failure is None or failure.step not in (NAME, TCP):
        return [failure] if is_known and failure is not None else found.notes
    unreachable = failed(
        "advertised",
        f"the advertised listener of broker {node_id} cannot be reached: {failure.what}",
        f"check advertised.listeners of broker {node_id}, that it runs, and the network path from this machine",
    )
    return [*(note for note in found.notes if note is not failure and not is_known), unreachable]
