"""Markers reach every partition of a prepared transaction, whoever leads it, as long as they are needed."""

from __future__ import annotations

import pytest
from fake_brokers import FakeBrokers, image_of

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.limits import TRANSACTION_REQUEST_BYTES_MAX
from moldau.coordinator.transaction.markers import TransactionMarkers
from moldau.metadata.current import CurrentImage
from moldau.runtime.coordinators import marker_sender
from moldau.runtime.coordinators.marker_sender import RETRY_DELAY_MS, MarkerSender
from moldau.testing.clock import FakeTimers
from moldau.wire.apis import ApiKey
from moldau.wire.frames import request_frame
from moldau.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


class Sending:
    def __init__(self, **leaders: list[int]) -> None:
        self.current = CurrentImage()
        self.current.image = image_of(**leaders)
        self.brokers = FakeBrokers()
        self.timers = FakeTimers()
        self.written: list[TransactionMarkers] = []
        self.is_ours = True
        self.sender = MarkerSender(self.current, self.brokers, self.timers, self.written.append, lambda _: self.is_ours)

    def send(self, name: str, *partitions: tuple[str, int], producer_id: int = 7) -> TransactionMarkers:
        places = tuple(TopicPartition(*each) for each in partitions)
        markers = TransactionMarkers(name, producer_id, 3, True, 5, 2, places)
        self.sender.send(markers)
        self.timers.run_soon()
        return markers

    def markers_in_flight(self) -> list[tuple[int, list[tuple[int, str, int]]]]:
        """Return (node, its markers as (producer, topic, partition)) of all requests in flight."""
        return [(node, named(request)) for node, request, _ in self.brokers.requests]

    def answer(self, **codes: ErrorCode) -> None:
        """Respond to the oldest request: these topics with these codes, all others without an error."""
        _, request, waiting = self.brokers.take()
        waiting.complete(response(request, codes))
        self.timers.run_soon()


def named(request: WriteTxnMarkersRequest) -> list[tuple[int, str, int]]:
    return [
        (marker.producer_id, topic.name, index)
        for marker in request.markers
        for topic in marker.topics
        for index in topic.partition_indexes
    ]


