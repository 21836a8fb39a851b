"""Produce: records are appended at once; the response waits for the flush, the timeout or the topic's deletion."""

from __future__ import annotations

import pytest
from harness.in_memory_node import InMemoryNode, batch

from moldau.base.errors import ErrorCode, MalformedData
from moldau.base.ids import ZERO_UUID
from moldau.base.promise import Promise
from moldau.log import validate
from moldau.server.handler import Caller
from moldau.server.handlers import produce as produce_handler
from moldau.wire.codec import NO_REPLY
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

TIMEOUT_MS = 1000


@pytest.fixture
def node() -> InMemoryNode:
    node = InMemoryNode().start()
    node.create_topic("fast", 2)
    node.create_topic("safe", 2, flush_messages="1")
    return node


def produce(
    node: InMemoryNode, *partitions: tuple[str, int], acks: int = -1, version: int = 9, topic_id: bytes = ZERO_UUID
) -> ProduceResponse | Promise[ProduceResponse] | None:
    topics = [
        TopicProduceData(topic_id, topic, [PartitionProduceData(index, batch(timestamp=node.clock.now_ms()))])
        for topic, index in partitions
    ]
    request = ProduceRequest(acks=acks, timeout_ms=TIMEOUT_MS, topic_data=topics)
    return node.produce.answer(request, Caller("PLAINTEXT", "test:1", "test", version))


def results(answer: ProduceResponse | Promise[ProduceResponse] | None) -> list[tuple[int, int]]:
    """Return (error, base offset) of every partition, in the order of the request."""
    response = answer.value() if isinstance(answer, Promise) else answer
    assert response is not None
    return [(each.error_code, each.base_offset) for topic in response.responses for each in topic.partition_responses]


def still_waiting(answer: object) -> Promise[ProduceResponse]:
    assert isinstance(answer, Promise)
    assert not answer.done
    return answer


def test_a_response_without_anything_to_wait_for_comes_at_once(node: InMemoryNode) -> None:
    assert results(produce(node, ("fast", 0), ("fast", 1))) == [(0, 0), (0, 0)]
    assert results(produce(node, ("fast", 0))) == [(0, 1)]
    assert node.waiting == 0


@pytest.mark.parametrize("acks", [1, -1])
def test_with_flush_messages_1_the_response_waits_for_the_flush(node: InMemoryNode, acks: int) -> None:
    answer = still_waiting(produce(node, ("safe", 0), ("fast", 0), acks=acks))
    assert node.partition("safe").log.end_offset == 1, "appended in the order of the requests, answered later"
    node.flush()
    assert results(answer) == [(0, 0), (0, 0)]
    assert node.waiting == 0


def test_the_response_waits_for_all_partitions_of_the_request(node: InMemoryNode) -> None:
    answer = still_waiting(produce(node, ("safe", 0), ("safe", 1)))
    node.flusher.flush(only=lambda each: each is node.partition("safe", 1))
    assert not answer.done
    node.flusher.flush(only=lambda each: each is node.partition("safe", 0))
    assert results(answer) == [(0, 0), (0, 0)]


def test_at_the_timeout_each_partition_reports_its_own_result(node: InMemoryNode) -> None:
    answer = still_waiting(produce(node, ("safe", 0), ("safe", 1)))
    node.flusher.flush(only=lambda each: each is node.partition("safe", 1))
    node.timers.advance(TIMEOUT_MS - 1)
    assert not answer.done
    node.timers.advance(1)
    assert results(answer) == [(ErrorCode.REQUEST_TIMED_OUT, -1), (0, 0)]
    node.flush()
    assert results(answer) == [(ErrorCode.REQUEST_TIMED_OUT, -1), (0, 0)], "a response does not change afterwards"


def test_deleting_the_topic_answers_a_waiting_produce_request(node: InMemoryNode) -> None:
    answer = still_waiting(produce(node, ("safe", 0)))
    node.flusher.requested.pop(node.partition("safe"))
    node.delete_topic("safe")
    assert results(answer) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    assert node.waiting == 0


def test_acks_0_has_no_response_and_an_error_closes_the_connection(node: InMemoryNode) -> None:
    assert produce(node, ("safe", 0), acks=0) is NO_REPLY
    assert node.partition("safe").log.end_offset == 1
    with pytest.raises(MalformedData, match="UNKNOWN_TOPIC_OR_PARTITION"):
        produce(node, ("nowhere", 0), acks=0)


@pytest.mark.parametrize("acks", [2, -2, 7])
def test_invalid_acks_are_refused(node: InMemoryNode, acks: int) -> None:
    assert results(produce(node, ("fast", 0), acks=acks)) == [(ErrorCode.INVALID_REQUIRED_ACKS, -1)]
    assert node.partition("fast").log.end_offset == 0


def test_topics_are_named_by_id_from_version_13_on(node: InMemoryNode) -> None:
    topic_id = node.current.image.topics["fast"].id
    assert results(produce(node, ("", 0), version=13, topic_id=topic_id)) == [(0, 0)]
    assert results(produce(node, ("fast", 0), version=13, topic_id=b"?" * 16)) == [(ErrorCode.UNKNOWN_TOPIC_ID, -1)]
    assert results(produce(node, ("nowhere", 0), version=12)) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]


def test_the_response_names_a_bounded_number_of_rejected_records(
    node: InMemoryNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce_handler, "RECORD_ERRORS_OF_REQUEST_MAX", 5)
    monkeypatch.setattr(validate, "RECORD_ERRORS_OF_BATCH_MAX", 3)
    node.create_topic("many", 4)
    tomorrow_ms = node.clock.now_ms() + 86_400_000
    data = [PartitionProduceData(index, batch(9, timestamp=tomorrow_ms)) for index in range(4)]
    request = ProduceRequest(
        acks=1, timeout_ms=TIMEOUT_MS, topic_data=[TopicProduceData(name="many", partition_data=data)]
    )
    response = node.produce.answer(request, Caller("PLAINTEXT", "test:1", "test", 9))
    assert isinstance(response, ProduceResponse)
    results = response.responses[0].partition_responses
    assert [result.error_code for result in results] == [ErrorCode.INVALID_TIMESTAMP] * 4
    assert [[each.batch_index for each in result.record_errors] for result in results] == [[0, 1, 2], [0, 1], [], []]
    assert {result.error_message for result in results} == {"The timestamps of 9 records are not accepted."}
