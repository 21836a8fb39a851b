"""Thousands of groups are listed, and patterns are matched with thousands of topics, in turns of the event loop."""

from __future__ import annotations

from typing import Any

import pytest
from harness.coordinator_node import CoordinatorNode
from harness.operations import operations_of

from moldau.base.errors import ErrorCode
from moldau.base.long_work import LongWork
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems, WaitingSteps, checking
from moldau.base.topic_names import CONSUMER_OFFSETS_TOPIC
from moldau.base.turns import CHARACTERS_A_TURN, LISTED_A_TURN
from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.patterns import COMPILED_CHARACTERS, Patterns, PatternsNotMatched
from moldau.metadata.apply import Changes
from moldau.server.conversation import LongReply
from moldau.testing.clock import FakeTimers
from moldau.wire.apis import ApiKey
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.wire.messages.list_groups import ListGroupsRequest

GROUPS = 8_000
TOPICS = 300


def test_groups_are_listed_in_turns() -> None:
    node = CoordinatorNode()
    shards = node.groups.shards
    for number in range(GROUPS):
        each = f"group-{number}"
        shards.machine_of(each).state.groups[each] = ClassicGroup(each)
    replies: list[Any] = []
    turns = [operations_of(lambda: replies.append(node.begin(ApiKey.LIST_GROUPS, ListGroupsRequest())))]
    while not replies[0].done:
        turns.append(operations_of(node.in_memory.timers.run_one_soon))
    assert len(turns) > GROUPS // LISTED_A_TURN
    assert max(turns) < 3 * sum(turns) // len(turns)
    assert len(replies[0].value().groups) == GROUPS


def test_list_groups_leaves_out_a_shard_that_moves_away_meanwhile() -> None:
    node = CoordinatorNode()
    shards = node.groups.shards
    for number in range(3 * LISTED_A_TURN):
        each = f"group-{number}"
        shards.machine_of(each).state.groups[each] = ClassicGroup(each)
    kept, moved = shards._shards.values()
    reply = node.begin(ApiKey.LIST_GROUPS, ListGroupsRequest())
    moved.shard.close(ErrorCode.NOT_COORDINATOR)
    node.run_until_idle()
    assert reply.value().error_code == ErrorCode.NONE
    assert len(reply.value().groups) == len(kept.machine.state.groups)


# --- patterns ---------------------------------------------------------------------------------------------------


def heartbeat(member_id: str, pattern: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        "g", member_id, 0, rebalance_timeout_ms=60_000, subscribed_topic_regex=pattern, topic_partitions=[]
    )


@pytest.fixture
def node_with_topics() -> CoordinatorNode:
    node = CoordinatorNode()
    for number in range(TOPICS):
        node.in_memory.create_topic(f"orders-{'of-a-long-name' * 4}-{number}", 1)
    node.run_until_idle()
    return node


def assigned(node: CoordinatorNode, reply: Promise[Any]) -> int:
    node.run_until_idle()
    response = reply.value()
    assert response.error_code == ErrorCode.NONE
    return len(response.assignment.topic_partitions)


@pytest.mark.needs_re2
def test_a_heartbeat_with_a_new_pattern_waits_while_it_is_matched(node_with_topics: CoordinatorNode) -> None:
    node = node_with_topics
    reply = node.begin(ApiKey.CONSUMER_GROUP_HEARTBEAT, heartbeat("m1", "orders-.*"))
    assert isinstance(reply, Promise)
    turns = 0
    while not node.groups.shards.machine_of("g").state.groups:
        assert node.in_memory.timers.run_one_soon()
        turns += 1
    assert turns >= TOPICS * 60 // CHARACTERS_A_TURN
    assert assigned(node, reply) == TOPICS


@pytest.mark.needs_re2
def test_a_topic_created_while_a_pattern_is_matched_is_assigned(node_with_topics: CoordinatorNode) -> None:
    node = node_with_topics
    reply = node.begin(ApiKey.CONSUMER_GROUP_HEARTBEAT, heartbeat("m1", "orders-.*"))
    node.in_memory.timers.run_one_soon()
    node.in_memory.create_topic("orders-new", 1)
    assert assigned(node, reply) == TOPICS + 1


