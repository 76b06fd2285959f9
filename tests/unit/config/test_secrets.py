"""Placeholders and references to secrets: found, missing, compared, and never shown."""

from __future__ import annotations

import contextlib
import json
import os
import traceback
from pathlib import Path
from typing import Any

import pytest
import yaml

from heliograph import cli
from heliograph.config import ConfigEntry, Loaded, Settings, inspect_content, inspect_file
from heliograph.config.convert import convert
from heliograph.config.findings import Report, Severity
from heliograph.config.secrets import MASK, Resolver, find_placeholders, fingerprint, shown_reference
from heliograph.errors import ConfigError, Unreachable
from heliograph.kafka.types import BrokerAddress
from heliograph.preflight import probe
from tests.unit.helpers.samples import BASE

RESOURCE = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
metadata: {name: m}
spec:
  connectCluster: B
  clusters:
    - alias: A
      bootstrapServers: a:9092
      tls:
        trustedCertificates:
          - {secretName: ca, certificate: ca.crt}
          - {secretName: more, pattern: "*.crt"}
      authentication:
        type: scram-sha-512
        username: me
        passwordSecret: {secretName: user, password: password}
    - {alias: B, bootstrapServers: "b:9092"}
  mirrors:
    - {sourceCluster: A, targetCluster: B, sourceConnector: {}}
