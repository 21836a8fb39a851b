"""The pytest plugin: fixtures for a real broker or cluster. It is not in `moldau.testing`, which imports the broker:
pytest loads this module in every project, and it imports nothing more before a test uses a fixture.
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
    """A new, empty broker for one test, stopped when the test ends; `bootstrap_servers` is its address."""
    from moldau.testing.broker import broker

    with broker(tmp_path_factory.mktemp("moldau")) as running:
        yield running


@pytest.fixture(scope="session")
def moldau_shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    """One broker for the whole run: faster, if each test uses its own topics."""
    from moldau.testing.broker import broker

    with broker(tmp_path_factory.mktemp("moldau")) as running:
        yield running


@pytest.fixture
def moldau_secure_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    """A new broker with TLS, passwords and ACLs for one test: `client_config()` is how its admin connects, `add_user`
    and `allow` make others."""
    from moldau.testing.broker import broker

    with broker(tmp_path_factory.mktemp("moldau"), secure=True) as running:
        yield running


@pytest.fixture
def moldau_cluster() -> Iterator[TestCluster]:
    """Three new brokers for one test, which may kill, freeze and disconnect them."""
    from moldau.testing.cluster import cluster

    with cluster() as running:
        yield running
