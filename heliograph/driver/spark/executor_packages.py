"""Our package and the modules that it needs, packed for executors that have neither.

The package goes as a zip, from which Python imports. Native modules cannot be imported
from a zip: they go as an archive of just those distributions that a lane needs, which
Spark unpacks beside the executor.
"""

from __future__ import annotations

import gzip
import re
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import heliograph
from heliograph.driver.spark.executor_check import LANE_PACKAGES

_EPOCH = (1980, 1, 1, 0, 0, 0)
_NOT_FOR_LANES = ("cli", "lab")
_IDLE = re.compile(
    r"(^|/)(__pycache__|tests?|SelfTest|include|includes)/"
    r"|\.(pyx|pxd|pxi|pyi|h|hpp|c|cc|cpp)$"
    r"|^pyarrow/(src/|libarrow_flight|_flight|libarrow_s3|_s3fs|libarrow_python\.so$|lib\w+\.so\.\d+\.)"
)
"""Files that importing never reads, and the two largest of Arrow's libraries, which nobody here uses."""


def pack_package(path: Path) -> Path:
    """Write heliograph's own modules; the same modules make the same bytes."""
    root = Path(heliograph.__file__).parent
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for module in sorted(root.rglob("*.py")):
            if module.relative_to(root).parts[0] not in _NOT_FOR_LANES:
                name = zipfile.ZipInfo(module.relative_to(root.parent).as_posix(), _EPOCH)
                name.external_attr = 0o644 << 16
                file.writestr(name, module.read_bytes(), zipfile.ZIP_DEFLATED)
    return path


def pack_modules(path: Path) -> Path:
    """Write all packages that a lane imports, as installed here, with all that they need themselves."""
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", 1, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|") as archive,
    ):
        for name, file in _module_files(LANE_PACKAGES.values()):
            member = tarfile.TarInfo(name)
            member.size = file.stat().st_size
            member.mode = 0o644
            with file.open("rb") as content:
                archive.addfile(member, content)
    return path


def _module_files(packages: Iterable[str]) -> Iterator[tuple[str, Path]]:
    for package in sorted(_with_needs(packages), key=lambda found: found.name):
        for file in sorted(package.files or ()):
            name = file.as_posix()
            if ".." not in file.parts and not file.is_absolute() and not _IDLE.search(name):
                yield name, Path(str(file.locate()))


def _with_needs(packages: Iterable[str]) -> list[Distribution]:
    """Distributions with all that they require and that is installed here: what is not, is not needed here."""
    found: dict[str, Distribution] = {}
    waiting = list(packages)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue
        needs = (requirement for requirement in found[name].requires or () if "extra ==" not in requirement)
        waiting += (re.split(r"[^\w.-]", requirement)[0] for requirement in needs)
    return list(found.values())
