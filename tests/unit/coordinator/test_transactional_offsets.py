"""Offsets committed in transactions, against a model that computes every result from the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from harness.depth import deep
from hypothesis import given, settings
from hypothesis import strategies as st
from transactional_offsets_model import Committed, GroupRemoved, Marker, OffsetsModel, Removed

from moldau.base.errors import ErrorCode
from moldau.base.ids import ZERO_UUID
from moldau.base.steps import TurnItems, finish
from moldau.base.turns import CHANGES_A_TURN
from moldau.coordinator.group import listing
from moldau.coordinator.group.groups import Groups
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.group.topic_changes import TopicChanges
from moldau.coordinator.machine import Client, CoordinatorRecord, Outcome, ProducerIdAndEpoch
from moldau.metadata.apply import Changes
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage, PartitionState, TopicImage
from moldau.testing.clock import FakeClock
from moldau.wire.log_records.offsets import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
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
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

GROUPS = ("g", "h")
PARTITIONS = (0, 1)
PRODUCERS = (70, 71, 72)
CLIENT = Client("client", "/127.0.0.1", 8)
ONE = PartitionState((1,), (1,), 1, 0, 0)
TOPIC = TopicImage("t", b"t".ljust(16), (ONE,) * len(PARTITIONS))
NEVER_MS = 2**50


class Coordinator:
    """The groups and their log, used as in a shard; the model gets the same events."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.current = CurrentImage()
        self.current.image = MetadataImage(topics={"t": TOPIC})
        self.log: list[Callable[[Groups], None]] = []
        self.groups = self._new()
        self.model = OffsetsModel()

    def _new(self) -> Groups:
        return Groups(GroupSettings(), self.current, self.clock, Random(0))

    def replayed(self) -> Groups:
        groups = self._new()
        for replay in self.log:
            replay(groups)
        groups.loaded()
        return groups

    def execute(self, outcome: Outcome[object]) -> None:
        if outcome.producer is None:
            self.groups.apply_all(outcome.records)
        for record in outcome.records:
            self._write(record, outcome.producer)
            self.model.log.append(_model_event(record, outcome.producer))

    def _write(self, record: CoordinatorRecord, producer: ProducerIdAndEpoch | None) -> None:
        key, value = self.groups.encode(record)
        if producer is None:
            self.log.append(lambda groups: groups.replay(key, value))
        else:
            self.groups.apply_transactional(producer.producer_id, record)
            self.log.append(lambda groups: groups.replay_transactional(producer.producer_id, key, value))

    # --- steps --------------------------------------------------------------------------------------------------

    def commit(self, group: str, partition: int, offset: int) -> None:
        topic = OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(partition, offset)])
        self.execute(self.groups.offsets.commit(OffsetCommitRequest(group, -1, topics=[topic]), CLIENT))
        assert self.model.log[-1] == Committed(group, partition, offset)

    def send(self, producer: int, group: str, partition: int, offset: int) -> None:
        self.execute(
            self.groups.offsets.transactional_commit(
                transactional_commit_request(producer, group, partition, offset), CLIENT
            )
        )
        assert self.model.log[-1] == Committed(group, partition, offset, producer)

    def end(self, producer: int, committed: bool) -> None:
        self.groups.end_transaction(producer, committed)
        self.log.append(lambda groups: groups.end_transaction(producer, committed))
        self.model.log.append(Marker(producer, committed))

    def delete_offset(self, group: str, partition: int) -> None:
        topic = OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(partition)])
        if self.model.exists(group):
            request, offsets = OffsetDeleteRequest(group, [topic]), self.groups.offsets
            self.execute(offsets.delete(finish(offsets.draft_deletion(request, TurnItems(1)))))
            assert self.model.offset(group, partition) is None
            assert not self.model.is_open(group, partition)

    def delete_group(self, group: str) -> None:
        if self.model.exists(group):
            self.execute(listing.delete(self.groups.state, group))
            assert not self.model.exists(group)

    def expire(self) -> None:
        """Expire all offsets that have no open transactional commit."""
        open_commits = [
            (group, partition) for group in GROUPS for partition in PARTITIONS if self.model.is_open(group, partition)
        ]
        for outcome in self.groups.expire(NEVER_MS):
            if outcome is not None:
                self.execute(outcome)
        for group in GROUPS:
            for partition in PARTITIONS:
                is_open = (group, partition) in open_commits
                assert self.model.is_open(group, partition) == is_open
                assert is_open or self.model.offset(group, partition) is None
            assert self.model.exists(group) == any(group == of for of, _ in open_commits)

    def reload(self) -> None:
        self.groups = self.replayed()


