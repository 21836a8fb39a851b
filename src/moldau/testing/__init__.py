"""Moldau in your tests and notebooks. `broker()` and `cluster()` are context managers; with pytest, there are the
fixtures `moldau_broker` and `moldau_cluster`.
"""

from __future__ import annotations

from moldau.testing.broker import TestBroker, broker
from moldau.testing.cluster import TestCluster, cluster

__all__ = ["TestBroker", "TestCluster", "broker", "cluster"]
