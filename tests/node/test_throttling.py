"""Client quotas: what counts, the throttle time in the response, and the pause of the connection."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from harness.in_memory_node import InMemoryNode, batch
from harness.restricted_node import NoPermissions

from moldau.base.promise import Promise
from moldau.security.acls.access import Access, Unrestricted
from moldau.security.principals import Principal
from moldau.server import late_replies
from moldau.server.handler import Handler
from moldau.server.handlers import replies
from moldau.wire.apis import ApiKey, response_class
from moldau.wire.codec import NO_REPLY, Outgoing
from moldau.wire.frames import read_response, request_frame
from moldau.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from moldau.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from moldau.wire.schema import Message

PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"


class QuotaNode(InMemoryNode):
    def limit(self, user: str | None, **limits: float) -> None:
        changes = [OpData(key, value) for key, value in limits.items()]
        request = AlterClientQuotasRequest([RequestEntryData([RequestEntityData("user", user)], changes)])
        response = self.committed(self.ask_controller(ApiKey.ALTER_CLIENT_QUOTAS, request))
        assert [each.error_code for each in response.entries] == [0]

    def send(
        self, api: ApiKey, request: Message, version: int, user: str = "ann", access: Access | None = None
    ) -> Outgoing | None:
        broker = self.assembly.broker_side
        assert broker is not None
        frame = memoryview(bytearray(request_frame(api, version, 7, "app", request)))[4:]
        reply = broker.router.answer("PLAINTEXT", "h:1", access or Unrestricted(Principal("User", user)), frame)
        if isinstance(reply, Promise):
            self.flush()
            self.timers.run_soon()
            return reply.value()
        return reply


def parsed(api: ApiKey, version: int, reply: Outgoing | None) -> Any:
    assert reply is not None
    whole = bytearray(reply)
    for position, records in reversed(reply.slices):
        whole[position:position] = bytes(records.length)
    return read_response(response_class(api), bytes(whole)[4:], api, version)[1]


def produce(size: int, acks: int = 1) -> ProduceRequest:
    data = PartitionProduceData(0, batch(size=size))
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[data])])


def fetch(replica_id: int = -1) -> FetchRequest:
    topic = FetchTopic(topic="t", partitions=[FetchPartition(0, partition_max_bytes=1 << 20)])
    return FetchRequest(
        replica_id=replica_id,
        replica_state=ReplicaState(replica_id, 1) if replica_id >= 0 else None,
        max_bytes=1 << 20,
        topics=[topic],
    )


@pytest.fixture
def node() -> QuotaNode:
    node = QuotaNode()
    node.start()
    node.create_topic("t")
    return node


def test_without_quotas_requests_are_not_throttled(node: QuotaNode) -> None:
    broker = node.assembly.broker_side
    assert broker is not None
    assert not broker.throttling.is_active
    reply = node.send(ApiKey.PRODUCE, produce(100_000), 9)
    assert parsed(ApiKey.PRODUCE, 9, reply).throttle_time_ms == 0
    assert reply is not None
    assert reply.pause_ms == 0


def test_a_producer_above_its_quota_is_answered_and_then_paused(node: QuotaNode) -> None:
    node.limit("ann", producer_byte_rate=1000)
    reply = node.send(ApiKey.PRODUCE, produce(20_000), 9)
    response = parsed(ApiKey.PRODUCE, 9, reply)
    assert response.responses[0].partition_responses[0].error_code == 0
    assert node.partitions.get("t", 0).log.end_offset == 1, "the records are written"
    assert reply is not None
    assert 10_000 <= reply.pause_ms == response.throttle_time_ms <= 11_000
    other = node.send(ApiKey.PRODUCE, produce(20_000), 9, user="bob")
    assert other is not None
    assert other.pause_ms == 0


def test_a_producer_without_acks_is_paused_too(node: QuotaNode) -> None:
    node.limit("ann", producer_byte_rate=1000)
    reply = node.send(ApiKey.PRODUCE, produce(20_000, acks=0), 9)
    assert reply is not None
    assert len(reply) == 0
    assert reply.pause_ms >= 10_000
    node.clock.move(60_000)
    assert node.send(ApiKey.PRODUCE, produce(10, acks=0), 9) is NO_REPLY


def test_a_consumer_above_its_quota_is_paused(node: QuotaNode) -> None:
    node.limit(None, consumer_byte_rate=1000)
    node.send(ApiKey.PRODUCE, produce(20_000), 9)
    reply = node.send(ApiKey.FETCH, fetch(), 12)
    response = parsed(ApiKey.FETCH, 12, reply)
    assert reply is not None
    assert 10_000 <= reply.pause_ms == response.throttle_time_ms <= 11_000
    follower = node.send(ApiKey.FETCH, fetch(replica_id=2), 15)
    assert follower is not None
    assert follower.pause_ms == 0, "followers have a throttle of their own"


def test_the_time_of_requests_counts_against_request_percentage(node: QuotaNode) -> None:
    node.limit("ann", request_percentage=1)
    broker = node.assembly.broker_side
    assert broker is not None
    moments = iter(range(0, 1000, 5))
    broker.throttling.now_s = lambda: float(next(moments))
    reply = node.send(ApiKey.METADATA, MetadataRequest([]), 9)
    assert reply is not None
    assert reply.pause_ms == parsed(ApiKey.METADATA, 9, reply).throttle_time_ms == 1000, "five seconds, but 1 s at most"


def long_metadata() -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(name=f"{number:x}") for number in range(2_000)], False)


def clock_with_steps(seconds: float) -> Callable[[], float]:
    """Return a clock that advances by this many seconds each time it is read."""
    moments = count(0.0, seconds)
    return lambda: next(moments)


def test_the_time_of_all_turns_counts_against_request_percentage(
    node: QuotaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.limit("ann", request_percentage=100)
    monkeypatch.setattr(replies, "perf_counter", clock_with_steps(5.0))
    reply = node.send(ApiKey.METADATA, long_metadata(), 9)
    assert reply is not None
    assert reply.pause_ms == parsed(ApiKey.METADATA, 9, reply).throttle_time_ms == 1000


def test_the_time_of_decoding_in_a_thread_counts_against_request_percentage(
    node: QuotaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.limit("ann", request_percentage=100)
    monkeypatch.setattr(late_replies, "thread_time", clock_with_steps(20.0))
    monkeypatch.setattr(Handler, "decoded_on_loop_bytes", 10)
    reply = node.send(ApiKey.METADATA, MetadataRequest([]), 9)
    assert reply is not None
    assert reply.pause_ms == 1000


def test_a_long_produce_without_acks_is_throttled(node: QuotaNode) -> None:
    node.limit("ann", producer_byte_rate=1000)
    request = produce(20_000, acks=0)
    request.topic_data = [*request.topic_data, *[TopicProduceData(name="")] * 2_000]
    reply = node.send(ApiKey.PRODUCE, request, 9)
    assert reply is not None
    assert len(reply) == 0
    assert reply.pause_ms >= 10_000


def test_a_long_reply_that_cannot_be_encoded_closes_the_connection_of_a_throttled_client(
    node: QuotaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.limit("ann", request_percentage=100)
    monkeypatch.setattr(replies, "perf_counter", clock_with_steps(5.0))
    broker = node.assembly.broker_side
    assert broker is not None
    route = broker.router.find_route(ApiKey.METADATA, 9)
    assert route is not None

    def fail(*_: object) -> Outgoing:
        raise ZeroDivisionError

    route.frame = fail
    reply = node.send(ApiKey.METADATA, long_metadata(), 9)
    assert reply is not None
    assert (len(reply), reply.pause_ms) == (0, 0), "a pause would keep the connection open"


@pytest.mark.parametrize(
    ("api", "version", "request_"),
    [(ApiKey.FETCH, 15, fetch(replica_id=2)), (ApiKey.WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest([]))],
    ids=["Fetch", "WriteTxnMarkers"],
)
def test_only_nodes_are_exempt_from_request_quotas(
    node: QuotaNode, api: ApiKey, version: int, request_: Message
) -> None:
    node.limit("ann", request_percentage=1)
    broker = node.assembly.broker_side
    assert broker is not None
    broker.throttling.now_s = clock_with_steps(5.0)
    allowed = node.send(api, request_, version)
    denied = node.send(api, request_, version, access=NoPermissions(Principal("User", "ann")))
    assert allowed is not None
    assert denied is not None
    assert (allowed.pause_ms, denied.pause_ms) == (0, 1000)


def test_a_removed_quota_no_longer_throttles(node: QuotaNode) -> None:
    node.limit("ann", producer_byte_rate=1000)
    request = AlterClientQuotasRequest(
        [RequestEntryData([RequestEntityData("user", "ann")], [OpData(PRODUCE, remove=True)])]
    )
    node.committed(node.ask_controller(ApiKey.ALTER_CLIENT_QUOTAS, request))
    reply = node.send(ApiKey.PRODUCE, produce(20_000), 9)
    assert reply is not None
    assert reply.pause_ms == 0


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, ["ann", None]),
        ([], True, []),
        ([ComponentData("user", 0, "ann")], True, ["ann"]),
        ([ComponentData("user", 1, None)], False, [None]),
        ([ComponentData("user", 2, None)], True, ["ann", None]),
        ([ComponentData("client-id", 2, None)], False, []),
    ],
)
def test_quotas_are_described(
    node: QuotaNode, components: list[ComponentData], strict: bool, found: list[str | None]
) -> None:
    node.limit("ann", producer_byte_rate=1000, consumer_byte_rate=2000)
    node.limit(None, request_percentage=50)
    request = DescribeClientQuotasRequest(components, strict)
    response = parsed(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, node.send(ApiKey.DESCRIBE_CLIENT_QUOTAS, request, 1))
    assert (response.error_code, response.error_message) == (0, "")
    assert sorted((each.entity[0].entity_name for each in response.entries), key=str) == sorted(found, key=str)
    values = {each.entity[0].entity_name: [(v.key, v.value) for v in each.values] for each in response.entries}
    if "ann" in found:
        assert values["ann"] == [(FETCH, 2000.0), (PRODUCE, 1000.0)]


@pytest.mark.parametrize(
    ("components", "code", "message"),
    [
        ([ComponentData("", 0, "x")], 42, "Invalid empty entity type."),
        ([ComponentData("user", 0, "x")] * 2, 42, "Entity type user cannot appear more than once in the filter."),
        ([ComponentData("user", 0, None)], 42, "Request specified MATCH_TYPE_EXACT, but set match string to null."),
        ([ComponentData("user", 1, "x")], 42, "Request specified MATCH_TYPE_DEFAULT, but also specified a match"),
        ([ComponentData("user", 7, None)], 42, "Unknown match type 7"),
        ([ComponentData("foo", 0, "x")], 35, "Unsupported entity type foo"),
        ([ComponentData("ip", 2, None), ComponentData("user", 2, None)], 42, "Invalid entity filter component comb"),
    ],
)
def test_an_invalid_quota_filter_is_refused(
    node: QuotaNode, components: list[ComponentData], code: int, message: str
) -> None:
    reply = node.send(ApiKey.DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest(components), 1)
    response = parsed(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, reply)
    assert (response.error_code, response.entries) == (code, None)
    assert response.error_message.startswith(message)
