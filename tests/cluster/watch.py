"""What others on the machine could see of a mirror: command lines, readable files, the pages of Spark's UI."""

from __future__ import annotations

import re
import stat
import urllib.error
import urllib.parse
import urllib.request
from contextlib import suppress
from html import unescape
from pathlib import Path

from tests.background import Background

_PAUSE_S = 0.1
_MAX_PAGES = 300
_LINK = re.compile(r"""(?:href|src)\s*=\s*["']([^"'#]+)""")
_REST = ("environment", "jobs", "stages?details=true", "allexecutors", "sql?details=true&planDescription=true")
_NO_LINKS = ("api/v1/applications", "executors/threadDump/?executorId=driver")
"""Pages that only scripts lead to."""
_SAME_AGAIN = ("/static/", ".sort=", "showIncomplete", "/log/")
"""In addresses that lead to nothing new: pages in another order, executors' logs, which are files of the run."""


class Onlooker(Background):
    """Looks again and again at every command line of the machine and at the files in some folders."""

    def __init__(self, *folders: Path) -> None:
        super().__init__()
        self._folders = folders
        self.commands: set[bytes] = set()
        self.private: set[str] = set()
        """Names of files that only their owner can read."""
        self.readable: dict[str, bytes] = {}
        """The others, with what was last in them."""

    def seen(self) -> list[tuple[str, bytes]]:
        """As evidence."""
        return [("a command line", b"\n".join(self.commands)), *self.readable.items()]

    def run(self) -> None:
        while not self.over.wait(_PAUSE_S):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    self.commands.add(path.read_bytes().replace(b"\0", b" "))
            for folder in self._folders:
                with suppress(OSError):  # it may vanish under our feet
                    for path in folder.rglob("*"):
                        self._look_at(path)

    def _look_at(self, path: Path) -> None:
        with suppress(OSError):
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode):
                return
            if status.st_mode & 0o077:
                self.readable[str(path)] = path.read_bytes()
            else:
                self.private.add(path.name)


def save_pages(start: str, folder: Path) -> list[str]:
    """Every page that links lead to from the first, and the answers of the REST interface; their addresses."""
    folder.mkdir(exist_ok=True)
    waiting = [f"{start}{more}" for more in ("", *_NO_LINKS)]
    seen: list[str] = []
    while waiting and len(seen) < _MAX_PAGES:
        address = waiting.pop(0)
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                content = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                content = error.read()
        seen.append(address)
        (folder / f"{len(seen)}.page").write_bytes(f"{address}\n".encode() + content)
        for link in _links(address, content):
            is_new = link.startswith(start) and not any(part in link for part in _SAME_AGAIN)
            if is_new and link not in (*waiting, *seen):
                waiting.append(link)
    return seen


def _links(address: str, content: bytes) -> list[str]:
    text = content.decode(errors="replace")
    if address.endswith("/api/v1/applications"):
        return [f"{address}/{name}/{what}" for name in re.findall(r'"id" : "([^"]+)"', text) for what in _REST]
    return [urllib.parse.urljoin(address, unescape(link).replace(" ", "+")) for link in _LINK.findall(text)]
