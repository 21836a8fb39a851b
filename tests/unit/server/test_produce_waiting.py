"""Produce: what is appended at once, and the answer that waits for the disk, the clock or the end of the topic."""

from __future__ import annotations

import pytest
from rooms import Rooms, batch

from moldau.base.errors import ErrorCode, MalformedData
from moldau.base.ids import ZERO_UUID
from moldau.base.promise import Promise
from moldau.server.router import Caller
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

TIMEOUT_MS = 1000


@pytest.fixture
def rooms() -> Rooms:
    rooms = Rooms().start()
    rooms.create_topic("fast", 2)
    rooms.create_topic("safe", 2, flush_messages="1")
    return rooms


def produce(
    rooms: Rooms, *where: tuple[str, int], acks: int = -1, version: int = 9, topic_id: bytes = ZERO_UUID
) -> ProduceResponse | Promise[ProduceResponse] | None:
    topics = [
        TopicProduceData(topic_id, topic, [PartitionProduceData(index, batch(timestamp=rooms.clock.now_ms()))])
        for topic, index in where
    ]
    request = ProduceRequest(acks=acks, timeout_ms=TIMEOUT_MS, topic_data=topics)
    return rooms.produce.answer(request, Caller("PLAINTEXT", "test:1", "test", version))


def told(answer: ProduceResponse | Promise[ProduceResponse] | None) -> list[tuple[int, int]]:
    """(error, base offset) of every partition, in the order asked."""
    response = answer.value() if isinstance(answer, Promise) else answer
    assert response is not None
    return [(each.error_code, each.base_offset) for topic in response.responses for each in topic.partition_responses]


def waits(answer: object) -> Promise[ProduceResponse]:
    assert isinstance(answer, Promise)
    assert not answer.done
    return answer


def test_at_once_where_nothing_must_be_waited_for(rooms: Rooms) -> None:
    assert told(produce(rooms, ("fast", 0), ("fast", 1))) == [(0, 0), (0, 0)]
    assert told(produce(rooms, ("fast", 0))) == [(0, 1)]
    assert rooms.waiting == 0


@pytest.mark.parametrize("acks", [1, -1])
def test_with_flush_messages_1_an_acknowledgement_is_a_promise_of_the_disk(rooms: Rooms, acks: int) -> None:
    answer = waits(produce(rooms, ("safe", 0), ("fast", 0), acks=acks))
    assert rooms.partition("safe").log.end_offset == 1, "appended in the order of the wire, answered later"
    rooms.flush()
    assert told(answer) == [(0, 0), (0, 0)]
    assert rooms.waiting == 0


def test_all_partitions_of_a_request_are_waited_for(rooms: Rooms) -> None:
    answer = waits(produce(rooms, ("safe", 0), ("safe", 1)))
    rooms.flusher.flush(only=lambda each: each is rooms.partition("safe", 1))
    assert not answer.done
    rooms.flusher.flush(only=lambda each: each is rooms.partition("safe", 0))
    assert told(answer) == [(0, 0), (0, 0)]


def test_when_time_is_up_each_partition_says_how_far_it_is(rooms: Rooms) -> None:
    answer = waits(produce(rooms, ("safe", 0), ("safe", 1)))
    rooms.flusher.flush(only=lambda each: each is rooms.partition("safe", 1))
    rooms.timers.advance(TIMEOUT_MS - 1)
    assert not answer.done
    rooms.timers.advance(1)
    assert told(answer) == [(ErrorCode.REQUEST_TIMED_OUT, -1), (0, 0)]
    rooms.flush()
    assert told(answer) == [(ErrorCode.REQUEST_TIMED_OUT, -1), (0, 0)], "what was said is not changed afterwards"


def test_a_topic_deleted_meanwhile(rooms: Rooms) -> None:
    answer = waits(produce(rooms, ("safe", 0)))
    rooms.flusher.asked.pop(rooms.partition("safe"))
    rooms.delete_topic("safe")
    assert told(answer) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    assert rooms.waiting == 0


def test_no_acks_no_answer_and_an_error_ends_the_connection(rooms: Rooms) -> None:
    assert produce(rooms, ("safe", 0), acks=0) is None
    assert rooms.partition("safe").log.end_offset == 1
    with pytest.raises(MalformedData, match="UNKNOWN_TOPIC_OR_PARTITION"):
        produce(rooms, ("nowhere", 0), acks=0)


@pytest.mark.parametrize("acks", [2, -2, 7])
def test_acks_that_do_not_exist(rooms: Rooms, acks: int) -> None:
    assert told(produce(rooms, ("fast", 0), acks=acks)) == [(ErrorCode.INVALID_REQUIRED_ACKS, -1)]
    assert rooms.partition("fast").log.end_offset == 0


def test_by_id_from_version_13_on(rooms: Rooms) -> None:
    topic_id = rooms.current.image.topics["fast"].id
    assert told(produce(rooms, ("", 0), version=13, topic_id=topic_id)) == [(0, 0)]
    assert told(produce(rooms, ("fast", 0), version=13, topic_id=b"?" * 16)) == [(ErrorCode.UNKNOWN_TOPIC_ID, -1)]
    assert told(produce(rooms, ("nowhere", 0), version=12)) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
