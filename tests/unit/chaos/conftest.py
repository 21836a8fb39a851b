"""These tests are of the modules of tests/chaos that need no processes."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "chaos"))
