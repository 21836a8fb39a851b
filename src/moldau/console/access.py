"""One user's way to the cluster: a few connections that requests take in turn, and the collector with their rights."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from moldau.base.errors import MalformedData
from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.client.admin.groups import Groups
from moldau.client.admin.transactions import Transactions
from moldau.client.cluster import Cluster
from moldau.console.collector.collector import Collector, MetricsReader
from moldau.console.collector.events import ClusterEvents
from moldau.console.condition_workers import Conditions
from moldau.console.lately import ReadLately
from moldau.console.learning import Practice
from moldau.web.failures import too_many

REQUESTS_MAX: Final = 8
"""Requests of one user that ask the cluster at once, fewer than there are threads for them; others wait."""
CONNECTIONS_MAX: Final = 16
"""Clusters in use at once by one user: requests, exports and live records."""
IDLE_MAX: Final = 2
ANSWER_SECONDS: Final = 10.0
ADMIN_TIMEOUT_MS: Final = 10_000


class RowCache:
    """Rows of lists, made once for each version of the collector's state."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[int, list[dict[str, Any]]]] = {}
        self._lock = threading.Lock()

    def get(self, name: str, version: int, make: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
        with self._lock:
            cached = self._rows.get(name)
            if cached is None or cached[0] != version:
                cached = self._rows[name] = (version, make())
            return cached[1]


class Access:
    def __init__(
        self,
        bootstrap: str,
        properties: Mapping[str, str],
        user: str | None,
        read_metrics: MetricsReader | None = None,
        conditions: Conditions | None = None,
    ) -> None:
        self.bootstrap, self._properties, self.user = bootstrap, properties, user
        self.collector = Collector(bootstrap, properties, read_metrics)
        self.conditions = conditions
        self.events = ClusterEvents()
        self.collector.listeners.add(lambda: self.events.note(self.collector.state))
        self.rows = RowCache()
        self.lately = ReadLately()
        self.practice: Practice | None = None
        self.closers: list[Callable[[], None]] = []
        """What else ends with this access: practice consumers."""
        self.turns = asyncio.Semaphore(REQUESTS_MAX)
        """`Console` takes a turn on the event loop, before a request gets a thread."""
        self.uses = 0
        """Sessions of this user."""
        self._lock = threading.Lock()
        self._idle: list[Cluster] = []
        self._in_use = 0
        self._closed = False

    @property
    def properties(self) -> dict[str, str]:
        return dict(self._properties)

    @contextmanager
    def cluster(self) -> Iterator[Cluster]:
        """Borrow a connected cluster for one request. After an error its connections are closed."""
        with self._lock:
            if self._in_use >= CONNECTIONS_MAX:
                raise too_many(f"{CONNECTIONS_MAX} requests to the cluster are under way; try again in a moment")
            self._in_use += 1
            cluster = self._idle.pop() if self._idle else None
        healthy = False
        try:
            if cluster is None:
                cluster = Cluster(self.bootstrap, self._properties, ANSWER_SECONDS)
            else:
                cluster.forget()
            try:
                cluster.nodes()
            except (OSError, MalformedData):  # an idle connection that the broker has closed
                cluster.close()
                cluster.nodes()
            yield cluster
            healthy = True
        finally:
            with self._lock:
                self._in_use -= 1
                keep = healthy and len(self._idle) < IDLE_MAX and not self._closed and cluster is not None
                if keep and cluster is not None:
                    self._idle.append(cluster)
            if not keep and cluster is not None:
                cluster.close()

    @contextmanager
    def admin(self) -> Iterator[ClusterAdmin]:
        with self.cluster() as cluster:
            yield ClusterAdmin(cluster, ADMIN_TIMEOUT_MS)

    @contextmanager
    def groups(self) -> Iterator[Groups]:
        with self.cluster() as cluster:
            yield Groups(cluster, ADMIN_TIMEOUT_MS)

    @contextmanager
    def transactions(self) -> Iterator[Transactions]:
        with self.cluster() as cluster:
            yield Transactions(cluster, ADMIN_TIMEOUT_MS)

    def close(self) -> None:
        self._closed = True
        self.collector.stop()
        for close in self.closers:
            close()
        with self._lock:
            idle, self._idle = self._idle, []
        for cluster in idle:
            cluster.close()
