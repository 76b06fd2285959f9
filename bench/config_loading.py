"""Measures how long a large configuration takes to load, in both its forms."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from bench.works import LoadWork

_TIMED = """
import sys, time
from heliograph.config import load_settings
started = time.perf_counter()
settings = load_settings(sys.argv[1])
print(time.perf_counter() - started, len(settings.enabled_flows))
"""
FORMS = ("properties", "yaml")


def make_file(folder: Path, form: str, flows: int) -> Path:
    """Writes a file with many sources and one target, each flow with its own topics, groups and intervals."""
    path = folder / f"load.{form}"
    path.write_text(_properties(flows) if form == "properties" else _resource(flows))
    return path


def _settings(alias: str) -> dict[str, str]:
    return {
        "topics": f"{alias}-orders, {alias}-[a-z]+",
        "groups": f"{alias}-.*",
        "sync.group.offsets.enabled": "true",
        "refresh.topics.interval.seconds": "60",
    }


def _properties(flows: int) -> str:
    sources = [f"c{index}" for index in range(flows)]
    lines = [f"clusters = target, {', '.join(sources)}", "target.bootstrap.servers = target:9092"]
    for alias in sources:
        lines += [f"{alias}.bootstrap.servers = {alias}:9092", f"{alias}->target.enabled = true"]
        lines += [f"{alias}->target.{key} = {value}" for key, value in _settings(alias).items()]
    return "\n".join(lines)


def _resource(flows: int) -> str:
    storage = {f"{what}StorageTopic": f"mm2-{what}" for what in ("config", "offset", "status")}
    mirrors = [
        {
            "source": {"alias": alias, "bootstrapServers": f"{alias}:9092"},
            "sourceConnector": {"tasksMax": 2, "config": _settings(alias)},
            "checkpointConnector": {"config": _settings(alias)},
        }
        for alias in (f"c{index}" for index in range(flows))
    ]
    target = {"alias": "target", "bootstrapServers": "target:9092", "groupId": "mm2", **storage}
    document = {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaMirrorMaker2",
        "metadata": {"name": "load"},
        "spec": {"replicas": 1, "target": target, "mirrors": mirrors},
    }
    return yaml.safe_dump(document)


def measure_loading(work: LoadWork, path: Path) -> dict[str, Any]:
    """Measures in a fresh interpreter, without its imports."""
    done = subprocess.run([sys.executable, "-c", _TIMED, str(path)], capture_output=True, text=True, check=True)
    seconds, flows = done.stdout.split()
    assert int(flows) == work.flows
    return {"load_s": round(float(seconds), 3), "flows": work.flows, "bytes": path.stat().st_size}
