"""The assignor of share groups: balanced, complete and sticky, whatever members and topics there are."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest

from moldau.base.ids import Uuid
from moldau.coordinator.group.assignors import Assignment
from moldau.coordinator.group.assignors.simple import ShareSubscriber, assign

A, B = b"a" * 16, b"b" * 16
SEEDS = range(400)


def subscriber(*topics: Uuid, **assigned: set[int]) -> ShareSubscriber:
    names = {"a": A, "b": B}
    return ShareSubscriber(frozenset(topics), {names[name]: frozenset(indexes) for name, indexes in assigned.items()})


def again(members: Mapping[str, ShareSubscriber], assignment: Assignment) -> dict[str, ShareSubscriber]:
    return {member_id: member._replace(assigned=assignment[member_id]) for member_id, member in members.items()}


def size(assigned: Mapping[Uuid, frozenset[int]]) -> int:
    return sum(map(len, assigned.values()))


def test_partitions_are_dealt_out() -> None:
    members = {"1": subscriber(A), "2": subscriber(A)}
    assignment = assign(members, {A: range(5)})
    assert sorted(map(size, assignment.values())) == [2, 3]
    assert assignment["1"][A] | assignment["2"][A] == set(range(5))
    assert not assignment["1"][A] & assignment["2"][A]


def test_more_members_than_partitions_share_them() -> None:
    members = {str(number): subscriber(A) for number in range(5)}
    assignment = assign(members, {A: range(2)})
    readers = [sum(index in each[A] for each in assignment.values()) for index in range(2)]
    assert readers == [3, 3]
    assert sorted(map(size, assignment.values())) == [1, 1, 1, 1, 2]


def test_only_partitions_that_can_be_read_are_assigned() -> None:
    assert assign({"1": subscriber(A, B)}, {A: {1, 3}}) == {"1": {A: frozenset({1, 3})}}
    assert assign({"1": subscriber(A)}, {}) == {"1": {}}
    assert assign({}, {A: range(3)}) == {}


def test_a_member_reads_only_what_it_subscribes_to() -> None:
    assignment = assign({"1": subscriber(A), "2": subscriber(B), "3": subscriber(A, B)}, {A: range(4), B: range(2)})
    assert assignment["1"].keys() == {A}
    assert assignment["2"].keys() == {B}
    assert {topic: len(indexes) for topic, indexes in assignment["3"].items()} == {A: 2, B: 1}


def test_a_new_member_takes_no_more_than_its_share() -> None:
    members = {"1": subscriber(A, a={0, 1, 2}), "2": subscriber(A, a={3, 4, 5}), "3": subscriber(A)}
    assignment = assign(members, {A: range(6)})
    assert assignment["1"][A] < {0, 1, 2}
    assert assignment["2"][A] < {3, 4, 5}
    assert [size(assignment[member_id]) for member_id in "123"] == [2, 2, 2]


def test_when_a_member_leaves_the_others_keep_what_they_have() -> None:
    members = {"1": subscriber(A, a={0, 1}), "2": subscriber(A, a={2, 3})}
    assignment = assign(members, {A: range(6)})
    assert assignment["1"][A] > {0, 1}
    assert assignment["2"][A] > {2, 3}


def test_a_member_that_has_more_than_its_share_keeps_one_more_than_others() -> None:
    for first, second in (({0}, {1, 2}), ({0, 1}, {2})):
        members = {"1": subscriber(A, a=first), "2": subscriber(A, a=second)}
        assert assign(members, {A: range(3)}) == {"1": {A: first}, "2": {A: second}}


def random_members(rng: Random, topics: list[Uuid], are_alike: bool) -> dict[str, ShareSubscriber]:
    def some() -> frozenset[Uuid]:
        return frozenset(rng.sample(topics, rng.randint(0, len(topics))))

    return {
        f"member-{number}": ShareSubscriber(
            frozenset(topics) if are_alike else some(),
            {topic: frozenset(rng.sample(range(8), rng.randint(0, 5))) for topic in some()},
        )
        for number in range(rng.randint(1, 12))
    }


@pytest.mark.parametrize("are_alike", [True, False])
def test_any_members_and_topics(are_alike: bool) -> None:
    for seed in SEEDS:
        rng = Random(seed)
        topics = [bytes([number]) * 16 for number in range(rng.randint(1, 4))]
        partitions = {topic: set(rng.sample(range(8), rng.randint(0, 8))) for topic in topics}
        members = random_members(rng, topics, are_alike)
        assignment = assign(members, partitions)
        check_complete(members, partitions, assignment)
        check_balanced(members, topics, partitions, assignment, are_alike)
        assert assign(again(members, assignment), partitions) == assignment, "it is not sticky"
        assert assign(dict(reversed(members.items())), partitions) == assignment, "it depends on the order"


def check_complete(
    members: Mapping[str, ShareSubscriber], partitions: Mapping[Uuid, set[int]], assignment: Assignment
) -> None:
    assert assignment.keys() == members.keys()
    for member_id, assigned in assignment.items():
        assert assigned.keys() <= members[member_id].topics
        assert all(indexes and indexes <= partitions[topic] for topic, indexes in assigned.items())
    for topic in frozenset().union(*(member.topics for member in members.values())):
        assert frozenset().union(*(each.get(topic, frozenset()) for each in assignment.values())) == partitions[topic]


def check_balanced(
    members: Mapping[str, ShareSubscriber],
    topics: list[Uuid],
    partitions: Mapping[Uuid, set[int]],
    assignment: Assignment,
    are_alike: bool,
) -> None:
    """Members differ by one partition at most, and the partitions have equally many readers: in all topics together, if
    all members subscribe to the same ones, otherwise in each topic."""
    for pool in [topics] if are_alike else [[topic] for topic in topics]:
        subscribers = [member_id for member_id, member in members.items() if member.topics.issuperset(pool)]
        sizes = {sum(len(assignment[each].get(topic, ())) for topic in pool) for each in subscribers}
        readers = {
            sum(index in assignment[each].get(topic, ()) for each in subscribers)
            for topic in pool
            for index in partitions[topic]
        }
        if (subscribers and are_alike) or len({member.topics for member in members.values()}) > 1:
            assert len(sizes) <= 1 or max(sizes) - min(sizes) <= 1
            assert len(readers) <= 1
