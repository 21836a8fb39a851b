"""How a process says to Linux that others go first."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from typing import Final

SLICE_NS: Final = 100_000_000
"""The longest that Linux grants. Of two that want a core the one with the shorter slice goes first (since 6.12): to ask
for the longest is to get no less of it, but to give it up as soon as anybody else wakes and not with the next tick."""

_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
"""The call's number; C libraries have no name for it until glibc 2.41."""
_ATTRIBUTES: Final = struct.Struct("=IIQiIQQQ")
"""Size, policy, flags, niceness, priority; runtime, which is the slice; deadline, period."""


def let_others_go_first(niceness: int) -> None:
    """This thread and those it will start. Where Linux cannot do it all, it does what it can."""
    niceness = os.nice(niceness)
    number = _SCHED_SETATTR.get(platform.machine()) if platform.system() == "Linux" else None
    if number is not None:
        attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, niceness, 0, SLICE_NS, 0, 0)
        ctypes.CDLL(None).syscall(number, 0, attributes, 0)
