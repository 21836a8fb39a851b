"""The pytest plugin: fixtures that give tests a real broker, or a cluster of them. Not in `moldau.testing`, which
imports the broker: pytest loads this in every project, and nothing more is imported before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from moldau.testing.broker import TestBroker
    from moldau.testing.cluster import TestCluster


@pytest.fixture
def moldau_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    """A broker of this test's own, empty, stopped when the test ends; `bootstrap_servers` is its address."""
    from moldau.testing.broker import broker

    with broker(tmp_path_factory.mktemp("moldau")) as running:
        yield running


@pytest.fixture(scope="session")
def moldau_shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    """One broker for the whole run: quicker, if tests take care to use topics of their own."""
    from moldau.testing.broker import broker

    with broker(tmp_path_factory.mktemp("moldau")) as running:
        yield running


@pytest.fixture
def moldau_cluster() -> Iterator[TestCluster]:
    """Three brokers of this test's own, which it may kill, freeze and cut off from each other."""
    from moldau.testing.cluster import cluster

    with cluster() as running:
        yield running
