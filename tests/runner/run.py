"""What `make test` runs: all tests, in four runs of pytest side by side, and what they cost against the budget.

The cost is the CPU time of all processes: also of brokers, Spark and workers, and of those that were killed. On Linux
this process adopts every process whose parent has died (PR_SET_CHILD_SUBREAPER), so that it can wait for it and count
it. Over the budget nothing fails, because a second of CPU time is not the same on every machine, but the last lines say
it. CONTRIBUTING.md says what to do then.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

from runner.costs import cpu_s, lines_of  # noqa: E402
from runner.sharing import ORDERS  # noqa: E402

BUDGET_CPU_S = 750
LISTED_FILES = 30
PR_SET_CHILD_SUBREAPER = 36


def main(arguments: list[str]) -> int:
    os.chdir(TESTS.parent)
    _adopt_orphans()
    claims = Path(tempfile.mkdtemp(prefix="moldau-claims-"))
    try:
        runs, relays = [], []
        for start in ORDERS:
            runs.append(_start(start, claims, arguments))
            relays.append(threading.Thread(target=_relay, args=(start, runs[-1])))
            relays[-1].start()
            _wait_for_claim(claims, runs[0])
        _wait_for(runs)
        for relay in relays:
            relay.join()
        by_file: Counter[str] = Counter()
        for written in claims.glob("*.costs.json"):
            by_file.update(json.loads(written.read_text()))
        failures = [
            json.loads(line)
            for written in claims.glob("*.failures")
            for line in written.read_text("utf-8").splitlines()
        ]
    finally:
        shutil.rmtree(claims)
    print("\n".join([*report(cpu_s(), by_file), *again(failures)]))
    for start, run in zip(ORDERS, runs, strict=True):
        if run.returncode != 0:
            print(f"The run {start} ended with {run.returncode}.")
    return max(run.returncode != 0 for run in runs)


def report(spent_s: float, by_file: dict[str, float]) -> list[str]:
    over_s = spent_s - BUDGET_CPU_S
    verdict = f"OVER BUDGET by {over_s:.0f}" if over_s > 0 else f"{-over_s:.0f} are left"
    by_folder: Counter[str] = Counter()
    for path, file_s in by_file.items():
        by_folder["/".join(Path(path).parts[:2])] += file_s
    return [
        f"The most expensive of {len(by_file)} test files, in CPU seconds:",
        *lines_of(by_file, LISTED_FILES),
        "All files of a folder, in CPU seconds:",
        *lines_of(by_folder),
        f"{spent_s:8.1f}  CPU seconds in all, of a budget of {BUDGET_CPU_S}: {verdict}",
    ]


def again(failures: list[list[str]]) -> list[str]:
    """Return the ends of the failures, then their names once more: a log that is cut keeps its last lines."""
    names = [title for title, *_ in failures]
    return [*(line for failure in failures for line in ["", *failure]), "", *names] if failures else []


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _start(start: str, claims: Path, arguments: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "pytest", "-q", "-o", "console_output_style=classic", *arguments],
        env={**os.environ, "MOLDAU_TEST_CLAIMS": str(claims), "MOLDAU_TEST_FROM": start},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )


def _relay(start: str, run: subprocess.Popen[str]) -> None:
    assert run.stdout is not None
    for line in run.stdout:
        print(f"{start}: {line}", end="", flush=True)


def _wait_for_claim(claims: Path, run: subprocess.Popen[str]) -> None:
    """Wait until the first run has claimed a file. Then it has written the bytecode of what all runs import."""
    while run.poll() is None and not any(claims.iterdir()):
        time.sleep(0.05)


def _wait_for(runs: list[subprocess.Popen[str]]) -> None:
    """Wait for the runs, and for every adopted process that ends meanwhile: tests wait until it is gone."""
    running = {run.pid: run for run in runs if run.returncode is None}
    while running:
        try:
            pid, status = os.waitpid(-1, 0)
        except KeyboardInterrupt:
            continue  # the runs were interrupted too, and end
        if run := running.pop(pid, None):
            run.returncode = os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
