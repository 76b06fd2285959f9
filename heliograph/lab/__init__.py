"""Real Kafka clusters on this machine; imported by the command line and by tests only."""

from heliograph.lab.cluster import Cluster, Lab
from heliograph.lab.folder import LabRecord, read_lab, stop_lab
from heliograph.lab.jars import JavaCommand, ensure_jars
from heliograph.lab.progress import Progress, show_progress, silent
from heliograph.lab.spec import (
    DEFAULT_VERSION,
    ORDINARY_JVM,
    SUPPORTED_VERSIONS,
    TEST_JVM,
    ClusterSpec,
    Jvm,
    parse_cluster_spec,
)

__all__ = [
    "DEFAULT_VERSION",
    "ORDINARY_JVM",
    "SUPPORTED_VERSIONS",
    "TEST_JVM",
    "Cluster",
    "ClusterSpec",
    "JavaCommand",
    "Jvm",
    "Lab",
    "LabRecord",
    "Progress",
    "ensure_jars",
    "parse_cluster_spec",
    "read_lab",
    "show_progress",
    "silent",
    "stop_lab",
]
