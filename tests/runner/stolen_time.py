"""Runs a failed test with real processes again if the host took the processor away meanwhile.

A virtual machine reports how long it was ready to compute but did not run: the steal time of /proc/stat. Clients, tools
and Spark have timeouts of their own, which no test can prolong. So a failure counts if the test had the machine to
itself, or if it fails every time. Without stolen time nothing is repeated; nor are tests without sockets, which do not
wait.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from _pytest.runner import runtestprotocol

from runner.leftovers import collect_leftovers

STOLEN_MIN = 0.2
"""Share of the time that all processes wanted to compute."""
STOLEN_S_MIN = 1.0
"""Stolen seconds that count even in a long test: many clients have timeouts of a few seconds."""
TRIES = 3
WITH_PROCESSES = ("interop", "spark", "dist", "chaos")
GIVEN_UP_BY_SPARK = "Python worker failed to connect back"
"""Spark waits ten seconds for a Python worker to start, however busy the machine is, and has no setting for it."""
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
TESTS = Path(__file__).parents[1]
STAT = Path("/proc/stat")


class ProcessorTime(NamedTuple):
    used: int
    stolen: int


def processor_time() -> ProcessorTime:
    """Return ticks since the machine was started; without /proc/stat nothing counts as stolen."""
    if not STAT.exists():
        return ProcessorTime(0, 0)
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, STAT.read_text().split()[1:9])
    return ProcessorTime(user + nice + system + irq + softirq, steal)


def stolen_share(before: ProcessorTime, after: ProcessorTime) -> float:
    used, stolen = after.used - before.used, after.stolen - before.stolen
    return stolen / max(1, used + stolen)


class Repeats:
    def __init__(self, folder: Path = TESTS, now: Callable[[], ProcessorTime] = processor_time) -> None:
        self._folders = tuple(f"{folder / name}/" for name in WITH_PROCESSES)
        self._now = now

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if not str(item.path).startswith(self._folders):
            return None
        if item.get_closest_marker("counts_always"):
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for attempt in range(1, TRIES + 1):
            before = self._now()
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
            why = self._why_again(reports, before, self._now())
            if why is None or attempt == TRIES:
                break
            _print_line(item, f"run again, {why}: {item.nodeid}: {_first_error_line(reports)}")
            # Set up all fixtures again: a failed test may have left a killed node, for example.
            try:
                item.session._setupstate.teardown_exact(None)
            except Exception as error:  # even if a fixture of the failed test cannot be torn down
                _print_line(item, f"while its fixtures were torn down: {error}")
            sys.last_type = sys.last_value = sys.last_traceback = None  # they keep what the failed try has open
            collect_leftovers()
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _why_again(self, reports: list[pytest.TestReport], before: ProcessorTime, after: ProcessorTime) -> str | None:
        failed = [report for report in reports if report.failed]
        if not failed:
            return None
        share, seconds = stolen_share(before, after), (after.stolen - before.stolen) / TICKS_PER_SECOND
        if share >= STOLEN_MIN or seconds >= STOLEN_S_MIN:
            return f"{share:.0%} of the processor was taken away, {seconds:.1f} s"
        if any(GIVEN_UP_BY_SPARK in report.longreprtext for report in failed):
            return "Spark gave up on a worker"
        return None


def _first_error_line(reports: list[pytest.TestReport]) -> str:
    """Return the first line of a failure's message: pytest begins these lines with an E."""
    lines = [line for report in reports if report.failed for line in report.longreprtext.splitlines()]
    errors = [line.removeprefix("E").strip() for line in lines if line.startswith("E ")]
    return (errors or lines or [""])[0][:300]


def _print_line(item: pytest.Item, text: str) -> None:
    reporter = item.config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        reporter.ensure_newline()
        reporter.write_line(text)
