"""Writes small shell scripts that Spark runs instead of a program, to a directory that only the user can write."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path


class NoScriptDirectory(OSError):
    """No directory can hold a script; the message lists each with the reason."""


def place_script(name: str, text: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Write an executable `…/bin/<name>` with the text and return its path.

    The directory's name has a hash of the text, so that processes with different scripts never share one. The script is
    renamed into place, so that no process runs half of it.
    """
    content = os.fsencode(text)  # a path in it may have bytes that are not UTF-8
    digest = hashlib.sha256(content).hexdigest()[:16]
    reasons = []
    for parent in _parents(environ):
        script = parent / f"{name}-{digest}" / "bin" / name
        try:
            _check_private(parent)
            _write_script(script, content)
        except OSError as error:  # another user's, read-only, full, noexec: try the next one
            reasons.append(f"{parent}: {error.strerror}")
        else:
            return script
    raise NoScriptDirectory("; ".join(reasons))


def _write_script(target: Path, content: bytes) -> None:
    """Raise OSError if the script cannot be written or run there, as on a file system that is mounted noexec."""
    if not target.is_file() or target.read_bytes() != content or not os.access(target, os.X_OK):
        _replace_script(target, content)
    if not os.access(target, os.X_OK):
        raise OSError(errno.EACCES, "programs cannot be run there, it is mounted noexec")


def _replace_script(target: Path, content: bytes) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(name, 0o700)
        os.replace(name, target)
    except OSError:
        os.unlink(name)
        raise


def private_directories(environ: Mapping[str, str] = os.environ) -> Iterator[Path]:
    """Directories that only this user can write; missing ones are created."""
    for directory in _parents(environ):
        with suppress(OSError):
            _check_private(directory)
            yield directory


def library_directory(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return where JVM libraries should unpack native code, or None if the temporary directory works.

    snappy, zstd and RocksDB unpack it from their jars and load it from java.io.tmpdir. If that is mounted noexec, Spark
    cannot even write Parquet.
    """
    if runs_programs(tempfile.gettempdir()):
        return None
    for parent in private_directories(environ):
        directory = parent / "native"
        with suppress(OSError):
            directory.mkdir(mode=0o700, exist_ok=True)
            if runs_programs(directory):
                return directory
    return None


def runs_programs(directory: str | os.PathLike[str]) -> bool:
    """Return whether files there can be executed and mapped as code: not on a file system mounted noexec."""
    return not os.statvfs(directory).f_flag & getattr(os, "ST_NOEXEC", 0)


def _parents(environ: Mapping[str, str]) -> Iterator[Path]:
    """Candidates: the user's cache, a private directory under the temporary one, and one beside this Python, which
    itself runs from there."""
    if cache := cache_directory(environ):
        yield cache
    with suppress(FileNotFoundError):  # no temporary directory is writable
        yield Path(tempfile.gettempdir()) / f"moldau-{os.getuid()}"
    yield Path(sys.prefix) / "share" / "moldau"


def cache_directory(environ: Mapping[str, str]) -> Path | None:
    """None for a user without a home directory."""
    if given := environ.get("XDG_CACHE_HOME"):
        return Path(given) / "moldau"
    try:
        return Path.home() / ".cache" / "moldau"
    except RuntimeError:
        return None


def _check_private(directory: Path) -> None:
    """Raise OSError for a directory that another user owns or can write: files in it are executed."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.lstat()
    if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode) or status.st_mode & 0o022:
        raise OSError(errno.EACCES, "others may write there")