"""


def resolve(value: str, *, key: str = "A.client.id", report: Report | None = None, **resolver: Any) -> ConfigEntry:
    return Resolver(**resolver).resolve(ConfigEntry(key, value), report or Report("f"))


def missing(value: str, *, offline: bool = False, folder: Path | None = None) -> str:
    report = Report("f")
    entry = resolve(value, report=report, offline=offline, folder=folder, environment={})
    assert entry.is_missing
    [finding] = report.findings
    assert finding.severity is (Severity.WARNING if offline else Severity.ERROR)
    return str(finding)


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """Secrets as Kubernetes mounts them: folders of dots, and links to their files."""
    folder = tmp_path / "mounted"
    for name, keys in {
        "user": {"password": 'p"a\\ss\n'},
        "ca": {"ca.crt": "CA\n"},
        "more": {"b.crt": "SECOND\n", "a.crt": "FIRST\n", "key.pem": "no"},
    }.items():
        data = folder / name / "..2026_01_01"
        data.mkdir(parents=True)
        (folder / name / "..data").symlink_to(data.name)
        for key, value in keys.items():
            (data / key).write_text(value)
            (folder / name / key).symlink_to(f"..data/{key}")
    return folder


# -- providers


def test_environment() -> None:
    entry = resolve("x-${env:NAME}-${env:NAME}", environment={"NAME": "v"})
    assert (entry.value, entry.reference) == ("x-v-v", "x-${env:NAME}-${env:NAME}")
    assert resolve("${env::NAME}", environment={"NAME": "v"}).value == "v"


def test_environment_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOGRAPH_TEST", "v")
    assert resolve("${env:HELIOGRAPH_TEST}").value == "v"


def test_file(tmp_path: Path) -> None:
    path = tmp_path / "credentials.properties"
    path.write_text("user=me\npass\\ word=a\\u0062\n")
    assert resolve(f"${{file:{path}:user}}").value == "me"
    assert resolve(f"${{file:{path}:pass word}}").value == "ab"
    assert missing(f"${{file:{path}:other}}").endswith(
        f'"A.client.id" needs "other" of {path}, which is not in the file'
    )
    assert "cannot be read: No such file or directory" in missing(f"${{file:{path}x:user}}")
    path.write_text("x=\\u12")
    assert "is in a file that cannot be read: \\u without" in missing(f"${{file:{path}:x}}")


def test_folder(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("value")
    assert resolve(f"${{dir:{tmp_path}:key}}").value == "value"
    assert f'needs "other" of {tmp_path}, which cannot be read' in missing(f"${{dir:{tmp_path}:other}}")


@pytest.mark.parametrize("provider", ["secrets", "strimzisecrets", "configmaps", "strimziconfigmaps"])
def test_mounted_secret(provider: str, mounted: Path) -> None:
    assert resolve(f"${{{provider}:user:password}}", folder=mounted).value == 'p"a\\ss'
    assert resolve(f"${{{provider}:space/user:password}}", folder=mounted).value == 'p"a\\ss'


def test_pattern_joins_the_files_in_order_without_those_of_kubernetes(mounted: Path) -> None:
    assert resolve("${secrets:more:*.crt}", folder=mounted).value == "FIRST\n\nSECOND\n"
    assert "FIRST" in resolve("${secrets:more:*}", folder=mounted).value
    assert 'key "*.p12" of secret "more", which is missing' in missing("${secrets:more:*.p12}", folder=mounted)


@pytest.mark.parametrize(
    ("name", "kind", "written"),
    [
        ("mine", "org.apache.kafka.common.config.provider.FileConfigProvider", "${mine:PATH:key}"),
        ("d", "org.apache.kafka.common.config.provider.DirectoryConfigProvider", "${d:FOLDER:f.properties}"),
        ("e", "org.apache.kafka.common.config.provider.EnvVarConfigProvider", "${e:NAME}"),
        ("s", "io.strimzi.kafka.KubernetesSecretConfigProvider", "${s:ns/user:password}"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "A."])
def test_declared_providers(*, name: str, kind: str, written: str, prefix: str, tmp_path: Path, mounted: Path) -> None:
    (tmp_path / "f.properties").write_text("key=value")
    written = written.replace("PATH", str(tmp_path / "f.properties")).replace("FOLDER", str(tmp_path))
    declared = f"{prefix}config.providers={name}\n{prefix}config.providers.{name}.class={kind}\n"
    resolver = Resolver(folder=mounted, environment={"NAME": "v"})
    text = BASE + f"A.client.id={written}\n" + declared
    loaded = inspect_content(text.encode(), "f.properties", resolver=resolver)
    assert loaded.settings is not None
    assert loaded.settings.clusters["A"].client_id in ("value", "key=value", "v", 'p"a\\ss')


def test_providers_of_a_resource(tmp_path: Path) -> None:
    (tmp_path / "f.properties").write_text("key=value")
    text = RESOURCE.partition("      tls:")[0] + (
        f"      config: {{client.id: '${{mine:{tmp_path}/f.properties:key}}'}}\n"
        "    - alias: B\n"
        "      bootstrapServers: b:9092\n"
        "      config:\n"
        "        config.providers: mine\n"
        "        config.providers.mine.class: org.apache.kafka.common.config.provider.FileConfigProvider\n"
        "  mirrors:\n"
        "    - {sourceCluster: A, targetCluster: B, sourceConnector: {}}\n"
    )
    loaded = inspect_content(text.encode(), "f.yaml")
    assert loaded.valid_settings().clusters["A"].client_id == "value"
    assert convert(loaded).text.count("${mine:") == 1


def test_unknown_provider_and_bare_name_are_warned_of() -> None:
    report = Report("f")
    assert resolve("${vault:a:b}", report=report).value == "${vault:a:b}"
    assert resolve("${HOME}", report=report).value == "${HOME}"
    assert [finding.rule for finding in report.findings] == ["unknown-provider", "bare-placeholder"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("${a:b}", [("a", "", "b")]),
        ("${a:b:c}", [("a", "b", "c")]),
        ("${a:b:c:d}", [("a", "b", "c:d")]),
        ("${a::c}", [("a", "", "c")]),
        ("${a} ${b:c}", [("b", "", "c")]),
        ("${${a:b}", [("${a", "", "b")]),
        ("${a:b", []),
        ("$ {a:b}", []),
    ],
)
def test_placeholders_are_found_by_kafkas_rule(text: str, parts: list[tuple[str, str, str]]) -> None:
    assert [(found.provider, found.path, found.key) for found in find_placeholders(text)] == parts


# -- what is missing


def test_missing_secret_names_secret_key_and_place(tmp_path: Path) -> None:
    text = BASE + "A.ssl.key.password = ${secrets:ns/user:password}\n"
    resolver = Resolver(folder=tmp_path)
    with pytest.raises(ConfigError) as caught:
        inspect_content(text.encode(), "mm2.properties", resolver=resolver).raise_errors()
    assert str(caught.value) == (
        'CONFIG: mm2.properties:5:1: "A.ssl.key.password" needs key "password" of secret "user", '
        "which is missing: there is no folder user"
    )
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "other").touch()
    assert "which is missing: the folder has other" in missing("${secrets:user:password}", folder=tmp_path)


def test_missing_secret_is_a_warning_offline(tmp_path: Path) -> None:
    assert "is not mounted; give the folder" in missing("${secrets:user:password}", offline=True)
    assert 'the environment variable "X", which is not set' in missing("${env:X}", offline=True)
    path = tmp_path / "m.yaml"
    path.write_text(RESOURCE)
    loaded = inspect_file(path, offline=True)
    assert loaded.settings is not None
    places = [finding.place for finding in loaded.findings if finding.rule == "missing-secret"]
    assert sorted({place.line for place in places if place}) == [10, 14]


@pytest.mark.parametrize(
    "value",
    [
        "${secrets:..:password}", "${secrets:user:../user/password}", "${secrets:user:..}", "${secrets::password}",
        "${secrets:user/..:x}", "${dir:/etc:../etc/hostname}", "${dir:/etc:.}", "${secrets:user:..data}",
        "${secrets:user:a\x00b}", "${secrets:" + "y" * 300 + ":password}", "${file:/dev/zero:x}", "${file:/:x}",
    ],
)  # fmt: skip
def test_no_way_out_of_the_folder(value: str, mounted: Path) -> None:
    missing(value, folder=mounted)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "is not a file" in missing(f"${{dir:{tmp_path}:pipe}}")


@pytest.mark.parametrize("password", ['a"b', "a\\b", '\\"', "a b;", "ü€", '";'])
def test_password_survives_within_quotes(password: str) -> None:
    written = 'm required username="u" password="${env:P}" other="x${env:P}y";'
    entry = resolve(written, key="A.sasl.jaas.config", environment={"P": password})
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    assert entry.value == f'm required username="u" password="{quoted}" other="x{quoted}y";'
    assert resolve("${env:P}", environment={"P": password}).value == password
    assert resolve('"${env:P}', environment={"P": password}).value == '"' + password


def test_references_of_a_resource(mounted: Path) -> None:
    loaded = inspect_content(RESOURCE.encode(), "m.yaml", resolver=Resolver(folder=mounted))
    properties = loaded.valid_settings().clusters["A"].properties
    assert properties["ssl.truststore.certificates"] == "CA\nFIRST\n\nSECOND\n"
    assert properties["sasl.jaas.config"].endswith('required username="me" password="p\\"a\\\\ss";')
    assert [(reference.name, reference.key, reference.owner) for reference in loaded.references] == [
        ("ca", "ca.crt", "A"),
        ("more", "*.crt", "A"),
        ("user", "password", "A"),
    ]


# -- what is shown


@pytest.mark.parametrize(
    ("key", "written", "shown"),
    [
        ("client.id", "a${env:X}b", "a${env:X}b"),
        ("ssl.key.password", "${env:X}", "${env:X}"),
        ("ssl.key.password", "a${env:X}b", f"{MASK}${{env:X}}{MASK}"),
        (
            "sasl.jaas.config",
            'm required username="u" password="${env:X}";',
            'm required username="u" password="${env:X}";',
        ),
        ("sasl.jaas.config", 'm required password="p" x="${env:X}";', f'm required password="{MASK}" x="${{env:X}}";'),
        ("sasl.jaas.config", "m required password=p x=${env:X};", f"m required password={MASK} x=${{env:X}};"),
        ("sasl.jaas.config", 'm required password="${env:X}p";', f'm required password="${{env:X}}{MASK}";'),
        ("sasl.jaas.config", 'm required password "p" ${env:X}', f"{MASK}${{env:X}}"),
        ("sasl.jaas.config", "${env:X}", "${env:X}"),
    ],
)
def test_shown_reference(key: str, written: str, shown: str) -> None:
    assert shown_reference(key, written) == shown


MARKER = "hunter2MARKER"
NUMBER = "918273"
ENVIRONMENT = {
    "M": MARKER,
    "BAD_PATTERN": f"*{MARKER}(",
    "SERVERS": f"{MARKER}.example.com:9092",
    "BAD_SERVERS": f"{MARKER}:x, y",
    "NUMBER": NUMBER,
    "LONG": f"{NUMBER}000",
    "A": "A",
    "JAAS": f'm required password="{MARKER}";',
}
SECRET_KEYS = [
    "A.ssl.key.password", "A.ssl.keystore.password", "A.ssl.truststore.password", "A.ssl.keystore.key",
    "A.sasl.jaas.config", "A.sasl.oauthbearer.client.credentials.client.secret", "B.producer.ssl.key.password",
    "A.sasl.oauthbearer.assertion.private.key.passphrase", "A.consumer.sasl.jaas.config", "ssl.key.password",
    "A->B.producer.override.ssl.key.password", "A->B.source.consumer.sasl.jaas.config", "spark.ssl.keyPassword",
    "A->B.target.cluster.ssl.key.password", "spark.hadoop.fs.s3a.secret.key", "A.zz.zz.token", "A.zz.zz.api-key",
    "B.config.providers.vault.param.token", "producer.ssl.key.password",
]  # fmt: skip
REFUSED_KEYS = ["A.ssl.key.passwordd", "A->C.ssl.key.password", "A->B.ssl.keystore.passwrd"]
SECRET_VALUES = [
    MARKER,
    f'm required username="u" password="{MARKER}";',
    f'm required password="{MARKER}" x="${{env:A}}";',
    f"{MARKER}${{env:A}}",
    f"${{{MARKER}}}",
    f"${{x:{MARKER}}}",
    f"${{env:{MARKER}",
    f"\\u{MARKER}",
    f"\\{MARKER}",
]
BY_PLACEHOLDER = [
    f"{key}={value}"
    for key, values in {
        "A.bootstrap.servers": ["${env:SERVERS}", "${env:BAD_SERVERS}", "${env:M}", "a:1,${env:M}"],
        "B.bootstrap.servers": ["${env:SERVERS}\nA.bootstrap.servers=${env:SERVERS}"],
        "tasks.max": ["${env:M}", "${env:NUMBER}"],
        "A->B.tasks.max": ["${env:M}", "1${env:NUMBER}"],
        "epoch.ms": ["${env:M}", "${env:NUMBER}"],
        "refresh.topics.interval.seconds": ["${env:M}", "${env:LONG}"],
        "replication.factor": ["${env:M}", "${env:NUMBER}", "-${env:NUMBER}"],
        "offset.storage.replication.factor": ["${env:NUMBER}"],
        "offset.flush.interval.ms": ["${env:M}"],
        "B.offset.flush.interval.ms": ["${env:NUMBER}"],
        "A->B.enabled": ["${env:M}"],
        "enabled": ["${env:M}"],
        "state": ["${env:M}"],
        "topics": ["${env:M}", "${env:BAD_PATTERN}"],
        "groups": ["${env:BAD_PATTERN}"],
        "config.properties.exclude": ["${env:BAD_PATTERN}"],
        "replication.policy.class": ["${env:M}"],
        "replication.policy.separator": ["${env:M}", "${env:A}"],
        "A->B.source.cluster.alias": ["${env:M}"],
        "A->B.name": ["${env:M}"],
        "errors.tolerance": ["${env:M}"],
        "key.converter": ["${env:M}"],
        "A.client.id": ["${env:M}"],
        "B.group.id": ["${env:M}"],
        "offset.storage.topic": ["${env:M}"],
        "A.security.protocol": ["${env:M}"],
        "A.consumer.isolation.level": ["${env:M}"],
        "A.consumer.client.rack": ["${env:M}"],
        "B.producer.compression.type": ["${env:M}"],
        "A.sasl.login.refresh.window.factor": ["${env:M}"],
        "A.sasl.jaas.config": ["${env:JAAS}", 'm required username="${env:M}" password="${env:M}";'],
        "A.ssl.key.password": ["${env:M}"],
        "ssl.keystore.type": ["${env:M}"],
        "spark.app.name": ["${env:M}"],
        "some.unknown": ["${env:M}"],
        "clusters": ["${env:BAD_PATTERN}"],
    }.items()
    for value in values
]


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """`check` goes to the clusters; here it gets no further than their names."""

    async def resolve(address: BrokerAddress, *, where: str) -> list[object]:
        raise Unreachable(f'host name "{address.host}" cannot be resolved', where=where)

    monkeypatch.setattr(probe, "resolve", resolve)


def outputs(path: Path, capsys: pytest.CaptureFixture[str], *, online: bool = True) -> str:
    """All that any command says of a file."""
    clusters = [] if online else ["--offline"]
    commands = [["check", "--offline"], ["check", *clusters, "-o", "json"], ["secrets", "check"], ["config", "convert"]]
    commands += [["config", "show"], ["config", "show", "-o", "json"], ["config", "show", "-o", "properties"]]
    said = ""
    for command in commands:
        at = 2 if command[0] in ("config", "secrets") else 1
        with contextlib.suppress(SystemExit):
            cli.main([*command[:at], str(path), *command[at:]])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        said += captured.out + captured.err
    return said


def told(path: Path) -> str:
    """Exceptions and what objects print of themselves."""
    try:
        loaded = inspect_file(path)
        texts = [repr(loaded), repr(loaded.parts), repr(loaded.findings), repr(loaded.settings)]
        if loaded.settings is not None:
            texts += [repr(loaded.settings.clusters), repr(loaded.settings.flows), repr(convert(loaded))]
        loaded.raise_errors()
    except ConfigError as error:
        return repr(error) + str(error) + repr(error.details) + "".join(traceback.format_exception(error))
    return "".join(texts)


def assert_unseen(
    text: str | bytes, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, online: bool = True
) -> None:
    path = tmp_path / file
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    said = outputs(path, capsys, online=online) + told(path)
    assert file in said
    for secret in (MARKER, NUMBER):
        assert secret not in said, next(line for line in said.splitlines() if secret in line)


@pytest.fixture
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("_environment")
@pytest.mark.parametrize("keys", [SECRET_KEYS, SECRET_KEYS + REFUSED_KEYS], ids=["accepted", "refused"])
@pytest.mark.parametrize("value", SECRET_VALUES)
def test_no_output_shows_a_secret_written_in_clear(
    keys: list[str], value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_unseen(BASE + "".join(f"{key}={value}\n" for key in keys), "f.properties", tmp_path, capsys)


@pytest.mark.usefixtures("_environment")
@pytest.mark.parametrize("line", BY_PLACEHOLDER)
def test_no_output_shows_what_is_behind_a_placeholder(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever goes to a broker must say to which: an address is shown then, as `run` shows it."""
    online = ".bootstrap.servers=" not in line
    assert_unseen(f"{BASE}{line}\n", "f.properties", tmp_path, capsys, online=online)


