"""The cost of each test file: CPU seconds of this process and all processes that it started.

Elapsed time means little on a busy machine. Where there is no /proc, a process counts only once it has ended.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
PARENT, USER_TICKS, REAPED_CHILDREN_TICKS_END = 1, 11, 15  # fields of /proc/PID/stat after the command's name
LISTED_S_MIN = 0.5


class Costs:
    """Adds up CPU time by file. At the end of the run it prints the expensive files, or writes all to `out` as JSON."""

    def __init__(self, out: Path | None = None) -> None:
        self._out = out
        self._cpu_s: dict[str, float] = defaultdict(float)
        self._at = "(starting)"
        self._before_s = 0.0

    def _switch_to(self, path: str) -> None:
        """Charge the time spent until now to the previous file."""
        now_s = cpu_s()
        self._cpu_s[self._at] += now_s - self._before_s
        self._at, self._before_s = path, now_s

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        path = nodeid.partition("::")[0]
        if path != self._at:
            self._switch_to(path)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        self._switch_to("(ending)")
        if self._out is not None:
            self._out.write_text(json.dumps(self._cpu_s))
            return
        terminalreporter.section("CPU seconds by file")
        for line in lines_of(self._cpu_s):
            terminalreporter.write_line(line)
        terminalreporter.write_line(f"{sum(self._cpu_s.values()):8.1f}  in all files")


def lines_of(cpu_s: Mapping[str, float], most: int | None = None) -> Iterable[str]:
    for path, spent_s in sorted(cpu_s.items(), key=lambda item: -item[1])[:most]:
        if spent_s >= LISTED_S_MIN:
            yield f"{spent_s:8.1f}  {path}"


def cpu_s() -> float:
    """Return the CPU time of this process and its descendants, including those that ended and were waited for."""
    return sum(os.times()[:4]) + (_of_living_descendants_s() if PROC.exists() and _has_children() else 0)


def _has_children() -> bool:
    """Return whether there are any, without a walk through /proc. macOS has no waitid before Python 3.13."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _of_living_descendants_s() -> float:
    spent_ticks: dict[int, int] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for stat in PROC.glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
        pid = int(stat.parent.name)
        children[int(fields[PARENT])].append(pid)
        spent_ticks[pid] = sum(map(int, fields[USER_TICKS:REAPED_CHILDREN_TICKS_END]))
    family, spent = list(children[os.getpid()]), 0
    while family:
        pid = family.pop()
        spent += spent_ticks[pid]
        family += children[pid]
    return spent / TICKS_PER_S
