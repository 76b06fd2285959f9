"""Fetches Kafka's jars once per version with the Ivy that PySpark brings, into a per-user cache.

A version's folder appears by one rename, so it is complete or missing. Ivy's own default resolver is used; where that
cannot be reached, HELIOGRAPH_IVY_SETTINGS names a settings file for Ivy.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from heliograph.errors import LabError
from heliograph.java import find_java
from heliograph.lab.keeper import die_with_parent
from heliograph.lab.progress import Progress, silent
from heliograph.lab.spec import TEST_JVM, Jvm

_LOG4J_VERSION = "2.24.3"
_FETCH_TIMEOUT_S = 1800
_REPORT_EVERY_JARS = 10
# Servers write their log to stdout and stderr, which the keeper sends to a file. Tools keep stdout for results.
_LOG4J_CONFIG = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = ${sys:heliograph.log.level:-WARN}
rootLogger.appenderRef.console.ref = console
"""


class JavaCommand(NamedTuple):
    """The command and environment to run: `subprocess.Popen(command.argv, env={**os.environ, **command.env})`."""

    argv: list[str]
    env: dict[str, str]


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "heliograph"


def java_command(
    jars: Path, main_class: str, *arguments: str, jvm: Jvm = TEST_JVM, options: tuple[str, ...] = ()
) -> JavaCommand:
    """Builds the command to run a class of Kafka's jars. Java expands the wildcard of the CLASSPATH variable."""
    argv = [
        find_java().path,
        f"-Xmx{jvm.heap}",
        *jvm.flags,
        "-XX:-UsePerfData",  # else a killed Java leaves a file in the machine's temporary folder
        "-Djava.awt.headless=true",
        f"-Djava.io.tmpdir={tempfile.gettempdir()}",  # Java by itself does not ask TMPDIR
        f"-Dlog4j2.configurationFile={jars / 'log4j2.properties'}",
        *options,
        main_class,
        *arguments,
    ]
    return JavaCommand(argv, {"CLASSPATH": f"{jars}/*"})


def ensure_jars(version: str, *, progress: Progress = silent) -> Path:
    """Returns the folder with the jars of a Kafka version; fetches them if needed. Raises LabError."""
    folder = cache_folder() / f"kafka-{version}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_name(f"{folder.name}.lock"), version, progress):
            if not folder.is_dir():
                _fetch(version, folder, progress)
    config = folder / "log4j2.properties"
    if not config.is_file():
        config.write_text(_LOG4J_CONFIG)
    return folder


def ivy_module(version: str) -> str:
    """Writes the Ivy file that names what a version of Kafka needs."""
    coordinates = [
        ("org.apache.kafka", "kafka_2.13", version),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", _LOG4J_VERSION),
        ("org.apache.logging.log4j", "log4j-core", _LOG4J_VERSION),
    ]
    # MirrorMaker 2 of 2.4 was never published as an artifact of its own.
    if not version.startswith("2."):
        coordinates.append(("org.apache.kafka", "connect-mirror", version))
    dependencies = "\n".join(
        f'    <dependency org="{organisation}" name="{name}" rev="{revision}" conf="lab->default"/>'
        for organisation, name, revision in coordinates
    )
    return f"""\
<ivy-module version="2.0">
  <info organisation="heliograph" module="lab-{version}"/>
  <configurations><conf name="lab"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""


@contextlib.contextmanager
def _locked(lock_file: Path, version: str, progress: Progress) -> Iterator[None]:
    with lock_file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"Kafka {version}", "waiting for another process that is fetching it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(version: str, folder: Path, progress: Progress) -> None:
    """Fetches into a temporary folder, then renames it. Jars of an interrupted fetch stay in Ivy's cache."""
    progress(f"Kafka {version}", "fetching the jars, once per user (a minute or two)")
    for left_over in folder.parent.glob(f"{folder.name}.partial-*"):
        shutil.rmtree(left_over, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f"{folder.name}.partial-", dir=folder.parent))
    ivy_cache = folder.with_name(f"{folder.name}.ivy")
    try:
        (work / "jars").mkdir()
        (work / "ivy.xml").write_text(ivy_module(version))
        _run_ivy(_ivy_command(work, ivy_cache), version, progress)
        count = len(list((work / "jars").glob("*.jar")))
        (work / "jars" / "log4j2.properties").write_text(_LOG4J_CONFIG)
        (work / "jars").rename(folder)
        progress(f"Kafka {version}", f"{count} jars in {folder}")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    shutil.rmtree(ivy_cache, ignore_errors=True)


def _ivy_command(work: Path, ivy_cache: Path) -> list[str]:
    settings = os.environ.get("HELIOGRAPH_IVY_SETTINGS")
    return [
        find_java().path,
        f"-Divy.default.ivy.user.dir={ivy_cache}",
        "-cp",
        str(_ivy_jar()),
        "org.apache.ivy.Main",
        *(["-settings", settings] if settings else []),
        *("-ivy", str(work / "ivy.xml")),
        *("-confs", "lab"),
        *("-retrieve", f"{work / 'jars'}/[artifact]-[revision](-[classifier]).[ext]"),
        *("-cache", str(ivy_cache)),
        *("-types", "jar", "bundle"),
    ]


def _ivy_jar() -> Path:
    # The package is only looked for, never imported: Spark has no part in the lab.
    spec = importlib.util.find_spec("pyspark")
    jars = Path(spec.origin).parent / "jars" if spec and spec.origin else Path()
    found = sorted(jars.glob("ivy-*.jar"))
    if not found:
        raise LabError("PySpark has no Ivy jar to fetch Kafka with", where=str(jars), remedy="install pyspark again")
    return found[0]


def _run_ivy(command: list[str], version: str, progress: Progress) -> None:
    output: list[str] = []
    fetched = 0
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - a C call only, safe with threads too
    ) as ivy:
        assert ivy.stdout is not None
        try:
            for line in ivy.stdout:
                output.append(line.strip())
                if "[SUCCESSFUL ]" in line:
                    fetched += 1
                    if fetched % _REPORT_EVERY_JARS == 0:
                        progress(f"Kafka {version}", f"{fetched} jars fetched")
        except BaseException:
            ivy.kill()
            raise
    if ivy.returncode != 0:
        raise LabError(
            f"the jars of Kafka {version} could not be fetched",
            why=_reason(output),
            remedy="check the network, or name a settings file for Ivy in HELIOGRAPH_IVY_SETTINGS",
        )


def _reason(output: list[str]) -> str:
    """Returns the most useful lines of Ivy's output: the unresolved names, else the end."""
    unresolved = [line.strip(": ") for line in output if line.startswith("::") and line.endswith(("not found", "."))]
    return ", ".join(dict.fromkeys(unresolved)) or " ".join([line for line in output if line][-3:])