CUSTOM = f"""authentication:
        type: custom
        sasl: true
        config:
          sasl.jaas.config: {MARKER}
          ssl.key.password: '{MARKER}'
        ignored:"""


def connector(text: str) -> tuple[str, str]:
    return "sourceConnector: {}", f"sourceConnector: {{config: {{{text}}}}}"


def annotation(text: str) -> tuple[str, str]:
    return "{name: m}", f"{{name: m, annotations: {{heliograph/{text}}}}}"


SEPARATORS = [
    f"{block}: {{config: {{replication.policy.separator: '${{env:{name}}}'}}}}"
    for block, name in (("sourceConnector", "M"), ("checkpointConnector", "NUMBER"))
]
RESOURCES = {
    "custom": ("authentication:", CUSTOM),
    "password in the wrong place": ("passwordSecret: {secretName: user, password: password}", f"password: {MARKER}"),
    "password instead of a reference": ("{secretName: user, password: password}", MARKER),
    "syntax": ("username: me", f'username: "{MARKER}'),
    "tab": ("username: me", f"username: me\n\tpassword: {MARKER}"),
    "literal in a connector": connector(f"producer.override.ssl.key.password: {MARKER}"),
    "misspelt in a connector": connector(f"producer.override.ssl.key.passwort: {MARKER}"),
    "number in a connector": connector("replication.factor: '${env:M}'"),
    "annotation": annotation(f"spark.ssl.keyPassword: {MARKER}"),
    "number by annotation": annotation("epoch.ms: '${env:M}'"),
    "pods": ("  mirrors:", f"  template: {{connectContainer: {{env: [{{name: X, value: {MARKER}}}]}}}}\n  mirrors:"),
    "servers": ("bootstrapServers: a:9092", "bootstrapServers: '${env:BAD_SERVERS}'"),
    "pattern": ("sourceConnector: {}", "sourceConnector: {}, topicsPattern: '${env:BAD_PATTERN}'"),
    "separators that differ": ("sourceConnector: {}", ", ".join(SEPARATORS)),
    "nothing changed": ("", ""),
}


