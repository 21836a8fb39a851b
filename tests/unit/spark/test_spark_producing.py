"""How many partitions a sink divides keys among, while partitions are added to a topic."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from moldau.client.cluster import Cluster, Topic
from moldau.spark import producing
from moldau.spark.options import write_options
from moldau.spark.producing import METADATA_AGE_MAX_S, partition_count_of

OPTIONS = write_options({"kafka.bootstrap.servers": "localhost:9092"})


class GrowingCluster(Cluster):
    """A cluster whose topics get a partition after each request for metadata."""

    def __init__(self) -> None:
        super().__init__("localhost:9092", {})
        self.partitions = 1

    def refresh(self, names: Iterable[str] | None, create: bool = False) -> None:
        for name in names or ():
            self._topics[name] = Topic(name, bytes(16), dict.fromkeys(range(self.partitions), 1))
        self.partitions += 1


def test_added_partitions_get_keys_after_a_metadata_refresh(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = GrowingCluster()
    now = 1000.0
    monkeypatch.setattr(producing, "monotonic", lambda: now)

    def count() -> int:
        return partition_count_of(cluster, OPTIONS)("t")  # a function for each Arrow batch

    assert [count(), count()] == [1, 1]
    now += METADATA_AGE_MAX_S - 1
    assert count() == 1
    now += 2
    assert [count(), count()] == [2, 2]
    now += METADATA_AGE_MAX_S + 1
    assert count() == 3
