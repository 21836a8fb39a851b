"""A storage fault is logged at once, with the next step; repetitions are counted."""

from __future__ import annotations

import errno
import os

from moldau.base.errors import StorageFault
from moldau.runtime.fault_log import REPEAT_MS, FaultLog
from moldau.testing.clock import FakeClock


def fault(number: int) -> StorageFault:
    return StorageFault("/data/t-0/0.log", OSError(number, os.strerror(number)))


def test_the_first_fault_of_an_errno_is_logged_and_the_rest_are_counted() -> None:
    lines: list[str] = []
    clock = FakeClock()
    log_fault = FaultLog(lines.append, clock)
    for partition in range(1000):
        log_fault(f"t-{partition}: records cannot be appended", fault(errno.ENOSPC))
    log_fault("t-7: records cannot be read", fault(errno.EMFILE))
    assert lines == [
        "t-0: records cannot be appended: /data/t-0/0.log: No space left on device; free some space there",
        "t-7: records cannot be read: /data/t-0/0.log: Too many open files; raise the limit of open files"
        " (`ulimit -n`)",
    ]
    clock.move(REPEAT_MS)
    log_fault("t-5: records cannot be appended", fault(errno.ENOSPC))
    assert lines[2:] == [
        "t-5: records cannot be appended: /data/t-0/0.log: No space left on device; free some space there"
        " (999 more like it before this one)"
    ]


def test_a_fault_without_a_next_step_is_logged_without_advice() -> None:
    lines: list[str] = []
    FaultLog(lines.append, FakeClock())("t-0: records cannot be read", fault(errno.ENOENT))
    assert lines == ["t-0: records cannot be read: /data/t-0/0.log: No such file or directory"]
