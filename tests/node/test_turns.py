"""No turn of the event loop does more than its budget of work, whatever a client asks for and however many partitions a
node has. Work is counted in lines of Python and file operations, never timed; `bench.stalls` measures milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import cast

import pytest
from harness import stall_requests
from harness.in_memory_node import InMemoryNode
from harness.operations import operations_of
from harness.turns_of_requests import turns_of

from moldau.base.connection_settings import ConnectionLimits
from moldau.base.ids import TopicPartition
from moldau.base.persistent_map import PersistentMap
from moldau.base.promise import Promise
from moldau.base.turns import LAID_OUT_A_TURN
from moldau.log.producers import ProducerEntry
from moldau.metadata.apply import Changes
from moldau.metadata.image import TopicImage
from moldau.metadata.records import ConfigResource
from moldau.replica.partition import Partition
from moldau.runtime.replication.fetcher import ReplicaFetcher
from moldau.runtime.replication.fetchers import _Assignment
from moldau.security.acls.access import UNRESTRICTED, Restricted
from moldau.security.acls.authorizer import Authorizer
from moldau.security.principals import Principal
from moldau.server.conversation import ConnectionBudget, Conversation, LongReply, Reply
from moldau.server.router import Router
from moldau.testing.ports import at_once
from moldau.wire.apis import ApiKey
from moldau.wire.codec import NO_REPLY, Outgoing
from moldau.wire.frames import read_response, request_frame
from moldau.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from moldau.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse, TopicRequest

PARTITIONS = 8_000
LINES_A_TURN = 80_000
"""A turn of 20 ms executes some 200,000 lines. Handled in one turn, these requests take 100,000 to 4,000,000."""
MORE_LINES = {"Produce": 120_000, "DeleteRecords": 140_000}
"""The batches of a long Produce are copied at once, and the audit log counts the lines that it does not write."""
METADATA_LINES_A_TURN = 150_000
"""The batch of all records of a decision is built at once. Decided in one turn, these requests take up to 1,500,000."""
BIG = "big"


@pytest.fixture(scope="module")
def node() -> InMemoryNode:
    """A node that appears to have many partitions: they are all the same one, which takes no time to create."""
    node = InMemoryNode(static={"auto.create.topics.enable": "false"}).start()
    node.create_topic(BIG)
    image, partition = node.current.image, node.partition(BIG)
    topic = image.topics[BIG]
    many = replace(topic, partitions=topic.partitions * PARTITIONS)
    node.current.publish(replace(image, topics=PersistentMap({BIG: many})), Changes())
    node.partitions._topics[BIG] = dict.fromkeys(range(PARTITIONS), partition)
    node.store._logs.update((TopicPartition(BIG, index), partition.log) for index in range(PARTITIONS))
    return node


def router_of(node: InMemoryNode) -> Router:
    side = node.assembly.broker_side
    assert side is not None
    return side.router


def largest_requests_of_big_topic() -> dict[str, bytes]:
    return dict(stall_requests.largest(BIG, PARTITIONS, [BIG], ["group"]))


SMALL = ("OffsetCommit", "OffsetFetch", "ListGroups", "DescribeGroups", "DescribeConfigs", "Metadata of 1 ")
"""Here these have one group and one topic; test_long_requests has many of them."""


@pytest.mark.parametrize("name", [name for name in largest_requests_of_big_topic() if not name.startswith(SMALL)])
def test_no_turn_of_a_request_exceeds_its_budget(node: InMemoryNode, name: str) -> None:
    turns, reply = turns_of(router_of(node), node.timers, largest_requests_of_big_topic()[name], node.flush)
    assert reply, "the connection would be closed"
    allowed = next((lines for prefix, lines in MORE_LINES.items() if name.startswith(prefix)), LINES_A_TURN)
    assert max(turns) < allowed
    assert len(turns) > 3


def test_log_directories_of_many_named_partitions_are_described_in_turns(node: InMemoryNode) -> None:
    topics = [DescribableLogDirTopic(name, range(20_000)) for name in (BIG, BIG, *"abcdefgh")]
    frame = request_frame(ApiKey.DESCRIBE_LOG_DIRS, 4, 7, "client", DescribeLogDirsRequest(topics))
    turns, reply = turns_of(router_of(node), node.timers, frame)
    assert max(turns) < LINES_A_TURN
    assert len(turns) > 200
    _, response = read_response(DescribeLogDirsResponse, memoryview(bytes(reply))[4:], ApiKey.DESCRIBE_LOG_DIRS, 4)
    (directory,) = response.results
    named = [(topic.name, [each.partition_index for each in topic.partitions]) for topic in directory.topics]
    assert named == [(BIG, [0])], "a partition that is named twice is described once"


def test_many_producers_of_a_partition_are_described_in_turns_and_once(node: InMemoryNode) -> None:
    producers = node.partition(BIG).log.producers
    producers.load([ProducerEntry(number, 0, 0) for number in range(10_000)])
    request = DescribeProducersRequest(
        [TopicRequest(BIG, [0] * 5_000), TopicRequest("none", [0]), TopicRequest(BIG, [0])]
    )
    frame = request_frame(ApiKey.DESCRIBE_PRODUCERS, 0, 7, "client", request)
    turns, reply = turns_of(router_of(node), node.timers, frame)
    producers.load([])
    assert max(turns) < LINES_A_TURN
    _, response = read_response(DescribeProducersResponse, memoryview(bytes(reply))[4:], ApiKey.DESCRIBE_PRODUCERS, 0)
    described = [(topic.name, [len(each.active_producers) for each in topic.partitions]) for topic in response.topics]
    assert described == [(BIG, [10_000]), ("none", [0])]


def test_housekeeping_of_all_partitions_takes_several_turns(node: InMemoryNode) -> None:
    side = node.assembly.broker_side
    assert side is not None
    keep = side.housekeeping
    passes: dict[str, Callable[[], None]] = {
        "flush": keep.flush_by_time,
        "producers": keep.expire_producers,
        "retention": lambda: keep.retain(at_once, pytest.fail),
        "purge": lambda: keep.purge(at_once, pytest.fail),
        "checkpoints": lambda: keep.write_checkpoints(at_once, pytest.fail),
    }
    for name, begin in passes.items():
        turns = [operations_of(begin)]
        while node.timers._soon:
            turns.append(operations_of(node.timers.run_one_soon))
        # Checkpoints are written and files removed in a thread; here that happens at once, in the last turn.
        assert max(turns[:-1]) < 20_000, name
        assert len(turns) >= 8, name


def test_new_configs_and_brokers_reach_all_partitions_in_turns(node: InMemoryNode) -> None:
    image, partitions = node.current.image, node.partitions
    for changes in (Changes(configs={(ConfigResource.BROKER, "")}), Changes(brokers={1})):
        turns = [operations_of(partial(partitions.on_image, image, changes, node.clock.now_ms()))]
        while partitions._updates:
            turns.append(operations_of(partitions.update_some))
        assert max(turns) < LINES_A_TURN
        assert len(turns) >= PARTITIONS / 500


def test_the_log_cleaner_checks_a_few_hundred_logs_per_turn(
    node: InMemoryNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = node.assembly.broker_side
    assert side is not None
    cleaner, log = side.cleaner, node.partition(BIG).log
    config = log.config
    log.update_config(replace(config, cleanup_policy=frozenset({"compact"})))
    turns: list[int] = []
    turns.append(operations_of(cleaner._look))
    while node.timers._soon:
        turns.append(operations_of(node.timers.run_one_soon))
    log.update_config(config)
    assert max(turns) < LINES_A_TURN
    assert len(turns) >= PARTITIONS / 500


class FakeFetcher:
    """A fetcher that counts the partitions that it no longer fetches."""

    leader_id = 7

    def __init__(self) -> None:
        self.removed = 0

    def remove(self, partition: Partition) -> None:
        self.removed += 1


def test_replica_fetchers_drop_deleted_topics_in_turns() -> None:
    node = InMemoryNode().start()
    node.create_topic(BIG)
    side, fetcher, count = node.assembly.broker_side, FakeFetcher(), 2_000
    assert side is not None
    assignment = _Assignment(node.partition(BIG), cast(ReplicaFetcher, fetcher))
    topics = [TopicImage(f"gone-{number}", bytes(16), ()) for number in range(1_000)]
    topics.append(TopicImage("gone", bytes(16), ()))
    for topic in topics:
        side._fetchers._assignments[topic.name] = {0: assignment}
    side._fetchers._assignments["gone"] = dict.fromkeys(range(count), assignment)
    side._fetchers.on_image(node.current.image, Changes(removed=topics))
    counts = [fetcher.removed]
    while side._fetchers.remove_some():
        counts.append(fetcher.removed - sum(counts))
    assert max(counts) <= 500
    assert min(counts) > LAID_OUT_A_TURN, "fetching of partitions must end sooner than their logs are deleted"
    assert fetcher.removed == 1_000 + count
    assert not side._fetchers._assignments


def test_partition_directories_are_created_and_deleted_a_few_per_turn() -> None:
    node = InMemoryNode().start()
    for request in (stall_requests.create_topics(["t"], 200), stall_requests.delete_topics(["t"])):
        router_of(node).answer("PLAINTEXT", "1:1", UNRESTRICTED, memoryview(bytearray(request))[4:])
        counts = []
        while node.flusher.requested or node.timers._soon:
            node.flush()
            before = node.files.operations
            node.timers.run_one_soon()
            counts.append(node.files.operations - before)
        assert len(counts) >= 200 / LAID_OUT_A_TURN
        assert max(counts) <= 16 * LAID_OUT_A_TURN, "file operations in one turn"


@pytest.mark.parametrize("reads", [[b"\0\0\0\4long\0\0\0\5after"], [b"\0\0\0\4long", b"\0\0\0\5after"]])
def test_the_next_request_of_a_connection_waits_for_a_long_one(reads: list[bytes]) -> None:
    handled: list[bytes] = []
    long = LongReply()

    def answer(frame: memoryview) -> Reply:
        handled.append(bytes(frame))
        return long if frame == b"long" else NO_REPLY

    woken: list[None] = []
    conversation = Conversation(answer, lambda: woken.append(None), 100, ConnectionBudget(1_000, ConnectionLimits()))
    for read in reads:
        assert conversation.feed_single(memoryview(bytearray(read))) is None
    assert handled == [b"long"]
    assert conversation.is_full
    long.handled.complete(None)  # but there is no response yet
    assert woken
    assert conversation.resume()
    assert handled == [b"long", b"after"]
    assert not conversation.held


def test_a_topic_with_many_partitions_is_created_in_turns() -> None:
    node = InMemoryNode(static={"auto.create.topics.enable": "false"}).start()
    publishing: list[int] = []
    turns, reply = turns_of(
        router_of(node),
        node.timers,
        stall_requests.create_topics([BIG], PARTITIONS),
        lambda: publishing.append(operations_of(node.flush)),
    )
    assert reply
    assert max(turns) < METADATA_LINES_A_TURN
    assert max(publishing) < LINES_A_TURN
    assert len(turns) > 30
    assert len(node.current.image.topics[BIG].partitions) == PARTITIONS


def test_many_topics_are_created_and_deleted_in_turns() -> None:
    node = InMemoryNode(static={"auto.create.topics.enable": "false"}).start()
    names = [f"topic-{number}" for number in range(1_000)]
    for request in (stall_requests.create_topics(names, 1), stall_requests.delete_topics(names)):
        turns, reply = turns_of(router_of(node), node.timers, request, node.flush)
        assert reply
        assert max(turns) < METADATA_LINES_A_TURN
        assert len(turns) > 10
        node.settle()


def test_a_metadata_image_with_thousands_of_new_topics_is_built_in_turns() -> None:
    node = InMemoryNode(static={"auto.create.topics.enable": "false"}).start()
    names = [f"topic-{number}" for number in range(3_000)]
    publishing: list[int] = []
    turns, reply = turns_of(
        router_of(node),
        node.timers,
        stall_requests.create_topics(names, 1),
        lambda: publishing.append(operations_of(node.flush)),
    )
    assert reply
    assert max(turns) < METADATA_LINES_A_TURN
    assert max(publishing) < LINES_A_TURN
    assert set(names) <= set(node.current.image.topics)


def test_a_long_request_keeps_its_memory_until_it_is_handled() -> None:
    long = LongReply()
    budget = ConnectionBudget(1_000, ConnectionLimits())
    conversation = Conversation(lambda _: long, lambda: None, 100, budget)
    for read in (b"\0\0\0\4lo", b"ng"):
        conversation.feed(memoryview(bytearray(read)))
    assert budget.free < 1_000
    conversation.close()
    assert budget.free < 1_000, "the request is still being handled"
    long.handled.complete(None)
    assert budget.free == 1_000


def test_replies_that_wait_for_an_earlier_one_count_as_unsent() -> None:
    """Otherwise a client could fill the memory with replies behind one request that waits."""
    first: Promise[Outgoing] = Promise()
    replies = [first, *(LongReply() for _ in range(3))]
    limits = ConnectionLimits(unsent_bytes_max=1_000)
    conversation = Conversation(lambda frame: replies[frame[0]], lambda: None, 100, ConnectionBudget(1_000, limits))
    for number in range(3):
        conversation.feed(memoryview(bytearray(b"\0\0\0\1" + bytes([number]))))
        if number:
            long = replies[number]
            assert isinstance(long, LongReply)
            long.handled.complete(None)
            long.complete(Outgoing(bytes(600)))
    assert conversation.is_full
    first.complete(Outgoing(b"first"))
    sizes = [len(reply) for reply in iter(conversation.next_reply, None)]
    assert (sizes, conversation.is_full) == ([5, 600, 600], False)


def test_metadata_skips_topics_without_describe_permission_in_turns() -> None:
    node = InMemoryNode(static={"auto.create.topics.enable": "false"}).start()
    names = [f"topic-{number}" for number in range(1_000)]
    turns_of(router_of(node), node.timers, stall_requests.create_topics(names, 1), node.flush)
    stranger = Restricted(Authorizer(), Principal("User", "nobody"), "198.51.100.7")
    turns, reply = turns_of(router_of(node), node.timers, stall_requests.metadata(None), access=stranger)
    assert reply
    assert len(turns) >= 5
