"""Facts from the operating system: limits, file systems, cgroups, and which process listens on a port.

File systems, cgroups and processes are read from /proc and /sys. Where these do not exist, as on macOS, those functions
return None. The limits of open files, the cores and the memory come from Python's standard library, on every platform.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
CGROUPS: Final = Path("/sys/fs/cgroup")
UNLIMITED: Final = 1 << 60
"""Larger than any real limit: cgroup v1 writes a number just below 2^63 for no limit."""
_LISTEN_STATE: Final = "0A"
"""The state LISTEN in /proc/net/tcp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListeningProcess:
    """The process that listens on a port."""

    pid: int
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFileLimits:
    """How many files this process may open; UNLIMITED if there is no limit."""

    soft: int
    hard: int


def open_file_limits() -> OpenFileLimits | None:
    """Return the limits of this process; None on Windows, which has none."""
    try:
        import resource
    except ImportError:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OpenFileLimits(soft=_bounded(soft), hard=_bounded(hard))


def _bounded(value: int) -> int:
    # RLIM_INFINITY is -1 or, on macOS, the largest 64-bit number.
    return UNLIMITED if value < 0 else min(value, UNLIMITED)


def usable_cores() -> int:
    """Return the number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int | None:
    """Return the size of the machine's memory; None if the platform does not tell it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


# --- file systems ---------------------------------------------------------------------------------------------------


def file_system_type(path: Path, proc: Path = PROC) -> str | None:
    """Return the type of the file system of a path, as `mount` names it; None without /proc."""
    fs_type, longest = None, -1
    for line in _read_text(proc / "self" / "mountinfo").splitlines():
        mount, _, source = line.partition(" - ")
        mount_point = Path(_unescape(mount.split()[4]))
        # >=: of two mounts on the same directory, the later one hides the earlier one.
        if path.is_relative_to(mount_point) and len(mount_point.parts) >= longest:
            fs_type, longest = source.split()[0], len(mount_point.parts)
    return fs_type


def _unescape(field: str) -> str:
    """Decode the octal escapes of spaces, tabs, newlines and backslashes in mountinfo."""
    return re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), field)


# --- cgroups --------------------------------------------------------------------------------------------------------


def core_quota(proc: Path = PROC, cgroups: Path = CGROUPS) -> float | None:
    """Return how many cores the cgroups (version 2 or 1) allow this process to use; None if they set no limit."""
    return min(_core_quotas(proc, cgroups), default=None)


def _core_quotas(proc: Path, cgroups: Path) -> Iterator[float]:
    for directory in _cgroup_directories("", proc, cgroups):
        quota, _, period = _read_text(directory / "cpu.max").strip().partition(" ")
        if quota.isdecimal() and period.isdecimal():
            yield int(quota) / int(period)
    for directory in _cgroup_directories("cpu", proc, cgroups):
        quota = _read_text(directory / "cpu.cfs_quota_us").strip()
        period = _read_text(directory / "cpu.cfs_period_us").strip()
        if quota.isdecimal() and period.isdecimal():  # -1 is no limit
            yield int(quota) / int(period)


def memory_limit_bytes(proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """Return the smallest memory limit of the cgroups (version 2 or 1) of this process; None if they set no limit."""
    limits = [_read_text(directory / "memory.max").strip() for directory in _cgroup_directories("", proc, cgroups)]
    limits += [
        _read_text(directory / "memory.limit_in_bytes").strip()
        for directory in _cgroup_directories("memory", proc, cgroups)
    ]
    return min((int(limit) for limit in limits if limit.isdecimal() and int(limit) < UNLIMITED), default=None)


def _cgroup_directories(controller: str, proc: Path, cgroups: Path) -> Iterator[Path]:
    """Yield the directory of this process's cgroup and its parents, in the hierarchy of a version 1 `controller`. An
    empty controller means the hierarchy of version 2."""
    roots = [cgroups / controller] if controller else [cgroups, cgroups / "unified"]
    for line in _read_text(proc / "self" / "cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        if controller in controllers.split(","):
            for root in roots:
                directory = root / group.strip("/")
                yield from (each for each in (directory, *directory.parents) if each.is_relative_to(root))


# --- ports ----------------------------------------------------------------------------------------------------------


def process_listening_on(port: int, proc: Path = PROC) -> ListeningProcess | None:
    """Return the process that listens on a TCP port; None if there is none, if this user may not see it, or without
    /proc."""
    tables = (proc / "net" / "tcp", proc / "net" / "tcp6")
    sockets = {f"socket:[{inode}]" for table in tables for inode in _listening_inodes(table, port)}
    if not sockets:
        return None
    for pid in sorted(int(each.name) for each in proc.iterdir() if each.name.isdecimal()):
        if _has_open(proc / str(pid) / "fd", sockets):
            words = _read_text(proc / str(pid) / "cmdline").split("\0")
            return ListeningProcess(pid=pid, command=" ".join(words).strip())
    return None


def _listening_inodes(table: Path, port: int) -> Iterator[str]:
    for line in _read_text(table).splitlines()[1:]:
        fields = line.split()  # 1: local address and port in hexadecimal, 3: state, 9: inode
        if fields[3] == _LISTEN_STATE and int(fields[1].rpartition(":")[2], 16) == port:
            yield fields[9]


def _has_open(descriptors: Path, sockets: set[str]) -> bool:
    try:
        return any(os.readlink(descriptor) in sockets for descriptor in descriptors.iterdir())
    except OSError:  # the process belongs to another user, or has ended
        return False


def _read_text(path: Path) -> str:
    """Return the file's text, empty if the file does not exist or cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
