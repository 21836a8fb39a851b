"""Markers are sent to the leader of every partition of a prepared transaction, and again until all are written."""

from __future__ import annotations

import pytest
from fake_brokers import FakeBrokers, image_of

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.limits import RETRY_DELAY_MS, TRANSACTION_REQUEST_BYTES_MAX
from moldau.coordinator.transaction.markers import TransactionMarkers
from moldau.metadata.current import CurrentImage
from moldau.runtime.coordinators import marker_sender
from moldau.runtime.coordinators.marker_sender import MarkerSender
from moldau.runtime.own_work import OwnWork
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


class SenderHarness:
    def __init__(self, **leaders: list[int]) -> None:
        self.current = CurrentImage()
        self.current.image = image_of(**leaders)
        self.brokers = FakeBrokers()
        self.timers = FakeTimers()
        self.written: list[TransactionMarkers] = []
        self.is_ours = True
        self.faults: list[Exception] = []
        own_work = OwnWork(self.timers, self.faults.append)
        self.sender = MarkerSender(self.current, self.brokers, own_work, self.written.append, lambda _: self.is_ours)

    def send(self, name: str, *partitions: tuple[str, int], producer_id: int = 7) -> TransactionMarkers:
        places = tuple(TopicPartition(*each) for each in partitions)
        markers = TransactionMarkers(name, producer_id, 3, True, 5, 2, places)
        self.sender.send(markers)
        self.timers.run_soon()
        return markers

    def markers_in_flight(self) -> list[tuple[int, list[tuple[int, str, int]]]]:
        """Return (node, its markers as (producer, topic, partition)) of all requests in flight."""
        return [(node, markers_in(request)) for node, request, _ in self.brokers.requests]

    def answer(self, **codes: ErrorCode) -> None:
        """Respond to the oldest request: these topics with these codes, all others without an error."""
        _, request, waiting = self.brokers.take()
        waiting.complete(response(request, codes))
        self.timers.run_soon()


def markers_in(request: WriteTxnMarkersRequest) -> list[tuple[int, str, int]]:
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
    harness = SenderHarness(a=[1, 2], b=[2])
    markers = harness.send("tx", ("a", 0), ("a", 1), ("b", 0))
    assert harness.markers_in_flight() == [(1, [(7, "a", 0)]), (2, [(7, "a", 1), (7, "b", 0)])]
    marker = harness.brokers.requests[0][1].markers[0]
    assert (marker.producer_epoch, marker.coordinator_epoch, marker.transaction_version) == (3, 5, 2)
    assert marker.transaction_result is True
    harness.answer()
    assert harness.written == []
    harness.answer()
    assert harness.written == [markers]


def test_markers_queued_during_a_request_go_with_the_next_one() -> None:
    harness = SenderHarness(a=[2, 2])
    harness.send("one", ("a", 0), producer_id=1)
    harness.send("two", ("a", 0), producer_id=2)
    harness.send("three", ("a", 1), producer_id=3)
    assert harness.markers_in_flight() == [(2, [(1, "a", 0)])]
    harness.answer()
    assert harness.markers_in_flight() == [(2, [(2, "a", 0), (3, "a", 1)])]
    harness.answer()
    assert [each.transactional_id for each in harness.written] == ["one", "two", "three"]


