"""Small shell scripts of ours that Spark runs in place of a program, kept in a directory of the user's alone."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path


def place_script(name: str, text: str, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The path of an executable `…/bin/<name>` that holds the text; None if no directory can be written.

    The directory is named after what is in it, so that processes with different scripts never share one, and the script
    arrives by a rename, so that processes that start at once never run half of one.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    for parent in private_directories(environ):
        script = parent / f"{name}-{digest}" / "bin" / name
        try:
            _write(script, text)
        except OSError:
            continue  # read-only or full: the next one
        return script
    return None


def _write(target: Path, text: str) -> None:
    if target.is_file() and target.read_text() == text and os.access(target, os.X_OK):
        return
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.chmod(name, 0o700)
        os.replace(name, target)
    except OSError:
        os.unlink(name)
        raise


def private_directories(environ: Mapping[str, str]) -> Iterator[Path]:
    """The user's cache, else a directory under the temporary one that is the user's alone.

    What is found there is executed: a directory that another user owns or may write to is not taken.
    """
    cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "moldau"
    shared = Path(tempfile.gettempdir()) / f"moldau-{os.getuid()}"
    for directory in (cache, shared):
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = directory.lstat()
        except OSError:
            continue
        if found.st_uid == os.getuid() and stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o022:
            yield directory
