"""Produce: a slow batch (many records to read) is opened in a thread; order, errors and changes in the meantime."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import Any

import pytest
from harness.in_memory_node import InMemoryNode
from harness.turns_of_requests import HeldThreads

from moldau.base.errors import ErrorCode, MalformedData
from moldau.base.promise import Promise
from moldau.log.validate import decoded_records
from moldau.server.conversation import LongReply
from moldau.server.handler import Caller
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.wire.records import NEXT_OFFSET, Record, build_batch

MANY = 2_000
TWO_HOURS_MS = 7_200_000


class SlowNode:
    """A node that opens slow batches in threads whose work the test runs."""

    def __init__(self) -> None:
        self.node = InMemoryNode().start()
        self.node.create_topic("compacted", 2, cleanup_policy="compact")
        self.node.create_topic("plain", 1)
        self.threads = HeldThreads()
        self.node.produce._run_codec = self.threads  # type: ignore[attr-defined]

    def batch(self, count: int = MANY, key: bytes | None = b"k", late_ms: int = 0, **header: Any) -> memoryview:
        timestamp = self.node.clock.now_ms() + late_ms
        return memoryview(build_batch([Record(NEXT_OFFSET, timestamp, key, b"v")] * count, **header))

    def produce(self, *batches: tuple[str, int, memoryview], acks: int = 1, version: int = 9) -> Any:
        topics = [TopicProduceData(name=name, partition_data=[PartitionProduceData(*data)]) for name, *data in batches]
        request = ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=topics)
        return self.node.produce.answer(request, Caller("PLAINTEXT", "test:1", "test", version))

    def open_next(self) -> None:
        done = self.threads.run_next()
        assert done is not None
        done.complete(None)
        self.node.timers.run_soon()

    def end_offsets(self) -> list[int]:
        return [
            self.node.partition(*each).log.end_offset for each in (("compacted", 0), ("compacted", 1), ("plain", 0))
        ]


@pytest.fixture
def slow() -> SlowNode:
    return SlowNode()


def results(answer: Any) -> list[tuple[int, int]]:
    response = answer.value() if isinstance(answer, Promise) else answer
    return [(each.error_code, each.base_offset) for topic in response.responses for each in topic.partition_responses]


def test_a_slow_batch_is_appended_when_a_thread_has_opened_it(slow: SlowNode) -> None:
    few = slow.batch(1)
    reply = slow.produce(("compacted", 0, slow.batch()), ("plain", 0, slow.batch()), ("compacted", 1, few))
    assert slow.end_offsets() == [0, 1, MANY], "batches that need no thread are appended at once"
    assert isinstance(reply, LongReply)
    assert not reply.handled.done, "later requests of the connection wait"
    slow.open_next()
    assert reply.handled.done
    assert slow.end_offsets() == [MANY, 1, MANY]
    assert results(reply) == [(0, 0), (0, 0), (0, 0)]


def test_the_buffer_of_the_connection_may_be_reused_while_a_batch_is_opened(slow: SlowNode) -> None:
    shared = slow.batch()
    reply = slow.produce(("compacted", 0, shared))
    shared[:] = bytes(len(shared))
    slow.open_next()
    assert results(reply) == [(0, 0)]


def test_errors_of_slow_batches_are_reported_by_partition(slow: SlowNode) -> None:
    reply = slow.produce(("compacted", 0, slow.batch(key=None)), ("plain", 0, slow.batch(late_ms=TWO_HOURS_MS)))
    slow.open_next()
    slow.open_next()
    assert [code for code, _ in results(reply)] == [ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP]
    assert slow.end_offsets() == [0, 0, 0]


def test_with_acks_0_an_error_closes_the_connection(slow: SlowNode) -> None:
    reply = slow.produce(("compacted", 0, slow.batch(key=None)), acks=0)
    slow.open_next()
    assert isinstance(reply.value(), MalformedData)


def test_a_repeated_slow_batch_is_appended_once(slow: SlowNode) -> None:
    for _ in range(2):
        reply = slow.produce(("compacted", 0, slow.batch(producer_id=7, producer_epoch=0, base_sequence=0)))
        slow.open_next()
        assert results(reply) == [(0, 0)]
    assert slow.end_offsets()[0] == MANY


def test_a_config_changed_while_a_batch_is_opened_is_applied(slow: SlowNode) -> None:
    reply = slow.produce(("compacted", 0, slow.batch()))
    log = slow.node.partition("compacted", 0).log
    log.update_config(replace(log.config, compression_type="gzip"))
    slow.open_next()
    assert results(reply) == [(0, 0)]
    piece = log.read(0, 1 << 20, MANY)
    assert piece is not None
    assert piece.length < 5_000, "the batch is stored with the new codec"


def test_a_topic_deleted_while_a_batch_is_opened_is_reported_as_unknown(slow: SlowNode) -> None:
    reply = slow.produce(("compacted", 0, slow.batch()))
    slow.node.delete_topic("compacted")
    slow.open_next()
    assert results(reply) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]


def test_a_topic_recreated_while_a_batch_is_opened_validates_it_again(slow: SlowNode) -> None:
    slow.node.create_topic("gzip", compression_type="gzip")
    reply = slow.produce(("gzip", 0, slow.batch(20_000, key=None)))
    slow.node.delete_topic("gzip")
    slow.node.create_topic("gzip", cleanup_policy="compact")
    slow.open_next()
    assert [code for code, _ in results(reply)] == [ErrorCode.INVALID_RECORD]


def test_leadership_and_permission_are_checked_before_records_are_opened(slow: SlowNode) -> None:
    partition = slow.node.partition("compacted", 0)
    partition.is_leader = False
    assert results(slow.produce(("compacted", 0, slow.batch()))) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    in_transaction = slow.batch(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    reply = slow.produce(("compacted", 1, in_transaction))
    assert results(reply) == [(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)]


def test_an_old_client_may_produce_to_a_zstd_topic(slow: SlowNode) -> None:
    slow.node.create_topic("zstd", compression_type="zstd")
    reply = slow.produce(("zstd", 0, slow.batch(20_000)), version=6)
    slow.open_next()
    assert results(reply) == [(0, 0)]


def test_bytes_in_counts_the_bytes_that_were_sent(slow: SlowNode) -> None:
    slow.node.create_topic("gzip", compression_type="gzip")
    batch = slow.batch(20_000)
    for _ in range(2):
        slow.produce(("gzip", 0, batch))
        slow.open_next()
    slow.produce(("compacted", 0, slow.batch(key=None)))
    slow.open_next()
    assert slow.node.partition("gzip").traffic.bytes_in == 2 * len(batch)
    refused = slow.node.partition("compacted", 0).traffic
    assert (refused.produces, refused.failed_produces, refused.bytes_in) == (1, 1, 0)


def test_the_records_of_a_refused_batch_are_freed_at_once(slow: SlowNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a garbage collection: one client that sends bad batches must not fill the memory."""
    opened: list[weakref.ref[Any]] = []

    class Records(list[Record]):
        pass

    def decoded(*arguments: Any) -> Records:
        records = Records(decoded_records(*arguments))
        opened.append(weakref.ref(records))
        return records

    monkeypatch.setattr("moldau.log.opening.decoded_records", decoded)
    gc.disable()
    try:
        reply = slow.produce(("compacted", 0, slow.batch(key=None)))
        slow.open_next()
        assert results(reply)[0][0] == ErrorCode.INVALID_RECORD
        assert [each() for each in opened] == [None]
    finally:
        gc.enable()


def test_many_partitions_with_slow_batches_are_appended_in_order(slow: SlowNode) -> None:
    slow.node.create_topic("wide", 300, cleanup_policy="compact")
    batches = [("wide", index, slow.batch(1 if index % 100 else MANY)) for index in range(300)]
    reply = slow.produce(*batches)
    for number in range(3):
        while slow.node.timers.run_one_soon():
            pass
        ends = [slow.node.partition("wide", index).log.end_offset for index in range(300)]
        assert ends.index(0) == 100 * number, "partitions after a slow batch wait"
        assert set(ends[100 * number :]) == {0}
        slow.open_next()
    slow.node.timers.run_soon()
    assert results(reply) == [(0, 0)] * 300
