"""Builds a zip of the connector for executors without Moldau: `spark-submit --py-files moldau.zip`.

It is a plain zip that Python imports from: the packages `moldau` and `pyspark_moldau` with their data files. numpy,
pyarrow, crc32c and cramjam have native code that cannot be imported from a zip: they must be installed where executors
run.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

ARCHIVE_NAME: Final = "moldau.zip"
PACKAGES: Final = ("moldau", "pyspark_moldau")
_EXCLUDED: Final = {"__pycache__"}
_FILE_DATE: Final = (1980, 1, 1, 0, 0, 0)
"""Every file has the earliest date that a zip can hold, so that the same sources give the same bytes."""


def build(target: Path) -> Path:
    """Write the archive to `target` and return that path.

    The archive is written to a temporary file and then renamed, so that nobody reads an incomplete one.
    """
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, path in _files_with_names():
                archive.writestr(zipfile.ZipInfo(name, _FILE_DATE), path.read_bytes(), zipfile.ZIP_DEFLATED)
        os.replace(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)
    return target


def _files_with_names() -> Iterator[tuple[str, Path]]:
    """Yield the name in the archive and the path of each file, sorted, so that the same sources give the same bytes."""
    for package in PACKAGES:
        root = _directory_of(package)
        for path in sorted(root.rglob("*")):
            relative = path.relative_to(root)
            if path.is_file() and not _EXCLUDED.intersection(relative.parts):
                yield f"{package}/{relative.as_posix()}", path


def _directory_of(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None, f"{package} is part of this distribution"
    assert spec.origin is not None
    return Path(spec.origin).parent
