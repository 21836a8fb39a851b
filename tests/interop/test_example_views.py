"""The examples of views run and find what they should."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from harness.patience import PATIENCE_S

pytest.importorskip("duckdb")
pytestmark = pytest.mark.moldau_only
EXAMPLES = Path(__file__).parents[2] / "examples" / "views"


@pytest.mark.parametrize("name", ["advertisements.py", "one_field.py"])
def test_an_example_reads_less_than_a_third_of_the_bytes_by_a_view(bootstrap: str, name: str) -> None:
    command = [sys.executable, str(EXAMPLES / name), bootstrap, "2000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    everything, view = (
        int(line.split(" bytes")[0].split()[-1].replace(",", "")) for line in done.stdout.splitlines()[1:]
    )
    assert view < everything / 3
