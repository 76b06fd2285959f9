from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import javaproperties
import pytest
import yaml

import heliograph
from heliograph import cli
from heliograph.cli import lab as lab_commands
from heliograph.cli import program
from heliograph.config import load_settings
from heliograph.errors import DataLost
from heliograph.preflight import check as preflight
from heliograph.preflight.steps import Step, Verdict


def run(*arguments: str) -> int:
    """The exit code, however the command ended."""
    try:
        return cli.main(list(arguments))
    except SystemExit as ended:
        return int(ended.code or 0)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"heliograph {heliograph.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["lab", "up", "--cluster", "a:x"], ["lab", "up", "--security", "x"], ["lab", "status", "-o", "xml"]],
)
def test_bad_arguments_exit_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_errors_are_a_line_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("lab", "status", "--folder", str(tmp_path)) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f'LAB: {tmp_path}: no lab is up; start one with "heliograph lab up"\n'
    assert run("lab", "down", "--folder", str(tmp_path)) == 1


def test_any_error_of_ours_becomes_its_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_arguments: list[str]) -> None:
        raise DataLost("offsets 3 to 5", where="a->b orders-0")

    monkeypatch.setattr(program, "app", fail)
    assert run("anything") == 1
    assert capsys.readouterr().err == "DATA_LOST: a->b orders-0: offsets 3 to 5\n"


def test_interrupt_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(_folder: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lab_commands, "read_lab", interrupt)
    assert run("lab", "status") == 130
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""


INTERRUPTED_AT = """\
import sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
before = set(sys.modules)
from heliograph.cli import main
assert set(sys.modules) - before <= {{"__future__", "heliograph", "heliograph.cli"}}, "the door is heavy"
sys.exit(main(["check", "{file}", "--offline"]))
"""


@pytest.mark.parametrize("module", ["heliograph.cli.program", "typer", "heliograph.config.load", "heliograph.lab"])
def test_interrupt_is_quiet_while_modules_are_loaded(module: str, config: Path) -> None:
    """The first second of a command is spent so."""
    script = INTERRUPTED_AT.format(module=module, file=config)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["run", "f", "--clusters", "a", "b"], ["run", "f", "--clusters", "a", "--clusters", "b"]),
        (["run", "f", "--clusters", "a", "b", "-x"], ["run", "f", "--clusters", "a", "--clusters", "b", "-x"]),
        (["run", "--clusters", "a", "f"], ["run", "--clusters", "a", "f"]),
        (["run", "f"], ["run", "f"]),
    ],
)
def test_clusters_takes_a_list_as_mm2_does(given: list[str], meant: list[str]) -> None:
    assert program.spread_clusters(given) == meant