def test_a_marker_follows_its_partition_to_the_new_leader() -> None:
    harness = SenderHarness(a=[1], b=[1])
    markers = harness.send("tx", ("a", 0), ("b", 0))
    harness.current.image = image_of(a=[2], b=[1])
    harness.answer(a=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert harness.markers_in_flight() == []
    harness.timers.advance(RETRY_DELAY_MS)
    assert harness.markers_in_flight() == [(2, [(7, "a", 0)])], "only the missing marker is sent again"
    harness.answer()
    assert harness.written == [markers]


def test_an_unreachable_broker_is_retried() -> None:
    harness = SenderHarness(a=[2])
    markers = harness.send("tx", ("a", 0))
    for _ in range(3):
        harness.brokers.take()[2].complete(KafkaError(ErrorCode.NETWORK_EXCEPTION))
        harness.timers.advance(RETRY_DELAY_MS)
    harness.answer()
    assert harness.written == [markers]


def test_markers_wait_for_a_leaderless_partition_and_not_for_a_deleted_topic() -> None:
    harness = SenderHarness(a=[-1])
    markers = harness.send("tx", ("a", 0), ("gone", 0), ("a", 5))
    assert harness.markers_in_flight() == []
    harness.current.image = image_of(a=[3])
    harness.timers.advance(RETRY_DELAY_MS)
    assert harness.markers_in_flight() == [(3, [(7, "a", 0)])]
    harness.answer()
    assert harness.written == [markers]
    only_gone = harness.send("other", ("gone", 0))
    assert harness.written == [markers, only_gone]


def test_markers_stop_when_another_coordinator_has_taken_over() -> None:
    harness = SenderHarness(a=[1], b=[2])
    harness.send("tx", ("a", 0), ("b", 0))
    harness.answer(a=ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    harness.answer()
    harness.timers.advance(10 * RETRY_DELAY_MS)
    assert (harness.markers_in_flight(), harness.written) == ([], [])


def test_a_former_coordinator_stops_sending() -> None:
    harness = SenderHarness(a=[1])
    harness.send("tx", ("a", 0))
    harness.is_ours = False
    harness.answer(a=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    harness.timers.advance(10 * RETRY_DELAY_MS)
    assert (harness.markers_in_flight(), harness.written) == ([], [])


def test_the_later_end_of_a_transactional_id_replaces_the_earlier() -> None:
    harness = SenderHarness(a=[1])
    harness.send("tx", ("a", 0))
    later = harness.send("tx", ("a", 0), producer_id=8)
    harness.answer()
    assert harness.written == []
    harness.answer()
    assert harness.written == [later]


def test_obsolete_markers_are_not_sent() -> None:
    harness = SenderHarness(a=[1])
    harness.send("first", ("a", 0), producer_id=1)
    harness.send("tx", ("a", 0))
    later = harness.send("tx", ("a", 0))
    harness.answer()
    assert harness.markers_in_flight() == [(1, [(7, "a", 0)])]
    harness.answer()
    assert harness.written[-1] is later


def test_a_request_has_at_most_the_allowed_number_of_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_sender, "MARKER_PARTITIONS_PER_REQUEST_MAX", 2)
    harness = SenderHarness(a=[1])
    for number in range(5):
        harness.send(f"tx{number}", ("a", 0), producer_id=number)
    sent = []
    while harness.brokers.requests:
        sent.append([producer for producer, _, _ in harness.markers_in_flight()[0][1]])
        harness.answer()
    assert sent == [[0], [1, 2], [3, 4]]
    assert len(harness.written) == 5


def test_a_fault_in_the_handling_of_a_response_stops_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """The markers of this request would not be sent again, and their transactions would never end."""

    def fail(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    harness = SenderHarness(a=[1])
    harness.send("tx", ("a", 0))
    monkeypatch.setattr(MarkerSender, "_handle_results", fail)
    harness.answer()
    assert [str(fault) for fault in harness.faults] == ["a fault of ours"]


def test_nothing_is_sent_after_close() -> None:
    harness = SenderHarness(a=[1])
    harness.send("tx", ("a", 0))
    harness.sender.close()
    harness.answer(a=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    harness.timers.advance(10 * RETRY_DELAY_MS)
    assert (harness.markers_in_flight(), harness.written) == ([], [])


def test_the_markers_of_a_large_transaction_are_split_into_requests() -> None:
    topics = {f"{number:0>240}": [1] for number in range(6_000)}
    harness = SenderHarness(**topics)
    markers = harness.send("tx", *((topic, 0) for topic in sorted(topics)))
    marked: list[str] = []
    while harness.brokers.requests:
        request = harness.brokers.requests[0][1]
        assert len(request_frame(ApiKey.WRITE_TXN_MARKERS, 2, 1, None, request)) <= TRANSACTION_REQUEST_BYTES_MAX
        marked += [topic for _, topic, _ in markers_in(request)]
        harness.answer()
    assert marked == sorted(topics)
    assert harness.written == [markers]
