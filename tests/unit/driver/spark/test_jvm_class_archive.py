"""Spark's classes kept in an archive: named after Java and Spark, used where it is there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from heliograph.driver.spark import epochs, jvm_class_archive
from heliograph.driver.spark.epochs import JAVA_OPTIONS, SparkEpochs


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sys.prefix", str(tmp_path / "a folder"))
    return jvm_class_archive.archive_path()


def options_of(**conf: str) -> str:
    epochs = SparkEpochs(master=None, slots=1, conf={key.replace("_", "."): value for key, value in conf.items()})
    shutil.rmtree(epochs.log_path.parent)
    return epochs.settings[JAVA_OPTIONS]


def test_an_archive_that_is_there_is_used(archive: Path) -> None:
    assert options_of() == epochs.DEFAULTS[JAVA_OPTIONS]
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"")
    assert options_of() == f"{epochs.DEFAULTS[JAVA_OPTIONS]} '-XX:SharedArchiveFile={archive}'"


def test_options_of_ones_own_are_left_alone(archive: Path) -> None:
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"")
    assert options_of(spark_driver_extraJavaOptions="-Xss4m") == "-Xss4m"


def test_another_java_has_another_archive(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    other = jvm_class_archive.archive_path()
    assert other != archive
    java.write_text("a newer one")
    java.touch()
    assert jvm_class_archive.archive_path() != other
