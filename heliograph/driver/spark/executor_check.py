"""What an executor needs to run a lane, and what it has: looked up there, judged on the driver.

*Runs* on executors before anything else of ours: it imports nothing but Python's own
library, so that it can say what is missing.
"""

from __future__ import annotations

import importlib.machinery
import platform
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec

import heliograph

LANE_PACKAGES = {
    "cramjam": "cramjam",
    "crc32c": "crc32c",
    "cryptography": "cryptography",
    "javaproperties": "javaproperties",
    "jks": "pyjks",
    "kafka": "kafka-python",
    "pyarrow": "pyarrow",
    "regex": "regex",
    "yaml": "PyYAML",
}
"""The modules that a lane imports, and the packages that they come in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorCheck:
    """What one Python worker of an executor has."""

    host: str
    python: str
    abi: str
    """The suffix of native modules: Python's version, processor, system and C library in one."""
    heliograph: str
    missing: tuple[str, ...] = ()
    """Packages that are not there."""


def equipment_here() -> ExecutorCheck:
    """*Runs* in a task."""
    return ExecutorCheck(
        host=socket.gethostname(),
        python=platform.python_version(),
        abi=abi_here(),
        heliograph=heliograph.__version__,
        missing=tuple(package for module, package in LANE_PACKAGES.items() if find_spec(module) is None),
    )


def abi_here() -> str:
    return importlib.machinery.EXTENSION_SUFFIXES[0]


def is_shippable(found: Iterable[ExecutorCheck], abi: str) -> bool:
    """Whether modules of this machine would mend what is missing: only if they run on all executors."""
    equipment = list(found)
    return any(one.missing for one in equipment) and all(one.abi == abi for one in equipment)


def describe_lacks(found: Iterable[ExecutorCheck], abi: str) -> str:
    """What stands between each host and a lane; empty if nothing does."""
    return "; ".join(sorted({text for one in found if (text := _lacks(one, abi))}))


def _lacks(one: ExecutorCheck, abi: str) -> str:
    other = f", whose modules end in {one.abi} and not in {abi}" if one.abi != abi else ""
    where = f"{one.host} (Python {one.python}{other})"
    if one.missing:
        return f"{where} lacks {', '.join(one.missing)}"
    if one.heliograph != heliograph.__version__:
        return f"{where} has heliograph {one.heliograph} and not {heliograph.__version__}"
    return ""
