"""Clusters that must be healthy after a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness.attacked_cluster import AttackedCluster


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