def _model_event(record: CoordinatorRecord, producer: ProducerIdAndEpoch | None) -> Committed | Removed | GroupRemoved:
    key, value = record
    if isinstance(key, OffsetCommitKey):
        if value is None:
            return Removed(key.group, key.partition)
        assert isinstance(value, OffsetCommitValue)
        return Committed(key.group, key.partition, value.offset, producer and producer.producer_id)
    assert isinstance(key, GroupMetadataKey)
    assert value is None
    return GroupRemoved(key.group)


def transactional_commit_request(producer: int, group: str, partition: int, offset: int) -> TxnOffsetCommitRequest:
    topic = TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(partition, offset)])
    return TxnOffsetCommitRequest("transaction", group, producer, 3, topics=[topic])


def fetched(groups: Groups, group: str, stable: bool, all_topics: bool = False) -> dict[int, tuple[int, int]]:
    """Return offset and error code by partition."""
    named = OffsetFetchRequestTopics(name="t", partition_indexes=PARTITIONS)
    request = OffsetFetchRequestGroup(group, topics=None if all_topics else [named])
    response = finish(groups.offsets.fetch(request, CLIENT, TurnItems(1), require_stable=stable))
    found = [each for topic in response.topics for each in topic.partitions]
    return {each.partition_index: (each.committed_offset, each.error_code) for each in found}


def check(groups: Groups, model: OffsetsModel) -> None:
    assert groups.state.groups.keys() == {group for group in GROUPS if model.exists(group)}
    for group in GROUPS:
        last = {each: (offset if (offset := model.offset(group, each)) is not None else -1, 0) for each in PARTITIONS}
        unstable = {each: (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT) for each in PARTITIONS if model.is_open(group, each)}
        is_known = [each for each in PARTITIONS if model.offset(group, each) is not None]
        assert fetched(groups, group, stable=False) == last
        assert fetched(groups, group, stable=True) == last | unstable
        assert fetched(groups, group, stable=False, all_topics=True) == {each: last[each] for each in is_known}
        of_all = fetched(groups, group, stable=True, all_topics=True)
        assert of_all == {each: (last | unstable)[each] for each in is_known}


group, partition, producer = st.sampled_from(GROUPS), st.sampled_from(PARTITIONS), st.sampled_from(PRODUCERS)
offset = st.integers(0, 99)
commits = st.tuples(st.just("commit"), group, partition, offset)
sends = st.tuples(st.just("send"), producer, group, partition, offset)
ends = st.tuples(st.just("end"), producer, st.booleans())
removals = st.one_of(
    st.tuples(st.just("delete_offset"), group, partition),
    st.tuples(st.just("delete_group"), group),
    st.tuples(st.just("expire")),
    st.tuples(st.just("reload")),
)
steps = st.lists(st.one_of(commits, sends, sends, ends, ends, removals), max_size=40)


@settings(max_examples=deep(70, quick=25), deadline=None)
@given(steps)
def test_offsets_equal_those_of_the_model(calls: list[tuple[object, ...]]) -> None:
    coordinator = Coordinator()
    for name, *values in calls:
        getattr(coordinator, str(name))(*values)
        check(coordinator.groups, coordinator.model)
        check(coordinator.replayed(), coordinator.model)


