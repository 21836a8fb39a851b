"""The archive for executors: what is in it, and that Python imports from it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from moldau.spark import archive


def test_the_archive_has_both_packages_and_no_caches(tmp_path: Path) -> None:
    names = zipfile.ZipFile(archive.build(tmp_path / "moldau.zip")).namelist()
    assert {"moldau/__init__.py", "moldau/spark/source.py", "pyspark_moldau/__init__.py"} <= set(names)
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]
    assert len(names) == len(set(names))


def test_the_same_sources_build_the_same_archive(tmp_path: Path) -> None:
    one, two = archive.build(tmp_path / "one.zip"), archive.build(tmp_path / "two.zip")
    assert one.read_bytes() == two.read_bytes()


def test_python_imports_from_the_archive(tmp_path: Path) -> None:
    built = archive.build(tmp_path / "moldau.zip")
    program = f"import sys; sys.path.insert(0, {str(built)!r}); import moldau.wire.batch as it; print(it.__file__)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == f"{built}/moldau/wire/batch.py"


def test_a_failed_build_leaves_the_old_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = archive.build(tmp_path / "moldau.zip")
    before = target.read_bytes()
    monkeypatch.setattr(archive, "_files_with_names", lambda: iter([("moldau/gone.py", tmp_path / "gone.py")]))
    with pytest.raises(FileNotFoundError):
        archive.build(target)
    assert target.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["moldau.zip"]
