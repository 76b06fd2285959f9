"""Files that went wrong, by chance and on purpose: each loads or gives a clear error, soon and in little memory."""

from __future__ import annotations

import random
import re
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from heliograph.config import Loaded, inspect_content
from heliograph.config.load import MAX_BYTES
from heliograph.config.secrets import Resolver
from heliograph.errors import ConfigError
from heliograph.names import filters
from heliograph.names.filters import NameFilter

CONFIGS = Path(__file__).parents[2] / "published_configs"
LONGEST_S = 1.0
MOST_BYTES = 300 * 1024 * 1024

PROPERTIES = r"""# a mirror
clusters = primary, backup , third
primary.bootstrap.servers = p1:9092, p2:9092
backup.bootstrap.servers = b1:9093
third.bootstrap.servers = [::1]:9092
primary.security.protocol = SASL_SSL
primary.sasl.mechanism = SCRAM-SHA-512
primary.sasl.jaas.config = org.apache.kafka.common.security.scram.ScramLoginModule required \
    username="me" password="${secrets:ns/credentials:password}";
primary.ssl.truststore.password = ${env:PASSWORD}
config.providers = file
config.providers.file.class = org.apache.kafka.common.config.provider.FileConfigProvider
backup.ssl.key.password = ${file:/nowhere/at/all:key}
primary->backup.enabled = true
primary->backup.topics = orders.*, pay\\.ments, [a-z&&[^x]]+, (?i)Mixed
primary->backup.topics.blacklist = .*-tmp
primary->backup.sync.group.offsets.enabled = true
primary->backup.consumer.isolation.level = read_committed
backup->third.enabled = true
backup->third.replication.policy.separator = _
replication.factor : 3
tasks.max 10
refresh.topics.interval.seconds=600000
backup.producer.compression.type = lz4
offset.storage.topic = mine
spark.executor.memory = 1g
epoch.ms = 5000
A\u00e4.unknown = \u20ac
"""

RESOURCE = r"""apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
metadata:
  name: mirror
  annotations: {heliograph/epoch.ms: "5000"}
spec:
  version: 4.0.0
  replicas: 1
  connectCluster: "backup"
  clusters:
    - alias: "primary"
      bootstrapServers: p1:9092,p2:9092
      tls: &tls
        trustedCertificates:
          - secretName: ca
            certificate: ca.crt
          - {secretName: ca, pattern: "*.crt"}
      authentication:
        type: scram-sha-512
        username: me
        passwordSecret: {secretName: credentials, password: password}
    - alias: "backup"
      bootstrapServers: b1:9093
      tls: *tls
      config:
        config.storage.replication.factor: -1
        producer.compression.type: lz4
  mirrors:
    - sourceCluster: "primary"
      targetCluster: "backup"
      sourceConnector:
        tasksMax: 10
        config: {replication.factor: 3, sync.topic.acls.enabled: "false"}
      checkpointConnector:
        state: paused
        config:
          sync.group.offsets.enabled: yes
      heartbeatConnector: {}
      topicsPattern: orders.*|pay\.ments
      groupsPattern: ".*"
  resources: {requests: {cpu: 1, memory: 2Gi}}
  jvmOptions: {"-Xmx": 1g}
---
kind: Service
apiVersion: v1
"""

V1 = """apiVersion: kafka.strimzi.io/v1
kind: KafkaMirrorMaker2
metadata: {name: mirror}
spec:
  target:
    alias: target
    bootstrapServers: t:9092
    groupId: g
    offsetStorageTopic: o
    configStorageTopic: c
    statusStorageTopic: s
  mirrors:
    - source:
        alias: source
        bootstrapServers: s:9092
        authentication:
          type: oauth
          clientId: me
          clientSecret: {secretName: s, key: k}
          tokenEndpointUri: https://tokens
      sourceConnector: {tasksMax: 2, autoRestart: {enabled: true}}
"""


def bases() -> list[tuple[str, bytes]]:
    found = [("m.properties", PROPERTIES.encode()), ("m.yaml", RESOURCE.encode()), ("m.yml", V1.encode())]
    published = (path for path in sorted(CONFIGS.rglob("*")) if path.suffix in (".properties", ".yaml"))
    return found + [(path.name, path.read_bytes()) for path in published]


