"""ListOffsets by timestamp opens batches in a thread, one after the other."""

from __future__ import annotations

from typing import Any

import pytest
from harness.in_memory_node import InMemoryNode
from harness.turns_of_requests import HeldThreads

from moldau.base.errors import ErrorCode
from moldau.server.conversation import LongReply
from moldau.server.handler import Caller
from moldau.server.handlers.list_offsets import ListOffsets
from moldau.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic


@pytest.fixture
def node() -> InMemoryNode:
    node = InMemoryNode().start()
    node.create_topic("a", 3)
    for index in range(3):
        node.append("a", index, count=4)
    return node


def ask(node: InMemoryNode, threads: HeldThreads, timestamp: int) -> LongReply:
    partitions = [ListOffsetsPartition(index, -1, timestamp) for index in range(3)]
    request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("a", partitions)])
    handler = ListOffsets(node.partitions, node.timers, threads)
    reply = handler.answer(request, Caller("PLAINTEXT", "test:1", "test", 9))
    assert isinstance(reply, LongReply)
    return reply


def run_thread_work(node: InMemoryNode, threads: HeldThreads) -> int:
    count = 0
    while (done := threads.run_next()) is not None:
        assert threads.run_next() is None, "only one batch is opened at a time"
        count += 1
        done.complete(None)
        node.timers.run_soon()
    return count


@pytest.mark.parametrize("timestamp", [0, -3], ids=["time", "max timestamp"])
def test_list_offsets_by_time_opens_batches_in_a_thread(node: InMemoryNode, timestamp: int) -> None:
    threads = HeldThreads()
    reply: Any = ask(node, threads, timestamp)
    assert not reply.handled.done
    assert run_thread_work(node, threads) == 3
    now_ms = node.clock.now_ms()
    results = reply.value().topics[0].partitions
    assert [(each.error_code, each.timestamp, each.offset) for each in results] == [(0, now_ms, 0)] * 3


def test_a_partition_that_is_closed_meanwhile_is_not_read(node: InMemoryNode) -> None:
    threads = HeldThreads()
    reply: Any = ask(node, threads, 0)
    node.partition("a", 0).is_closed = True
    run_thread_work(node, threads)
    codes = [each.error_code for each in reply.value().topics[0].partitions]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, 0]


def test_a_corrupt_batch_is_reported(node: InMemoryNode) -> None:
    threads = HeldThreads()
    node.partition("a", 1).log.segments.active.file.pwrite(b"\xff", 70)
    reply: Any = ask(node, threads, 0)
    run_thread_work(node, threads)
    codes = [each.error_code for each in reply.value().topics[0].partitions]
    assert codes == [0, ErrorCode.CORRUPT_MESSAGE, 0]
