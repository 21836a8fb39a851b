"""The CPU time of all processes of a test run, and how it is reported."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness.patience import wait_until
from runner.costs import cpu_s
from runner.run import BUDGET_CPU_S, again, report

RUN = Path(sys.modules["runner.run"].__file__ or "")
COMPUTE = "for _ in iter(int, 1): pass"
ORPHAN = f"""
import subprocess, sys
orphan = subprocess.Popen([sys.executable, "-c", "{COMPUTE}"])
print(orphan.pid, flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process counts only once it has ended")
def test_a_child_counts_while_it_runs_and_after_it_was_killed() -> None:
    before_s = cpu_s()
    child = subprocess.Popen([sys.executable, "-c", COMPUTE])
    wait_until(lambda: cpu_s() > before_s + 0.2, "the child's time is seen")
    seen_s = cpu_s()
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert cpu_s() >= seen_s


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives a process's orphans to another than init")
def test_an_orphan_that_was_killed_is_reaped_and_counted(tmp_path: Path) -> None:
    text = f"""
import os, runpy, signal, subprocess, sys, time
run = runpy.run_path({str(RUN)!r})
run["_adopt_orphans"]()
parent = subprocess.Popen([sys.executable, "-c", {ORPHAN!r}], stdout=subprocess.PIPE, text=True)
orphan = int(parent.stdout.readline())
parent.wait()
while run["cpu_s"]() < 0.5:
    time.sleep(0.01)
os.kill(orphan, signal.SIGKILL)
other = subprocess.Popen([sys.executable, "-c", ""])
pid, _ = os.waitpid(orphan, 0)
run["_wait_for"]([other])
assert other.returncode == 0
print(run["cpu_s"]() >= 0.5)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.parametrize(
    ("spent_s", "verdict"), [(BUDGET_CPU_S - 10, "10 are left"), (BUDGET_CPU_S + 200, "OVER BUDGET by 200")]
)
def test_the_report_ends_with_the_sum_and_the_budget(spent_s: float, verdict: str) -> None:
    lines = report(spent_s, {"tests/unit/test_a.py": 1.5, "tests/interop/test_b.py": 20.25, "tests/cheap.py": 0.1})
    assert lines[1:3] == ["    20.2  tests/interop/test_b.py", "     1.5  tests/unit/test_a.py"]
    assert lines[4:6] == ["    20.2  tests/interop", "     1.5  tests/unit"]
    assert lines[-1] == f"{spent_s:8.1f}  CPU seconds in all, of a budget of {BUDGET_CPU_S}: {verdict}"


def test_failures_are_repeated_at_the_end_and_their_names_come_last() -> None:
    failures = [["FAILED tests/a.py::test_a", "E  assert 1 == 2"], ["FAILED tests/b.py::test_b", "E  timeout"]]
    assert again(failures)[-2:] == ["FAILED tests/a.py::test_a", "FAILED tests/b.py::test_b"]
    assert "E  assert 1 == 2" in again(failures)
    assert again([]) == []
