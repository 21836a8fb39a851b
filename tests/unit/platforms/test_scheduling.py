"""What Linux says of a process that lets others go first."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys

import pytest

from moldau.platforms.scheduling import SLICE_NS

LET_AND_TELL = """
import ctypes, os
from moldau.platforms import scheduling
scheduling.lower_priority(7)
found = ctypes.create_string_buffer(scheduling._ATTRIBUTES.size)
number = scheduling._SCHED_SETATTR.get(os.uname().machine)
if number is not None:
    assert ctypes.CDLL(None).syscall(number + 1, 0, found, len(found), 0) == 0
print(os.nice(0), scheduling._ATTRIBUTES.unpack(found.raw)[5])
"""


def told() -> tuple[int, int]:
    output = subprocess.run([sys.executable, "-c", LET_AND_TELL], check=True, capture_output=True, text=True).stdout
    niceness, slice_ns = output.split()
    return int(niceness), int(slice_ns)


def test_it_is_nicer() -> None:
    assert told()[0] == min(os.nice(0) + 7, 19)


def test_it_has_the_longest_slice() -> None:
    version = tuple(map(int, re.findall(r"\d+", platform.release())[:2]))
    if platform.system() != "Linux" or platform.machine() != "x86_64" or version < (6, 12):
        pytest.skip("slices can be asked for from Linux 6.12 on; the number of the call that tells them is x86-64's")
    assert told()[1] == SLICE_NS
