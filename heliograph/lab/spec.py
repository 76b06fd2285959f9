"""Defines the specification of a lab cluster: plain values and the text form of the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from heliograph.errors import LabError
from heliograph.lab.listeners import CONTROLLER_ENTRY, DETOUR, DETOUR_ENTRY, LISTENERS, REPLICATION, REPLICATION_ENTRY
from heliograph.lab.pki import Authority

DEFAULT_VERSION = "4.3.1"
SUPPORTED_VERSIONS = ("4.3.1", "3.9.1", "2.4.1")
_TEXT_FORM = re.compile(r"(?P<alias>[^:@]+)(?::(?P<brokers>[^:@]+))?(?:@(?P<version>[^:@]+))?")
_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Jvm:
    """Memory and flags of a broker's Java process."""

    heap: str = "384m"
    # Serial collector and the first compiler only: starts quickly, little CPU, slow under load.
    flags: tuple[str, ...] = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


TEST_JVM = Jvm()
# The flags of Kafka's own start scripts, for measurements.
ORDINARY_JVM = Jvm(
    heap="1g",
    flags=("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """One cluster to start. `config` wins over the lab's broker defaults; `racks` has one per broker, or is empty.

    With an `authority` the cluster is secured (see listeners.py), and its certificates are signed by it. A `detoured`
    one has a second plain listener whose advertised port is free: a test puts its proxy there. The brokers of an
    `inner_detoured` one reach each other and the controllers by such ports only: proxies must listen there before the
    brokers start (`before_launch` of `Lab.start`).
    """

    alias: str
    brokers: int = 1
    version: str = DEFAULT_VERSION
    config: Mapping[str, str] = field(default_factory=dict)
    racks: tuple[str, ...] = ()
    authority: Authority | None = None
    detoured: bool = False
    inner_detoured: bool = False
    jvm: Jvm = TEST_JVM

    def __post_init__(self) -> None:
        if not _ALIAS.fullmatch(self.alias):
            raise LabError(
                f'"{self.alias}" is not a cluster alias', remedy="use letters, digits, dots, dashes and underscores"
            )
        if self.brokers < 1:
            raise LabError(f'cluster "{self.alias}" cannot have {self.brokers} brokers', remedy="ask for one or more")
        if self.version not in SUPPORTED_VERSIONS:
            raise LabError(
                f'the lab has no Kafka "{self.version}" for cluster "{self.alias}"',
                remedy=f"choose one of {', '.join(SUPPORTED_VERSIONS)}",
            )
        if self.racks and len(self.racks) != self.brokers:
            raise LabError(
                f'cluster "{self.alias}" has {self.brokers} brokers but {len(self.racks)} racks',
                remedy="name one rack per broker, or none",
            )
        if self.listeners and self.has_zookeeper:
            raise LabError(
                f'cluster "{self.alias}" cannot be secured or detoured with Kafka {self.version}',
                remedy="choose 3.9.1 or newer",
            )

    @property
    def listeners(self) -> tuple[str, ...]:
        """Lists the listeners beside the plain and the controller one; a detour has its own and an advertised one."""
        secured = tuple(LISTENERS) if self.authority is not None else ()
        outer = (DETOUR, DETOUR_ENTRY) if self.detoured else ()
        inner = (REPLICATION, REPLICATION_ENTRY, CONTROLLER_ENTRY) if self.inner_detoured else ()
        return (*secured, *outer, *inner)

    @property
    def has_zookeeper(self) -> bool:
        return self.version.startswith("2.")


def parse_cluster_spec(
    text: str, *, version: str = DEFAULT_VERSION, jvm: Jvm = TEST_JVM, authority: Authority | None = None
) -> ClusterSpec:
    """Parses `alias[:brokers][@version]`, as in `backup:3` or `old:1@2.4.1`. Raises LabError."""
    match = _TEXT_FORM.fullmatch(text)
    brokers = (match["brokers"] or "1") if match else ""
    if match is None or not brokers.isdecimal():
        raise LabError(
            f'"{text}" does not describe a cluster', remedy='write alias[:brokers][@version], for example "backup:3"'
        )
    return ClusterSpec(
        alias=match["alias"],
        brokers=int(brokers),
        version=match["version"] or version,
        authority=authority,
        jvm=jvm,
    )