@pytest.mark.parametrize("name", ["authenticate.secret", "ssl.keyPassword", "hadoop.fs.s3a.access.key"])
def test_a_secret_on_the_command_line_is_refused_and_not_repeated(
    name: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("run", str(config), "--conf", f"spark.{name}=planted") == 2
    told = capsys.readouterr().err
    assert "is a secret" in told
    assert "planted" not in told


# -- configurations

BASE = """\
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "mm2.properties"
    path.write_text(BASE)
    return path


def test_check_of_a_clean_file(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", str(config), "--offline", "--strict") == 0
    assert capsys.readouterr().out == "0 errors, 0 warnings, 0 infos\n"


STEP = Step(verdict=Verdict.WARN, cluster="A", role="admin", step="tls", subject="a:9092", what="old", remedy="renew")


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """What the clusters' check finds."""
    steps = [STEP]

    async def find(*_: object) -> list[Step]:
        return steps

    monkeypatch.setattr(preflight, "check_clusters", find)
    monkeypatch.setattr(preflight, "check_app_user", find)
    return steps


def test_check_looks_at_the_clusters(config: Path, online: list[Step], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", str(config)) == 0
    assert capsys.readouterr().out.splitlines() == [
        "0 errors, 0 warnings, 0 infos",
        "VERDICT  CLUSTER  ROLE   STEP  SUBJECT  WHAT",
        "WARN     A        admin  tls   a:9092   old; renew",
        "0 PASS, 1 WARN, 0 FAIL",
    ]
    assert run("check", str(config), "--strict") == 1
    online.append(replace(STEP, verdict=Verdict.FAIL))
    capsys.readouterr()
    assert run("check", str(config), "--app-user", str(config)) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 PASS, 2 WARN, 2 FAIL"
    assert run("check", str(config), "--offline", "--app-user", str(config)) == 2


def test_check_counts_what_is_as_it_should_be_and_shows_it_on_request(
    config: Path, online: list[Step], capsys: pytest.CaptureFixture[str]
) -> None:
    online.append(replace(STEP, verdict=Verdict.PASS, step="tcp"))
    assert run("check", str(config)) == 0
    *_, shown, conclusion = capsys.readouterr().out.splitlines()
    assert shown.startswith("WARN ")
    assert conclusion == "1 PASS, 1 WARN, 0 FAIL (-v shows all)"
    assert run("check", str(config), "-v") == 0
    *_, first, second, conclusion = capsys.readouterr().out.splitlines()
    assert (first[:4], second[:4], conclusion) == ("WARN", "PASS", "1 PASS, 1 WARN, 0 FAIL")


def test_check_of_clusters_for_programs(config: Path, online: list[Step], capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(BASE + "topics.blacklist=x\n")
    assert run("check", str(config), "-o", "json") == 0
    finding, step = json.loads(capsys.readouterr().out)
    assert list(finding) == list(step)
    assert (finding["kind"], finding["severity"], finding["verdict"]) == ("finding", "warning", None)
    assert (step["kind"], step["severity"], step["verdict"]) == ("step", None, "WARN")


def test_check_fails_on_errors_and_under_strict_on_warnings(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(BASE + "topics.blacklist=x\n")
    assert run("check", str(config), "--offline") == 0
    assert run("check", str(config), "--offline", "--strict") == 1
    config.write_text(BASE + "tasks.max=x\nreplication.factor=4\n")
    capsys.readouterr()
    assert run("check", str(config), "--offline") == 1
    assert capsys.readouterr().out.splitlines() == [
        f'{config}:5:1: error: "tasks.max" must be a whole number, not "x" [bad-value]',
        f'{config}:6:1: info: "replication.factor" = 4 is unusually high; 3 is usual [many-replicas]',
        "1 error, 0 warnings, 1 info",
    ]


def test_check_for_programs(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(BASE + "  A->B.topcs=x\n")
    expected = {
        **dict.fromkeys(("cluster", "role", "step", "subject", "verdict")),
        "kind": "finding",
        "severity": "error",
        "rule": "misspelt-key",
        "file": str(config),
        "line": 5,
        "column": 3,
        "key": "A->B.topcs",
        "what": '"A->B.topcs" is not a known key',
        "remedy": 'did you mean "topics"?',
    }
    assert run("check", str(config), "-o", "json") == 1
    assert json.loads(capsys.readouterr().out) == [expected]
    assert run("check", str(config), "-o", "yaml") == 1
    assert yaml.safe_load(capsys.readouterr().out) == [expected]


@pytest.mark.parametrize(
    ("name", "content", "line", "column"),
    [("f.properties", BASE + "x=\\u1", 5, 1), ("f.yaml", "a:\n\tb: c\n", 2, 1), ("f.yaml", "a: 1\na: 2\n", 2, 1)],
)
def test_check_of_a_file_that_cannot_be_parsed(
    *, name: str, content: str, line: int, column: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_text(content)
    assert run("check", str(path), "-o", "json") == 1
    [row] = json.loads(capsys.readouterr().out)
    assert (row["rule"], row["file"], row["line"], row["column"]) == ("syntax", str(path), line, column)


def test_check_of_nonsense_lists_what_it_saw(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(BASE + "".join(f"zq{n}=1\n" for n in range(1000)))
    assert run("check", str(config), "--offline") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "1 error, 201 warnings, 0 infos"
    assert "more than 200 errors and unknown keys" in lines[-2]


def test_check_takes_missing_secrets_offline_for_warnings(
    config: Path, online: list[Step], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(BASE + "A.ssl.key.password=${secrets:s:k}\n")
    assert run("check", str(config)) == 1
    assert run("check", str(config), "--offline") == 0
    (tmp_path / "mounted" / "s").mkdir(parents=True)
    (tmp_path / "mounted" / "s" / "k").write_text("v")
    assert run("check", str(config), "--secrets", str(tmp_path / "mounted")) == 0
    assert 'needs key "k" of secret "s"' in capsys.readouterr().out


def test_config_show_tells_where_each_value_came_from(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(
        BASE + "tasks.max=2\nA->B.topics=x\\\\.y\nA.ssl.key.password=p\nA.client.id=${env:NO_SUCH_NAME}\n"
        "B.offset.flush.interval.ms=5\nspark.app.name=m\nA.consumer.client.rack=r\nB.producer.linger.ms=1\n"
    )
    assert run("config", "show", str(config), "-o", "json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["A"]["bootstrap.servers"] == {"value": "a:9092", "from": f"{config}:2:1"}
    assert shown["A"]["ssl.key.password"] == {"value": "****", "from": f"{config}:7:1"}
    assert shown["A"]["client.id"] == {"value": "${env:NO_SUCH_NAME}", "from": f"{config}:8:1"}
    assert shown["A->B"]["tasks.max"] == {"value": "2", "from": f"{config}:5:1"}
    assert shown["A->B"]["topics"] == {"value": r"x\.y", "from": f"{config}:6:1"}
    assert shown["A->B"]["replication.factor"] == {"value": "2", "from": "default"}
    assert shown["A->B"]["offset.flush.interval.ms"] == {"value": "5", "from": f"{config}:9:1"}
    assert shown["A->B"]["source.consumer.client.rack"] == {"value": "r", "from": f"{config}:11:1"}
    assert shown["A->B"]["producer.override.linger.ms"] == {"value": "1", "from": f"{config}:12:1"}
    assert shown["mirror"]["spark.app.name"] == {"value": "m", "from": f"{config}:10:1"}
    assert run("config", "show", str(config)) == 0
    assert yaml.safe_load(capsys.readouterr().out) == shown
    assert run("config", "show", str(config), "-o", "properties") == 0
    text = capsys.readouterr().out
    assert javaproperties.loads(text)["A->B.topics"] == r"x\.y"
    assert f"# {config}:6:1\nA->B.topics = x\\\\.y\n" in text


def test_config_show_of_a_resource(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(
        "apiVersion: kafka.strimzi.io/v1\nkind: KafkaMirrorMaker2\nspec:\n"
        "  target: {alias: B, bootstrapServers: 'b:1', groupId: g, offsetStorageTopic: o,\n"
        "    configStorageTopic: c, statusStorageTopic: s}\n"
        "  mirrors:\n  - source: {alias: A, bootstrapServers: 'a:1'}\n"
        "    sourceConnector: {tasksMax: 3, state: paused}\n"
    )
    assert run("config", "show", str(path), "-o", "json") == 0
    shown = json.loads(capsys.readouterr().out)["A->B"]
    assert shown["tasks.max"] == {"value": "3", "from": f"{path}:8:33"}
    assert shown["group.id"] == {"value": "g", "from": f"{path}:4:56"}
    assert shown["MirrorSourceConnector"]["value"] == "paused"
    assert shown["MirrorCheckpointConnector"] == {"value": "absent", "from": "does not run"}


@pytest.mark.parametrize("command", [["config", "show"], ["config", "convert"]])
def test_a_faulty_file_is_neither_shown_nor_converted(
    command: list[str], config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(BASE + "tasks.max=x\n")
    assert run(*command, str(config)) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f'CONFIG: {config}:5:1: "tasks.max" must be a whole number, not "x"\n'


def test_config_convert_there_and_back(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(BASE + "A->B.topics=a\\\\.b\n")
    assert run("config", "convert", str(config)) == 0
    resource = tmp_path / "m.yaml"
    resource.write_text(capsys.readouterr().out)
    assert yaml.safe_load(resource.read_text())["metadata"]["name"] == "mm2-a-b"
    assert run("config", "convert", str(resource)) == 0
    back = tmp_path / "back.properties"
    back.write_text(capsys.readouterr().out)
    assert load_settings(config) == load_settings(resource) == load_settings(back)


def test_config_convert_refuses_what_would_mean_something_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(
        "".join(
            "---\napiVersion: kafka.strimzi.io/v1beta2\nkind: KafkaMirrorMaker2\nspec:\n  connectCluster: T\n"
            f"  clusters:\n  - {{alias: {source}, bootstrapServers: '{source}:1'}}\n"
            f"  - {{alias: T, bootstrapServers: 't:1', config: {{group.id: {source}, {more}}}}}\n"
            f"  mirrors:\n  - {{sourceCluster: {source}, targetCluster: T, sourceConnector: {{}}}}\n"
            for source, more in (("a", ""), ("b", "producer.linger.ms: 3"))
        )
    )
    assert run("config", "convert", str(path)) == 1
    assert 'the flows into "T" have different values for group.id' in capsys.readouterr().err
    path.write_text(path.read_text().replace("group.id: b", "group.id: a"))
    assert run("config", "convert", str(path)) == 1
    assert "the property file would mean something else: target producer of a->T" in capsys.readouterr().err


# -- views


@pytest.mark.parametrize("command", ["groups", "topics"])
def test_a_file_without_an_enabled_flow_has_nothing_to_show(
    command: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(BASE.replace("true", "false"))
    assert run(command, str(config)) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"CONFIG: {config}: no flow is enabled\n")


@pytest.mark.parametrize("command", ["groups", "topics"])
def test_groups_and_topics_of_a_dead_target_are_not_said_to_be_none(
    command: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(BASE.replace("b:9092", "127.0.0.1:1"))
    assert run(command, str(config)) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith('A->B: UNREACHABLE: "B" broker 127.0.0.1:1: no connection')


@pytest.mark.parametrize("command", [["groups"], ["translate", "--from", "A"]])
def test_a_pattern_that_java_refuses_is_a_bad_argument(
    command: list[str], config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command[0], str(config), *command[1:], "--groups", "([") == 2
    assert "[ is not closed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--from", "X"], ["--from", '"X"', "the clusters are: A, B"]),
        (["--from", "A", "--to", "X"], ["--to", '"X"', "the clusters are: A, B"]),
        (["--from", "B"], ["--from", '"B"', "the flows are: A->B"]),
    ],
)
def test_an_unknown_cluster_is_a_bad_argument_and_the_known_ones_are_named(
    arguments: list[str], told: list[str], config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("translate", str(config), *arguments, "--group", "g") == 2
    error = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert all(words in error for words in told), error


def test_several_flows_from_a_cluster_are_a_bad_argument(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(BASE.replace("A, B", "A, B, C") + "C.bootstrap.servers = c:9092\nA->C.enabled = true\n")
    assert run("translate", str(config), "--from", "A", "--group", "g") == 2
    error = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert "--to" in error
    assert "the flows are: A->B, A->C" in error


def test_commands_from_the_shell(config: Path) -> None:
    command = str(Path(sys.executable).parent / "heliograph")
    config.write_text(BASE + "topcs=x\n")
    checked = subprocess.run(
        [command, "check", str(config), "--offline"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (checked.returncode, checked.stderr) == (1, "")
    assert checked.stdout.startswith(f'{config}:5:1: error: "topcs" is not a known key; did you mean "topics"?')
    config.write_text(BASE)
    shown = subprocess.run(
        [command, "config", "show", str(config), "-o", "json"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert json.loads(shown.stdout)["A->B"]["enabled"] == {"value": "true", "from": f"{config}:4:1"}
