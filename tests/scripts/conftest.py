"""These tests use helper modules of the tests of `replica`, `raft`, `metadata` and `coordinator`."""

from __future__ import annotations

import sys
from pathlib import Path

for package in ("replica", "raft", "metadata", "coordinator/transaction"):
    sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / package))