# -- mutations; each takes the bytes and a source of chance

Mutation = Callable[[bytes, random.Random], bytes]
ODD = [
    b"", b"null", b"~", b"true", b"-1", b"0", b"1e999", b"9" * 400, b"0x7f", b"1_000", b"[]", b"{}", b"[1, [2]]",
    b"{a: {b: c}}", b"*x", b"&x y", b"!!python/object:os.system ls", b"!!binary aGk=", b"2026-01-01", b"'", b'"', b"|",
    b">\n", b"\\", b"\\u12", b"\\ud800", b"${", b"${env:", b"${env:PASSWORD}", b"${file:/etc/hostname:x}", b"${dir::}",
    b"${secrets:../..:x}", b"${x:y:z}", b"%s%n", b"\x00", b"\xff\xfe", "ü€😀".encode(), b"a" * 5000, b"(" * 300,
    b"[" * 300, b"(a+)+$", b"(x{999}){999}", b".*,,.*", b"->", b"A->B", b"\t", b"<<", b"? ", b"- - - -", b"#", b"---",
]  # fmt: skip


def flip_bytes(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.randint(1, 6)):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def random_bytes(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content))
    return content[:at] + chance.randbytes(chance.randint(1, 40)) + content[at:]


def cut(content: bytes, chance: random.Random) -> bytes:
    start, end = sorted((chance.randrange(len(content)), chance.randrange(len(content))))
    return content[:start] + content[end:]