@settings(max_examples=deep(20, quick=8), deadline=None)
@given(steps)
def test_ended_transactions_leave_no_state(calls: list[tuple[object, ...]]) -> None:
    coordinator = Coordinator()
    for name, *values in calls:
        getattr(coordinator, str(name))(*values)
    pending = coordinator.groups.state.transactional_offsets
    assert all(pending._producers.values()), "a producer without open commits"
    for each in PRODUCERS:
        coordinator.end(each, True)
    assert list(pending) == []
    assert (pending.groups, pending._producers) == ({}, {})


def test_a_commit_is_written_for_its_producer_and_as_kafka_writes_it() -> None:
    coordinator = Coordinator()
    request = transactional_commit_request(70, "g", 1, 42)
    request.topics[0].partitions[0].committed_leader_epoch = 5
    request.topics[0].partitions[0].committed_metadata = None
    outcome = coordinator.groups.offsets.transactional_commit(request, CLIENT)
    assert outcome.producer == ProducerIdAndEpoch(70, 3)
    ((key, value),) = outcome.records
    assert isinstance(key, OffsetCommitKey)
    assert isinstance(value, OffsetCommitValue)
    assert (key.group, key.topic, key.partition) == ("g", "t", 1)
    assert (value.offset, value.leader_epoch, value.metadata) == (42, 5, "")
    assert (value.commit_timestamp, value.expire_timestamp) == (coordinator.clock.now_ms(), -1)
    assert value.topic_id == ZERO_UUID
    assert not coordinator.groups.state.groups, "nothing changes before the log has accepted it"


def test_a_refused_commit_writes_nothing() -> None:
    coordinator = Coordinator()
    outcome = coordinator.groups.offsets.transactional_commit(transactional_commit_request(70, "g", 7, 1), CLIENT)
    assert isinstance(outcome.response, TxnOffsetCommitResponse)
    assert outcome.response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not outcome.records


def test_other_records_in_a_transaction_do_not_wait_for_its_end() -> None:
    """No broker writes such records, but Kafka's coordinator would read them like this."""
    coordinator = Coordinator()
    record = CoordinatorRecord(GroupMetadataKey("g"), GroupMetadataValue("consumer", 4))
    coordinator.groups.replay_transactional(70, *coordinator.groups.encode(record))
    assert coordinator.groups.state.groups.keys() == {"g"}
    coordinator.send(70, "g", 0, 1)
    coordinator.groups.replay_transactional(
        70, *coordinator.groups.encode(CoordinatorRecord(OffsetCommitKey("g", "t", 0), None))
    )
    assert fetched(coordinator.groups, "g", stable=True)[0] == (-1, ErrorCode.NONE)


def test_open_commits_of_a_recreated_topic_stay() -> None:
    """They have no topic id, so it is unknown for which of the two topics they are."""
    coordinator = Coordinator()
    coordinator.send(70, "g", 0, 1)
    again = MetadataImage(topics={"t": TopicImage("t", b"new".ljust(16), (ONE,))})
    assert list(coordinator.groups.topics_changed(TopicChanges.of(again, Changes(removed=[TOPIC])), TurnItems(1))) == []
    assert coordinator.model.is_open("g", 0)


def deleted_topic_removals(coordinator: Coordinator) -> Iterator[Outcome[None] | None]:
    coordinator.current.image = MetadataImage()
    changes = TopicChanges.of(coordinator.current.image, Changes(removed=[TOPIC]))
    removals = coordinator.groups.topics_changed(changes, TurnItems(1))
    coordinator.current.image = MetadataImage(topics={"t": TopicImage("t", b"new".ljust(16), TOPIC.partitions)})
    return removals


def execute_all(coordinator: Coordinator, removals: Iterator[Outcome[None] | None]) -> None:
    for outcome in removals:
        if outcome is not None:
            coordinator.execute(outcome)


