"""Commits of the offsets of thousands of partitions: prepared in turns, written all or nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coordinator_node import PUBLIC, CoordinatorNode
from in_memory_node import InMemoryNode
from operations import operations_of

from moldau.base.errors import ErrorCode
from moldau.base.persistent_map import PersistentMap
from moldau.base.promise import Promise
from moldau.base.topic_names import CONSUMER_OFFSETS_TOPIC
from moldau.log.log import Log
from moldau.server.conversation import LongReply
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.batch import read_header
from moldau.wire.messages.init_producer_id import InitProducerIdRequest
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.wire.schema import Message

PARTITIONS = 8_000
LINES_A_TURN = 300_000
"""In one turn these commits take 800,000 and more. The batch of all offsets is still built in one."""


def long_node() -> CoordinatorNode:
    node = CoordinatorNode()
    grow(node)
    return node


def grow(node: CoordinatorNode) -> None:
    """Let a topic seem to have many partitions, until the next change of the image."""
    current = node.in_memory.current
    topic = current.image.topics[PUBLIC]
    topics = dict(current.image.topics.items())
    topics[PUBLIC] = replace(topic, partitions=topic.partitions * (PARTITIONS // 2))
    current.image = replace(current.image, topics=PersistentMap(topics))


def begin(node: CoordinatorNode, api: ApiKey, request: Message, version: int) -> Any:
    handler = node._handlers[api]
    return handler.answer(request, Caller("PLAINTEXT", "test:1", "test", version))


def commit(*names: str) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(index, index + 1, -1, "") for index in range(PARTITIONS)]
    few = partitions[:1]
    topics = [OffsetCommitRequestTopic(name=name, partitions=few) for name in names]
    return OffsetCommitRequest("g", topics=[*topics, OffsetCommitRequestTopic(name=PUBLIC, partitions=partitions)])


def transactional_commit(producer_id: int, epoch: int) -> TxnOffsetCommitRequest:
    partitions = [TxnOffsetCommitRequestPartition(index, index + 1, -1, "") for index in range(PARTITIONS)]
    return TxnOffsetCommitRequest(
        "tx", "g", producer_id, epoch, topics=[TxnOffsetCommitRequestTopic(PUBLIC, partitions)]
    )


def turns_until(node: InMemoryNode, answer: Promise[Any]) -> list[int]:
    turns = []
    while not answer.done:
        if node.timers._soon:
            turns.append(operations_of(node.timers.run_one_soon))
        else:
            assert node.flusher.requested
            node.flush()
    return turns


def written(node: CoordinatorNode) -> list[int]:
    """Return the number of records of each batch in the logs of the offsets."""
    counts = []
    for index in range(2):
        log: Log = node.in_memory.partition(CONSUMER_OFFSETS_TOPIC, index).log
        piece = log.read(0, 1 << 30, log.end_offset)
        content = b"" if piece is None else piece.read()
        while content:
            header = read_header(content)
            counts.append(header.record_count)
            content = content[header.size_in_bytes :]
    return counts


def committed(node: CoordinatorNode) -> int:
    response = node.ask_as_admin(
        ApiKey.OFFSET_FETCH, OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)]), 9
    )
    return sum(len(topic.partitions) for topic in response.groups[0].topics)


def test_a_long_commit_is_prepared_in_turns_and_is_one_batch() -> None:
    node = long_node()
    reply = begin(node, ApiKey.OFFSET_COMMIT, commit("missing"), 9)
    assert isinstance(reply, LongReply)
    turns = turns_until(node.in_memory, reply)
    assert max(turns) < LINES_A_TURN
    assert len(turns) > 15
    response = reply.value()
    codes = [[each.error_code for each in topic.partitions] for topic in response.topics]
    assert codes == [[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], [ErrorCode.NONE] * PARTITIONS]
    assert [each.partition_index for each in response.topics[1].partitions] == list(range(PARTITIONS))
    assert written(node) == [PARTITIONS]
    assert committed(node) == PARTITIONS


def test_nothing_of_a_long_commit_is_written_before_all_is_checked() -> None:
    node = long_node()
    reply = begin(node, ApiKey.OFFSET_COMMIT, replace_member(commit()), 9)
    while not reply.handled.done:
        assert not written(node)
        node.in_memory.timers.run_one_soon()
    node.run_until_idle()
    codes = {each.error_code for topic in reply.value().topics for each in topic.partitions}
    assert codes == {ErrorCode.GROUP_ID_NOT_FOUND}
    assert not written(node)


def replace_member(request: OffsetCommitRequest) -> OffsetCommitRequest:
    request.member_id, request.generation_id_or_member_epoch = "gone", 5
    return request


def test_offsets_of_a_topic_that_is_deleted_meanwhile_are_not_committed() -> None:
    node = long_node()
    reply = begin(node, ApiKey.OFFSET_COMMIT, commit(), 9)
    for _ in range(5):
        node.in_memory.timers.run_one_soon()
    node.in_memory.delete_topic(PUBLIC)
    node.run_until_idle()
    codes = {each.error_code for topic in reply.value().topics for each in topic.partitions}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert committed(node) == 0


def test_a_long_commit_of_a_transaction_is_prepared_in_turns() -> None:
    node = CoordinatorNode()
    producer = node.ask_as_admin(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("tx", 60_000), 5)
    grow(node)
    request = transactional_commit(producer.producer_id, producer.producer_epoch)
    reply = begin(node, ApiKey.TXN_OFFSET_COMMIT, request, 5)
    turns = turns_until(node.in_memory, reply)
    assert max(turns) < 2 * LINES_A_TURN
    assert len(turns) > 15
    codes = {each.error_code for topic in reply.value().topics for each in topic.partitions}
    assert codes == {ErrorCode.NONE}
    assert written(node) == [PARTITIONS]
    assert committed(node) == 0, "the transaction is open"
