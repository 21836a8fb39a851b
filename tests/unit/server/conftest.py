"""Tests here use the rooms put together for the tests of `replica`, and the random messages of those of `wire`.

Clusters that are besieged have to be well in the end.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from besieged import Besieged

for room in ("replica", "wire"):
    sys.path.insert(0, str(Path(__file__).parents[1] / room))


@pytest.fixture(params=[1, 3], ids=["alone", "three"])
def besieged(request: pytest.FixtureRequest) -> Iterator[Besieged]:
    found = Besieged(request.param)
    yield found
    found.check_health()


@pytest.fixture
def three() -> Iterator[Besieged]:
    found = Besieged(3)
    yield found
    found.check_health()
