"""The cost of each test file: seconds of processor time of this process and all its children.

Wall time means little on a busy machine. Linux only: it reads /proc.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import pytest

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PARENT, USER_TICKS, REAPED_CHILDREN_TICKS_END = 1, 11, 15  # fields of /proc/PID/stat after the command's name


class Costs:
    """Adds up processor time by file, and prints the most expensive files at the end of the run."""

    def __init__(self) -> None:
        self._cpu_s: dict[str, float] = defaultdict(float)
        self._at = "collecting tests"
        self._before_s = 0.0

    def _switch_to(self, path: str) -> None:
        """Charge the time spent until now to the previous file."""
        now_s = _cpu_s()
        self._cpu_s[self._at] += now_s - self._before_s
        self._at, self._before_s = path, now_s

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        path = nodeid.partition("::")[0]
        if path != self._at:
            self._switch_to(path)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        self._switch_to("the summary")
        terminalreporter.section("processor seconds by file")
        for path, spent_s in sorted(self._cpu_s.items(), key=lambda item: -item[1]):
            if spent_s >= 0.5:
                terminalreporter.write_line(f"{spent_s:8.1f}  {path}")
        terminalreporter.write_line(f"{sum(self._cpu_s.values()):8.1f}  in all files")


def _cpu_s() -> float:
    """Return the processor time of this process and its descendants, including those that ended and were waited for."""
    spent_ticks: dict[int, int] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
        pid = int(stat.parent.name)
        children[int(fields[PARENT])].append(pid)
        spent_ticks[pid] = sum(map(int, fields[USER_TICKS:REAPED_CHILDREN_TICKS_END]))
    family, spent = [os.getpid()], 0
    while family:
        pid = family.pop()
        spent += spent_ticks.get(pid, 0)
        family += children[pid]
    return spent / TICKS_PER_S
