"""The stand-in's consumer as a group member, while coordinators die and the group removes it."""

from __future__ import annotations

from typing import Any

import pytest
from stand_in_brokers import BOOTSTRAP, FakeBrokers, heartbeat_error, heartbeat_response, offset_commit_response

from moldau.base.errors import ErrorCode
from moldau.client.stand_in.consumer import Consumer
from moldau.client.stand_in.values import KafkaException, TopicPartition
from moldau.wire.apis import ApiKey

pytestmark = pytest.mark.usefixtures("no_waiting")
HEARTBEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT


class Member:
    """A consumer in a group of one, whose topic `t` has two partitions with one record each."""

    def __init__(self, brokers: FakeBrokers) -> None:
        self.events: list[tuple[str, list[int]]] = []
        brokers.topics["t"] = {0: 3, 1: 3}
        brokers.handlers[HEARTBEAT] = self.heartbeat
        config = {"bootstrap.servers": BOOTSTRAP, "group.id": "g", "auto.offset.reset": "earliest"}
        self.consumer = Consumer(config)
        self.consumer.subscribe(
            ["t"],
            on_assign=lambda _, given: self.events.append(("assign", partitions(given))),
            on_revoke=lambda _, taken: self.events.append(("revoke", partitions(taken))),
            on_lost=lambda _, taken: self.events.append(("lost", partitions(taken))),
        )

    def heartbeat(self, _: int, request: Any) -> Any:
        return (
            heartbeat_response(1, {"t": [0, 1]})
            if request.member_epoch == 0
            else heartbeat_response(request.member_epoch)
        )

    def poll(self, times: int = 1) -> list[bytes | None]:
        read = [self.consumer.poll(1) for _ in range(times)]
        return [each.value() for each in read if each is not None]


def partitions(some: list[TopicPartition]) -> list[int]:
    return [each.partition for each in some]


@pytest.fixture
def member(brokers: FakeBrokers) -> Member:
    return Member(brokers)


def test_a_member_reads_its_assigned_partitions(member: Member) -> None:
    assert sorted(filter(None, member.poll(4))) == [b"0", b"1"]
    assert member.events == [("assign", [0, 1])]


def test_a_member_that_consumes_what_it_has_fetched_sends_heartbeats(brokers: FakeBrokers, member: Member) -> None:
    read = []
    while len(member.consumer._queue) != 1:
        read += member.consumer.consume(1, 1)
    brokers.received.clear()
    assert member.consumer._member is not None
    member.consumer._member._next_heartbeat = 0
    assert member.consumer.consume(0, 1) == []
    read += member.consumer.consume(2, 1)
    assert sorted(message.value() for message in read) == [b"0", b"1"]
    assert len(brokers.requests(HEARTBEAT)) == 1


def test_after_the_coordinator_died_the_next_one_is_found(brokers: FakeBrokers, member: Member) -> None:
    member.poll(4)
    brokers.dead, brokers.coordinator = {1}, 2
    brokers.received.clear()
    member.poll(4)
    assert [node for node, key, _ in brokers.received if key == HEARTBEAT][-1:] == [2]


def test_after_the_coordinator_left_the_metadata_the_next_one_is_found(brokers: FakeBrokers, member: Member) -> None:
    member.poll(2)
    brokers.dead, brokers.nodes = {1}, {2, 3}
    member.poll(2)
    brokers.coordinator = 2
    brokers.received.clear()
    member.poll(4)
    assert [node for node, key, _ in brokers.received if key == HEARTBEAT][-1:] == [2]


