"""The range assignor: contiguous ranges, the same for similar topics, in an order that restarts do not change."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import hypothesis.strategies as st
from assignor_groups import Group, any_groups, check_owners, groups, member, topic_id
from harness.depth import deep
from hypothesis import given, settings

from moldau.coordinator.group.assignors import ASSIGNORS

RANGE = ASSIGNORS["range"]
ONE, TWO = topic_id(1), topic_id(2)
few = settings(max_examples=deep(30, quick=10), deadline=None)


def numbers(*wanted: int) -> frozenset[int]:
    return frozenset(wanted)


def in_order(group: Group, topic: bytes) -> list[str]:
    """Return the subscribers in the order of the ranges, computed in another way: static ones first, by instance id."""
    subscribers = [one for one in group.members.values() if topic in one.topics]
    static = sorted((one for one in subscribers if one.instance_id is not None), key=lambda one: one.member_id)
    static.sort(key=lambda one: str(one.instance_id))
    return [one.member_id for one in static] + sorted(one.member_id for one in subscribers if one.instance_id is None)


@few
@given(any_groups)
def test_every_partition_has_one_owner(group: Group) -> None:
    check_owners(group, group.assigned_by(RANGE))


@few
@given(any_groups)
def test_ranges_are_contiguous_and_the_first_are_larger_by_one(group: Group) -> None:
    assignment = group.assigned_by(RANGE)
    for topic, count in group.partitions.items():
        ranges = [sorted(assignment[name].get(topic, ())) for name in in_order(group, topic)]
        if ranges:
            assert list(chain.from_iterable(ranges)) == list(range(count))
            lengths = [len(one) for one in ranges]
            assert lengths == sorted(lengths, reverse=True)
            assert lengths[0] - lengths[-1] <= 1


@few
@given(groups(alike=True), st.integers(1, 12))
def test_topics_of_equal_size_are_split_in_the_same_way(group: Group, count: int) -> None:
    alike = Group(group.members, dict.fromkeys(group.partitions, count))
    for topics in alike.assigned_by(RANGE).values():
        assert len(set(topics.values())) <= 1


@few
@given(any_groups, st.randoms())
def test_neither_order_nor_history_changes_the_result(group: Group, random: object) -> None:
    items = [(name, replace(one, assigned={})) for name, one in group.members.items()]
    random.shuffle(items)  # type: ignore[attr-defined]
    assert RANGE.assign(dict(items), group.partitions) == group.assigned_by(RANGE)


def test_two_members_of_two_topics_with_three_partitions() -> None:
    topics = {ONE: 3, TWO: 3}
    group = Group({name: member(name, topics) for name in ("m1", "m0")}, topics)
    assert group.assigned_by(RANGE) == {
        "m0": {ONE: numbers(0, 1), TWO: numbers(0, 1)},
        "m1": {ONE: numbers(2), TWO: numbers(2)},
    }


def test_more_members_than_partitions_leave_the_last_without_any() -> None:
    group = Group({name: member(name, [ONE]) for name in "abc"}, {ONE: 2})
    assert group.assigned_by(RANGE) == {"a": {ONE: numbers(0)}, "b": {ONE: numbers(1)}, "c": {}}


def test_a_static_member_keeps_its_range_under_a_new_member_id() -> None:
    before = Group({"a": member("a", [ONE], "i1"), "b": member("b", [ONE], "i2"), "c": member("c", [ONE])}, {ONE: 9})
    after = before.without("a").plus(member("z", [ONE], "i1"))
    was, became = before.assigned_by(RANGE), after.assigned_by(RANGE)
    assert became == {"z": was["a"], "b": was["b"], "c": was["c"]}


def test_a_dynamic_member_comes_after_static_ones_whatever_its_id() -> None:
    group = Group({"a": member("a", [ONE]), "y": member("y", [ONE], "i2"), "z": member("z", [ONE], "i1")}, {ONE: 3})
    assert group.assigned_by(RANGE) == {"z": {ONE: numbers(0)}, "y": {ONE: numbers(1)}, "a": {ONE: numbers(2)}}


def test_members_of_different_topics_share_only_common_topics() -> None:
    members = {"a": member("a", [ONE]), "b": member("b", [ONE, TWO]), "c": member("c", [TWO])}
    assert Group(members, {ONE: 3, TWO: 2}).assigned_by(RANGE) == {
        "a": {ONE: numbers(0, 1)},
        "b": {ONE: numbers(2), TWO: numbers(0)},
        "c": {TWO: numbers(1)},
    }