def test_a_commit_to_a_recreated_topic_is_not_removed_with_offsets_of_the_deleted_one() -> None:
    coordinator = Coordinator()
    coordinator.send(70, "g", 0, 1)
    removals = deleted_topic_removals(coordinator)
    coordinator.end(70, True)
    coordinator.commit("g", 0, 5)
    execute_all(coordinator, removals)
    assert fetched(coordinator.groups, "g", stable=False)[0] == (5, ErrorCode.NONE)


def test_an_open_commit_to_a_recreated_topic_is_not_removed_with_offsets_of_the_deleted_one() -> None:
    coordinator = Coordinator()
    coordinator.commit("g", 0, 1)
    coordinator.commit("g", 1, 1)
    removals = deleted_topic_removals(coordinator)
    coordinator.send(70, "g", 1, 5)
    execute_all(coordinator, removals)
    coordinator.end(70, True)
    assert [offset for offset, _ in fetched(coordinator.groups, "g", stable=False).values()] == [-1, 5]


def test_a_transactional_offset_of_a_deleted_topic_is_removed_after_its_transaction_ended_too() -> None:
    coordinator = Coordinator()
    coordinator.commit("g", 0, 1)
    coordinator.send(70, "g", 0, 2)
    coordinator.send(70, "g", 1, 2)
    removals = deleted_topic_removals(coordinator)
    coordinator.end(70, True)
    execute_all(coordinator, removals)
    assert [offset for offset, _ in fetched(coordinator.groups, "g", stable=False).values()] == [-1, -1]


def test_open_commits_of_a_missing_topic_are_removed_on_expiration() -> None:
    coordinator = Coordinator()
    coordinator.commit("g", 0, 1)
    coordinator.send(70, "g", 0, 2)
    coordinator.send(70, "g", 1, 2)
    coordinator.current.image = MetadataImage()
    for outcome in coordinator.groups.expire(coordinator.clock.now_ms()):
        if outcome is not None:
            coordinator.execute(outcome)
    assert coordinator.model.log[-3:] == [Removed("g", 0), Removed("g", 1), GroupRemoved("g")]
    coordinator.end(70, True)
    assert not coordinator.groups.state.groups


def run_deadlines(coordinator: Coordinator) -> None:
    for action in coordinator.groups.deadlines.due(coordinator.clock.monotonic_ms()):
        coordinator.execute(action())


def test_offsets_of_a_deleted_topic_are_removed_when_a_commit_to_the_recreated_one_is_aborted() -> None:
    coordinator = Coordinator()
    for partition in PARTITIONS:
        coordinator.commit("g", partition, 1)
    removals = deleted_topic_removals(coordinator)
    for partition in PARTITIONS:
        coordinator.send(70, "g", partition, 5)
    coordinator.send(71, "g", 1, 6)
    execute_all(coordinator, removals)
    assert [offset for offset, _ in fetched(coordinator.groups, "g", stable=False).values()] == [1, 1]
    coordinator.end(70, False)
    run_deadlines(coordinator)
    assert [offset for offset, _ in fetched(coordinator.groups, "g", stable=False).values()] == [-1, 1]
    coordinator.end(71, True)
    run_deadlines(coordinator)
    assert [offset for offset, _ in fetched(coordinator.groups, "g", stable=False).values()] == [-1, 6]
    assert not coordinator.groups.state.postponed_removals


def test_many_offsets_of_a_deleted_topic_are_removed_in_turns_when_commits_are_aborted() -> None:
    coordinator = Coordinator()
    groups = [f"g{number}" for number in range(CHANGES_A_TURN + 1)]
    for group in groups:
        coordinator.commit(group, 0, 1)
    removals = deleted_topic_removals(coordinator)
    for group in groups:
        coordinator.send(70, group, 0, 5)
    execute_all(coordinator, removals)
    coordinator.end(70, False)
    run_deadlines(coordinator)
    assert len(coordinator.groups.state.offsets) == 1
    run_deadlines(coordinator)
    assert not coordinator.groups.state.offsets
