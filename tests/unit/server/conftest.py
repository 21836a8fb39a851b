"""The path to helper modules of the tests of `replica` and `wire`, and clusters that must be healthy after a test."""

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
    cluster = AttackedCluster(request.param)
    yield cluster
    cluster.check_health()


@pytest.fixture
def three_nodes() -> Iterator[AttackedCluster]:
    cluster = AttackedCluster(3)
    yield cluster
    cluster.check_health()
