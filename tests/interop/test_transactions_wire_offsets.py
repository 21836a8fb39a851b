"""Transactional offsets: AddOffsetsToTxn, TxnOffsetCommit, and when the offsets are visible.

They are in the group's log at once and take effect with the marker; until then, requests for stable offsets get a
retriable error. Up to version 4 the group must have been added before; from 5 on its coordinator adds it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from group_members import Group, join_alone
from kio.schema.errors import ErrorCode
from transaction_requests import (
    TransactionalProducer,
    add_offsets,
    await_state,
    commit_offsets,
    describe,
    end,
    fetch_offset,
    init,
    new_transactional_producer,
    next_epoch,
    until,
)
from wire_client import Wire, message

CreateTopic = Callable[..., str]
UNKNOWN_PRODUCER_ID = 1 << 40
OLD, NEW = 4, 5
"""The last version of TxnOffsetCommit that adds nothing to a transaction, and the first that does."""


@pytest.fixture(scope="module")
def name(create_topic: CreateTopic) -> str:
    return create_topic(partitions=2)


@pytest.fixture
def group(bootstrap: str) -> Iterator[Group]:
    with Group(bootstrap) as group:
        yield group


@pytest.fixture
def producer(wire: Wire) -> TransactionalProducer:
    """Of epoch 1, so that there is an earlier epoch."""
    transactional_id = f"tx-{uuid.uuid4().hex[:8]}"
    init(wire, transactional_id)
    return new_transactional_producer(wire, transactional_id)


def offset_once_stable(wire: Wire, group: Group, name: str, partition: int = 0) -> int:
    """Fetch offsets as a read_committed consumer does, until none is pending."""
    found = until(
        lambda: fetch_offset(wire, group.id, name, require_stable=True, partition=partition),
        lambda answer: answer.error_code != ErrorCode.unstable_offset_commit,
        "the offset is stable",
    )
    assert found.error_code == ErrorCode.none, found
    return int(found.committed_offset)


def begin(wire: Wire, producer: TransactionalProducer, group: Group, version: int) -> None:
    if version < NEW:
        assert add_offsets(wire, producer, group.id) == ErrorCode.none


# --- AddOffsetsToTxn ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
def test_a_groups_partition_is_added_to_the_transaction(
    wire: Wire, group: Group, producer: TransactionalProducer, version: int
) -> None:
    for _ in range(2):
        assert add_offsets(wire, producer, group.id, version) == ErrorCode.none
    shown = describe(wire, producer.transactional_id)
    ((topic, _),) = shown.partitions
    assert (shown.state, topic) == ("Ongoing", "__consumer_offsets")


@pytest.mark.parametrize("version", range(5))
def test_only_the_current_producer_adds_a_group(
    wire: Wire, group: Group, producer: TransactionalProducer, version: int
) -> None:
    fenced = ErrorCode.producer_fenced if version >= 2 else ErrorCode.invalid_producer_epoch
    for other, expected in (
        (producer._replace(epoch=producer.epoch + 1), fenced),
        (producer._replace(epoch=producer.epoch - 1), fenced),
        (producer._replace(id=UNKNOWN_PRODUCER_ID), ErrorCode.invalid_producer_id_mapping),
        (producer._replace(transactional_id="nobody"), ErrorCode.invalid_producer_id_mapping),
        (producer._replace(transactional_id=""), ErrorCode.invalid_request),
    ):
        assert add_offsets(wire, other, group.id, version) == expected, other
    assert describe(wire, producer.transactional_id).state == "Empty"


# --- TxnOffsetCommit ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_offsets_are_pending_until_the_transaction_is_committed(
    wire: Wire, name: str, group: Group, producer: TransactionalProducer, version: int
) -> None:
    assert group.commit(name, 3) == ErrorCode.none
    begin(wire, producer, group, version)
    offsets = {(name, 0): 5, (name, 1): 6}
    assert set(commit_offsets(wire, producer, group.id, offsets, version, metadata="why").values()) == {ErrorCode.none}
    assert group.committed(name) == 3, "without require_stable the previous offset is returned"
    for partition in (0, 1):
        unstable = fetch_offset(wire, group.id, name, require_stable=True, partition=partition)
        result = (unstable.error_code, unstable.committed_offset, unstable.metadata)
        assert result == (ErrorCode.unstable_offset_commit, -1, "")
    assert end(wire, producer, True, version=5 if version >= NEW else 4).error_code == ErrorCode.none
    assert (offset_once_stable(wire, group, name), offset_once_stable(wire, group, name, 1)) == (5, 6)
    assert fetch_offset(wire, group.id, name).metadata == "why"


@pytest.mark.parametrize("version", range(6))
def test_offsets_of_an_aborted_transaction_are_discarded(
    wire: Wire, name: str, group: Group, producer: TransactionalProducer, version: int
) -> None:
    assert group.commit(name, 3) == ErrorCode.none
    begin(wire, producer, group, version)
    offsets = {(name, 0): 5, (name, 1): 6}
    assert set(commit_offsets(wire, producer, group.id, offsets, version).values()) == {ErrorCode.none}
    assert end(wire, producer, False, version=5 if version >= NEW else 4).error_code == ErrorCode.none
    assert (offset_once_stable(wire, group, name), offset_once_stable(wire, group, name, 1)) == (3, -1)


def test_the_last_of_several_commits_in_a_transaction_is_kept(
    wire: Wire, name: str, group: Group, producer: TransactionalProducer
) -> None:
    begin(wire, producer, group, OLD)
    for offset in (5, 9, 7):
        commit_offsets(wire, producer, group.id, {(name, 0): offset})
    end(wire, producer, committed=True)
    assert offset_once_stable(wire, group, name) == 7


def test_a_plain_commit_after_a_pending_one_is_kept(
    wire: Wire, name: str, group: Group, producer: TransactionalProducer
) -> None:
    begin(wire, producer, group, OLD)
    commit_offsets(wire, producer, group.id, {(name, 0): 5})
    assert group.commit(name, 8) == ErrorCode.none
    assert group.committed(name) == 8
    end(wire, producer, committed=True)
    assert offset_once_stable(wire, group, name) == 8


def test_each_of_two_transactions_keeps_the_offset_unstable(
    wire: Wire, name: str, group: Group, producer: TransactionalProducer
) -> None:
    other = new_transactional_producer(wire, f"{producer.transactional_id}-other")
    for offset, each in enumerate((producer, other), start=5):
        begin(wire, each, group, OLD)
        assert commit_offsets(wire, each, group.id, {(name, 0): offset}) == {(name, 0): ErrorCode.none}
    end(wire, other, committed=True)
    await_state(wire, other.transactional_id, "CompleteCommit")
    unstable = fetch_offset(wire, group.id, name, require_stable=True)
    assert unstable.error_code == ErrorCode.unstable_offset_commit
    assert group.committed(name) == 6
    end(wire, producer, committed=False)
    assert offset_once_stable(wire, group, name) == 6


@pytest.mark.parametrize("version", range(NEW))
def test_offsets_of_a_group_that_was_not_added_are_refused(
    wire: Wire, name: str, group: Group, producer: TransactionalProducer, version: int
) -> None:
    refused = ErrorCode.transaction_abortable if version == OLD else ErrorCode.invalid_txn_state
    assert commit_offsets(wire, producer, group.id, {(name, 0): 5}, version) == {(name, 0): refused}
    assert describe(wire, producer.transactional_id).state == "Empty"
    assert offset_once_stable(wire, group, name) == -1


def test_from_version_5_on_the_group_is_added_automatically(
    wire: Wire, name: str, group: Group, producer: TransactionalProducer
) -> None:
    assert commit_offsets(wire, producer, group.id, {(name, 0): 5}, NEW) == {(name, 0): ErrorCode.none}
    shown = describe(wire, producer.transactional_id)
    assert (shown.state, {topic for topic, _ in shown.partitions}) == ("Ongoing", {"__consumer_offsets"})
    now = next_epoch(wire, producer, committed=True)
    assert offset_once_stable(wire, group, name) == 5
    late = commit_offsets(wire, producer, group.id, {(name, 0): 2}, NEW)
    assert late == {(name, 0): ErrorCode.invalid_producer_epoch}
    assert commit_offsets(wire, now, group.id, {(name, 0): 6}, NEW) == {(name, 0): ErrorCode.none}
    next_epoch(wire, now, committed=True)
    assert offset_once_stable(wire, group, name) == 6


@pytest.mark.parametrize("version", range(6))
def test_only_the_current_producer_commits_offsets(
    wire: Wire, name: str, group: Group, producer: TransactionalProducer, version: int
) -> None:
    begin(wire, producer, group, version)
    assert commit_offsets(wire, producer, group.id, {(name, 0): 5}, version) == {(name, 0): ErrorCode.none}
    for other, expected in (
        (producer._replace(epoch=producer.epoch - 1), ErrorCode.invalid_producer_epoch),
        (producer._replace(epoch=producer.epoch + 1), ErrorCode.invalid_producer_epoch),
        (producer._replace(id=UNKNOWN_PRODUCER_ID), ErrorCode.invalid_producer_id_mapping),
    ):
        assert commit_offsets(wire, other, group.id, {(name, 0): 9}, version) == {(name, 0): expected}, other
    end(wire, producer, True, version=5 if version >= NEW else 4)
    assert offset_once_stable(wire, group, name) == 5


def test_a_producer_fenced_by_its_successor_commits_no_offsets(
    wire: Wire, name: str, group: Group, producer: TransactionalProducer
) -> None:
    begin(wire, producer, group, OLD)
    commit_offsets(wire, producer, group.id, {(name, 0): 5})
    successor = new_transactional_producer(wire, producer.transactional_id)
    for version in (3, OLD, NEW):
        late = commit_offsets(wire, producer, group.id, {(name, 0): 6}, version)
        assert late == {(name, 0): ErrorCode.invalid_producer_epoch}, version
    assert add_offsets(wire, producer, group.id) == ErrorCode.producer_fenced
    assert offset_once_stable(wire, group, name) == -1
    begin(wire, successor, group, OLD)
    assert commit_offsets(wire, successor, group.id, {(name, 0): 7}) == {(name, 0): ErrorCode.none}
    end(wire, successor, committed=True)
    assert offset_once_stable(wire, group, name) == 7


@pytest.mark.parametrize("version", [3, OLD, NEW])
def test_a_member_commits_in_its_own_generation_only(
    wire: Wire, name: str, group: Group, producer: TransactionalProducer, version: int
) -> None:
    (member,) = group.join_members(topic=name)
    begin(wire, producer, group, version)
    for member_id, generation, expected in (
        (member.id, member.generation - 1, ErrorCode.illegal_generation),
        (member.id, member.generation + 1, ErrorCode.illegal_generation),
        ("stranger", member.generation, ErrorCode.unknown_member_id),
        ("", member.generation, ErrorCode.unknown_member_id),
        (member.id, member.generation, ErrorCode.none),
    ):
        membership = {"member_id": member_id, "generation_id": generation}
        assert commit_offsets(wire, producer, group.id, {(name, 0): 5}, version, **membership) == {
            (name, 0): expected
        }, membership
    instance = {"member_id": member.id, "generation_id": member.generation, "group_instance_id": "stranger"}
    code = commit_offsets(wire, producer, group.id, {(name, 0): 9}, version, **instance)
    assert code == {(name, 0): ErrorCode.unknown_member_id}
    end(wire, producer, True, version=5 if version >= NEW else 4)
    assert offset_once_stable(wire, group, name) == 5


@pytest.mark.parametrize("version", [0, 3, NEW])
def test_a_commit_without_a_member_is_accepted_even_if_the_group_has_members(
    wire: Wire, name: str, group: Group, producer: TransactionalProducer, version: int
) -> None:
    """As producers did before members were known: only the transactional id fences them."""
    group.join_members(topic=name)
    begin(wire, producer, group, version)
    assert commit_offsets(wire, producer, group.id, {(name, 0): 5}, version) == {(name, 0): ErrorCode.none}
    end(wire, producer, True, version=5 if version >= NEW else 4)
    assert offset_once_stable(wire, group, name) == 5


@pytest.mark.parametrize("version", [3, OLD, NEW])
def test_a_consumer_member_commits_in_its_own_epoch(
    wire: Wire, name: str, group: Group, producer: TransactionalProducer, version: int
) -> None:
    member = group.consumer([name])
    epoch = join_alone(member, 2)
    begin(wire, producer, group, version)
    for member_id, generation, expected in (
        (member.id, epoch - 1, ErrorCode.illegal_generation),
        (member.id, epoch + 1, ErrorCode.illegal_generation),
        ("stranger", epoch, ErrorCode.unknown_member_id),
        (member.id, epoch, ErrorCode.none),
    ):
        membership = {"member_id": member_id, "generation_id": generation}
        assert commit_offsets(wire, producer, group.id, {(name, 0): 5}, version, **membership) == {
            (name, 0): expected
        }, membership
    end(wire, producer, True, version=5 if version >= NEW else 4)
    assert offset_once_stable(wire, group, name) == 5


@pytest.mark.parametrize("version", range(6))
def test_offsets_of_missing_partitions_are_refused_and_the_others_kept(
    wire: Wire, name: str, group: Group, producer: TransactionalProducer, version: int
) -> None:
    begin(wire, producer, group, version)
    offsets = {(name, 0): 5, (name, 9): 5, ("nowhere", 0): 5}
    assert commit_offsets(wire, producer, group.id, offsets, version) == {
        (name, 0): ErrorCode.none,
        (name, 9): ErrorCode.unknown_topic_or_partition,
        ("nowhere", 0): ErrorCode.unknown_topic_or_partition,
    }
    too_much = commit_offsets(wire, producer, group.id, {(name, 1): 5}, version, metadata="x" * 5000)
    assert too_much == {(name, 1): ErrorCode.offset_metadata_too_large}
    assert commit_offsets(wire, producer, "", {(name, 0): 5}, version) == {(name, 0): ErrorCode.invalid_group_id}
    end(wire, producer, True, version=5 if version >= NEW else 4)
    assert offset_once_stable(wire, group, name) == 5


@pytest.mark.parametrize("version", [7, 8, 9])
def test_every_version_of_offset_fetch_reports_pending_offsets(
    wire: Wire, name: str, group: Group, producer: TransactionalProducer, version: int
) -> None:
    """Also with all the group's offsets, where the pending one is the first of its partition."""
    assert group.commit(name, 3, partition=1) == ErrorCode.none
    begin(wire, producer, group, OLD)
    commit_offsets(wire, producer, group.id, {(name, 0): 5})

    def codes(topics: list[dict[str, object]] | None) -> dict[int, ErrorCode]:
        if version < 8:
            answer = wire.ask(message("offset_fetch", version, group_id=group.id, topics=topics, require_stable=True))
        else:
            requested = [{"group_id": group.id, "topics": topics}]
            (answer,) = wire.ask(message("offset_fetch", version, groups=requested, require_stable=True)).groups
        assert answer.error_code == ErrorCode.none
        return {each.partition_index: each.error_code for topic in answer.topics for each in topic.partitions}

    expected = {0: ErrorCode.unstable_offset_commit, 1: ErrorCode.none}
    assert codes([{"name": name, "partition_indexes": [0, 1]}]) == expected
    assert codes(None) == {1: ErrorCode.none}
    assert group.commit(name, 4) == ErrorCode.none
    assert codes(None) == expected
    end(wire, producer, committed=False)


def test_deleting_a_group_discards_its_pending_offsets(
    wire: Wire, name: str, group: Group, producer: TransactionalProducer
) -> None:
    begin(wire, producer, group, OLD)
    commit_offsets(wire, producer, group.id, {(name, 0): 5})
    assert group.delete() == ErrorCode.none
    end(wire, producer, committed=True)
    assert offset_once_stable(wire, group, name) == -1
