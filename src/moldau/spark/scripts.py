"""Small shell scripts of ours that Spark runs in place of a program, in a directory of the user's alone."""

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


class NoPlace(OSError):
    """No directory takes a script; the message names each and why not."""


def place_script(name: str, text: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The path of an executable `…/bin/<name>` that holds the text.

    The directory is named after what is in it, so that processes with different scripts never share one, and the script
    arrives by a rename, so that processes that start at once never run half of one.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    refusals = []
    for parent in _parents(environ):
        script = parent / f"{name}-{digest}" / "bin" / name
        try:
            _check_private(parent)
            _write_script(script, text)
        except OSError as refused:  # another user's, read-only, full, noexec: the next one
            refusals.append(f"{parent}: {refused.strerror}")
        else:
            return script
    raise NoPlace("; ".join(refusals))


def _write_script(target: Path, text: str) -> None:
    """OSError if it cannot be written there, or not be run: a file system that is mounted noexec runs nothing."""
    if not target.is_file() or target.read_text() != text or not os.access(target, os.X_OK):
        _replace_script(target, text)
    if not os.access(target, os.X_OK):
        raise OSError(errno.EACCES, "programs cannot be run there, it is mounted noexec")


def _replace_script(target: Path, text: str) -> None:
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


def private_directories(environ: Mapping[str, str] = os.environ) -> Iterator[Path]:
    """Those that this user alone may write to, made where they are missing."""
    for directory in _parents(environ):
        with suppress(OSError):
            _check_private(directory)
            yield directory


def library_directory(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Where the JVM's libraries should unpack their native code; None if the temporary directory will do.

    snappy, zstd and RocksDB bring theirs in jars and load it from java.io.tmpdir. Where that is mounted noexec, Spark
    could not even write Parquet.
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
    """Whether files there may be executed, and mapped as code: not on a file system that is mounted noexec."""
    return not os.statvfs(directory).f_flag & getattr(os, "ST_NOEXEC", 0)


def _parents(environ: Mapping[str, str]) -> Iterator[Path]:
    """The user's cache; a directory under the temporary one that is the user's alone; one beside this Python, which is
    run from there itself."""
    if cache := cache_directory(environ):
        yield cache
    with suppress(FileNotFoundError):  # there is no temporary directory that could be written
        yield Path(tempfile.gettempdir()) / f"moldau-{os.getuid()}"
    yield Path(sys.prefix) / "share" / "moldau"


def cache_directory(environ: Mapping[str, str]) -> Path | None:
    """None for a user without a home."""
    if given := environ.get("XDG_CACHE_HOME"):
        return Path(given) / "moldau"
    try:
        return Path.home() / ".cache" / "moldau"
    except RuntimeError:
        return None


def _check_private(directory: Path) -> None:
    """What is found there is executed: OSError for a directory that another user owns or may write to."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.lstat()
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o022:
        raise OSError(errno.EACCES, "others may write there")
