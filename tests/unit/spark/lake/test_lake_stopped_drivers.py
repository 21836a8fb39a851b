"""Real driver processes, stopped (SIGSTOP) in the middle of a batch and continued after others have written it.

`test_lake_two_drivers.py` tries all steps in memory; here are some of them, with the tables and the operating system as
they are. `stopped_driver.py KIND DIRECTORY append 0` tries all of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness.depth import DEPTH, only_deep

SCRIPT = Path(__file__).with_name("stopped_driver.py")
REFUSAL = "another driver of query query has taken over, so batch 1 of this one was not written; "


def reports(kind: str, directory: Path, mode: str, *steps: str) -> list[dict[str, Any]]:
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), kind, str(directory), mode, *steps], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]


@pytest.mark.parametrize(
    ("kind", "mode", "step_of_b", "every"),
    [pytest.param("parquet", "append", "0", 4, marks=only_deep), ("parquet", "overwrite", "25", 6),
     ("delta", "append", "0", 6), pytest.param("delta", "append", "33", 6, marks=only_deep),
     ("iceberg", "append", "0", 7)],
)  # fmt: skip
def test_each_batch_is_stored_once_after_drivers_were_stopped_and_continued(
    tmp_path: Path, kind: str, mode: str, step_of_b: str, every: int
) -> None:
    found = reports(kind, tmp_path, mode, step_of_b, str(every if DEPTH > 1 else 2 * every))
    assert len(found) > 2
    wanted = list(range(30, 40)) if mode == "overwrite" else list(range(40))
    for report in found:
        assert report["rows_later"] == wanted, report
        assert not isinstance(report["rows"], str), report
        assert report["left"] == [], report
        results = [report["a"], *report["b"]]
        assert all(result in ("written", "already stored") or "DriverFenced: " in result for result in results), report
    assert any(REFUSAL in report["a"] for report in found) or step_of_b != "0"