def drop_lines(content: bytes, chance: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    for _ in range(chance.randint(1, 3)):
        if lines:
            del lines[chance.randrange(len(lines))]
    return b"".join(lines)


def swap_lines(content: bytes, chance: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


def repeat_lines(content: bytes, chance: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    at = chance.randrange(len(lines))
    return b"".join([*lines[:at], lines[at] * chance.choice([2, 3, 50]), *lines[at:]])


def indent(content: bytes, chance: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    at = chance.randrange(len(lines))
    lines[at] = lines[at].lstrip() if chance.random() < 0.5 else chance.choice([b" ", b"  ", b"\t"]) + lines[at]
    return b"".join(lines)


def other_value(content: bytes, chance: random.Random) -> bytes:
    """What follows a key, replaced by something else: a wrong type, a bomb, nothing."""
    places = [match.span(1) for match in re.finditer(rb"(?:=|: )([^\n]*)", content)]
    if not places:
        return content + chance.choice(ODD)
    start, end = chance.choice(places)
    return content[:start] + chance.choice(ODD) + content[end:]


def other_key(content: bytes, chance: random.Random) -> bytes:
    places = [match.span(1) for match in re.finditer(rb"^[ -]*([A-Za-z.>-]+)", content, re.MULTILINE)]
    start, end = chance.choice(places)
    key = bytearray(content[start:end])
    key[chance.randrange(len(key))] = chance.choice(b"abcdefgh.->_ ")
    return content[:start] + bytes(key) + content[end:]


def nest(content: bytes, chance: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    at = chance.randrange(len(lines))
    deep = chance.choice([50, 70, 3000])
    opening, closing = chance.choice([(b"[", b"]"), (b"{a: ", b"}"), (b"- ", b""), (b"(", b")")])
    return b"".join([*lines[:at], lines[at].rstrip(b"\n"), b" ", opening * deep, closing * deep, b"\n", *lines[at:]])


def blow_up(content: bytes, chance: random.Random) -> bytes:
    """One piece, many times."""
    start = chance.randrange(len(content))
    piece = content[start : start + chance.choice([1, 7, 40])]
    return content[:start] + piece * chance.choice([10, 1000, 20_000]) + content[start:]


def laugh(content: bytes, chance: random.Random) -> bytes:
    key = b"x%d: "
    lines = [key % 0 + b"&x0 [a, b]"]
    lines += [key % n + b"&x%d [%s]" % (n, b",".join([b"*x%d" % (n - 1)] * 9)) for n in range(1, chance.randint(2, 12))]
    bomb = b"\n".join(lines) + b"\n"
    return bomb + content if chance.random() < 0.5 else content + bomb


MUTATIONS: list[Mutation] = [
    flip_bytes, random_bytes, cut, drop_lines, swap_lines, repeat_lines, indent, other_value, other_value, other_key,
    nest, blow_up, laugh,
]  # fmt: skip


def mutated_files(seed: int, number: int) -> Iterator[tuple[str, str, bytes]]:
    chance = random.Random(seed)
    files = bases()
    for index in range(number):
        file, content = chance.choice(files)
        names = []
        for _ in range(chance.choice([1, 1, 1, 2, 3])):
            mutation = chance.choice(MUTATIONS)
            content = mutation(content or b"x", chance)
            names.append(mutation.__name__)
        # Without its ending the form is guessed from the content.
        yield f"{index}: {file} {' '.join(names)}", file if chance.random() < 0.9 else "m", content


def outcome(file: str, content: bytes) -> Loaded | ConfigError:
    """What came of a file; anything else than these two is a failure by itself."""
    resolver = Resolver(environment={"PASSWORD": "p"}, offline=True)
    try:
        return inspect_content(content, file, resolver=resolver)
    except ConfigError as error:
        return error


def timed_outcome(file: str, content: bytes) -> tuple[Loaded | ConfigError, float]:
    start = time.process_time()
    found = outcome(file, content)
    return found, time.process_time() - start


def assert_clear(found: Loaded | ConfigError) -> None:
    """It loads, or says what is wrong and where."""
    if isinstance(found, ConfigError):
        assert found.what
        assert len(str(found)) < 10_000
    else:
        errors = [finding for finding in found.findings if finding.severity == "error"]
        assert (found.settings is None) == bool(errors)
        assert all(finding.what for finding in found.findings)


def mutate(seed: int, number: int) -> None:
    loaded = 0
    for name, file, content in mutated_files(seed, number):
        found, took = timed_outcome(file, content)
        if took >= LONGEST_S:  # a busy machine may slow one try down
            found, took = timed_outcome(file, content)
        assert took < LONGEST_S, f"{name} took {took:.1f} s of processor time"
        assert_clear(found)
        loaded += isinstance(found, Loaded) and found.settings is not None
    assert loaded > number // 50  # else the mutations are too coarse to test anything but the parsers


def test_mutated_files_load_or_say_what_is_wrong() -> None:
    mutate(1, 1000)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_ten_thousand_mutated_files() -> None:
    before = peak_bytes()
    mutate(2, 10_000)
    assert peak_bytes() - before < MOST_BYTES


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_the_unmutated_files_are_understood() -> None:
    for file, content in bases()[:3]:
        found = outcome(file, content)
        assert isinstance(found, Loaded)
        assert found.settings is not None, found.findings


# -- on purpose

START = "clusters=A,B\nA.bootstrap.servers=a:1\nB.bootstrap.servers=b:1\nA->B.enabled=true\n"
SPEC = V1.partition("  mirrors")[0]
LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 15)
)
ONE_MIRROR = "  mirrors:\n  - &m {source: {alias: x, bootstrapServers: 'x:1'}, sourceConnector: {}}\n"
UNICODE_CLASSES = ["Lu", "Ll", "Lo", "Mn", "Nd", "Nl", "Pd", "Ps", "Pe", "Po", "Sm", "Sc", "Sk", "So"]
MANY = MAX_BYTES // 2 - 200
BOMBS: dict[str, tuple[str, str | bytes, str]] = {
    "billion laughs": ("f.yaml", LAUGHS + RESOURCE, "more than 100000 values"),
    "laughs by merging": (
        "f.yaml",
        f"a: &a {{{', '.join(f'k{n}: 1' for n in range(5000))}}}\n" + "".join(f"b{n}: {{<<: *a}}\n" for n in range(99)),
        "more than 100000 values",
    ),
    "a mirror ten thousand times": ("f.yaml", SPEC + ONE_MIRROR + "  - *m\n" * 9000, "is given twice"),
    "an anchor within itself": ("f.yaml", "a: &a [*a]\n", "has no anchor before it"),
    "a merge of itself": ("f.yaml", "a: &a {x: 1, <<: *a}\n", "has no anchor before it"),
    "brackets": ("f.yaml", "[" * 100_000, "nested more than 60 deep"),
    "braces": ("f.yaml", "{a: " * 100_000, "nested more than 60 deep"),
    "dashes": ("f.yaml", "- " * 100_000, "nested more than 60 deep"),
    "questions": ("f.yaml", "? " * 100_000, "nested more than 60 deep"),
    "stairs": ("f.yaml", "".join(" " * n + "a:\n" for n in range(1900)), "nested more than 60 deep"),
    "deep below a known field": ("f.yaml", RESOURCE.replace("cpu: 1", "cpu: " + "[" * 100_000), "nested more than 60"),
    "8 MB in YAML": ("f.yaml", RESOURCE + "x: " + "y" * 8_000_000, "is larger than 2 MB"),
    "8 MB in properties": ("f.properties", START + "topics=" + "y" * 8_000_000, "is larger than 2 MB"),
    "a million lines": ("f.properties", START + "a\n" * 1_000_000, "has more than 30000 lines"),
    "a million lines of unknown form": ("f", "\n" * 1_000_000, "has more than 30000 lines"),
    "a long pattern": ("f.properties", START + "topics=" + "y" * 2 * MANY, "it has more than 50000 characters"),
    "many patterns": ("f.properties", START + "topics=" + "y," * MANY, "it has more than 50000 characters"),
    "blanks within a list": ("f.properties", START + "topics=a" + " " * 2 * MANY + "b", "more than 50000 characters"),
    "backslashes": ("f.properties", START + "topics=" + "\\" * 2 * MANY, "it has more than 50000 characters"),
    "dropped backslashes": ("f.properties", START + "topics=" + "\\a" * MANY, "it has more than 50000 characters"),
    "a long key": ("f.properties", START + "y" * 2 * MANY + "=1", "a key of"),
    "a key of dots": ("f.properties", START + "y." * MANY + "=1", "a key of"),
    "a long key of YAML": ("f.yaml", "y" * MANY, "no document of the file"),
    "a long key in YAML": ("f.yaml", f"? {'y' * MANY}\n: 1\n", "a key of"),
    "a line without end": ("f.properties", START + ("x" * 40 + "\\\n") * 20_000, "a key of"),
    "placeholders that never end": ("f.properties", START + "A.client.id=" + "${" * MANY, ""),
    "many placeholders": ("f.properties", START + "A.client.id=" + "${env:X}" * (MANY // 4), "more than 20000"),
    "unknown keys": ("f.properties", START + "".join(f"zq.{n}=1\n" for n in range(29_000)), "more than 200 errors"),
    "unknown fields": ("f.yaml", V1 + "".join(f"  zq{n}: 1\n" for n in range(29_000)), "more than 200 errors"),
    "known keys": ("f.properties", START + "".join(f"spark.{n}=1\n" for n in range(29_000)), ""),
    "one key again and again": ("f.properties", START + "tasks.max=1\n" * 29_000, ""),
    "unknown flows": ("f.properties", START + "".join(f"A->c{n}.x=1\n" for n in range(29_000)), "more than 200 errors"),
    "clusters": ("f.properties", "clusters=" + ",".join(f"a{n}" for n in range(200_000)), "more than 5000 clusters"),
    "all pairs": ("f.properties", "enabled=true\nclusters=" + ",".join(f"a{n}" for n in range(4000)), "too many"),
    "documents": ("f.yaml", "---\nkind: X\n" * 20_000, "no document of the file is a KafkaMirrorMaker2"),
    "open sets": ("f.properties", START + "topics=" + "[" * 49_000, "cannot be used"),
    "open groups": ("f.properties", START + "topics=" + "(" * 49_000, "cannot be used"),
    "repetitions": ("f.properties", START + "topics=((a{1000}){1000}){1000}", "add up to more than 100000"),
    "added repetitions": ("f.properties", START + "topics=" + "|".join(["a{50000}"] * 2000), "add up to more than"),
    "nested repetitions": ("f.properties", START + "topics=((((a+)+)+)+)+", ""),
    "unicode classes": (
        "f.properties",
        START + "topics=" + "|".join(f"\\\\p{{{name}}}" for name in UNICODE_CLASSES),
        "",
    ),
    "a huge number": ("f.properties", START + "tasks.max=" + "9" * MANY, "must be a whole number"),
    "a huge fraction": ("f.properties", START + "A.sasl.login.refresh.window.factor=" + "9" * MANY, ""),
    "a huge number in YAML": ("f.yaml", V1.replace("tasksMax: 2", "tasksMax: " + "9" * MANY), "must be a whole number"),
    "addresses": ("f.properties", START + "A.bootstrap.servers=" + "h," * MANY, "must be a list of host:port"),
    "colons": ("f.properties", START + "A.bootstrap.servers=" + ":" * 2 * MANY, "must be a list of host:port"),
    "NUL in properties": ("f.properties", START.encode() + b"\0" * 1000, "a key of"),
    "NUL in YAML": ("f.yaml", V1.encode() + b"\0", "not valid YAML"),
    "NUL in a path": ("f.properties", START + "A.client.id=${file:/a\\u0000b:k}", "cannot be read"),
    "a name too long for a file": ("f.properties", f"{START}A.client.id=${{file:/{'y' * 5000}:k}}", "cannot be read"),
    "not UTF-8": ("f.yaml", V1.encode() + b"# \xff\xfe", "f.yaml:22:1: not UTF-8"),
    "UTF-16": ("f.yaml", V1.encode("utf-16"), "not UTF-8"),
    "UTF-16 properties": ("f.properties", START.encode("utf-16"), 'the key "clusters" is missing'),
    "a tab": ("f.yaml", V1.replace("  target", "\ttarget"), "cannot start any token"),
    "a key twice": ("f.yaml", V1.replace("groupId: g", "groupId: g\n    groupId: h"), '"groupId" is given twice'),
    "a key of two kinds": ("f.yaml", "? [a, b]\n: 1\n", "a key must be a plain text"),
    "tags": ("f.yaml", SPEC + ONE_MIRROR + "  image: !!python/object/apply:os.system [ls]\n", ""),
    "half a character": ("f.properties", START + "A.client.id=\\ud83d", "half a character"),
    "an escape": ("f.properties", START + "A.client.id=\\u12", "\\u without four hexadecimal digits"),
    "nothing": ("f.yaml", "", "no document of the file"),
    "no properties": ("f.properties", "", 'the key "clusters" is missing'),
    "a lone scalar": ("f.yaml", "hello", "no document of the file"),
    "a list": ("f.yaml", "- 1\n- 2\n", "no document of the file"),
    "JSON": ("f.json", '{"kind": "KafkaMirrorMaker2", "apiVersion": "kafka.strimzi.io/v1", "spec": 7}', "must have"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_bombs(name: str) -> None:
    file, content, expected = BOMBS[name]
    content = content.encode() if isinstance(content, str) else content
    resolver = Resolver(environment={"X": "y"})
    before = peak_bytes()
    start = time.process_time()
    try:
        found = inspect_content(content, file, resolver=resolver)
    except ConfigError as error:
        said = str(error)
    else:
        said = " ".join(str(finding) for finding in found.findings if finding.severity == "error")
    took = time.process_time() - start
    assert expected in said
    assert bool(expected) == bool(said), said
    assert took < 2 * LONGEST_S  # half of it on a machine of its own
    assert peak_bytes() - before < MOST_BYTES


@pytest.mark.parametrize("pattern", ["a{9000}" * 11, "(a{300}){300}", "|".join(f"topic-{n}" for n in range(4000))])
def test_a_large_pattern_compiles_in_time(pattern: str) -> None:
    start = time.process_time()
    assert not NameFilter((pattern,)).accepts("orders")
    assert time.process_time() - start < 5 * LONGEST_S


def test_a_match_that_takes_too_long_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "_MATCH_TIMEOUT_S", 0.4)
    with pytest.raises(ConfigError, match="takes more than 0 s"):
        NameFilter((r"(a|a|aa)+b\1",)).accepts("a" * 200)