def response(request: WriteTxnMarkersRequest, codes: dict[str, ErrorCode]) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        [
            WritableTxnMarkerResult(
                marker.producer_id,
                [
                    WritableTxnMarkerTopicResult(
                        topic.name,
                        [
                            WritableTxnMarkerPartitionResult(index, codes.get(topic.name, ErrorCode.NONE))
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def test_each_leader_gets_its_markers_and_the_last_one_completes_it() -> None:
    world = Sending(a=[1, 2], b=[2])
    markers = world.send("tx", ("a", 0), ("a", 1), ("b", 0))
    assert world.markers_in_flight() == [(1, [(7, "a", 0)]), (2, [(7, "a", 1), (7, "b", 0)])]
    marker = world.brokers.requests[0][1].markers[0]
    assert (marker.producer_epoch, marker.coordinator_epoch, marker.transaction_version) == (3, 5, 2)
    assert marker.transaction_result is True
    world.answer()
    assert world.written == []
    world.answer()
    assert world.written == [markers]


def test_markers_queued_during_a_request_go_with_the_next_one() -> None:
    world = Sending(a=[2, 2])
    world.send("one", ("a", 0), producer_id=1)
    world.send("two", ("a", 0), producer_id=2)
    world.send("three", ("a", 1), producer_id=3)
    assert world.markers_in_flight() == [(2, [(1, "a", 0)])]
    world.answer()
    assert world.markers_in_flight() == [(2, [(2, "a", 0), (3, "a", 1)])]
    world.answer()
    assert [each.transactional_id for each in world.written] == ["one", "two", "three"]


def test_a_marker_follows_its_partition_to_the_new_leader() -> None:
    world = Sending(a=[1], b=[1])
    markers = world.send("tx", ("a", 0), ("b", 0))
    world.current.image = image_of(a=[2], b=[1])
    world.answer(a=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert world.markers_in_flight() == []
    world.timers.advance(RETRY_DELAY_MS)
    assert world.markers_in_flight() == [(2, [(7, "a", 0)])], "only what is missing"
    world.answer()
    assert world.written == [markers]


def test_an_unreachable_broker_is_retried() -> None:
    world = Sending(a=[2])
    markers = world.send("tx", ("a", 0))
    for _ in range(3):
        world.brokers.take()[2].complete(KafkaError(ErrorCode.NETWORK_EXCEPTION))
        world.timers.advance(RETRY_DELAY_MS)
    world.answer()
    assert world.written == [markers]


def test_a_leaderless_partition_is_waited_for_and_a_deleted_topic_is_not() -> None:
    world = Sending(a=[-1])
    markers = world.send("tx", ("a", 0), ("gone", 0), ("a", 5))
    assert world.markers_in_flight() == []
    world.current.image = image_of(a=[3])
    world.timers.advance(RETRY_DELAY_MS)
    assert world.markers_in_flight() == [(3, [(7, "a", 0)])]
    world.answer()
    assert world.written == [markers]
    only_gone = world.send("other", ("gone", 0))
    assert world.written == [markers, only_gone]


def test_markers_stop_when_another_coordinator_has_taken_over() -> None:
    world = Sending(a=[1], b=[2])
    world.send("tx", ("a", 0), ("b", 0))
    world.answer(a=ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    world.answer()
    world.timers.advance(10 * RETRY_DELAY_MS)
    assert (world.markers_in_flight(), world.written) == ([], [])


def test_a_former_coordinator_stops_sending() -> None:
    world = Sending(a=[1])
    world.send("tx", ("a", 0))
    world.is_ours = False
    world.answer(a=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world.timers.advance(10 * RETRY_DELAY_MS)
    assert (world.markers_in_flight(), world.written) == ([], [])


def test_of_two_ends_of_one_transactional_id_the_later_wins() -> None:
    world = Sending(a=[1])
    world.send("tx", ("a", 0))
    later = world.send("tx", ("a", 0), producer_id=8)
    world.answer()
    assert world.written == []
    world.answer()
    assert world.written == [later]


def test_obsolete_markers_are_not_sent() -> None:
    world = Sending(a=[1])
    world.send("first", ("a", 0), producer_id=1)
    world.send("tx", ("a", 0))
    later = world.send("tx", ("a", 0))
    world.answer()
    assert world.markers_in_flight() == [(1, [(7, "a", 0)])]
    world.answer()
    assert world.written[-1] is later


def test_a_request_has_at_most_the_allowed_number_of_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_sender, "MARKER_PARTITIONS_PER_REQUEST_MAX", 2)
    world = Sending(a=[1])
    for number in range(5):
        world.send(f"tx{number}", ("a", 0), producer_id=number)
    sent = []
    while world.brokers.requests:
        sent.append([producer for producer, _, _ in world.markers_in_flight()[0][1]])
        world.answer()
    assert sent == [[0], [1, 2], [3, 4]]
    assert len(world.written) == 5


def test_nothing_is_sent_after_close() -> None:
    world = Sending(a=[1])
    world.send("tx", ("a", 0))
    world.sender.close()
    world.answer(a=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world.timers.advance(10 * RETRY_DELAY_MS)
    assert (world.markers_in_flight(), world.written) == ([], [])


def test_a_request_is_never_too_long_for_its_broker_and_one_transaction_may_need_several() -> None:
    topics = {f"{number:0>240}": [1] for number in range(6_000)}
    world = Sending(**topics)
    markers = world.send("tx", *((topic, 0) for topic in sorted(topics)))
    marked: list[str] = []
    while world.brokers.requests:
        request = world.brokers.requests[0][1]
        assert len(request_frame(ApiKey.WRITE_TXN_MARKERS, 2, 1, None, request)) <= TRANSACTION_REQUEST_BYTES_MAX
        marked += [topic for _, topic, _ in named(request)]
        world.answer()
    assert marked == sorted(topics)
    assert world.written == [markers]
