"""Progress of a test run in whole lines: one for each test file, and one every few seconds.

A line names a test that takes long, and what it waits for. Failures are also written to a file: `make test` repeats
them at its end, because a log that is cut keeps its end.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from harness.patience import Patience, text_of

from runner.sharing import Sharing

PRINT_EVERY_S = 5.0
FAILURE_LINES = 25
"""The last lines of a failure say what was expected; those before it are often long logs."""


class Progress:
    def __init__(self, config: pytest.Config, sharing: Sharing, failures: Path) -> None:
        self._sharing = sharing
        self._failures = failures
        self._path = Path()
        self._test = ""
        self._began_s = self._printed_s = time.monotonic()
        self._outcomes: Counter[str] = Counter()
        self._ended = threading.Event()
        capture = config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            self._out = os.dup(1)
        threading.Thread(target=self._print_while_tests_run, name="progress", daemon=True).start()

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Print no dots: pytest does not end the line before it is full."""
        if report.when != "call" and report.passed:
            return "", "", ""
        outcome = "error" if report.failed and report.when != "call" else report.outcome
        return (outcome, "", "") if not hasattr(report, "wasxfail") else None

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        path = Path(nodeid.partition("::")[0])
        if path != self._path:
            self._path, self._began_s, self._outcomes = path, time.monotonic(), Counter()
        self._test = nodeid.partition("::")[2]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or (report.when == "setup" and not report.passed):
            self._outcomes[report.outcome] += 1
        if report.failed:
            self._failed(f"FAILED {report.nodeid}", report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._failed(f"FAILED to collect {report.nodeid}", report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        Patience.awaited = ""
        done, of = self._outcomes.total(), self._sharing.tests_of(Path.cwd() / self._path)
        if done >= of:
            counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self._outcomes.items()))
            self._print(f"{self._path}: {counts} in {time.monotonic() - self._began_s:.1f} s")
        elif time.monotonic() - self._printed_s > PRINT_EVERY_S:
            self._print(f"{self._path}: {done} of {of}")

    def pytest_unconfigure(self) -> None:
        self._ended.set()

    def _print_while_tests_run(self) -> None:
        while not self._ended.wait(PRINT_EVERY_S):
            if time.monotonic() - self._printed_s > PRINT_EVERY_S:
                self._print(f"{self._path}: at {self._test}{self._awaited()}" if self._test else "collecting tests")

    def _awaited(self) -> str:
        return f", until {text_of(Patience.awaited)[:100]}" if Patience.awaited else ""

    def _failed(self, title: str, report: pytest.TestReport | pytest.CollectReport) -> None:
        self._print(title)
        lines = [title, *report.longreprtext.splitlines()[-FAILURE_LINES:]]
        with self._failures.open("a", encoding="utf-8") as out:
            out.write(json.dumps(lines) + "\n")

    def _print(self, line: str) -> None:
        self._printed_s = time.monotonic()
        os.write(self._out, f"{self._sharing.share_claimed():4.0%}  {line}\n".encode())
