"""The connector as one zip, for executors on which Moldau is not installed: `spark-submit --py-files moldau.zip`.

The format: a plain zip of Python sources that Python imports from directly: the packages `moldau` and `pyspark_moldau`,
with what they hold beside modules. Wheels of others (numpy, pyarrow, crc32c, cramjam) hold native code that cannot be
imported from a zip: they must be installed where executors run.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

NAME: Final = "moldau.zip"
PACKAGES: Final = ("moldau", "pyspark_moldau")
_LEFT_OUT: Final = {"__pycache__"}
_ANY_DAY: Final = (1980, 1, 1, 0, 0, 0)
"""The same sources make the same bytes: the earliest day a zip can name stands for every file's."""


def build(target: Path) -> Path:
    """Writes the archive and returns its path. It appears whole or not at all: others may read it by then."""
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, path in _files():
                archive.writestr(zipfile.ZipInfo(name, _ANY_DAY), path.read_bytes(), zipfile.ZIP_DEFLATED)
        os.replace(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)
    return target


def _files() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        root = _directory_of(package)
        for path in sorted(root.rglob("*")):
            relative = path.relative_to(root)
            if path.is_file() and not _LEFT_OUT.intersection(relative.parts):
                yield f"{package}/{relative.as_posix()}", path


def _directory_of(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None, f"{package} is part of this distribution"
    assert spec.origin is not None
    return Path(spec.origin).parent
