"""Subscriptions by regular expression, which the broker resolves (ConsumerGroupHeartbeat from version 1 on)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from group_members import Group, join_alone, settle
from kio.schema.errors import ErrorCode
from protocol_requests import topic_id

CreateTopic = Callable[..., str]


@pytest.fixture
def group(bootstrap: str) -> Iterator[Group]:
    with Group(bootstrap) as made:
        made.assign_at_once()
        yield made


@pytest.fixture
def family(group: Group, topic: Callable[[], str], create_topic: CreateTopic) -> list[str]:
    """Three topics whose names begin alike: NAME, NAME-a, NAME-b.

    The group's coordinator knows them: an expression resolved too early would be resolved again only ten seconds later.
    """
    name = topic()
    names = [create_topic(name=each) for each in (name, f"{name}-a", f"{name}-b")]
    scout = group.consumer(names)
    join_alone(scout, 3)
    scout.leave()
    return names


@pytest.mark.parametrize(
    ("ending", "expected"),
    [("-.", [1, 2]), ("", [0]), ("-?[a-z]?", [0, 1, 2]), ("-(a|c)", [1]), ("-[[:alpha:]]", [1, 2]), ("x", [])],
)
def test_an_expression_matches_whole_names(group: Group, family: list[str], ending: str, expected: list[int]) -> None:
    member = group.consumer(subscribed_topic_regex=family[0] + ending)
    member.join()
    wanted = {topic_id(group.wire, family[place]) for place in expected}
    settle(lambda: member.owned.keys() == wanted, member)
    assert group.described_consumers().members[0].subscribed_topic_regex == family[0] + ending


@pytest.mark.parametrize("expression", ["[", "*", "(", "a{2,1}", "(?=ahead)", r"(a)\1"])
def test_invalid_expressions_are_refused(group: Group, expression: str) -> None:
    """The broker's expressions are RE2's: no look-ahead, no back-references."""
    member = group.consumer(subscribed_topic_regex=expression)
    assert member.code(**member.full()) == ErrorCode.invalid_regular_expression
    member.subscribed = {"subscribed_topic_names": []}
    member.join()
    assert member.code(subscribed_topic_regex=expression) == ErrorCode.invalid_regular_expression
    assert member.code() == 0, "the member is still in the group"


def test_an_empty_expression_matches_nothing(group: Group) -> None:
    member = group.consumer(subscribed_topic_regex="")
    assert (member.join().error_code, member.owned) == (0, {})


def test_a_member_subscribes_by_names_and_an_expression(group: Group, family: list[str]) -> None:
    member = group.consumer([family[0]], subscribed_topic_regex=f"{family[0]}-b")
    member.join()
    settle(lambda: member.owned.keys() == {topic_id(group.wire, family[n]) for n in (0, 2)}, member)
    member.heartbeat(subscribed_topic_regex="")
    settle(lambda: member.owned.keys() == {topic_id(group.wire, family[0])}, member)


def test_members_with_the_same_expression_share_the_topics(group: Group, family: list[str]) -> None:
    first, second = (group.consumer(subscribed_topic_regex=f"{family[0]}-.") for _ in range(2))
    first.join()
    settle(lambda: len(first.owned) == 2, first)
    second.join()
    settle(lambda: len(first.owned) == len(second.owned) == 1, first, second)


def test_a_topic_created_later_is_assigned(group: Group, family: list[str], create_topic: CreateTopic) -> None:
    """A broker looks for new topics every ten seconds, not at once."""
    member = group.consumer(subscribed_topic_regex=f"{family[0]}-.")
    member.join()
    settle(lambda: len(member.owned) == 2, member)
    create_topic(name=f"{family[0]}-c")
    settle(lambda: len(member.owned) == 3, member)
