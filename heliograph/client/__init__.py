"""Answers applications and tools on a target cluster: where copies come from, and where a group goes on.

Needs the target alone: no source, no running mirror, no Spark.
"""

from heliograph.client.checkpoints import Offsets, Translated
from heliograph.client.mirror_client import MirrorClient
from heliograph.client.seek import Decision, mirrored_listener, mirrored_on_assign, seek_to_mirrored

__all__ = [
    "Decision",
    "MirrorClient",
    "Offsets",
    "Translated",
    "mirrored_listener",
    "mirrored_on_assign",
    "seek_to_mirrored",
]
