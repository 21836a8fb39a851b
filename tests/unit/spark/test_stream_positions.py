"""The end offsets of the next batch of a stream, also while the cluster does not answer."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from moldau.base.ids import TopicPartition
from moldau.client.cluster import EARLIEST, LATEST, Cluster, Offsets, Unreachable
from moldau.spark.options import read_options
from moldau.spark.positions import Stream

PARTITION = TopicPartition("t", 0)
OPTIONS = read_options({"kafka.bootstrap.servers": "localhost:9", "assign": '{"t": [0]}'}, is_stream=True)


class UnreliableCluster(Cluster):
    """A cluster with 100 records in its partition. It does not answer while `is_down` is set."""

    is_down = False

    def latest(self, partitions: object, read_committed: bool = False) -> Offsets:
        if self.is_down:
            raise Unreachable("No broker answers")
        return {PARTITION: 100}

    def list_offsets(self, at: object, read_committed: bool = False) -> Offsets:
        return self.latest(at)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> UnreliableCluster:
    import moldau.spark.positions as positions

    monkeypatch.setattr(positions, "subscribed_partitions", lambda cluster, subscription: [PARTITION])
    return UnreliableCluster("localhost:9", {})


def test_a_continuous_stream_keeps_its_position_while_the_cluster_is_down(cluster: UnreliableCluster) -> None:
    stream = Stream(cluster, OPTIONS)
    assert stream.next_end({PARTITION: 20}, ReadMaxRows(30)) == {PARTITION: 50}
    cluster.is_down = True
    assert stream.next_end({PARTITION: 50}, ReadAllAvailable()) == {PARTITION: 50}


def test_the_limit_counts_a_new_partition_from_its_earliest_offset(
    cluster: UnreliableCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log may start at a high offset: deleted offsets do not count as backlog."""
    new = TopicPartition("t", 1)
    monkeypatch.setattr(cluster, "latest", lambda *_: {PARTITION: 100, new: 1_000_500})
    monkeypatch.setattr(cluster, "list_offsets", lambda *_: {new: 1_000_000})
    stream = Stream(cluster, OPTIONS)
    end = stream.next_end({PARTITION: 0}, ReadMaxRows(300))
    assert end == {PARTITION: 50, new: 1_000_250}


def test_an_available_now_stream_reaches_its_target_while_the_cluster_is_down(cluster: UnreliableCluster) -> None:
    """Spark ends the query when the end offset does not move."""
    stream = Stream(cluster, OPTIONS)
    stream.fix_target()
    cluster.is_down = True
    assert stream.next_end({PARTITION: 20}, ReadMaxRows(30)) == {PARTITION: 50}
    assert stream.next_end({PARTITION: 50}, ReadMaxRows(80)) == {PARTITION: 100}
    assert stream.next_end({PARTITION: 100}, ReadMaxRows(80)) == {PARTITION: 100}


def test_a_new_partition_starts_at_its_earliest_offset_while_the_cluster_is_down(
    cluster: UnreliableCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = TopicPartition("t", 1)
    offsets = {LATEST: {PARTITION: 100, new: 1_000_500}, EARLIEST: {PARTITION: 0, new: 1_000_000}}
    monkeypatch.setattr(cluster, "list_offsets", lambda times, *_: offsets[times[PARTITION]])
    stream = Stream(cluster, OPTIONS)
    stream.fix_target()
    cluster.is_down = True
    assert stream.next_end({PARTITION: 0}, ReadMaxRows(300)) == {PARTITION: 50, new: 1_000_250}
