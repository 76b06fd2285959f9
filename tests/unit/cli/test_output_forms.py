"""Every output form of every command, on every configuration of the tests: an answer or an error, never a traceback."""

from __future__ import annotations

import csv
import functools
import io
import json
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import javaproperties
import pytest
import typer
import typer.main
import yaml

from heliograph import cli
from heliograph.cli import program
from heliograph.config import Loaded, inspect_file, load
from heliograph.config.secrets import Resolver
from heliograph.errors import AuthenticationFailed, ConfigError
from heliograph.kafka import cluster
from heliograph.preflight import probe
from tests.unit.helpers.published import CONFIGS, SECRETS

PAUSED = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
metadata: {{name: mirror}}
spec:
  replicas: {replicas}
  connectCluster: b
  clusters:
    - {{alias: a, bootstrapServers: "a:9092"}}
    - {{alias: b, bootstrapServers: "b:9092"}}
  mirrors:
    - sourceCluster: a
      targetCluster: b
      sourceConnector: {{{block}}}
      checkpointConnector: {{}}
      heartbeatConnector: {{}}
"""
STANDING_STILL = {
    "state-paused.yaml": PAUSED.format(replicas=1, block="state: paused"),
    "state-stopped.yaml": PAUSED.format(replicas=1, block="state: stopped"),
    "pause-true.yaml": PAUSED.format(replicas=1, block="pause: true"),
    "no-replicas.yaml": PAUSED.format(replicas=0, block=""),
}
NAMES = [
    *STANDING_STILL,
    *sorted(path.relative_to(CONFIGS).as_posix() for path in CONFIGS.rglob("*.*") if SECRETS not in path.parents),
]
ELSEWHERE = {"run", "prepare", "lab up", "lab down", "lab status", "lab kill", "lab stop", "lab start"}
"""Commands that print no result in several forms, or need no configuration; they have tests of their own."""


COMMAND = typer.main.get_command(program.app)


class Call(NamedTuple):
    """A command with the options that it needs, and whether it asks clusters."""

    words: tuple[str, ...]
    more: tuple[str, ...] = ()
    is_online: bool = False


CALLS = (
    Call(("check",), ("--offline",)),
    Call(("check",), ("--print-acls",)),
    Call(("check",), is_online=True),
    Call(("config", "show")),
    Call(("config", "convert")),
    Call(("secrets", "check")),
    Call(("status",), is_online=True),
    Call(("topics",), is_online=True),
    Call(("topics",), ("--partitions",), is_online=True),
    Call(("topics",), ("--diff",), is_online=True),
    Call(("groups",), is_online=True),
    Call(("acknowledge",), ("--flow", "{flow}", "--dry-run"), is_online=True),
    Call(("translate",), ("--from", "{source}", "--to", "{target}", "--group", "g"), is_online=True),
    Call(("positions", "list"), ("--flow", "{flow}"), is_online=True),
    Call(("positions", "set"), ("--flow", "{flow}", "--topic", "t", "--to", "earliest"), is_online=True),
    Call(("positions", "reset"), ("--flow", "{flow}", "--topic", "t"), is_online=True),
)


@functools.cache
def forms_of(words: tuple[str, ...]) -> tuple[str, ...]:
    """The values of a command's -o; one empty form if it has none."""
    command = COMMAND
    for word in words:
        command = command.commands[word]  # type: ignore[attr-defined]
    option = next((one for one in command.params if one.name == "output"), None)
    default = option.default if option is not None else None
    return tuple(type(default)) if isinstance(default, StrEnum) else ("",)


def all_commands() -> Iterator[str]:
    for name, command in COMMAND.commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        yield from (f"{name} {one}" for one in inner) if inner else (name,)


def test_every_command_is_among_those_tried() -> None:
    assert set(all_commands()) - ELSEWHERE == {" ".join(call.words) for call in CALLS}


@pytest.fixture
def file(name: str, tmp_path: Path) -> Path:
    if name not in STANDING_STILL:
        return CONFIGS / name
    path = tmp_path / name
    path.write_text(STANDING_STILL[name])
    return path


@pytest.fixture
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_args: object, **_more: object) -> None:
        raise AuthenticationFailed("this is a test")  # not tried again, so that it takes no time

    monkeypatch.setattr(cluster, "open_connection", refuse)
    monkeypatch.setattr(probe, "resolve", refuse)


@pytest.fixture
def _read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is read once for all commands, and these are made once: it would take most of the time."""
    monkeypatch.setattr(program, "app", COMMAND)
    known: dict[tuple[bytes, bool], Loaded] = {}
    read = load.inspect_content

    def inspect(content: bytes, file: str, *, resolver: Resolver, only_targets: Sequence[str] = ()) -> Loaded:
        key = content, resolver.offline
        if key not in known:
            known[key] = read(content, file, resolver=resolver, only_targets=only_targets)
        return known[key]

    monkeypatch.setattr(load, "inspect_content", inspect)


def flow_words(path: Path) -> dict[str, str] | None:
    """How the first enabled flow and its clusters are called; None if the file has none."""
    try:
        settings = inspect_file(path, secrets=SECRETS, offline=True).settings
    except ConfigError:
        return None
    if settings is None or not settings.enabled_flows:
        return None
    flow = settings.enabled_flows[0]
    return {"flow": flow.name, "source": flow.source, "target": flow.target, "state": str(flow.state)}


def parses(text: str, form: str) -> bool:
    """Whether the text is what its form says."""
    if form == "json":
        json.loads(text)
    elif form == "yaml":
        yaml.safe_load(text)
    elif form == "csv":
        list(csv.reader(io.StringIO(text), strict=True))
    elif form == "properties":
        javaproperties.loads(text)
    return True


@pytest.mark.usefixtures("_no_network", "_read_once")
@pytest.mark.parametrize("name", NAMES)
def test_every_form_of_every_command_gives_an_answer_or_an_error(
    name: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = flow_words(file)
    for call in CALLS:
        if words is None and any("{" in word for word in call.more):
            continue
        forms = forms_of(call.words)
        if call.is_online:  # what they print of clusters that do not answer is alike
            forms = (forms[NAMES.index(name) % len(forms)],)
        for form in forms:
            options = [word.format(**words) if words else word for word in call.more]
            output = ["-o", form] if form else []
            try:
                code = cli.main([*call.words, str(file), *options, "--secrets", str(SECRETS), *output])
            except SystemExit as ended:
                code = int(ended.code or 0)
            captured = capsys.readouterr()
            what = f"{call.words} {options} -o {form}: {captured.err}"
            assert code in (0, 1), what
            assert captured.out or captured.err, what
            assert not captured.out or parses(captured.out, form), what
            is_at_rest = words is not None and words["state"] != "running"
            assert code == 1 or not call.is_online or is_at_rest, what