def test_offsets_are_committed_to_the_next_coordinator(brokers: FakeBrokers, member: Member) -> None:
    member.poll(4)
    brokers.dead, brokers.coordinator = {1}, 2
    brokers.received.clear()
    member.consumer.close()
    assert [node for node, key, _ in brokers.received if key == ApiKey.OFFSET_COMMIT] == [2]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_a_member_that_was_removed_from_the_group_rejoins(
    brokers: FakeBrokers, member: Member, code: ErrorCode
) -> None:
    assert len(member.poll(4)) == 2
    brokers.handlers[ApiKey.OFFSET_COMMIT] = lambda _, request: offset_commit_response(request, code)
    brokers.handlers[HEARTBEAT] = lambda _, request: (
        heartbeat_response(7, {"t": [0, 1]})
        if request.member_epoch == 0
        else heartbeat_response(7)
        if request.member_epoch == 7
        else heartbeat_error(code)
    )
    member.consumer._next_commit = 0
    brokers.received.clear()
    assert sorted(filter(None, member.poll(6))) == [b"0", b"1"], "uncommitted records are read again"
    assert member.events == [("assign", [0, 1]), ("lost", [0, 1]), ("assign", [0, 1])]


def test_a_commit_with_an_unknown_member_id_makes_the_member_rejoin(brokers: FakeBrokers, member: Member) -> None:
    assert len(member.poll(4)) == 2
    brokers.handlers[ApiKey.OFFSET_COMMIT] = lambda _, request: offset_commit_response(
        request, ErrorCode.UNKNOWN_MEMBER_ID
    )
    member.consumer._next_commit = 0
    member.poll(4)
    assert member.events == [("assign", [0, 1]), ("lost", [0, 1]), ("assign", [0, 1])]


@pytest.mark.parametrize("code", [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION])
def test_offsets_of_a_stale_epoch_are_committed_in_the_next(
    brokers: FakeBrokers, member: Member, code: ErrorCode
) -> None:
    assert len(member.poll(4)) == 2
    brokers.handlers[ApiKey.OFFSET_COMMIT] = lambda _, request: offset_commit_response(request, code)
    member.consumer._next_commit = 0
    member.poll()
    brokers.handlers[ApiKey.OFFSET_COMMIT] = lambda _, request: offset_commit_response(request)
    brokers.handlers[HEARTBEAT] = lambda _, request: heartbeat_response(9)
    brokers.received.clear()
    member.consumer._next_commit = 0
    member.poll()
    (commit,) = brokers.requests(ApiKey.OFFSET_COMMIT)
    assert commit.generation_id_or_member_epoch == 9
    assert member.events == [("assign", [0, 1])]


def test_an_assignment_waits_until_the_committed_offsets_are_known(brokers: FakeBrokers, member: Member) -> None:
    answer = brokers.handlers.pop(ApiKey.OFFSET_FETCH)
    brokers.handlers[ApiKey.OFFSET_FETCH] = _broken
    member.poll(2)
    assert member.events == []
    brokers.handlers[ApiKey.OFFSET_FETCH] = answer
    assert len(member.poll(6)) == 2
    assert member.events == [("assign", [0, 1])]


def _broken(_: int, request: Any) -> Any:
    raise ConnectionResetError("gone")


def test_an_assignment_in_a_lost_response_is_requested_again(brokers: FakeBrokers, member: Member) -> None:
    """The coordinator repeats an assignment only to a member that sends its whole state."""
    brokers.handlers[HEARTBEAT] = lambda _, request: (
        heartbeat_response(1, {"t": [0]}) if request.member_epoch == 0 else heartbeat_response(1)
    )
    member.poll(4)
    brokers.handlers[HEARTBEAT] = _broken
    member.poll(2)
    brokers.handlers[HEARTBEAT] = lambda _, request: (
        heartbeat_response(1, {"t": [0, 1]})
        if None not in (request.subscribed_topic_names, request.topic_partitions) and request.rebalance_timeout_ms > 0
        else heartbeat_response(1)
    )
    brokers.received.clear()
    assert len(member.poll(4)) == 1
    assert member.events == [("assign", [0]), ("assign", [1])]
    full, *later = brokers.requests(HEARTBEAT)
    assert [list(each.partitions) for each in full.topic_partitions] == [[0]]
    assert [each.subscribed_topic_names for each in later] == [None] * len(later)


