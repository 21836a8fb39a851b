"""What this process uses: processor time, memory, open files, bytes read from and written to disks.

Linux shows all of it in /proc. Elsewhere the current memory and the bytes are unknown; reading may take milliseconds if
many files are open, so it is done in a thread.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Final

_PROC: Final = "/proc/self"
_DESCRIPTORS: Final = (f"{_PROC}/fd", "/dev/fd")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUsage:
    """None where the system does not tell."""

    cpu_s: float
    resident_bytes: int | None = None
    virtual_bytes: int | None = None
    open_files: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None


def process_usage() -> ProcessUsage:
    virtual, resident = _memory()
    read, written = _disk_bytes()
    return ProcessUsage(
        cpu_s=time.process_time(),
        resident_bytes=resident,
        virtual_bytes=virtual,
        open_files=_open_files(),
        read_bytes=read,
        written_bytes=written,
    )


def _memory() -> tuple[int | None, int | None]:
    try:
        with open(f"{_PROC}/statm", encoding="ascii") as file:
            pages = file.read().split()
    except OSError:
        return None, None
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    return int(pages[0]) * page_bytes, int(pages[1]) * page_bytes


def _open_files() -> int | None:
    for directory in _DESCRIPTORS:
        try:
            return len(os.listdir(directory)) - 1  # without the directory itself
        except OSError:
            continue
    return None


def _disk_bytes() -> tuple[int | None, int | None]:
    """Some containers do not allow it."""
    try:
        with open(f"{_PROC}/io", encoding="ascii") as file:
            fields = dict(line.split(": ") for line in file.read().splitlines())
    except OSError:
        return None, None
    return int(fields["read_bytes"]), int(fields["write_bytes"])
