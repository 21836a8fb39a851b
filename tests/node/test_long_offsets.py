"""Offsets of thousands of partitions are committed, fetched and deleted in turns, and written all or not at all.

Without more depth named partitions are read in the first and in the last version, which has another form.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from harness.coordinator_node import PUBLIC, CoordinatorNode
from harness.depth import few
from harness.in_memory_node import InMemoryNode
from harness.operations import operations_of

from moldau.base.errors import ErrorCode
from moldau.base.ids import ZERO_UUID
from moldau.base.persistent_map import PersistentMap
from moldau.base.promise import Promise
from moldau.base.topic_names import CONSUMER_OFFSETS_TOPIC
from moldau.log.log import Log
from moldau.metadata.apply import Changes
from moldau.server.conversation import LongReply
from moldau.wire.apis import ApiKey
from moldau.wire.batch import read_header
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.wire.messages.delete_groups import DeleteGroupsRequest
from moldau.wire.messages.init_producer_id import InitProducerIdRequest
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

PARTITIONS = 8_000
LINES_A_TURN = 300_000
"""In one turn these commits take 800,000 and more. The batch of all offsets is still built in one."""
EIGHT_DAYS_MS = 8 * 24 * 3_600_000
"""More than `offsets.retention.minutes`."""
READ_LINES_A_TURN = 60_000
"""In one turn these fetches take 100,000 to 1,000,000 lines."""


def node_with_many_partitions() -> CoordinatorNode:
    node = CoordinatorNode()
    grow(node)
    return node


def grow(node: CoordinatorNode) -> None:
    """Make a topic appear to have many partitions, until the next change of the metadata image."""
    current = node.in_memory.current
    topic = current.image.topics[PUBLIC]
    topics = dict(current.image.topics.items())
    topics[PUBLIC] = replace(topic, partitions=topic.partitions * (PARTITIONS // 2))
    current.image = replace(current.image, topics=PersistentMap(topics))


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


def batch_sizes(node: CoordinatorNode) -> list[int]:
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


def committed_count(node: CoordinatorNode) -> int:
    response = node.ask_as_admin(
        ApiKey.OFFSET_FETCH, OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)]), 9
    )
    return sum(len(topic.partitions) for topic in response.groups[0].topics)


def test_a_long_commit_is_prepared_in_turns_and_is_one_batch() -> None:
    node = node_with_many_partitions()
    reply = node.begin(ApiKey.OFFSET_COMMIT, commit("missing"), 9)
    assert isinstance(reply, LongReply)
    turns = turns_until(node.in_memory, reply)
    assert max(turns) < LINES_A_TURN
    assert len(turns) > 15
    response = reply.value()
    codes = [[each.error_code for each in topic.partitions] for topic in response.topics]
    assert codes == [[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], [ErrorCode.NONE] * PARTITIONS]
    assert [each.partition_index for each in response.topics[1].partitions] == list(range(PARTITIONS))
    assert batch_sizes(node) == [PARTITIONS]
    assert committed_count(node) == PARTITIONS


def test_a_commit_too_large_for_one_batch_is_refused_in_turns() -> None:
    node = node_with_many_partitions()
    request = commit()
    request.topics = [*request.topics] * 7
    answer = node.begin(ApiKey.OFFSET_COMMIT, request, 9)
    turns = turns_until(node.in_memory, answer)
    assert max(turns) < LINES_A_TURN
    codes = {each.error_code for topic in answer.value().topics for each in topic.partitions}
    assert codes == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert committed_count(node) == 0


def test_nothing_of_a_long_commit_is_written_before_all_is_checked() -> None:
    node = node_with_many_partitions()
    reply = node.begin(ApiKey.OFFSET_COMMIT, with_unknown_member(commit()), 9)
    while not reply.handled.done:
        assert not batch_sizes(node)
        node.in_memory.timers.run_one_soon()
    node.run_until_idle()
    codes = {each.error_code for topic in reply.value().topics for each in topic.partitions}
    assert codes == {ErrorCode.GROUP_ID_NOT_FOUND}
    assert not batch_sizes(node)


def with_unknown_member(request: OffsetCommitRequest) -> OffsetCommitRequest:
    request.member_id, request.generation_id_or_member_epoch = "unknown", 5
    return request


def test_offsets_of_a_topic_that_is_deleted_meanwhile_are_not_committed() -> None:
    node = node_with_many_partitions()
    reply = node.begin(ApiKey.OFFSET_COMMIT, commit(), 9)
    for _ in range(5):
        node.in_memory.timers.run_one_soon()
    node.in_memory.delete_topic(PUBLIC)
    node.run_until_idle()
    codes = {each.error_code for topic in reply.value().topics for each in topic.partitions}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert committed_count(node) == 0


def test_a_long_commit_of_a_transaction_is_prepared_in_turns() -> None:
    node = CoordinatorNode()
    producer = node.ask_as_admin(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("tx", 60_000), 5)
    grow(node)
    request = transactional_commit(producer.producer_id, producer.producer_epoch)
    reply = node.begin(ApiKey.TXN_OFFSET_COMMIT, request, 5)
    turns = turns_until(node.in_memory, reply)
    assert max(turns) < 2 * LINES_A_TURN
    assert len(turns) > 15
    codes = {each.error_code for topic in reply.value().topics for each in topic.partitions}
    assert codes == {ErrorCode.NONE}
    assert batch_sizes(node) == [PARTITIONS]
    assert committed_count(node) == 0, "the transaction is open"


# --- fetches ----------------------------------------------------------------------------------------------------


def node_with_offsets() -> CoordinatorNode:
    """A node on which group `g` has committed the offsets of all partitions."""
    node = node_with_many_partitions()
    node.begin(ApiKey.OFFSET_COMMIT, commit(), 9)
    node.run_until_idle()
    return node


def fetch_in_turns(node: CoordinatorNode, request: OffsetFetchRequest, version: int) -> Any:
    """Send a request and check each turn until it is answered; return the response."""
    replies: list[Any] = []
    first = operations_of(lambda: replies.append(node.begin(ApiKey.OFFSET_FETCH, request, version)))
    assert isinstance(replies[0], LongReply)
    turns = [first, *turns_until(node.in_memory, replies[0])]
    assert max(turns) < READ_LINES_A_TURN
    assert len(turns) > 3
    return replies[0].value()


@pytest.fixture(scope="module")
def committed() -> CoordinatorNode:
    """For tests that change nothing."""
    return node_with_offsets()


def test_a_group_named_many_times_is_answered_once(committed: CoordinatorNode) -> None:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)] * 50_000)
    response = fetch_in_turns(committed, request, 9)
    assert [group.group_id for group in response.groups] == ["g"]
    assert sum(len(topic.partitions) for topic in response.groups[0].topics) == PARTITIONS


def test_all_offsets_of_a_group_are_read_in_turns(committed: CoordinatorNode) -> None:
    for version in (2, 7):
        response = fetch_in_turns(committed, OffsetFetchRequest(group_id="g", topics=None), version)
        offsets = [each.committed_offset for topic in response.topics for each in topic.partitions]
        assert offsets == list(range(1, PARTITIONS + 1))


@pytest.mark.parametrize("version", few((1, 10), of=(1, 7, 9, 10)))
def test_offsets_of_named_partitions_are_read_in_turns(committed: CoordinatorNode, version: int) -> None:
    indexes = list(range(20_000))
    if version < 8:
        request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(PUBLIC, indexes)])
        topics = fetch_in_turns(committed, request, version).topics
    else:
        topic = OffsetFetchRequestTopics(committed.ids[PUBLIC] if version >= 10 else ZERO_UUID, PUBLIC, indexes)
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=[topic])])
        topics = fetch_in_turns(committed, request, version).groups[0].topics
    offsets = [(each.partition_index, each.committed_offset) for topic in topics for each in topic.partitions]
    assert offsets == [(index, index + 1 if index < PARTITIONS else -1) for index in indexes]


def test_a_partition_named_many_times_is_answered_once(committed: CoordinatorNode) -> None:
    """Its metadata may have kilobytes: repeated, the response would be a thousand times as large as the request."""
    topics = [OffsetFetchRequestTopics(name=PUBLIC, partition_indexes=[5, 5]) for _ in range(10_000)]
    response = fetch_in_turns(committed, OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics)]), 9)
    partitions = [each.partition_index for topic in response.groups[0].topics for each in topic.partitions]
    assert partitions == [5]


def test_a_refused_fetch_of_many_partitions_is_answered_in_turns() -> None:
    node = CoordinatorNode(has_coordinators=False)
    request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("t", list(range(20_000)))] * 3)
    response = fetch_in_turns(node, request, 1)
    codes = [each.error_code for topic in response.topics for each in topic.partitions]
    assert codes == [ErrorCode.NOT_COORDINATOR] * 60_000


def test_offsets_deleted_while_they_are_read_are_returned_as_missing() -> None:
    node = node_with_offsets()
    reply = node.begin(ApiKey.OFFSET_FETCH, OffsetFetchRequest(group_id="g", topics=None), 7)
    node.begin(ApiKey.OFFSET_DELETE, deletion(range(PARTITIONS - 100, PARTITIONS)), 0)
    node.run_until_idle()
    offsets = [each.committed_offset for topic in reply.value().topics for each in topic.partitions]
    assert offsets == [*range(1, PARTITIONS - 99), *[-1] * 100]


def test_a_fetch_fails_if_its_coordinator_is_dropped_meanwhile() -> None:
    """The offsets that it has read may never have been committed."""
    node = node_with_offsets()
    reply = node.begin(ApiKey.OFFSET_FETCH, OffsetFetchRequest(group_id="g", topics=None), 7)
    shards = node.groups.shards
    for index, local in list(shards._shards.items()):
        shards._open(index, local.shard.partition)
    node.run_until_idle()
    assert reply.value().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert committed_count(node) == PARTITIONS


# --- deletions --------------------------------------------------------------------------------------------------


def deletion(indexes: Iterable[int], *more: OffsetDeleteRequestTopic) -> OffsetDeleteRequest:
    topic = OffsetDeleteRequestTopic(PUBLIC, [OffsetDeleteRequestPartition(index) for index in indexes])
    return OffsetDeleteRequest("g", [topic, *more])


def test_many_offsets_are_deleted_in_turns_and_in_one_batch() -> None:
    node = node_with_offsets()
    before = batch_sizes(node)
    twice = OffsetDeleteRequestTopic(PUBLIC, [OffsetDeleteRequestPartition(1)] * 10_000)
    missing = OffsetDeleteRequestTopic("missing", [OffsetDeleteRequestPartition(0)])
    request = deletion(range(PARTITIONS - 1), missing, *[twice] * 20)
    replies: list[Any] = []
    first = operations_of(lambda: replies.append(node.begin(ApiKey.OFFSET_DELETE, request, 0)))
    turns = [first, *turns_until(node.in_memory, replies[0])]
    assert max(turns) < 2 * LINES_A_TURN, "all tombstones are applied in one turn"
    assert max(turns[:-3]) < READ_LINES_A_TURN, "the turns before the tombstones are applied, written and answered"
    assert len(turns) > 15
    codes = [{each.error_code for each in topic.partitions} for topic in replies[0].value().topics]
    assert codes == [{ErrorCode.NONE}, {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, *[{ErrorCode.NONE}] * 20]
    assert batch_sizes(node) == [*before, PARTITIONS - 1]
    assert committed_count(node) == 1


def test_no_offset_is_deleted_if_a_member_subscribes_meanwhile() -> None:
    node = node_with_offsets()
    reply = node.begin(ApiKey.OFFSET_DELETE, deletion(range(PARTITIONS)), 0)
    join = ConsumerGroupHeartbeatRequest(
        "g", "m", rebalance_timeout_ms=1_000, subscribed_topic_names=[PUBLIC], topic_partitions=[]
    )
    joined = node.begin(ApiKey.CONSUMER_GROUP_HEARTBEAT, join, 1)
    node.run_until_idle()
    assert joined.value().error_code == 0
    assert reply.value().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert committed_count(node) == PARTITIONS


def test_a_deletion_too_large_for_one_batch_is_written_in_several() -> None:
    node = node_with_offsets()
    for index in range(2):
        log = node.in_memory.partition(CONSUMER_OFFSETS_TOPIC, index).log
        log.config = replace(log.config, max_message_bytes=100_000)
    before = batch_sizes(node)
    reply = node.begin(ApiKey.OFFSET_DELETE, deletion(range(PARTITIONS)), 0)
    node.run_until_idle()
    assert {each.error_code for each in reply.value().topics[0].partitions} == {ErrorCode.NONE}
    batches = batch_sizes(node)[len(before) :]
    assert (sum(batches), len(batches) > 1) == (PARTITIONS, True)
    assert committed_count(node) == 0


# --- expiration -------------------------------------------------------------------------------------------------


def test_groups_with_many_offsets_are_deleted_in_turns() -> None:
    node = node_with_many_partitions()
    names = [f"g{number}" for number in range(40)]
    for name in names:
        request = commit()
        request.group_id, request.topics[0].partitions = name, request.topics[0].partitions[:500]
        node.ask_as_admin(ApiKey.OFFSET_COMMIT, request, 9)
    answer = node.begin(ApiKey.DELETE_GROUPS, DeleteGroupsRequest(names), 2)
    turns = turns_until(node.in_memory, answer)
    assert max(turns) < READ_LINES_A_TURN
    assert len(turns) > 5
    assert [(each.group_id, each.error_code) for each in answer.value().results] == [(name, 0) for name in names]


def test_offsets_expire_in_turns() -> None:
    node = node_with_offsets()
    groups = node.groups
    node.in_memory.clock.move(EIGHT_DAYS_MS)
    turns = [operations_of(groups.expire_offsets)]
    operations = operations_of(groups.expire_offsets)
    assert operations < 20, "a second expiration does not begin before the first has ended"
    recommitted = OffsetCommitRequestTopic(name=PUBLIC, partitions=[OffsetCommitRequestPartition(PARTITIONS - 1, 5)])
    node.begin(ApiKey.OFFSET_COMMIT, OffsetCommitRequest("g", topics=[recommitted]), 9)
    while groups.shards._submitting is not None and groups.shards._submitting.is_running:
        turns.append(operations_of(node.in_memory.timers.run_one_soon))
    assert max(turns) < 2 * READ_LINES_A_TURN
    assert len(turns) > PARTITIONS // 1_000
    node.run_until_idle()
    assert committed_count(node) == 1
    node.in_memory.clock.move(EIGHT_DAYS_MS)
    groups.expire_offsets()
    node.run_until_idle()
    assert (committed_count(node), [*groups.shards.ready_machines()[0].state.groups]) == (0, [])


def test_offsets_of_a_deleted_topic_are_removed_in_turns() -> None:
    node = node_with_offsets()
    groups, current = node.groups, node.in_memory.current
    topics = dict(current.image.topics.items())
    removed = topics.pop(PUBLIC)
    current.image = replace(current.image, topics=PersistentMap(topics))
    groups.on_image(current.image, Changes(removed=[removed]))
    turns: list[int] = []
    while node.in_memory.timers._soon:
        turns.append(operations_of(node.in_memory.timers.run_one_soon))
    assert max(turns) < READ_LINES_A_TURN
    assert len(turns) > PARTITIONS // 200
    assert committed_count(node) == 0