def _without_a_topic(name: str) -> Any:
    """Return a coordinator whose broker does not know that topic any more."""

    def answer(_: int, request: Any) -> Any:
        response = offset_commit_response(request)
        for topic in response.topics:
            for each in topic.partitions:
                each.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic.name == name else ErrorCode.NONE
        return response

    return answer


def test_a_deleted_topic_is_revoked_although_its_offsets_cannot_be_committed(
    brokers: FakeBrokers, member: Member
) -> None:
    assert len(member.poll(4)) == 2
    del brokers.topics["t"]
    brokers.handlers[ApiKey.OFFSET_COMMIT] = _without_a_topic("t")
    brokers.handlers[HEARTBEAT] = lambda _, request: (
        heartbeat_response(2, {}) if request.member_epoch < 2 else heartbeat_response(2)
    )
    member.poll(4)
    assert member.events[1:] == [("revoke", [0, 1]), ("assign", [])]


def test_a_member_leaves_although_offsets_of_a_deleted_topic_cannot_be_committed(
    brokers: FakeBrokers, member: Member
) -> None:
    assert len(member.poll(4)) == 2
    del brokers.topics["t"]
    brokers.handlers[ApiKey.OFFSET_COMMIT] = _without_a_topic("t")
    member.consumer.close()
    assert brokers.requests(HEARTBEAT)[-1].member_epoch == -1


def test_offsets_are_committed_again_if_the_coordinator_does_not_know_the_topic_yet(
    brokers: FakeBrokers, member: Member
) -> None:
    assert len(member.poll(4)) == 2
    answers = [_without_a_topic("t"), brokers.handlers[ApiKey.OFFSET_COMMIT]]
    brokers.handlers[ApiKey.OFFSET_COMMIT] = lambda node, request: answers.pop(0)(node, request)
    member.consumer.close()
    assert answers == []


def test_a_topic_that_the_broker_does_not_know_yet_is_read_later(brokers: FakeBrokers, member: Member) -> None:
    del brokers.topics["t"]
    member.poll(2)
    brokers.topics["t"] = {0: 3, 1: 3}
    assert len(member.poll(6)) == 2
    assert member.events[-1] == ("assign", [0, 1])
    (owned,) = [each.topic_partitions for each in brokers.requests(HEARTBEAT) if each.topic_partitions]
    assert [list(each.partitions) for each in owned] == [[0, 1]]


def test_partitions_are_revoked_once_even_if_the_new_ones_have_to_wait(brokers: FakeBrokers, member: Member) -> None:
    brokers.topics["t"] = {0: 3, 1: 3, 2: 3}
    member.poll(4)
    answer = brokers.handlers[ApiKey.OFFSET_FETCH]
    brokers.handlers[ApiKey.OFFSET_FETCH] = _broken
    brokers.handlers[HEARTBEAT] = lambda _, request: (
        heartbeat_response(2, {"t": [1, 2]}) if request.member_epoch < 2 else heartbeat_response(2)
    )
    member.poll(3)
    brokers.handlers[ApiKey.OFFSET_FETCH] = answer
    member.poll(3)
    assert member.events[1:] == [("revoke", [0]), ("assign", [2])]


def test_a_member_without_partitions_is_notified(brokers: FakeBrokers, member: Member) -> None:
    brokers.handlers[HEARTBEAT] = lambda _, request: (
        heartbeat_response(1, {}) if request.member_epoch == 0 else heartbeat_response(1)
    )
    member.poll(3)
    assert member.events == [("assign", [])]


def test_a_broker_without_the_consumer_protocol_causes_a_clear_error(brokers: FakeBrokers, member: Member) -> None:
    del brokers.handlers[HEARTBEAT]
    with pytest.raises(KafkaException) as failed:
        member.poll()
    assert "does not support KIP-848" in failed.value.args[0].str()
    assert "Python 3.14 or older" in failed.value.args[0].str()
