"""Which options the JVM gets for Spark's class archive. No JVM."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moldau.spark.class_archive import class_archive
from moldau.spark.java import JavaHome


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "moldau"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    home = tmp_path / "spark"
    (home / "jars").mkdir(parents=True)
    return home


def java_at(path: Path, version: int = 17, has_base: bool = True) -> JavaHome:
    (path / "bin").mkdir(parents=True)
    (path / "lib" / "server").mkdir(parents=True)
    (path / "lib" / "modules").write_text(f"classes of {version}")
    if has_base:
        (path / "lib" / "server" / "classes.jsa").touch()
    (path / "bin" / "java").touch()
    return JavaHome(path, "PATH", path / "bin" / "java", version)


def test_a_class_archive_is_created_once_and_then_used(
    tmp_path: Path, cache: Path, spark_home: Path, environ: dict[str, str]
) -> None:
    archive = class_archive(java_at(tmp_path / "java"), spark_home, environ)
    assert archive is not None
    assert archive.path.parent == cache
    assert archive.options_to_make[0] == f"-XX:ArchiveClassesAtExit={archive.path}"
    assert archive.options_to_use == []
    archive.path.touch()
    assert archive.options_to_use[0] == f"-XX:SharedArchiveFile={archive.path}"


def test_a_java_without_a_base_archive_uses_an_aot_cache_from_version_25(
    tmp_path: Path, spark_home: Path, environ: dict[str, str]
) -> None:
    assert class_archive(java_at(tmp_path / "21", 21, has_base=False), spark_home, environ) is None
    archive = class_archive(java_at(tmp_path / "25", 25, has_base=False), spark_home, environ)
    assert archive is not None
    assert archive.options_to_make[0] == f"-XX:AOTCacheOutput={archive.path}"
    archive.path.touch()
    assert archive.options_to_use == [f"-XX:AOTCache={archive.path}"]


@pytest.mark.parametrize("what", ["lib/modules", "jars"])
def test_another_java_or_spark_gets_another_archive(
    tmp_path: Path, spark_home: Path, environ: dict[str, str], what: str
) -> None:
    java = java_at(tmp_path / "java")
    before = class_archive(java, spark_home, environ)
    assert class_archive(java, spark_home, environ) == before
    os.utime((spark_home if what == "jars" else java.path) / what, (0, 0))
    assert class_archive(java, spark_home, environ) != before


def test_old_archives_are_deleted_when_one_is_created(
    tmp_path: Path, cache: Path, spark_home: Path, environ: dict[str, str]
) -> None:
    archive = class_archive(java_at(tmp_path / "java"), spark_home, environ)
    assert archive is not None
    archive.path.touch()
    for age in range(4):
        old = cache / f"spark-classes-{age}.jsa"
        old.touch()
        os.utime(old, (1000 - age, 1000 - age))
    archive.make_room()
    assert [path.name for path in cache.iterdir()] == ["spark-classes-0.jsa"]


def test_without_a_cache_directory_there_is_no_archive(
    tmp_path: Path, spark_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    monkeypatch.setattr("sys.prefix", str(tmp_path / "file"))
    assert class_archive(java_at(tmp_path / "java"), spark_home, {"XDG_CACHE_HOME": str(tmp_path / "file")}) is None
