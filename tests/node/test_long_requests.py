"""Long requests are handled in turns of the event loop, and each turn has a budget of lines of Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from harness.attacked_cluster import AttackedCluster, ConnectionClosed
from harness.coordinator_node import PUBLIC, CoordinatorNode
from harness.turns_of_requests import turns_of

from moldau.base.errors import ErrorCode, MalformedData
from moldau.base.promise import Promise
from moldau.base.steps import Steps
from moldau.server.conversation import LongReply
from moldau.server.handler import Caller
from moldau.server.handlers.replies import TimeLimit, in_turns, run_steps, uneven_in_turns
from moldau.testing.clock import FakeTimers
from moldau.wire.apis import ApiKey
from moldau.wire.frames import request_frame
from moldau.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from moldau.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.delete_groups import DeleteGroupsRequest
from moldau.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.wire.messages.describe_groups import DescribeGroupsRequest
from moldau.wire.messages.fetch import FetchRequest, FetchTopic, ForgottenTopic
from moldau.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsTopic
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from moldau.wire.messages.produce import ProduceRequest, TopicProduceData
from moldau.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from moldau.wire.schema import Message

FIRST_TURN_OPERATIONS_MAX = 150_000
TURN_OPERATIONS_MAX = 100_000
"""Lines of Python in one turn, of which the first decodes the whole request. Handled in one turn, these requests take
280,000 to 1,100,000."""


def test_a_short_list_is_handled_at_once_and_a_long_one_in_turns() -> None:
    timers, handled = FakeTimers(), []

    def handle(item: int) -> int:
        handled.append(item)
        return -item

    assert in_turns(timers, [1, 2], handle, list, 2) == [-1, -2]
    handled.clear()
    reply: Any = in_turns(timers, [1, 2, 3, 4, 5], handle, list, 2)
    counts = [len(handled)]
    while timers.run_one_soon():
        counts.append(len(handled))
    assert (counts, reply.value()) == ([2, 4, 5], [-1, -2, -3, -4, -5])
    assert isinstance(reply, LongReply)


def test_a_turn_counts_the_parts_of_uneven_items() -> None:
    timers, handled = FakeTimers(), []

    def handle(parts: int) -> tuple[int, int]:
        handled.append(parts)
        return -parts, parts

    assert uneven_in_turns(timers, [9], handle, list, 2) == [-9], "the last item needs no further turn"
    handled.clear()
    reply: Any = uneven_in_turns(timers, [1, 0, 9, 2, 1], handle, list, 2)
    counts = [len(handled)]
    while timers.run_one_soon():
        counts.append(len(handled))
    assert (counts, reply.value()) == ([2, 3, 4, 5], [-1, 0, -9, -2, -1])


def test_replies_of_a_long_list_may_come_late_or_time_out() -> None:
    timers = FakeTimers()
    promises: list[Promise[int]] = [Promise() for _ in range(5)]
    limit = TimeLimit(timers, 1_000, lambda index: -index)
    reply: Any = in_turns(timers, promises, lambda promise: promise, list, 2, limit)
    for promise in promises[:3]:
        promise.complete(7)
    timers.advance(999)
    assert not reply.done
    timers.advance(1)
    assert reply.value() == [7, 7, 7, -3, -4]


def test_later_requests_wait_for_the_turns_of_nested_steps() -> None:
    timers = FakeTimers()

    def steps(result: Any) -> Steps[Any]:
        yield None
        return result() if callable(result) else result

    reply: Any = run_steps(timers, steps(lambda: run_steps(timers, steps("joined"))))
    timers.run_one_soon()
    assert not reply.handled.done
    timers.run_one_soon()
    assert reply.handled.done
    assert reply.value() == "joined"


def test_an_exception_in_a_later_turn_fails_only_this_request(caplog: pytest.LogCaptureFixture) -> None:
    timers = FakeTimers()

    def handle(item: int) -> int:
        return 1 // item

    reply: Any = in_turns(timers, [1, 1, 0], handle, list, 1)
    timers.run_soon()
    assert isinstance(reply.value(), MalformedData)
    assert "failed in a later turn" in caplog.text


def _names(count: int) -> list[str]:
    return [f"{number:x}" for number in range(count)]


def _markers(count: int) -> Sequence[WritableTxnMarker]:
    topics = [WritableTxnMarkerTopic("victim", [0])]
    return [WritableTxnMarker(producer_id, 0, True, topics, 0, 0) for producer_id in range(10**6, 10**6 + count)]


LONG: dict[str, tuple[ApiKey, int, Callable[[], Message]]] = {
    "Metadata": (
        ApiKey.METADATA,
        12,
        lambda: MetadataRequest([MetadataRequestTopic(name=name) for name in _names(5_000)], False),
    ),
    "Metadata that may create topics": (
        ApiKey.METADATA,
        3,
        lambda: MetadataRequest([MetadataRequestTopic(name=name) for name in _names(50_000)]),
    ),
    "Metadata by ids, in a version that refuses them": (
        ApiKey.METADATA,
        11,
        lambda: MetadataRequest([MetadataRequestTopic(bytes(15) + b"a", name) for name in _names(45_000)], False),
    ),
    "DescribeGroups": (ApiKey.DESCRIBE_GROUPS, 5, lambda: DescribeGroupsRequest(_names(5_000))),
    "DeleteGroups": (ApiKey.DELETE_GROUPS, 2, lambda: DeleteGroupsRequest(_names(5_000))),
    "OffsetFetch": (
        ApiKey.OFFSET_FETCH,
        8,
        lambda: OffsetFetchRequest(groups=[OffsetFetchRequestGroup(name, topics=None) for name in _names(5_000)]),
    ),
    "DescribeConfigs": (
        ApiKey.DESCRIBE_CONFIGS,
        4,
        lambda: DescribeConfigsRequest([DescribeConfigsResource(2, name, None) for name in ("victim", *_names(200))]),
    ),
    "WriteTxnMarkers": (ApiKey.WRITE_TXN_MARKERS, 1, lambda: WriteTxnMarkersRequest(_markers(1_000))),
    "Produce of topics without partitions": (
        ApiKey.PRODUCE,
        9,
        lambda: ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="")] * 2_500),
    ),
    "Fetch of topics without partitions": (
        ApiKey.FETCH,
        12,
        lambda: FetchRequest(
            max_wait_ms=0, topics=[FetchTopic("")] * 2_500, forgotten_topics_data=[ForgottenTopic("")] * 1_000
        ),
    ),
    "ListOffsets of topics without partitions": (
        ApiKey.LIST_OFFSETS,
        7,
        lambda: ListOffsetsRequest(topics=[ListOffsetsTopic("")] * 4_000),
    ),
    "AddPartitionsToTxn of many topics": (
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        lambda: AddPartitionsToTxnRequest(
            v3_and_below_topics=[AddPartitionsToTxnTopic("x", [0]), AddPartitionsToTxnTopic("", [])] * 5_000
        ),
    ),
}


@pytest.mark.parametrize("name", LONG)
def test_no_turn_of_a_long_request_exceeds_its_budget(name: str) -> None:
    cluster = AttackedCluster(1)
    api, version, build = LONG[name]
    frame = request_frame(api, version, 7, "client", build())
    turns, reply = turns_of(cluster.routers[9001], cluster.timers, frame)
    assert reply
    assert len(turns) > 5
    assert turns[0] < FIRST_TURN_OPERATIONS_MAX
    assert max(turns[1:]) < TURN_OPERATIONS_MAX


def test_a_request_with_too_many_elements_is_refused_before_they_are_read() -> None:
    cluster = AttackedCluster(1)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic("")] * 50_001)
    answer = cluster.ask(request, ApiKey.LIST_OFFSETS, 7, node=1, to_controller=False)
    assert isinstance(answer, ConnectionClosed)


def test_a_config_resource_named_many_times_is_described_once() -> None:
    request = DescribeConfigsRequest([DescribeConfigsResource(2, "victim", None)] * 200)
    outcome = AttackedCluster(1).ask(request, ApiKey.DESCRIBE_CONFIGS, 4, node=1, to_controller=False)
    assert [result.resource_name for result in outcome.results] == ["victim"]


class UnsearchableKeys(list[str]):
    def __contains__(self, key: object) -> bool:
        pytest.fail("the handler searches a list of thousands of keys for each config")


def test_configs_are_not_looked_up_in_a_long_list_of_keys() -> None:
    cluster = AttackedCluster(1)
    broker = cluster.nodes[1].broker_side
    assert broker is not None
    (handler,) = (each for each in broker.handlers if each.api is ApiKey.DESCRIBE_CONFIGS)
    keys = UnsearchableKeys([*_names(50_000), "log.retention.ms"])
    request = DescribeConfigsRequest([DescribeConfigsResource(4, "1", keys)])
    response: Any = handler.answer(request, Caller("PLAINTEXT", "test:1", "test", 4))
    assert [each.name for each in response.results[0].configs] == ["log.retention.ms"]


@pytest.mark.parametrize("api", [ApiKey.DESCRIBE_GROUPS, ApiKey.DELETE_GROUPS])
def test_a_list_of_groups_beyond_the_limit_is_refused(api: ApiKey) -> None:
    cluster = AttackedCluster(1)
    names = _names(100_000)
    request = DescribeGroupsRequest(names) if api is ApiKey.DESCRIBE_GROUPS else DeleteGroupsRequest(names)
    outcome = cluster.ask(request, api, 2, node=1, to_controller=False)
    assert isinstance(outcome, ConnectionClosed)
    cluster.check_health()


def test_describe_configs_of_too_many_resources_is_refused_with_a_reason() -> None:
    cluster = AttackedCluster(1)
    request = DescribeConfigsRequest([DescribeConfigsResource(2, "t", None)] * 10_001)
    outcome = cluster.ask(request, ApiKey.DESCRIBE_CONFIGS, 4, node=1, to_controller=False)
    assert {each.error_message for each in outcome.results} == {"10001 resources in one request; the limit is 10000"}


def test_a_refusal_does_not_repeat_a_long_name_for_every_resource() -> None:
    strange = DescribeConfigsResource(77, "x" * 30_000, None)
    request = DescribeConfigsRequest([strange, *[DescribeConfigsResource(2, "t", None)] * 9_000])
    outcome = AttackedCluster(1).ask(request, ApiKey.DESCRIBE_CONFIGS, 4, node=1, to_controller=False)
    assert max(len(each.error_message) for each in outcome.results) < 400
    assert {each.error_code for each in outcome.results} == {ErrorCode.INVALID_REQUEST}


def test_creating_many_topics_computes_their_configs_once() -> None:
    cluster = AttackedCluster(1)

    def cost(prefix: str, count: int) -> int:
        request = CreateTopicsRequest([CreatableTopic(f"{prefix}{number}", 1, 1) for number in range(count)])
        frame = request_frame(ApiKey.CREATE_TOPICS, 7, 7, "client", request)
        turns, reply = turns_of(cluster.routers[9001], cluster.timers, frame)
        assert reply
        return sum(turns)

    few, many = cost("a", 10), cost("b", 110)
    assert (many - few) / 100 < 2_000, "lines of Python for each topic, until its files exist"


def test_groups_with_many_members_are_described_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.server.handlers.groups.consumer.CHANGES_A_TURN", 4)
    node = CoordinatorNode()
    for group_id in ("g", "h"):
        for member_id in ("m", "n"):
            join = ConsumerGroupHeartbeatRequest(
                group_id, member_id, rebalance_timeout_ms=1_000, subscribed_topic_names=[PUBLIC], topic_partitions=[]
            )
            node.ask_as_admin(ApiKey.CONSUMER_GROUP_HEARTBEAT, join)
    reply = node.begin(ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest(["g", "h"]), 1)
    assert isinstance(reply, LongReply)
    node.run_until_idle()
    assert [len(group.members) for group in reply.value().groups] == [2, 2]
