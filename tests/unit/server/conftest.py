"""Tests here use the rooms put together for the tests of `replica`, and the random messages of those of `wire`."""

from __future__ import annotations

import sys
from pathlib import Path

for room in ("replica", "wire"):
    sys.path.insert(0, str(Path(__file__).parents[1] / room))
