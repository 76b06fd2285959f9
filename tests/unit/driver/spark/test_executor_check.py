"""What executors have and lack, and what is packed for them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from dataclasses import replace
from pathlib import Path

import heliograph
from heliograph.driver.spark.executor_check import (
    LANE_PACKAGES,
    ExecutorCheck,
    abi_here,
    describe_lacks,
    equipment_here,
    is_shippable,
)
from heliograph.driver.spark.executor_packages import pack_modules, pack_package

WHOLE = ExecutorCheck(host="w1", python="3.11.7", abi=".cpython-311.so", heliograph=heliograph.__version__)
BARE = replace(WHOLE, host="w2", missing=("crc32c", "pyarrow"))


def test_this_machine_lacks_nothing() -> None:
    found = equipment_here()
    assert (found.missing, found.abi) == ((), abi_here())
    assert describe_lacks([found], abi_here()) == ""


def test_what_is_missing_is_told_host_by_host() -> None:
    assert describe_lacks([BARE, WHOLE, BARE], BARE.abi) == "w2 (Python 3.11.7) lacks crc32c, pyarrow"


def test_another_platform_is_told_with_what_is_missing() -> None:
    told = describe_lacks([replace(BARE, abi=".cpython-313-aarch64.so")], WHOLE.abi)
    assert told == (
        "w2 (Python 3.11.7, whose modules end in .cpython-313-aarch64.so and not in .cpython-311.so) "
        "lacks crc32c, pyarrow"
    )


def test_another_version_is_told() -> None:
    old = replace(WHOLE, heliograph="0.0.9")
    assert f"has heliograph 0.0.9 and not {heliograph.__version__}" in describe_lacks([old], WHOLE.abi)


def test_modules_are_shipped_only_where_they_mend_something_and_break_nothing() -> None:
    assert is_shippable([WHOLE, BARE], WHOLE.abi)
    assert not is_shippable([WHOLE], WHOLE.abi)
    assert not is_shippable([replace(WHOLE, abi=".other.so"), BARE], WHOLE.abi)


def test_the_same_package_makes_the_same_bytes(tmp_path: Path) -> None:
    first, second = pack_package(tmp_path / "a.zip"), pack_package(tmp_path / "b.zip")
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_size < 1_000_000


def test_a_bare_interpreter_loads_a_lane_from_what_is_packed(tmp_path: Path) -> None:
    package, modules = pack_package(tmp_path / "heliograph.zip"), pack_modules(tmp_path / "modules.tar.gz")
    assert modules.stat().st_size < 100_000_000
    shutil.unpack_archive(modules, tmp_path / "modules")
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)

    def run(script: str, *path: Path) -> list[str]:
        script = f"import sys; sys.path[:0] = {[str(folder) for folder in path]}; {script}"
        python = tmp_path / "bare" / "bin" / "python"
        return subprocess.run([python, "-I", "-c", script], check=True, capture_output=True, text=True).stdout.split()

    ask = "from heliograph.driver.spark.executor_check import equipment_here; print(*equipment_here().missing)"
    assert run(ask, package) == list(LANE_PACKAGES.values())
    assert run(ask, package, tmp_path / "modules") == []
    load = "import heliograph.lane.lane, heliograph.driver.spark.arrow_rows; print('loaded')"
    assert run(load, package, tmp_path / "modules") == ["loaded"]


def test_nothing_is_asked_for_that_a_lane_does_not_import() -> None:
    script = "import sys, heliograph.lane.lane, heliograph.driver.spark.arrow_rows; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    assert set(LANE_PACKAGES) <= set(loaded)
