"""The priority and the time slice of a process, as Linux reports them."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys

import pytest

from moldau.platforms.scheduling import SLICE_NS

LOWER_AND_PRINT = """
import ctypes, os, platform
from moldau.platforms import scheduling
scheduling.lower_priority(7)
found = ctypes.create_string_buffer(scheduling._ATTRIBUTES.size)
set_number = scheduling._SCHED_SETATTR.get(platform.machine()) if platform.system() == "Linux" else None
if set_number is not None:
    get_number = set_number + 1  # sched_getattr is the next system call after sched_setattr
    assert ctypes.CDLL(None).syscall(get_number, 0, found, len(found), 0) == 0
_size, _policy, _flags, _niceness, _priority, slice_ns, *_ = scheduling._ATTRIBUTES.unpack(found.raw)
print(os.nice(0), slice_ns)
"""


def niceness_and_slice() -> tuple[int, int]:
    output = subprocess.run([sys.executable, "-c", LOWER_AND_PRINT], check=True, capture_output=True, text=True).stdout
    niceness, slice_ns = output.split()
    return int(niceness), int(slice_ns)


def test_the_niceness_is_raised() -> None:
    assert niceness_and_slice()[0] == min(os.nice(0) + 7, 19)


def test_the_time_slice_is_the_longest() -> None:
    version = tuple(map(int, re.findall(r"\d+", platform.release())[:2]))
    if platform.system() != "Linux" or platform.machine() != "x86_64" or version < (6, 12):
        pytest.skip("slices exist since Linux 6.12; tried only on x86-64")
    assert niceness_and_slice()[1] == SLICE_NS
