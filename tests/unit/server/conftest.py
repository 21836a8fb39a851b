"""These tests use helper modules of the tests of `replica` and `wire`.

An attacked cluster has to be healthy at the end of the test.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from attacked_cluster import AttackedCluster

for package in ("replica", "wire"):
    sys.path.insert(0, str(Path(__file__).parents[1] / package))


@pytest.fixture(params=[1, 3], ids=["one-node", "three-nodes"])
def cluster(request: pytest.FixtureRequest) -> Iterator[AttackedCluster]:
    found = AttackedCluster(request.param)
    yield found
    found.check_health()


@pytest.fixture
def three_nodes() -> Iterator[AttackedCluster]:
    found = AttackedCluster(3)
    yield found
    found.check_health()
