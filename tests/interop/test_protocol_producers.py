"""InitProducerId without transactions, DescribeProducers and DescribeLogDirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from batches import batch, now_ms
from kio.schema.errors import ErrorCode
from protocol_requests import new_producer, produce
from wire_client import Wire, message

CreateTopic = Callable[..., str]


@pytest.fixture
def name(create_topic: CreateTopic) -> str:
    return create_topic()


def init(wire: Wire, version: int = 4, **fields: Any) -> Any:
    return wire.ask(
        message("init_producer_id", version, **({"transactional_id": None, "transaction_timeout": 1000} | fields))
    )


@pytest.mark.parametrize("version", range(6))
def test_every_version_returns_a_producer_id(wire: Wire, version: int) -> None:
    answer = init(wire, version)
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    assert answer.producer_id >= 0


def test_the_timeout_is_ignored_without_a_transactional_id(wire: Wire) -> None:
    assert init(wire, transaction_timeout=-1).error_code == 0


def test_an_empty_transactional_id_is_refused(wire: Wire) -> None:
    answer = init(wire, transactional_id="")
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.invalid_request, -1, -1)


def test_a_producer_id_without_its_epoch_is_refused(wire: Wire) -> None:
    """With both, a producer that requests a new epoch gets a new id instead: only transactions keep theirs."""
    assert init(wire, producer_id=5, producer_epoch=-1).error_code == ErrorCode.invalid_request
    assert init(wire, producer_id=-1, producer_epoch=5).error_code == ErrorCode.invalid_request
    pid, epoch = new_producer(wire)
    answer = init(wire, producer_id=pid, producer_epoch=epoch)
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    assert answer.producer_id > pid


def active(wire: Wire, name: str, partition: int = 0) -> Any:
    topics = [{"name": name, "partition_indexes": [partition]}]
    return wire.ask(message("describe_producers", 0, topics=topics)).topics[0].partitions[0]


def test_active_producers_of_a_partition(wire: Wire, name: str) -> None:
    assert active(wire, name).active_producers == ()
    produce(wire, name, batch([b"v"]))
    assert active(wire, name).active_producers == (), "a producer without an id leaves no trace"
    (first, _), (second, _) = new_producer(wire), new_producer(wire)
    stamp = now_ms() - 5000
    produce(wire, name, batch([b"v"] * 3, pid=first, epoch=0, seq=0, timestamps=[stamp, stamp + 2, stamp + 1]))
    produce(wire, name, batch([b"v"], pid=second, epoch=7, seq=9))
    shown = {state.producer_id: state for state in active(wire, name).active_producers}
    assert shown.keys() == {first, second}
    assert (shown[first].producer_epoch, shown[first].last_sequence, shown[first].last_timestamp) == (0, 2, stamp + 2)
    assert (shown[second].producer_epoch, shown[second].last_sequence) == (7, 9)
    assert {(state.coordinator_epoch, state.current_txn_start_offset) for state in shown.values()} == {(-1, -1)}


def test_producers_of_unknown_partitions_are_refused(wire: Wire, name: str, topic: Callable[[], str]) -> None:
    assert active(wire, name, 77).error_code == ErrorCode.unknown_topic_or_partition
    assert active(wire, topic()).error_code == ErrorCode.unknown_topic_or_partition
    assert active(wire, "not/valid").error_code == ErrorCode.invalid_topic_exception


def log_dirs(wire: Wire, topics: list[dict[str, Any]] | None, version: int = 4) -> Any:
    (directory,) = wire.ask(message("describe_log_dirs", version, topics=topics)).results
    assert directory.error_code == 0
    return directory


@pytest.mark.parametrize("version", range(1, 5))
def test_log_dirs(wire: Wire, name: str, version: int) -> None:
    sent = batch([b"v" * 100])
    produce(wire, name, sent)
    (shown,) = log_dirs(wire, [{"topic": name, "partitions": [0]}], version).topics
    (partition,) = shown.partitions
    assert (shown.name, partition.partition_index, partition.partition_size) == (name, 0, len(sent))
    assert (partition.offset_lag, partition.is_future_key) == (0, False)


def test_log_dirs_of_unknown_no_and_all_topics(wire: Wire, name: str, topic: Callable[[], str]) -> None:
    """Missing topics are left out; an empty list requests only the directory, null everything in it."""
    assert log_dirs(wire, [{"topic": topic(), "partitions": [0]}]).topics == ()
    (shown,) = log_dirs(wire, [{"topic": name, "partitions": [0, 77]}]).topics
    assert [partition.partition_index for partition in shown.partitions] == [0]
    assert log_dirs(wire, []).topics == ()
    everything = log_dirs(wire, None)
    assert name in {shown.name for shown in everything.topics}
    assert 0 < everything.usable_bytes <= everything.total_bytes