@pytest.mark.needs_re2
def test_pattern_matching_ends_when_the_node_stops_being_the_coordinator(
    node_with_topics: CoordinatorNode,
) -> None:
    node = node_with_topics
    reply = node.begin(ApiKey.CONSUMER_GROUP_HEARTBEAT, heartbeat("m1", "orders-.*"))
    node.in_memory.timers.run_one_soon()
    node.groups.shards.close(ErrorCode.NOT_COORDINATOR)
    node.in_memory.timers.run_one_soon()
    assert reply.done, "the reply does not wait until all topics are matched"
    assert reply.value().error_code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


@pytest.mark.needs_re2
def test_a_pattern_of_several_members_is_matched_once(
    node_with_topics: CoordinatorNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, matched = node_with_topics, []
    match = Patterns._match

    def counted(patterns: Patterns, pattern: str, turn: TurnItems) -> Steps[None]:
        matched.append(pattern)
        return match(patterns, pattern, turn)

    monkeypatch.setattr(Patterns, "_match", counted)
    replies = [node.begin(ApiKey.CONSUMER_GROUP_HEARTBEAT, heartbeat(f"m{number}", "orders-.*")) for number in range(9)]
    node.run_until_idle()
    assert {reply.value().error_code for reply in replies} == {ErrorCode.NONE}
    assert matched == ["orders-.*"]


@pytest.mark.needs_re2
def test_a_request_that_waits_for_the_patterns_of_another_takes_no_turns() -> None:
    groups, timers = CoordinatorNode().groups, FakeTimers()
    steps = [groups.match("g", PatternsNotMatched(long_steps(turns))) for turns in (20, 3)]
    ran: list[int] = []

    def counted(number: int) -> WaitingSteps[None]:
        return (yield from checking(steps[number], lambda: ran.append(number)))

    for number in range(2):
        LongWork(timers.soon, counted(number), lambda _: None, pytest.fail)()
    while timers.run_soon():
        pass
    assert ran == [0] * 20 + [1] * 4


def long_steps(turns: int) -> Steps[None]:
    for _ in range(turns):
        yield


def test_later_requests_of_the_connection_wait_while_a_pattern_is_matched(node_with_topics: CoordinatorNode) -> None:
    reply = node_with_topics.begin(ApiKey.CONSUMER_GROUP_HEARTBEAT, heartbeat("m1", "orders-.*"))
    assert isinstance(reply, LongReply)
    assert not reply.handled.done
    node_with_topics.run_until_idle()
    assert reply.handled.done


@pytest.mark.needs_re2
def test_many_patterns_of_few_topics_are_matched_in_turns() -> None:
    node = CoordinatorNode()
    patterns = Patterns(node.in_memory.current, set())
    new = [f"public{number}" for number in range(200)]
    with pytest.raises(PatternsNotMatched) as unmatched:
        patterns.require(new)
    assert sum(1 for _ in unmatched.value.steps) > 200 * COMPILED_CHARACTERS // CHARACTERS_A_TURN


def resolved(node: CoordinatorNode, pattern: str) -> list[str]:
    """Let a member send a heartbeat, and return the topics that the group reads by its pattern then."""
    group = node.groups.shards.machine_of("g").state.groups["g"]
    assert isinstance(group, ConsumerGroup)
    request = ConsumerGroupHeartbeatRequest("g", "m", group.members["m"].member_epoch)
    node.begin(ApiKey.CONSUMER_GROUP_HEARTBEAT, request)
    node.run_until_idle()
    return sorted(group.subscriptions.resolved[pattern].topics)


class Counted:
    """A compiled pattern that counts how often it is matched with a name."""

    matches = 0

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def fullmatch(self, name: str) -> Any:
        Counted.matches += 1
        return self._matcher.fullmatch(name)


def matches_of_turns(node: CoordinatorNode) -> list[int]:
    """Run all turns of the loop, and return how often patterns were matched with a name in each."""
    turns = []
    Counted.matches = 0
    while node.in_memory.timers.run_one_soon():
        turns.append(Counted.matches)
        Counted.matches = 0
    return turns


@pytest.fixture
def node_with_patterns() -> CoordinatorNode:
    """Return a node with 300 groups that read different patterns, and `g` with the member `m`."""
    node = CoordinatorNode()
    for number in range(300):
        request = heartbeat("m", f"orders-{number}-.*")
        request.group_id = f"g{number}"
        node.begin(ApiKey.CONSUMER_GROUP_HEARTBEAT, request)
    node.begin(ApiKey.CONSUMER_GROUP_HEARTBEAT, heartbeat("m", "orders-.*"))
    node.run_until_idle()
    for machine in node.groups.shards.machines():
        matchers = machine.consumer.patterns._matchers
        matchers.update({pattern: Counted(matcher) for pattern, matcher in matchers.items()})
    return node


@pytest.mark.needs_re2
def test_new_topics_are_matched_with_the_patterns_of_all_shards_in_turns(
    node_with_patterns: CoordinatorNode,
) -> None:
    node, names = node_with_patterns, [f"orders-{number:03}" for number in range(20)]
    for name in names:
        node.in_memory.create_topic(name, 1)
    matches = matches_of_turns(node)
    assert sum(matches) == len(names) * 301
    assert max(matches) <= CHARACTERS_A_TURN // len(names[0]) + 1
    assert resolved(node, "orders-.*") == names


@pytest.mark.needs_re2
def test_topics_that_are_created_while_others_are_matched_wait_for_their_turn(
    node_with_patterns: CoordinatorNode,
) -> None:
    node = node_with_patterns
    for name in ("orders-1", "orders-2"):
        node.in_memory.create_topic(name, 1)
    for _ in range(5):
        assert node.in_memory.timers.run_one_soon()
    for name in ("orders-3", "orders-4"):
        node.in_memory.create_topic(name, 1)
    node.in_memory.delete_topic("orders-1")
    node.in_memory.delete_topic("orders-3")
    matches = matches_of_turns(node)
    assert max(matches) <= CHARACTERS_A_TURN // len("orders-1") + 1
    assert resolved(node, "orders-.*") == ["orders-2", "orders-4"]
    node.in_memory.create_topic("orders-1", 1)
    node.run_until_idle()
    assert resolved(node, "orders-.*") == ["orders-1", "orders-2", "orders-4"]


@pytest.mark.needs_re2
def test_a_topic_that_is_not_new_is_not_matched_again(
    node_with_patterns: CoordinatorNode,
) -> None:
    image = node_with_patterns.in_memory.current.image
    node_with_patterns.groups.on_image(image, Changes(topics={name: {0} for name in image.topics}))
    assert sum(matches_of_turns(node_with_patterns)) == 0


@pytest.mark.needs_re2
def test_a_joining_classic_member_waits_for_the_patterns_of_the_group(node_with_topics: CoordinatorNode) -> None:
    node = node_with_topics
    node.begin(ApiKey.CONSUMER_GROUP_HEARTBEAT, heartbeat("m1", "orders-.*"))
    node.run_until_idle()
    machine = node.groups.shards.machine_of("g")
    machine.consumer.patterns._topics.clear()
    machine.consumer.patterns._matchers.clear()
    group = machine.state.groups["g"]
    assert isinstance(group, ConsumerGroup)
    group.must_resolve_topics = True
    subscription = bytes.fromhex("0000 00000001 0006") + b"public" + bytes.fromhex("ffffffff")
    protocols = [JoinGroupRequestProtocol("range", subscription)]
    reply = node.begin(ApiKey.JOIN_GROUP, JoinGroupRequest("g", 45_000, 60_000, "m2", None, "consumer", protocols))
    assert isinstance(reply, LongReply)
    node.run_until_idle()
    assert reply.value().error_code == ErrorCode.NONE


@pytest.mark.needs_re2
def test_an_invalid_pattern_is_refused_at_once(node_with_topics: CoordinatorNode) -> None:
    before = node_with_topics.in_memory.partition(CONSUMER_OFFSETS_TOPIC, 0).log.end_offset
    response = node_with_topics.begin(ApiKey.CONSUMER_GROUP_HEARTBEAT, heartbeat("m1", "("))
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert node_with_topics.in_memory.partition(CONSUMER_OFFSETS_TOPIC, 0).log.end_offset == before
