"""How a process lets others go first, and dies before them.

`nice` is POSIX; the slice and the out-of-memory score are Linux' alone.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from contextlib import suppress
from typing import Final

SLICE_NS: Final = 100_000_000
"""The longest that Linux grants. Of two that want a core the one with the shorter slice goes first (since 6.12): to ask
for the longest is to get no less of it, but to give it up as soon as anybody else wakes and not with the next tick."""

OOM_SCORE: Final = "/proc/self/oom_score_adj"

_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
"""The call's number; C libraries have no name for it until glibc 2.41."""
_ATTRIBUTES: Final = struct.Struct("=IIQiIQQQ")
"""Size, policy, flags, niceness, priority; runtime, which is the slice; deadline, period."""


def lower_priority(niceness: int) -> None:
    """This thread and those it will start. Where Linux cannot do it all, it does what it can."""
    niceness = os.nice(niceness)
    number = _SCHED_SETATTR.get(platform.machine()) if platform.system() == "Linux" else None
    if number is not None:
        attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, niceness, 0, SLICE_NS, 0, 0)
        ctypes.CDLL(None).syscall(number, 0, attributes, 0)


def set_oom_score(score: int, path: str = OOM_SCORE) -> None:
    """Where memory runs out, Linux ends processes of a high score first. Other systems do not ask."""
    with suppress(OSError), open(path, "w", encoding="ascii") as file:
        file.write(str(score))