@pytest.mark.usefixtures("_environment")
@pytest.mark.parametrize("name", RESOURCES)
def test_no_output_shows_a_secret_of_a_resource(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = RESOURCES[name]
    assert old in RESOURCE
    assert_unseen(RESOURCE.replace(old, new, 1), "f.yaml", tmp_path, capsys)


def test_no_exception_holds_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert_unseen(f"{RESOURCE}# {MARKER}".encode() + b"\xff", "f.yaml", tmp_path, capsys)


def test_what_is_mounted_is_not_shown(mounted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(RESOURCE)
    for command in (["check"], ["config", "show"], ["config", "convert"], ["secrets", "check"]):
        with contextlib.suppress(SystemExit):
            cli.main([*command, str(path), "--secrets", str(mounted)])
        captured = capsys.readouterr()
        assert captured.out
        assert not any(value in captured.out + captured.err for value in ("a\\ss", "FIRST", "SECOND"))
    loaded = inspect_file(path, secrets=mounted)
    assert "FIRST" not in repr((loaded, loaded.settings, loaded.references))


def test_objects_print_names_only() -> None:
    loaded = inspect_content(BASE.encode(), "f.properties")
    assert isinstance(loaded.settings, Settings)
    assert isinstance(loaded, Loaded)
    assert repr(loaded.settings) == "<settings of f.properties: A->B>"
    assert repr(ConfigEntry("a", MARKER, None, MARKER)) == "ConfigEntry(key='a', place=None, is_missing=False)"
    assert "SHOULD_NOT_BE_SEEN" not in repr(Resolver(environment={"X": "SHOULD_NOT_BE_SEEN"}))


# -- secrets check


def run(*arguments: str) -> int:
    try:
        return cli.main(list(arguments))
    except SystemExit as ended:
        return int(ended.code or 0)


def check_rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, str]]:
    code = run("secrets", "check", *arguments, "-o", "json")
    rows = json.loads(capsys.readouterr().out)
    return code, {f"{row['secret']}/{row['key']}": row["state"] for row in rows}


