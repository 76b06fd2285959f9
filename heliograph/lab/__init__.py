"""Runs real Kafka clusters on this machine; only the command line and tests import it."""

from heliograph.lab.broker_control import Act, change_brokers
from heliograph.lab.cluster import Lab, LabCluster
from heliograph.lab.folder import LabRecord, read_lab, stop_lab
from heliograph.lab.jars import JavaCommand, ensure_jars
from heliograph.lab.pki import Authority
from heliograph.lab.progress import Progress, show_progress, silent
from heliograph.lab.secured import Secured
from heliograph.lab.spec import (
    DEFAULT_VERSION,
    ORDINARY_JVM,
    SUPPORTED_VERSIONS,
    TEST_JVM,
    ClusterSpec,
    Jvm,
    parse_cluster_spec,
)
from heliograph.lab.starter_files import DEFAULT_FOLDER, WAYS, next_commands, remove_ready_files, write_ready_files

__all__ = [
    "DEFAULT_FOLDER",
    "DEFAULT_VERSION",
    "ORDINARY_JVM",
    "SUPPORTED_VERSIONS",
    "TEST_JVM",
    "WAYS",
    "Act",
    "Authority",
    "ClusterSpec",
    "JavaCommand",
    "Jvm",
    "Lab",
    "LabCluster",
    "LabRecord",
    "Progress",
    "Secured",
    "change_brokers",
    "ensure_jars",
    "next_commands",
    "parse_cluster_spec",
    "read_lab",
    "remove_ready_files",
    "show_progress",
    "silent",
    "stop_lab",
    "write_ready_files",
]
