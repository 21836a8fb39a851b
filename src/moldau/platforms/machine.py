"""What only the operating system can tell: limits, file systems, cgroups, who listens on a port.

Read from /proc and /sys. Where there is neither, as on macOS, the answer is None.
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
"""What cgroup v1 writes for no limit is a page below 2^63; no machine has a 2^60 of anything."""
_LISTENING: Final = "0A"


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
    """Those that this process may run on."""
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
    """The kind of file system a path is on, as `mount` names it."""
    kind, longest = None, -1
    for line in _text(proc / "self" / "mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        mounted_on = Path(_unescaped(before.split()[4]))
        if path.is_relative_to(mounted_on) and len(mounted_on.parts) >= longest:
            kind, longest = after.split()[0], len(mounted_on.parts)
    return kind


def _unescaped(field: str) -> str:
    return re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), field)


# --- cgroups --------------------------------------------------------------------------------------------------------


def core_quota(proc: Path = PROC, cgroups: Path = CGROUPS) -> float | None:
    """How many cores' worth of time a cgroup, of version 2 or 1, grants this process; None without a limit."""
    return min(_core_quotas(proc, cgroups), default=None)


def _core_quotas(proc: Path, cgroups: Path) -> Iterator[float]:
    for directory in _own_groups("", proc, cgroups):
        quota, _, period = _text(directory / "cpu.max").strip().partition(" ")
        if quota.isdecimal() and period.isdecimal():
            yield int(quota) / int(period)
    for directory in _own_groups("cpu", proc, cgroups):
        quota = _text(directory / "cpu.cfs_quota_us").strip()
        period = _text(directory / "cpu.cfs_period_us").strip()
        if quota.isdecimal() and period.isdecimal():  # -1 is no limit
            yield int(quota) / int(period)


def memory_limit_bytes(proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    found = [_text(each / "memory.max").strip() for each in _own_groups("", proc, cgroups)]
    found += [_text(each / "memory.limit_in_bytes").strip() for each in _own_groups("memory", proc, cgroups)]
    return min((int(text) for text in found if text.isdecimal() and int(text) < UNLIMITED), default=None)


def _own_groups(controller: str, proc: Path, cgroups: Path) -> Iterator[Path]:
    """The directory of this process's group and those above it. Without a controller: of the one hierarchy of v2."""
    roots = [cgroups / controller] if controller else [cgroups, cgroups / "unified"]
    for line in _text(proc / "self" / "cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        if controller in controllers.split(","):
            for root in roots:
                own = root / group.strip("/")
                yield from (each for each in (own, *own.parents) if each.is_relative_to(root))


# --- ports ----------------------------------------------------------------------------------------------------------


def listener_on(port: int, proc: Path = PROC) -> Holder | None:
    """The process that listens on a TCP port, as far as this user may see it."""
    inodes = {f"socket:[{inode}]" for table in ("tcp", "tcp6") for inode in _listening(proc / "net" / table, port)}
    if not inodes:
        return None
    for pid in sorted(int(each.name) for each in proc.iterdir() if each.name.isdecimal()):
        if _has_open(proc / str(pid) / "fd", inodes):
            words = _text(proc / str(pid) / "cmdline").split("\0")
            return Holder(pid=pid, command=" ".join(words).strip())
    return None


def _listening(table: Path, port: int) -> Iterator[str]:
    for line in _text(table).splitlines()[1:]:
        fields = line.split()
        if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
            yield fields[9]


def _has_open(descriptors: Path, inodes: set[str]) -> bool:
    try:
        return any(os.readlink(each) in inodes for each in descriptors.iterdir())
    except OSError:  # another user's process, or one that is gone
        return False


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