def test_secrets_check(mounted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, other = tmp_path / "m.yaml", tmp_path / "other"
    path.write_text(RESOURCE)
    everything = {"secrets:ca/ca.crt": "present", "secrets:more/*.crt": "present", "secrets:user/password": "present"}
    assert check_rows(capsys, str(path), "--secrets", str(mounted)) == (0, everything)
    for name, key, value in (("ca", "ca.crt", "CA\n"), ("user", "password", "another")):
        (other / name).mkdir(parents=True)
        (other / name / key).write_text(value)
    both = ["--secrets", str(mounted), "--secrets", str(other)]
    assert check_rows(capsys, str(path), *both) == (
        1,
        {
            "secrets:ca/ca.crt": "present",
            "secrets:more/*.crt": f"missing in {other}",
            "secrets:user/password": "differs",
        },
    )
    code, rows = check_rows(capsys, str(path))
    assert code == 1
    assert set(rows.values()) == {"missing"}


def test_secrets_check_table(mounted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "f.properties"
    path.write_text(BASE + "A.ssl.key.password=in the file\nB.ssl.key.password=${secrets:user:password}\n")
    assert run("secrets", "check", str(path), "--secrets", str(mounted), "-o", "wide") == 0
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == "2 secrets, 0 missing or different"
    assert "in clear" in said
    assert fingerprint('p"a\\ss') in said
    assert f"B.ssl.key.password ({path}:6:1)" in said


# -- convert


def test_convert_writes_secrets_for_their_owner_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, folder = tmp_path / "mm2.properties", tmp_path / "out"
    path.write_text(BASE + 'A.ssl.key.password=one\\ntwo\\n\nA->B.producer.override.ssl.key.password="\n')
    (folder / "a-credentials").mkdir(parents=True)
    (folder / "a-credentials" / "ssl.key.password").touch(mode=0o644)
    assert run("config", "convert", str(path)) == 0
    captured = capsys.readouterr()
    assert "a-credentials/ssl.key.password" in captured.err
    assert run("config", "convert", str(path), "--write-secrets", str(folder)) == 0
    converted = tmp_path / "m.yaml"
    converted.write_text(capsys.readouterr().out)
    assert converted.read_text() == captured.out
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    again = inspect_file(converted, secrets=folder).valid_settings()
    assert again == inspect_file(path).settings
    assert again.clusters["A"].properties["ssl.key.password"] == "one\ntwo\n"


def test_convert_keeps_equal_names_apart(tmp_path: Path) -> None:
    text = BASE.replace("A, B", "A, B, a") + (
        "a.bootstrap.servers=c:1\nA.ssl.key.password=1\na.ssl.key.password=2\n"
        "A.consumer.ssl.key.password=3\nA->B.consumer.ssl.key.password=4\nspark.a/../secret=5\n"
    )
    loaded = inspect_content(text.encode(), "f.properties")
    converted = convert(loaded)
    assert sorted(converted.secrets.values()) == ["1", "2", "3", "4", "5"]
    assert all("/" not in name + key for name, key in converted.secrets)
    assert len(list(yaml.safe_load_all(converted.text))) == 1


def test_convert_with_missing_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mm2.properties"
    path.write_text(BASE + "A.ssl.key.password=${secrets:x:y}\n")
    assert run("config", "convert", str(path)) == 0
    assert "ssl.key.password: ${secrets:x:y}" in capsys.readouterr().out
    path.write_text(BASE + "A.ssl.key.password=clear${secrets:x:y}\n")
    assert run("config", "convert", str(path)) == 1
    assert "has a secret in clear beside a placeholder" in capsys.readouterr().err
