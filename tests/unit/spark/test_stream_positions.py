"""How far the next batch of a stream may read."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from moldau.base.ids import TopicPartition
from moldau.client.cluster import EARLIEST, LATEST, Cluster, Offsets, Unreachable
from moldau.spark.options import read_options
from moldau.spark.positions import Stream

WHERE = TopicPartition("t", 0)
OPTIONS = read_options({"kafka.bootstrap.servers": "localhost:9", "assign": '{"t": [0]}'}, is_stream=True)


class Away(Cluster):
    """A cluster that ends at 100, and does not answer any more once it is told to go."""

    is_away = False

    def latest(self, partitions: object, read_committed: bool = False) -> Offsets:
        if self.is_away:
            raise Unreachable("No broker answers")
        return {WHERE: 100}

    def list_offsets(self, at: object, read_committed: bool = False) -> Offsets:
        return self.latest(at)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Away:
    import moldau.spark.positions as positions

    monkeypatch.setattr(positions, "subscribed_partitions", lambda cluster, subscription: [WHERE])
    return Away("localhost:9", {})


def test_a_stream_without_end_waits_for_its_cluster(cluster: Away) -> None:
    stream = Stream(cluster, OPTIONS)
    assert stream.next_end({WHERE: 20}, ReadMaxRows(30)) == {WHERE: 50}
    cluster.is_away = True
    assert stream.next_end({WHERE: 50}, ReadAllAvailable()) == {WHERE: 50}


def test_a_new_partition_is_limited_from_its_earliest_offset_on(cluster: Away, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log may begin late: offsets that were deleted are no backlog."""
    new = TopicPartition("t", 1)
    monkeypatch.setattr(cluster, "latest", lambda *_: {WHERE: 100, new: 1_000_500})
    monkeypatch.setattr(cluster, "list_offsets", lambda *_: {new: 1_000_000})
    stream = Stream(cluster, OPTIONS)
    end = stream.next_end({WHERE: 0}, ReadMaxRows(300))
    assert end == {WHERE: 50, new: 1_000_250}


def test_a_stream_that_runs_until_it_has_caught_up_does_not_end_because_its_cluster_is_away(cluster: Away) -> None:
    """Spark takes an end that has not moved for the end of all."""
    stream = Stream(cluster, OPTIONS)
    stream.fix_target()
    cluster.is_away = True
    assert stream.next_end({WHERE: 20}, ReadMaxRows(30)) == {WHERE: 50}
    assert stream.next_end({WHERE: 50}, ReadMaxRows(80)) == {WHERE: 100}
    assert stream.next_end({WHERE: 100}, ReadMaxRows(80)) == {WHERE: 100}


def test_a_new_partition_of_the_target_begins_at_its_earliest_offset_while_the_cluster_is_away(
    cluster: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = TopicPartition("t", 1)
    offsets = {LATEST: {WHERE: 100, new: 1_000_500}, EARLIEST: {WHERE: 0, new: 1_000_000}}
    monkeypatch.setattr(cluster, "list_offsets", lambda times, *_: offsets[times[WHERE]])
    stream = Stream(cluster, OPTIONS)
    stream.fix_target()
    cluster.is_away = True
    assert stream.next_end({WHERE: 0}, ReadMaxRows(300)) == {WHERE: 50, new: 1_000_250}
