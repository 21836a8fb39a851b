"""What is wrong with a partition, and what members of a group are called."""

from __future__ import annotations

import pytest

from moldau.client.admin.cluster_values import PartitionReplicas, Reassignment
from moldau.client.admin.group_values import Member
from moldau.operations.cluster_overview import member_names, note_of


def member(number: int, client_id: str) -> Member:
    return Member(f"id-00000{number}", None, client_id, "/127.0.0.1", frozenset())


@pytest.mark.parametrize(
    ("partition", "move", "note"),
    [
        (PartitionReplicas(1, (1, 2), (1, 2)), None, ""),
        (PartitionReplicas(2, (1, 2), (1, 2)), None, "preferred leader: 1"),
        (PartitionReplicas(2, (1, 2), (2,)), None, "not in sync: 1; preferred leader: 1"),
        (PartitionReplicas(2, (3, 2), (2,)), Reassignment((3, 2), (3,), (2,)), "not in sync: 3; moving: +3 -2"),
        (PartitionReplicas(-1, (1,), ()), None, "offline; not in sync: 1"),
    ],
)
def test_notes_of_partitions(partition: PartitionReplicas, move: Reassignment | None, note: str) -> None:
    assert note_of(partition, move) == note


def test_members_with_the_same_client_id_get_different_names() -> None:
    members = [member(1, "rdkafka"), member(2, "rdkafka"), member(3, "reader-3")]
    assert list(member_names(members).values()) == ["rdkafka-000001", "rdkafka-000002", "reader-3"]


def test_a_member_without_a_client_id_is_named_by_its_member_id() -> None:
    nameless = member(1, "")
    assert member_names([nameless]) == {nameless.member_id: nameless.member_id}
