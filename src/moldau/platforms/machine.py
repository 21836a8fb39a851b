"""Facts from the operating system: limits, file systems, cgroups, and which process listens on a port.

They are read from /proc and /sys. Without these, as on macOS, the result is None.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The process that listens on a port."""

    pid: int
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFilesSeen:
    soft: int
    hard: int


def open_files() -> OpenFilesSeen | None:
    try:
        import resource
    except ImportError:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OpenFilesSeen(soft=_limit(soft), hard=_limit(hard))


def _limit(value: int) -> int:
    return UNLIMITED if value < 0 else min(value, UNLIMITED)


def usable_cores() -> int:
    """Return the number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


# --- file systems ---------------------------------------------------------------------------------------------------


def file_system(path: Path, proc: Path = PROC) -> str | None:
    """Return the type of the file system of a path, as `mount` names it."""
    fs_type, longest = None, -1
    for line in _read_text(proc / "self" / "mountinfo").splitlines():
        mount, _, source = line.partition(" - ")
        mount_point = Path(_unescape(mount.split()[4]))
        if path.is_relative_to(mount_point) and len(mount_point.parts) >= longest:
            fs_type, longest = source.split()[0], len(mount_point.parts)
    return fs_type


def _unescape(field: str) -> str:
    return re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), field)


# --- cgroups --------------------------------------------------------------------------------------------------------


def core_quota(proc: Path = PROC, cgroups: Path = CGROUPS) -> float | None:
    """Return how many cores a cgroup, of version 2 or 1, allows this process to use; None without a limit."""
    return min(_core_quotas(proc, cgroups), default=None)


def _core_quotas(proc: Path, cgroups: Path) -> Iterator[float]:
    for directory in _own_groups("", proc, cgroups):
        quota, _, period = _read_text(directory / "cpu.max").strip().partition(" ")
        if quota.isdecimal() and period.isdecimal():
            yield int(quota) / int(period)
    for directory in _own_groups("cpu", proc, cgroups):
        quota = _read_text(directory / "cpu.cfs_quota_us").strip()
        period = _read_text(directory / "cpu.cfs_period_us").strip()
        if quota.isdecimal() and period.isdecimal():  # -1 is no limit
            yield int(quota) / int(period)


def memory_limit_bytes(proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    texts = [_read_text(each / "memory.max").strip() for each in _own_groups("", proc, cgroups)]
    texts += [_read_text(each / "memory.limit_in_bytes").strip() for each in _own_groups("memory", proc, cgroups)]
    return min((int(text) for text in texts if text.isdecimal() and int(text) < UNLIMITED), default=None)


def _own_groups(controller: str, proc: Path, cgroups: Path) -> Iterator[Path]:
    """Yield the directory of this process's cgroup and its parents. Without a controller: in the hierarchy of v2."""
    roots = [cgroups / controller] if controller else [cgroups, cgroups / "unified"]
    for line in _read_text(proc / "self" / "cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        if controller in controllers.split(","):
            for root in roots:
                own = root / group.strip("/")
                yield from (each for each in (own, *own.parents) if each.is_relative_to(root))


# --- ports ----------------------------------------------------------------------------------------------------------


def listener_on(port: int, proc: Path = PROC) -> Holder | None:
    """Return the process that listens on a TCP port, if this user may see it."""
    inodes = {f"socket:[{inode}]" for table in ("tcp", "tcp6") for inode in _listeners(proc / "net" / table, port)}
    if not inodes:
        return None
    for pid in sorted(int(each.name) for each in proc.iterdir() if each.name.isdecimal()):
        if _has_open(proc / str(pid) / "fd", inodes):
            words = _read_text(proc / str(pid) / "cmdline").split("\0")
            return Holder(pid=pid, command=" ".join(words).strip())
    return None


def _listeners(table: Path, port: int) -> Iterator[str]:
    for line in _read_text(table).splitlines()[1:]:
        fields = line.split()
        if fields[3] == _LISTEN_STATE and int(fields[1].rpartition(":")[2], 16) == port:
            yield fields[9]


def _has_open(descriptors: Path, inodes: set[str]) -> bool:
    try:
        return any(os.readlink(each) in inodes for each in descriptors.iterdir())
    except OSError:  # another user's process, or one that is gone
        return False


def _read_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
