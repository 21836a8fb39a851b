"""Observe the machine: all observations that `verdicts` judges are made here.

This module does not judge. Files that are written to test a directory are removed; the script that starts Spark's Java
stays. `moldau.platforms.machine` reads /proc and /sys.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from moldau.base.listeners import Listener
from moldau.base.reserve import RESERVE_FILE, reserve_size
from moldau.doctor import packages
from moldau.doctor.observations import (
    ClockSeen,
    DirectorySeen,
    MachineSeen,
    NameSeen,
    PortSeen,
    PythonSeen,
    ReserveSeen,
    ResourcesSeen,
    SparkSeen,
)
from moldau.platforms import machine
from moldau.platforms.addresses import bind_address
from moldau.platforms.durable_files import sync_directory, sync_file
from moldau.spark import java, scripts

CLOCK_LOOK_S: Final = 0.2
RESOLVER_PATIENCE_S: Final = 5.0
STAT_BLOCK_BYTES: Final = 512
"""The unit of `st_blocks`, whatever the file system."""


def gather(
    listeners: Sequence[Listener], data_dir: str, reserve_bytes: int, environ: Mapping[str, str] = os.environ
) -> MachineSeen:
    installed = packages.installed()
    cache = scripts.cache_directory(environ)
    return MachineSeen(
        python=look_at_python(),
        packages=installed,
        spark=look_at_spark(installed.get("pyspark"), environ),
        ports=tuple(look_at_port(listener) for listener in listeners),
        open_files=machine.open_file_limits(),
        data=look_at_directory(Path(data_dir).absolute()),
        reserve=look_at_reserve(Path(data_dir), reserve_bytes),
        cache=None if cache is None else look_at_directory(cache),
        temporary=look_at_temporary_directory(),
        host=look_up(socket.gethostname()),
        localhost=look_up("localhost"),
        environ=dict(environ),
        clock=look_at_clock(),
        resources=ResourcesSeen(
            cores=machine.usable_cores(),
            core_quota=machine.core_quota(),
            memory_bytes=machine.memory_bytes(),
            memory_limit_bytes=machine.memory_limit_bytes(),
        ),
    )


def look_at_python() -> PythonSeen:
    return PythonSeen(version=sys.version_info[:3], implementation=sys.implementation.name, executable=sys.executable)


def look_at_spark(pyspark: str | None, environ: Mapping[str, str]) -> SparkSeen:
    """Observe which Java Spark would use, and write the script that starts it, as a session would."""
    tried: list[java.Candidate] = []
    error = None
    for each in java.candidates(environ):
        tried.append(each)
        if each.is_usable:
            try:
                java.home_for(each, environ)  # for the script only: Spark is not started here
            except java.MissingJava as missing:
                error = str(missing)
            break
    return SparkSeen(pyspark=pyspark, spark_home=_other_spark(environ), javas=tuple(tried), error=error)


def _other_spark(environ: Mapping[str, str]) -> str | None:
    home, spec = environ.get("SPARK_HOME"), find_spec("pyspark")
    if not home or spec is None or spec.origin is None:
        return None
    return None if Path(home).resolve() == Path(spec.origin).resolve().parent else home


def look_at_port(listener: Listener, patience_s: float = RESOLVER_PATIENCE_S) -> PortSeen:
    """Try to listen on the port for a moment, as the broker does."""
    # `bind_address` would wait for the resolver without an end.
    if listener.host and (unknown := look_up(listener.host, patience_s).error) is not None:
        return PortSeen(address=listener.address, errno=socket.EAI_NONAME, reason=unknown, is_name_unknown=True)
    try:
        family, address = bind_address(listener.host, listener.port)
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(1)
    except OSError as exception:
        return PortSeen(
            address=listener.address,
            errno=exception.errno,
            reason=exception.strerror or str(exception),
            is_name_unknown=isinstance(exception, socket.gaierror),
            listening_process=machine.process_listening_on(listener.port),
        )
    return PortSeen(address=listener.address)


def look_at_directory(path: Path) -> DirectorySeen:
    """Write a file there, or in the nearest existing parent directory, and remove it."""
    try:
        return _look_at_directory(path)
    except OSError as exception:  # no permission, a stale network file system, too long a name
        return DirectorySeen(path=path, exists=False, error=exception.strerror or str(exception))


def _look_at_directory(path: Path) -> DirectorySeen:
    nearest = next(each for each in (path, *path.parents) if each.exists())
    if not nearest.is_dir():
        return DirectorySeen(path=path, exists=path.exists(), is_directory=False, error=f"{nearest} is a file")
    error, is_case_sensitive, clock_offset_s = _try_to_write(nearest)
    return DirectorySeen(
        path=path,
        exists=path.exists(),
        error=error,
        free_bytes=shutil.disk_usage(nearest).free,
        file_system=machine.file_system_type(nearest.resolve()),
        runs_programs=scripts.runs_programs(nearest),
        is_case_sensitive=is_case_sensitive,
        clock_offset_s=clock_offset_s,
    )


def _try_to_write(directory: Path) -> tuple[str | None, bool, float]:
    """Return (error or None, whether names are case-sensitive, seconds by which file times are ahead of the clock)."""
    try:
        handle, name = tempfile.mkstemp(prefix="moldau-Doctor-", dir=directory)
    except OSError as exception:
        return exception.strerror or str(exception), True, 0.0
    file = Path(name)
    try:
        before_s = time.time()
        os.write(handle, b"x" * 4096)
        sync_file(handle)
        sync_directory(str(directory))
        offset_s = os.fstat(handle).st_mtime - before_s
        return None, not file.with_name(file.name.swapcase()).exists(), offset_s
    except OSError as exception:
        return exception.strerror or str(exception), True, 0.0
    finally:
        os.close(handle)
        file.unlink()


def look_at_reserve(data_dir: Path, configured_bytes: int) -> ReserveSeen | None:
    """Return None if there is no such directory, or nothing can be seen of it."""
    try:
        wanted_bytes = reserve_size(configured_bytes, shutil.disk_usage(data_dir).total)
        names = os.listdir(data_dir)
        found = (data_dir / RESERVE_FILE).stat() if RESERVE_FILE in names else None
    except OSError:
        return None
    # A file that is only long, such as a copy, may take no space.
    held_bytes = None if found is None else min(found.st_size, found.st_blocks * STAT_BLOCK_BYTES)
    return ReserveSeen(held_bytes=held_bytes, wanted_bytes=wanted_bytes)


def look_at_temporary_directory() -> DirectorySeen | None:
    """Observe the temporary directory. Return None if Python finds no writable temporary directory."""
    try:
        return look_at_directory(Path(tempfile.gettempdir()))
    except FileNotFoundError:
        return None


def look_up(name: str, patience_s: float = RESOLVER_PATIENCE_S) -> NameSeen:
    """Resolve a name in a thread, since the resolver may take minutes; wait for `patience_s` at most."""
    results: list[NameSeen] = []
    thread = threading.Thread(target=lambda: results.append(_look_up(name)), daemon=True)
    thread.start()
    thread.join(patience_s)
    return results[0] if results else NameSeen(name=name, error=f"no answer in {patience_s:.0f} s")


def _look_up(name: str) -> NameSeen:
    start_s = time.monotonic()
    try:
        entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as exception:
        return NameSeen(name=name, error=exception.strerror or str(exception), seconds=time.monotonic() - start_s)
    except UnicodeError as exception:  # a part of the name is empty or too long
        return NameSeen(name=name, error=str(exception), seconds=time.monotonic() - start_s)
    addresses = tuple(dict.fromkeys(str(each[4][0]) for each in entries))
    return NameSeen(name=name, addresses=addresses, seconds=time.monotonic() - start_s)


def look_at_clock() -> ClockSeen:
    wall_s, monotonic_s = time.time(), time.monotonic()
    time.sleep(CLOCK_LOOK_S)
    jump_s = (time.time() - wall_s) - (time.monotonic() - monotonic_s)
    return ClockSeen(year=datetime.now(UTC).year, jump_s=jump_s)
