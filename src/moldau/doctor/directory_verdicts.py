"""Verdicts on directories: the data directory, the user's cache, and the temporary directory."""

from __future__ import annotations

from typing import Final

from moldau.doctor.finding import Finding, broken, ok, warning
from moldau.doctor.observations import DirectorySeen, ReserveSeen

FREE_BYTES_MIN: Final = 64 << 20
FREE_BYTES_WANTED: Final = 1 << 30
NETWORK_FILE_SYSTEMS: Final = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "vboxsf", "fuse.sshfs", "afs", "drvfs")
)
IN_MEMORY_FILE_SYSTEMS: Final = frozenset(("tmpfs", "ramfs"))


def judge_data(seen: DirectorySeen) -> Finding:
    check, elsewhere = f"data directory {seen.path}", "choose another one (`moldau start --data-dir DIR`)"
    if not seen.is_directory:
        return broken(check, str(seen.error), elsewhere)
    if seen.error is not None:
        return broken(check, f"cannot be written: {seen.error}", f"fix that, or {elsewhere}")
    found = f"{'exists' if seen.exists else 'does not exist yet'}, {_free_space_text(seen)}"
    if seen.free_bytes is not None and seen.free_bytes < FREE_BYTES_MIN:
        return broken(check, found, f"free some space there, or {elsewhere}")
    if not seen.is_case_sensitive:
        return warning(
            check,
            f"{found}; orders and ORDERS are the same name there: two such topics would share a directory",
            f"use no topic names that differ only in case, or {elsewhere}",
        )
    if seen.file_system in NETWORK_FILE_SYSTEMS:
        return warning(
            check, f"{found}; a network file system: locks and fsync may not work", f"use a local disk: {elsewhere}"
        )
    if seen.file_system in IN_MEMORY_FILE_SYSTEMS:
        return warning(check, f"{found}; in memory, lost at the next boot", f"to keep the data, {elsewhere}")
    if seen.free_bytes is not None and seen.free_bytes < FREE_BYTES_WANTED:
        return warning(check, found, f"free some space there, or {elsewhere}")
    return ok(check, found)


def judge_reserve(seen: ReserveSeen) -> Finding:
    wanted = _size_text(seen.wanted_bytes)
    if not seen.wanted_bytes:
        return ok("reserve", "turned off (moldau.reserve.bytes)")
    if seen.held_bytes is None:
        return ok("reserve", f"none yet: a node that runs takes {wanted} for the time when the disk is full")
    if seen.held_bytes >= seen.wanted_bytes:
        return ok("reserve", f"whole, {wanted} for the time when the disk is full")
    left = f"{100 * seen.held_bytes // seen.wanted_bytes} % of {wanted} left" if seen.held_bytes else "all given back"
    return warning("reserve", f"{left}: the disk was full", "free some space there: a node that runs takes it back")


def judge_cache(seen: DirectorySeen | None) -> Finding:
    todo = "set XDG_CACHE_HOME to a directory that this user may write to"
    if seen is None:
        return warning("cache directory", "this user has no home directory; Spark uses the temporary directory", todo)
    check = f"cache directory {seen.path}"
    if seen.error is not None:
        return warning(check, f"cannot be written: {seen.error}; Spark uses the temporary directory", todo)
    if not seen.runs_programs:
        return warning(
            check,
            "mounted noexec: the script that starts Spark's Java is stored elsewhere",
            f"{todo} and run programs from",
        )
    return ok(check, "writable")


def judge_temporary(seen: DirectorySeen | None) -> Finding:
    todo = "set TMPDIR to a directory that this user may write to"
    if seen is None:
        return broken("temporary directory", "none is writable", todo)
    check = f"temporary directory {seen.path}"
    if seen.error is not None:
        return broken(check, f"cannot be written: {seen.error}", todo)
    if not seen.runs_programs:
        return warning(
            check,
            "mounted noexec: Java libraries (snappy, zstd, RocksDB) cannot be loaded from there; moldau's own sessions"
            " unpack them in the cache directory",
            "for Spark started in other ways, set -Djava.io.tmpdir to a directory without noexec",
        )
    if seen.free_bytes is not None and seen.free_bytes < FREE_BYTES_WANTED:
        return warning(check, f"{_free_space_text(seen)}: Spark shuffles there", "free some space there, or set TMPDIR")
    return ok(check, _free_space_text(seen))


def _free_space_text(seen: DirectorySeen) -> str:
    size = "free space unknown" if seen.free_bytes is None else f"{_size_text(seen.free_bytes)} free"
    return f"{size} ({seen.file_system})" if seen.file_system else size


def _size_text(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.0f} MiB"
