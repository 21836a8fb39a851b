"""The uniform assignor: balanced first, sticky second, and deterministic."""

from __future__ import annotations

import hypothesis.strategies as st
from assignor_groups import Group, any_groups, check_owners, flat, groups, member, moved, sizes, topic_id
from harness.depth import deep
from hypothesis import assume, given, settings

from moldau.coordinator.group.assignors import ASSIGNORS, Assignment

UNIFORM = ASSIGNORS["uniform"]
few = settings(max_examples=deep(30, quick=10), deadline=None)


def improving_moves(group: Group, assignment: Assignment) -> list[tuple[str, str, bytes]]:
    """Return partitions whose move would make two members more equal."""
    loads = sizes(assignment)
    return [
        (giver, taker, topic)
        for giver, topics in assignment.items()
        for topic in topics
        for taker, other in group.members.items()
        if topic in other.topics and loads[giver] - loads[taker] > 1
    ]


@few
@given(any_groups)
def test_every_partition_has_one_owner_after_any_history(group: Group) -> None:
    check_owners(group, group.assigned_by(UNIFORM))


@few
@given(groups(alike=True))
def test_members_with_equal_subscriptions_differ_by_one_at_most(group: Group) -> None:
    loads = sizes(group.assigned_by(UNIFORM)).values()
    assert max(loads) - min(loads) <= 1


@few
@given(groups(alike=False))
def test_no_single_move_would_improve_the_balance(group: Group) -> None:
    assert not improving_moves(group, group.assigned_by(UNIFORM))


@few
@given(any_groups, st.randoms())
def test_the_order_of_members_and_topics_does_not_change_the_result(group: Group, random: object) -> None:
    def shuffled(mapping: dict) -> dict:  # type: ignore[type-arg]
        items = list(mapping.items())
        random.shuffle(items)  # type: ignore[attr-defined]
        return dict(items)

    assert UNIFORM.assign(shuffled(group.members), shuffled(group.partitions)) == group.assigned_by(UNIFORM)


@few
@given(any_groups)
def test_an_assignment_is_stable_while_nothing_changes(group: Group) -> None:
    first = group.assigned_by(UNIFORM)
    assert group.after(first).assigned_by(UNIFORM) == first


def fewest_moves(loads: list[int], total: int) -> int:
    """Return how many partitions must move so that no member has two more than another: the members with the most keep
    the larger shares."""
    share, larger = divmod(total, len(loads))
    quotas = [share + (place < larger) for place in range(len(loads))]
    return sum(max(0, load - quota) for load, quota in zip(sorted(loads, reverse=True), quotas, strict=True))


@few
@given(groups(alike=True), st.data())
def test_no_more_partitions_move_than_the_balance_needs(group: Group, data: st.DataObject) -> None:
    """From any valid assignment, however unbalanced."""
    names = sorted(group.members)
    held: dict[str, set[tuple[bytes, int]]] = {name: set() for name in names}
    for slot in sorted(group.slots()):
        owner = data.draw(st.sampled_from([*names[:2], None]))
        if owner is not None:
            held[owner].add(slot)
    before: Assignment = {
        name: {topic: frozenset(n for t, n in slots if t == topic) for topic, _ in slots}
        for name, slots in held.items()
    }
    after = group.after(before).assigned_by(UNIFORM)
    lost = sum(len(held[name] - flat(after[name])) for name in names)
    assert lost == fewest_moves([len(slots) for slots in held.values()], len(group.slots()))


@few
@given(groups(alike=True), st.data())
def test_only_the_partitions_of_a_member_that_left_move(group: Group, data: st.DataObject) -> None:
    assume(len(group.members) > 1)
    before = group.assigned_by(UNIFORM)
    leaver = data.draw(st.sampled_from(sorted(group.members)))
    smaller = group.after(before).without(leaver)
    after = smaller.assigned_by(UNIFORM)
    check_owners(smaller, after)
    assert moved(before, after) == flat(before[leaver])


@few
@given(groups(alike=True))
def test_a_new_member_gets_its_share_and_no_other_member_gains(group: Group) -> None:
    before = group.assigned_by(UNIFORM)
    newcomer = member("newcomer", next(iter(group.members.values())).topics)
    larger = group.after(before).plus(newcomer)
    after = larger.assigned_by(UNIFORM)
    check_owners(larger, after)
    assert moved(before, after) == flat(after["newcomer"])
    assert len(flat(after["newcomer"])) == len(group.slots()) // len(larger.members)


@few
@given(groups(alike=False), groups(alike=False))
def test_members_that_share_no_topic_with_a_change_keep_their_partitions(group: Group, other: Group) -> None:
    """Two groups that have nothing in common, assigned as one; then one half changes."""
    apart = {
        name.upper(): member(name.upper(), (bytes([1]) + topic[1:] for topic in one.topics))
        for name, one in other.members.items()
    }
    partitions = group.partitions | {bytes([1]) + topic[1:]: count for topic, count in other.partitions.items()}
    both = Group(group.members | apart, partitions)
    before = both.assigned_by(UNIFORM)
    after = both.after(before).without(min(apart)).assigned_by(UNIFORM)
    assert {name: after[name] for name in group.members} == {name: before[name] for name in group.members}


def test_each_topic_is_spread_over_the_members() -> None:
    topics = {topic_id(1): 4, topic_id(2): 4}
    group = Group({name: member(name, topics) for name in "ab"}, topics)
    fresh = group.assigned_by(UNIFORM)
    assert {name: [len(numbers) for numbers in has.values()] for name, has in fresh.items()} == {
        "a": [2, 2],
        "b": [2, 2],
    }
    grown = group.after(fresh).plus(member("c", topics)).plus(member("d", topics)).assigned_by(UNIFORM)
    assert sizes(grown) == {"a": 2, "b": 2, "c": 2, "d": 2}


def test_new_partitions_of_a_topic_go_to_the_members_with_the_fewest() -> None:
    topics = {topic_id(1): 3}
    group = Group({name: member(name, topics) for name in "ab"}, topics)
    before = group.assigned_by(UNIFORM)
    after = Group(group.after(before).members, {topic_id(1): 6}).assigned_by(UNIFORM)
    assert moved(before, after) == {(topic_id(1), 3), (topic_id(1), 4), (topic_id(1), 5)}
    assert sizes(after) == {"a": 3, "b": 3}


def test_a_long_chain_of_overlapping_subscriptions_is_balanced_in_the_end() -> None:
    """Each member shares a topic with the next, which has a little more: partitions can only move from link to link."""
    length = 30
    topics = {topic_id(place): 50 + 2 * place for place in range(length + 1)}
    chain = [member(f"m{place:02}", [topic_id(place), topic_id(place + 1)]) for place in range(length)]
    group = Group({one.member_id: one for one in chain}, topics | {topic_id(length): 0})
    before: Assignment = {
        one.member_id: {topic_id(place): frozenset(range(topics[topic_id(place)]))} for place, one in enumerate(chain)
    }
    assignments = 0
    while improving_moves(group, before):
        before = group.after(before).assigned_by(UNIFORM)
        check_owners(group, before)
        assignments += 1
    assert 1 < assignments < 20, "the chain must be too long for one assignment"
    assert group.after(before).assigned_by(UNIFORM) == before


def test_an_empty_group_has_an_empty_assignment() -> None:
    assert UNIFORM.assign({}, {topic_id(1): 3}) == {}
