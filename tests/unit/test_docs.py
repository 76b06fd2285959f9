"""The documents say what the code does: codes, commands, transitions, stored bytes, dependencies, links."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from heliograph import errors
from heliograph.errors import HeliographError
from heliograph.kafka.partitioner import partition_for
from heliograph.lane.partition_copy import TRANSITIONS
from heliograph.ledger.mm2.positions import encode_position_key, encode_position_value, parse_position
from heliograph.ledger.records.entry import encode_entry, encode_entry_key
from heliograph.ledger.records.order import Order
from heliograph.ledger.records.page import encode_page
from heliograph.ledger.records.producer_claim import ProducerClaim
from heliograph.ledger.records.throttle import Throttle
from heliograph.ledger.records.trouble import Trouble
from tests.unit.ledger import test_formats, test_mm2_records
from tests.unit.ledger.test_formats import ENTRY

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RUNBOOK = sorted((DOCS / "operations").glob("*.md"))
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md")), *RUNBOOK]
WORDS_OF_A_PAGE = 1500


def text_of(name: str) -> str:
    return (DOCS / name).read_text()


def error_codes() -> dict[str, str]:
    """Codes by class name: those of errors.py, and of subclasses that other modules define."""
    codes = {name: cls.code for name, cls in vars(errors).items() if _is_error(cls)}
    for tree in _modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and any(isinstance(b, ast.Name) and b.id in codes for b in node.bases):
                codes.update((node.name, code) for code in _own_code(node))
    return codes


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, HeliographError)


def _own_code(node: ast.ClassDef) -> list[str]:
    return [
        str(statement.value.value)
        for statement in node.body
        if isinstance(statement, ast.Assign)
        and isinstance(statement.value, ast.Constant)
        and any(isinstance(target, ast.Name) and target.id == "code" for target in statement.targets)
    ]


def _modules() -> list[ast.Module]:
    return [ast.parse(path.read_text()) for path in sorted((ROOT / "heliograph").rglob("*.py"))]


def test_every_error_that_is_raised_has_a_heading_in_the_runbook() -> None:
    codes = error_codes()
    made = {
        node.func.id
        for tree in _modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    raised = {code for name, code in codes.items() if name in made}
    headings = [code for page in RUNBOOK for code in re.findall(r"^### ([A-Z_]+)$", page.read_text(), re.MULTILINE)]
    assert {"CONFIG", "DATA_LOST", "SPARK"} <= raised
    assert sorted(headings) == sorted(raised)


@pytest.mark.parametrize("page", RUNBOOK, ids=lambda page: page.name)
def test_a_page_of_the_runbook_is_short(page: Path) -> None:
    assert len(page.read_text().split()) < WORDS_OF_A_PAGE


def test_the_index_of_the_runbook_names_every_page_and_every_code() -> None:
    index = text_of("operations/README.md")
    rows = dict(re.findall(r"^\| \[([\w-]+\.md)\]\(\1\) \| (.+) \|$", index, re.MULTILINE))
    assert rows.keys() == {page.name for page in RUNBOOK} - {"README.md"}
    for page in RUNBOOK:
        if codes := re.findall(r"^### ([A-Z_]+)$", page.read_text(), re.MULTILINE):
            assert rows[page.name].split(", ") == codes


def test_transitions_of_the_document_are_those_of_the_code() -> None:
    text = text_of("architecture.md")
    coded = {(state.name, following.name) for state, others in TRANSITIONS.items() for following in others}
    listed = re.findall(r"^\| `([A-Z]+) -> ([A-Z]+)` \|", text, re.MULTILINE)
    drawn = re.findall(r"^    ([A-Z]+) --> ([A-Z]+)$", text, re.MULTILINE)
    assert sorted(listed) == sorted(drawn) == sorted(coded)


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("entry", encode_entry_key("A-mm2", "foo", 7), encode_entry(ENTRY)),
        (
            "claim",
            *ProducerClaim(token="0" * 32, producer_id=5, source_cluster_id="S", target_cluster_id="T").encode("A-mm2"),
        ),
        ("order", *Order(owner="me", end_epoch=9).encode("A-mm2")),
        (
            "trouble",
            *Trouble(topic="foo", partition=7, code="DATA_LOST", text="x", final=True).encode("A-mm2"),
        ),
        (
            "throttle",
            *Throttle(
                cluster="B",
                client_id="A->B|MirrorSourceConnector-0|replication-producer",
                muted_ms=2500,
                time_ms=1_700_000_000_000,
            ).encode("A-mm2"),
        ),
        ("outcome", *test_formats.LOSS.encode("A-mm2")),
        ("rejected", *test_formats.REJECTED.encode("A-mm2")),
        ("contact", *test_formats.CONTACT.encode("A-mm2")),
        ("ends", *test_formats.LOG_ENDS.encode("A-mm2")),
        ("group", *test_formats.GROUP.encode("A-mm2")),
        ("pass", *test_formats.PASS.encode("A-mm2")),
        ("change", *test_formats.CHANGE.encode("A-mm2")),
        ("lease", *test_formats.LEASE.encode("A-mm2")),
        ("standby", *test_formats.STANDBY.encode("A-mm2")),
        ("acls", *test_formats.ACLS.encode("A-mm2")),
        ("condition", *test_formats.CONDITION.encode("A-mm2")),
        ("wish", *test_formats.WISH.encode("A-mm2")),
        ("asked", *test_formats.ASKED.encode("A-mm2")),
    ],
)
def test_ledger_vectors_are_what_the_code_writes(kind: str, key: bytes, value: bytes | None) -> None:
    assert value is not None
    section = text_of("formats.md").partition(f"### {kind}\n")[2].partition("\n##")[0]
    assert re.findall(r"^Key: `(.*)`$", section, re.MULTILINE) == [key.decode()]
    assert re.findall(r"^Value: `(.*)`$", section, re.MULTILINE) == [value.decode()]


def test_the_vector_of_a_page_is_what_the_code_writes() -> None:
    key, value = encode_page("A-mm2", "foo", 7, test_formats.PAGE.start, test_formats.PAGE)
    assert value is not None
    section = text_of("formats.md").partition("### runs\n")[2].partition("\n##")[0]
    assert re.findall(r"^Key: `(.*)`$", section, re.MULTILINE) == [key.decode()]
    assert re.findall(r"^Value: `(.*)`$", section, re.MULTILINE) == [value.hex()]
    bytes_told = "".join(re.findall(r"^\| `([0-9a-f ]+)` \|", section, re.MULTILINE)).replace(" ", "")
    assert bytes_told == value.hex()


def test_the_vector_of_a_former_page_is_what_the_code_writes() -> None:
    page = replace(test_formats.PAGE, by_lane=False)
    key, value = encode_page("A-mm2", "foo", 7, page.start, page, is_former=True)
    assert value is not None
    section = text_of("formats.md").partition("### former\n")[2].partition("\n##")[0]
    assert re.findall(r"^Key: `(.*)`$", section, re.MULTILINE) == [key.decode()]
    assert re.findall(r"^Value: `(.*)`$", section, re.MULTILINE) == [value.hex()]


def test_the_vectors_of_mm2s_records_are_what_the_code_writes() -> None:
    section = text_of("formats.md").partition("## MM2's own topics\n")[2].partition("\n## ")[0]
    rows = re.findall(r"\| `([0-9a-f]+)` \| `([0-9a-f]+)` \|$", section, re.MULTILINE)
    wanted = [(key, value) for record, key, value in test_mm2_records.VECTORS if getattr(record, "metadata", "x")]
    assert rows == wanted


def test_position_vectors_are_what_the_code_writes() -> None:
    rows = re.findall(r"^\| `(\[.*\])` \| (\d+) \| `(.*)` \|$", text_of("formats.md"), re.MULTILINE)
    assert len(rows) == 2
    for key, partition, value in rows:
        parsed = parse_position(key.encode(), value.encode())
        assert parsed is not None
        (connector, cluster, topic, number), position = parsed
        assert position is not None
        assert encode_position_key(cluster, topic, number, connector=connector) == key.encode()
        assert encode_position_value(position) == value.encode()
        assert partition_for(key.encode(), 25) == int(partition)


def test_every_dependency_is_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = {re.split(r"[^A-Za-z0-9_-]", requirement)[0] for requirement in wanted}
    first_cells = re.findall(r"^\| ([^|]+) \|", text_of("dependencies.md"), re.MULTILINE)
    listed = {re.sub(r"\s*\(.*\)", "", name) for cell in first_cells for name in cell.split(", ")}
    assert listed - {"library", "---"} == names


def test_document_of_the_commands_is_not_stale() -> None:
    command = [sys.executable, "-m", "typer", "heliograph.cli", "utils", "docs", "--name", "heliograph"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120).stdout
    hint = "python -m typer heliograph.cli utils docs --name heliograph --output docs/cli.md"
    assert text_of("cli.md").strip() == made.strip(), f"make it again: {hint}"


def test_every_module_is_on_the_map_as_it_describes_itself() -> None:
    found = subprocess.run([sys.executable, str(ROOT / "docs" / "file_map.py"), "--check"], check=False)
    assert found.returncode == 0


def test_names_in_the_architecture_exist() -> None:
    """Modules are named by their paths, methods as `Class.method`; the map of files is made by its script."""
    before, _, rest = text_of("architecture.md").partition("<!-- file map: begin -->")
    text = before + rest.partition("<!-- file map: end -->")[2]
    paths = re.findall(r"`?([\w/]+\.py)\b", text)
    missing = [path for path in paths if not any((root / path).exists() for root in (ROOT / "heliograph", ROOT))]
    assert not missing
    assert set(re.findall(r"`([A-Z]\w*[a-z]\.\w+)`", text)) <= set(_members())


def _members() -> Iterator[str]:
    """Methods and fields of all classes."""
    for tree in _modules():
        for owner in ast.walk(tree):
            if isinstance(owner, ast.ClassDef):
                for node in owner.body:
                    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                        yield f"{owner.name}.{node.name}"
                    elif isinstance(node, ast.AnnAssign | ast.Assign):
                        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                        yield f"{owner.name}.{ast.unparse(target)}"


def test_the_drawing_of_packages_is_that_of_the_import_contracts() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    drawing = text_of("architecture.md").partition("<!-- packages: begin -->")[2].partition("<!-- packages: end -->")[0]
    drawn = re.findall(r"^  (\w+(?: \| \w+)*)(?:  .*)?$", drawing, re.MULTILINE)
    assert drawn == [layer.replace("heliograph.", "") for layer in layers]


def test_the_figures_of_the_readme_are_those_of_the_benchmarks() -> None:
    rows = re.findall(r"^\| ([\w-]+) \| ([\d.]+) \| ([\d.]+) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert rows
    for work, speed, cpu in rows:
        assert f"| {work} | times faster than tuned MM2 | {speed} |" in text_of("benchmarks.md")
        assert f"| {work} | times less CPU per byte than tuned MM2 | {cpu} |" in text_of("benchmarks.md")


def test_every_test_named_in_a_document_exists() -> None:
    known = {
        name for path in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    files = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    for document in DOCUMENTS:
        named = set(re.findall(r"\b(test_\w+)\b(?!\.py)", document.read_text()))
        assert named <= known, document.name
        assert set(re.findall(r"\b(test_\w+\.py)", document.read_text())) <= files, document.name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(document: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        assert not target.startswith(("/", "http:")), target
        if target.startswith("https:"):
            continue
        name, _, anchor = target.partition("#")
        linked = (document.parent / name).resolve() if name else document
        assert linked.exists(), target
        assert linked.is_relative_to(ROOT), target
        assert not anchor or anchor in anchors(linked), target


def anchors(document: Path) -> set[str]:
    """The headings of a document as GitHub makes anchors of them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
