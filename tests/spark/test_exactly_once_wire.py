"""The sink's commit against a real broker, without Spark: a driver killed at every step, two drivers of one query."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from commit_on_the_wire import STEPS, Sink, expected
from committed_records import committed_records
from pyspark.sql.datasource import WriterCommitMessage

from moldau.base.errors import ErrorCode, KafkaError
from moldau.spark.options import write_options
from moldau.spark.sink import TopicWriter

GATES = [
    f"{when} {step}" for step in STEPS for when in ("before", "amid", "after") if when != "amid" or step == "write"
]


def seen(bootstrap: str, topics: list[str]) -> list[str]:
    return sorted((one.value() or b"").decode() for topic in topics for one in committed_records(bootstrap, topic))


@pytest.fixture
def topics(create_topic: Callable[[int], str]) -> list[str]:
    return [create_topic(2), create_topic(1)]


@pytest.fixture
def sink(bootstrap: str, topics: list[str], tmp_path: Path) -> Sink:
    return Sink(bootstrap, f"sink-{topics[0]}", topics, tmp_path)


def test_a_driver_killed_at_every_step_of_a_commit_leaves_each_batch_once(
    bootstrap: str, topics: list[str], sink: Sink
) -> None:
    """One batch after the other, each first by a driver that dies a step later than the last one did."""
    for batch_id, at in enumerate(GATES):
        assert sink.commit_and_die(batch_id, sink.staged(batch_id, attempt=1), at), f"the driver is killed {at}"
        is_new = sink.commit(batch_id, sink.staged(batch_id, attempt=2))
        assert is_new == (at != "after end"), f"after a driver that was killed {at}"
    assert seen(bootstrap, topics) == expected(range(len(GATES)))


@pytest.mark.parametrize("paused", [f"before {step}" for step in STEPS[1:]])
def test_a_paused_driver_writes_nothing_after_its_successor(
    bootstrap: str, topics: list[str], sink: Sink, paused: str
) -> None:
    """It is paused before a step, another driver writes the batch, then it continues."""
    successor = []

    def gate(step: str) -> None:
        if step == paused and not successor:
            successor.append(sink.commit(0, sink.staged(0, attempt=2)))

    first = sink.staged(0, attempt=1)
    if paused == "before last_micro_batch_id":
        assert sink.commit(0, first, gate) is False, "the batch is already committed"
    else:
        with pytest.raises(KafkaError, match="another run of this query has taken over") as refused:
            sink.commit(0, first, gate)
        assert refused.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert successor == [True]
    assert seen(bootstrap, topics) == expected([0])


def test_an_aborted_batch_is_invisible_at_once(bootstrap: str, topics: list[str], sink: Sink) -> None:
    """A failure that the driver survives does not leave readers waiting for a transaction to time out."""

    def gate(step: str) -> None:
        if step == "before commit_micro_batch_id":
            raise ConnectionError(step)

    with pytest.raises(ConnectionError):
        sink.commit(0, sink.staged(0, attempt=1), gate)
    assert seen(bootstrap, topics) == []


def written(bootstrap: str, topic: str, staging: Path, **options: str) -> tuple[TopicWriter, list[WriterCommitMessage]]:
    """What Spark does for a batch write, up to the point where all tasks are done."""
    given = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "stagingLocation": str(staging), **options}
    writer = TopicWriter(write_options(given))
    rows = pa.record_batch({"value": pa.array([b"1", b"2", b"3"])})
    return writer, [writer.write(iter([rows])), writer.write(iter([rows.slice(0, 0)]))]


def test_a_batch_write_in_one_transaction_is_visible_after_its_commit(
    bootstrap: str, topics: list[str], tmp_path: Path
) -> None:
    options = {"deliveryGuarantee": "exactly-once", "stagingInlineBytes": "0"}
    writer, messages = written(bootstrap, topics[0], tmp_path, **options)
    assert list(tmp_path.rglob("*.staged")), "records wait in a file"
    assert seen(bootstrap, topics) == []
    writer.commit([*messages])
    assert seen(bootstrap, topics) == ["1", "2", "3"]
    assert not list(tmp_path.iterdir())
    writer, messages = written(bootstrap, topics[0], tmp_path, **options)
    writer.abort([*messages, None])
    assert not list(tmp_path.iterdir())
    writer, messages = written(bootstrap, topics[0], tmp_path, **options)
    writer.commit([*messages])
    assert seen(bootstrap, topics) == ["1", "1", "2", "2", "3", "3"], "the same rows again are another write"


def test_a_batch_write_with_a_batch_id_is_written_once(bootstrap: str, topics: list[str], tmp_path: Path) -> None:
    for _ in range(2):
        writer, messages = written(bootstrap, topics[0], tmp_path, queryId=topics[0], batchId="4")
        writer.commit([*messages])
    assert seen(bootstrap, topics) == ["1", "2", "3"]
