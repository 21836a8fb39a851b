"""Groups to assign partitions to, and properties that every assignment must have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import hypothesis.strategies as st

from moldau.base.ids import Uuid
from moldau.coordinator.group.assignors import Assignment, Assignor, AssignorMember

Slot = tuple[Uuid, int]


def topic_id(number: int) -> Uuid:
    return number.to_bytes(16, "big")


@dataclass(frozen=True)
class Group:
    members: dict[str, AssignorMember]
    partitions: dict[Uuid, int]

    def assigned_by(self, assignor: Assignor) -> Assignment:
        return assignor.assign(self.members, self.partitions)

    def after(self, assignment: Assignment) -> Group:
        members = {name: replace(member, assigned=assignment[name]) for name, member in self.members.items()}
        return Group(members, self.partitions)

    def without(self, member_id: str) -> Group:
        return Group({name: m for name, m in self.members.items() if name != member_id}, self.partitions)

    def plus(self, newcomer: AssignorMember) -> Group:
        return Group({**self.members, newcomer.member_id: newcomer}, self.partitions)

    def slots(self) -> set[Slot]:
        """Return every partition of the topics that have a subscriber."""
        topics = frozenset().union(*(member.topics for member in self.members.values()))
        return {(topic, number) for topic in topics for number in range(self.partitions.get(topic, 0))}


def member(name: str, topics: Iterable[Uuid], instance_id: str | None = None) -> AssignorMember:
    return AssignorMember(name, instance_id, None, frozenset(topics), {})


def flat(topics: Mapping[Uuid, frozenset[int]]) -> set[Slot]:
    return {(topic, number) for topic, numbers in topics.items() for number in numbers}


def sizes(assignment: Assignment) -> dict[str, int]:
    return {name: len(flat(topics)) for name, topics in assignment.items()}


def check_owners(group: Group, assignment: Assignment) -> None:
    """Check that every member is in the assignment, and every partition has one owner that subscribes to it."""
    assert assignment.keys() == group.members.keys()
    owned = Counter(slot for topics in assignment.values() for slot in flat(topics))
    assert owned == Counter(group.slots())
    for name, topics in assignment.items():
        assert topics.keys() <= group.members[name].topics
        assert all(topics.values()), "a topic without partitions"


def moved(before: Assignment, after: Assignment) -> set[Slot]:
    """Return the partitions that a member has now and did not have before."""
    return {slot for name, topics in after.items() for slot in flat(topics) - flat(before.get(name, {}))}


MEMBER_IDS = st.text("abcdef", min_size=1, max_size=3)
NUMBERS = st.integers(0, 13)


@st.composite
def groups(draw: st.DrawFn, *, alike: bool) -> Group:
    """Draw a group with any history, also an impossible one: deleted topics, partitions with two owners."""
    topics = [topic_id(number) for number in range(1, draw(st.integers(1, 5)) + 1)]
    partitions = {topic: draw(st.integers(1, 12)) for topic in topics}
    known = st.sampled_from([*topics, topic_id(99)])
    subscriptions = st.frozensets(known, max_size=4)
    names = draw(st.lists(MEMBER_IDS, min_size=1, max_size=8, unique=True))
    shared = draw(subscriptions)
    histories = st.dictionaries(known, st.frozensets(NUMBERS, min_size=1), max_size=3)
    instances = st.none() | MEMBER_IDS
    members = {
        name: AssignorMember(name, draw(instances), None, shared if alike else draw(subscriptions), draw(histories))
        for name in names
    }
    return Group(members, partitions)


any_groups = st.booleans().flatmap(lambda alike: groups(alike=alike))
