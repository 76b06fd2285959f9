"""Writes the file map of docs/architecture.md: every module with the first sentence of its docstring.

`python docs/file_map.py` writes it, `python docs/file_map.py --check` fails where it is not up to date.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- file map: begin -->", "<!-- file map: end -->"


def first_line(path: Path) -> str:
    """The first paragraph of a module's docstring, in one line, up to its first full stop."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return paragraph.split(". ")[0].rstrip(".").replace("|", "\\|")


def folders(package: Path) -> Iterator[Path]:
    """A package and all below it, each before what it holds."""
    yield package
    for path in sorted(package.iterdir()):
        if (path / "__init__.py").exists():
            yield from folders(path)


def file_map() -> str:
    lines: list[str] = []
    for folder in folders(ROOT / "heliograph"):
        name = folder.relative_to(ROOT).as_posix()
        lines += [f"**`{name}/`**: {first_line(folder / '__init__.py')}", "", "| module | what it owns |", "|---|---|"]
        modules = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
        lines += [f"| `{name}/{path.name}` | {first_line(path)} |" for path in modules]
        lines += [""]
    return "\n".join(lines)


def main() -> int:
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    old, _, after = rest.partition(END)
    new = f"\n{file_map()}"
    if "--check" in sys.argv[1:]:
        if old != new:
            sys.stderr.write('docs/architecture.md: the file map is not up to date; run "python docs/file_map.py"\n')
        return int(old != new)
    DOCUMENT.write_text(f"{before}{BEGIN}{new}{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
