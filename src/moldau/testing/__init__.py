"""Moldau in your tests and notebooks. `broker()` and `cluster()` are context managers; with pytest, there are the
fixtures `moldau_broker` and `moldau_cluster`.

It may import `node`, `client`, what both share, and what sets up a cluster (`settings`, `local_cluster`,
`secure_setup`). Begin with `broker` and `cluster`; `clock` and `files` are time and disks for tests of the pure
packages.
"""

from __future__ import annotations

from moldau.testing.broker import TestBroker, broker
from moldau.testing.cluster import TestCluster, cluster

__all__ = ["TestBroker", "TestCluster", "broker", "cluster"]
