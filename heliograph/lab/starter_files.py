"""Writes files to start with: a mirror of the first cluster into the second, and client settings of secured clusters.

They contain no secret: they refer to a file of secrets beside the key material, which is removed with the lab's data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from heliograph.config.files.properties import property_line
from heliograph.config.keys.key_check import is_secret_name
from heliograph.errors import LabError
from heliograph.lab.cluster import LabCluster
from heliograph.lab.pki import write_private
from heliograph.lab.secured import Secured

WAYS: Mapping[str, tuple[str, str]] = {
    "tls": ("TLS", ""),
    "mtls": ("MTLS", ""),
    "plain": ("SASL_SSL", "PLAIN"),
    "scram": ("SASL_SSL", "SCRAM-SHA-512"),
    "oauth": ("SASL_SSL", "OAUTHBEARER"),
    "sni": ("SNI", "SCRAM-SHA-512"),
    "expired": ("EXPIRED", ""),
    "wrong-host": ("WRONG_HOST", ""),
}
"""Listener and mechanism by their name on the command line."""

DEFAULT_FOLDER = Path(".lab")
HEADER_LINE = "# written by heliograph lab up, removed by heliograph lab down\n"
_MIRROR_FILE = "mm2.properties"
_CLIENT_FILES = "-client.properties"
_PROVIDER = {
    "config.providers": "file",
    "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
}


def write_ready_files(folder: Path, clusters: Sequence[LabCluster], way: str | None) -> dict[str, str]:
    """Writes the files to the lab's folder; returns the settings, `<alias>.<key>`, with references for secrets.

    `way` is the kind of login to secured clusters; None: they have plain listeners.
    """
    found: list[dict[str, str]] = []
    for cluster in clusters:
        shown = {"bootstrap.servers": cluster.bootstrap}
        if way is not None:
            assert cluster.secured is not None
            shown = _without_secrets(cluster.secured, *WAYS[way])
            _write(folder / f"{cluster.alias}{_CLIENT_FILES}", {**_PROVIDER, **shown})
        found.append({f"{cluster.alias}.{key}": value for key, value in shown.items()})
    if len(clusters) > 1:
        provider = _PROVIDER if way is not None else {}
        _write(folder / _MIRROR_FILE, {**_mirror_keys(clusters[0], clusters[1]), **provider, **found[0], **found[1]})
    return {key: value for of_cluster in found for key, value in of_cluster.items()}


def next_commands(folder: Path, aliases: Sequence[str]) -> list[str]:
    """Lists commands to try on a lab that is up; none for a single cluster, which has no mirror."""
    if len(aliases) < 2:
        return []
    source, target = aliases[:2]
    file, at = folder / _MIRROR_FILE, "" if folder == DEFAULT_FOLDER else f" --folder {folder}"
    commands = {
        f"heliograph run {file}": f"mirrors {source} to {target}, until Ctrl-C",
        f"heliograph status {file}": "shows the state of the mirror",
        f"heliograph lab kill {source}{at}": f'kills the source; "heliograph lab start {source}{at}" brings it back',
    }
    width = max(map(len, commands))
    return [f"{command:<{width}}  # {why}" for command, why in commands.items()]


def remove_ready_files(folder: Path) -> None:
    """Removes the files that the lab wrote, and no others."""
    for path in (folder / _MIRROR_FILE, *folder.glob(f"*{_CLIENT_FILES}")):
        if _is_ours(path):
            path.unlink()


def _without_secrets(secured: Secured, listener: str, mechanism: str) -> dict[str, str]:
    properties = secured.client_properties(listener, mechanism=mechanism, stores="PKCS12")
    hidden = {key: value for key, value in properties.items() if is_secret_name(key)}
    path = write_private(secured.folder / "client-secrets.properties", _text(hidden))
    return {**properties, **{key: f"${{file:{path}:{key}}}" for key in hidden}}


def _mirror_keys(source: LabCluster, target: LabCluster) -> dict[str, str]:
    copies = str(min(3, target.spec.brokers))
    factors = ("replication", "offset.storage.replication", "config.storage.replication", "status.storage.replication")
    internal = ("heartbeats.topic", "checkpoints.topic", "offset-syncs.topic")
    return {
        "clusters": f"{source.alias}, {target.alias}",
        f"{source.alias}->{target.alias}.enabled": "true",
        f"{source.alias}->{target.alias}.topics": ".*",
        **{f"{name}.factor": copies for name in factors},
        **{f"{name}.replication.factor": "1" for name in internal},
    }


def _write(path: Path, properties: Mapping[str, str]) -> None:
    if path.exists() and not _is_ours(path):
        raise LabError("there is a file of this name already", where=str(path), remedy="choose another folder")
    write_private(path, HEADER_LINE + _text(properties))


def _is_ours(path: Path) -> bool:
    return path.is_file() and path.read_bytes().startswith(HEADER_LINE.encode())


def _text(properties: Mapping[str, str]) -> str:
    return "".join(property_line(key, value) + "\n" for key, value in properties.items())
