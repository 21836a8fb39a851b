"""Subscriptions by pattern: which topics a pattern matches, and that no pattern is too expensive for the broker."""

from __future__ import annotations

import sys

import pytest
from harness.in_memory_consumer_shard import InMemoryConsumerShard

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.pattern import compile_pattern
from moldau.base.steps import TurnItems
from moldau.base.turns import CHARACTERS_A_TURN, MATCHED_AT_ONCE_MAX
from moldau.coordinator.group.consumer.change import PATTERN_REFRESH_MS
from moldau.coordinator.group.consumer.patterns import Patterns, PatternsNotMatched
from moldau.coordinator.group.topic_changes import TopicChanges
from moldau.coordinator.machine import CoordinatorRecord, Outcome
from moldau.metadata.apply import Changes
from moldau.wire.log_records import offsets as logged
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "[a",
        "a**",
        r"(a)\1",
        "(?=a)",
        "a{1001}",
        "(?:(?:x{1,100}){1,100}){1,100}",
        ".*a" * 2_000,
        "x" * 6_000,
    ],
)
def test_an_invalid_or_too_large_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(KafkaError) as refused:
        compile_pattern(pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("a", "a", True),
        ("a", "ab", False),
        ("b", "ab", False),
        ("a|ab", "ab", True),
        ("^a.*$", "abc", True),
        ("(?i)A.c", "abc", True),
        (r"\w+-\d{2}", "topic-42", True),
        (r"\Qa.b\E", "a.b", True),
        (r"\Qa.b\E", "axb", False),
        (r"[[:alpha:]]+", "abc", True),
        (r"\pL+", "größe", True),
        ("(a+)+$", "a" * 200 + "b", False),
        ("x" * 2_500, "x" * 2_500, True),
    ],
)
@pytest.mark.needs_re2
def test_a_pattern_must_match_the_whole_name(pattern: str, name: str, matches: bool) -> None:
    assert bool(compile_pattern(pattern).fullmatch(name)) == matches


def test_without_google_re2_patterns_are_refused_with_an_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's `re` would accept them, and one `(a+)+$` would block the whole broker."""
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(KafkaError, match=r"^'orders\.\*': this broker cannot match patterns") as refused:
        compile_pattern("orders.*")
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.needs_re2
def test_unused_patterns_are_dropped() -> None:
    shard = InMemoryConsumerShard()
    shard.create_topic("a1", 1)
    patterns = Patterns(shard.current, {"a.*"})
    assert patterns.topics("a.*") == {"a1"}
    assert patterns.topics("b.*") == frozenset()
    assert patterns.remove_deleted(frozenset()) == set()
    shard.create_topic("a2", 1)
    assert list(patterns.match_new_topics(["a2", "b1"], TurnItems(100))) == ["a.*"]
    assert patterns.topics("a.*") == {"a1", "a2"}
    assert patterns.topics("b.*") == frozenset(), "matched again, against the image"


@pytest.mark.needs_re2
def test_a_recreated_topic_is_never_missing() -> None:
    shard = InMemoryConsumerShard()
    shard.create_topic("a1", 1)
    patterns = Patterns(shard.current, {"a.*"})
    assert patterns.topics("a.*") == {"a1"}
    part = Changes(removed=[shard.current.image.topics["a1"]])  # of many changes, that with its partitions comes later
    assert patterns.remove_deleted(TopicChanges.of(shard.current.image, part).deleted) == set()
    assert patterns.topics("a.*") == {"a1"}


def test_a_pattern_that_only_another_broker_accepts_matches_nothing() -> None:
    """Its member gets no error, because another broker has accepted the pattern. Other members continue."""
    shard = InMemoryConsumerShard()
    shard.create_topic("a", 1)
    member = logged.ConsumerGroupMemberMetadataValue(subscribed_topic_regex="(", rebalance_timeout_ms=1_000)
    shard.execute(Outcome(None, [CoordinatorRecord(logged.ConsumerGroupMemberMetadataKey("g", "strange"), member)]))
    join = ConsumerGroupHeartbeatRequest(
        "g", "m", 0, rebalance_timeout_ms=1_000, subscribed_topic_names=["a"], topic_partitions=[]
    )
    response, _ = shard.heartbeat(join)
    assert response.assignment is not None
    assert [list(topic.partitions) for topic in response.assignment.topic_partitions] == [[0]]


def many_topics(count: int) -> InMemoryConsumerShard:
    shard = InMemoryConsumerShard()
    for number in range(count):
        shard.create_topic(f"a{number:09}", 1)
    return shard


@pytest.mark.needs_re2
def test_a_new_pattern_is_matched_against_many_topics_in_steps() -> None:
    shard = many_topics(1_000)
    patterns = Patterns(shard.current, {"a.*"})
    with pytest.raises(PatternsNotMatched) as unmatched:
        patterns.require(["a.*", "b.*"])
    steps = unmatched.value.steps
    for _ in range(2):
        next(steps)
    shard.create_topic("a-new", 1)
    shard.create_topic("b-new", 1)
    shard.delete_topic("a000000000")
    assert 5 <= sum(1 for _ in steps) <= 2 * 10_000 // CHARACTERS_A_TURN
    patterns.require(["a.*", "b.*"])
    assert patterns.topics("a.*") == {name for name in shard.current.image.topics if name.startswith("a")}
    assert len(patterns.topics("a.*")) == 1_000
    assert patterns.topics("b.*") == {"b-new"}


@pytest.mark.needs_re2
def test_topics_and_patterns_may_change_while_new_topics_are_matched() -> None:
    shard = InMemoryConsumerShard()
    for name in ("a1", "a2"):
        shard.create_topic(name, 1)
    used = {"a.*", "a[12]", "b.*"}
    patterns = Patterns(shard.current, used)
    for pattern in ("a.*", "a[12]", "b.*"):
        patterns.topics(pattern)
    for name in ("a3", "a4"):
        shard.create_topic(name, 1)
    matching = patterns.match_new_topics(["a3", "a4"], TurnItems(1))
    assert [next(matching), next(matching)] == [None, None], "both are matched with the first pattern"
    shard.delete_topic("a3")
    used.remove("b.*")
    assert patterns.remove_deleted({"a3"}) == set()
    used.add("b.*")
    shard.create_topic("b3", 1)
    assert patterns.topics("b.*") == {"b3"}
    assert [pattern for pattern in matching if pattern is not None] == ["a.*"]
    assert patterns.topics("a.*") == {"a1", "a2", "a4"}
    assert patterns.topics("a[12]") == {"a1", "a2"}
    assert patterns.topics("b.*") == {"b3"}


@pytest.mark.needs_re2
def test_a_pattern_that_cannot_be_compiled_is_matched_once() -> None:
    shard = many_topics(MATCHED_AT_ONCE_MAX + 1)
    patterns = Patterns(shard.current, {"("})
    with pytest.raises(PatternsNotMatched) as unmatched:
        patterns.require(["("])
    assert list(unmatched.value.steps) == []
    patterns.require(["("])
    assert patterns.topics("(") == frozenset()
    assert list(patterns.match_new_topics(["("], TurnItems(100))) == []
    with pytest.raises(KafkaError):
        patterns.check("(")


# --- what members may describe ----------------------------------------------------------------------------------


def join(member_id: str, pattern: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        "g", member_id, 0, rebalance_timeout_ms=60_000, subscribed_topic_regex=pattern, topic_partitions=[]
    )


def resolved(shard: InMemoryConsumerShard, pattern: str) -> set[str]:
    return set(shard.group().subscriptions.resolved[pattern].topics)


@pytest.mark.needs_re2
def test_topics_that_the_member_may_not_describe_do_not_match() -> None:
    shard = InMemoryConsumerShard()
    shard.create_topic("a1", 1)
    shard.create_topic("a2", 1)
    response, _ = shard.heartbeat(join("m", "a.*"), may_describe={"a1"}.__contains__)
    assert response.assignment is not None
    ids = [topic.topic_id for topic in response.assignment.topic_partitions]
    assert ids == [shard.current.image.topics["a1"].id]


@pytest.mark.needs_re2
def test_another_member_shares_the_topics_of_a_resolved_pattern() -> None:
    """As in Kafka, they are resolved once for the group. A member that may see less does not take them away."""
    shard = InMemoryConsumerShard()
    shard.create_topic("a1", 1)
    shard.create_topic("a2", 1)
    shard.heartbeat(join("m", "a.*"))
    shard.heartbeat(join("n", "a.*"), may_describe={"a1"}.__contains__)
    shard.heartbeat(join("o", "a1|a2"), may_describe={"a1"}.__contains__)
    assert (resolved(shard, "a.*"), resolved(shard, "a1|a2")) == ({"a1", "a2"}, {"a1"})


@pytest.mark.needs_re2
def test_a_new_topic_resolves_patterns_again_for_the_next_member_that_sends_a_heartbeat() -> None:
    shard = InMemoryConsumerShard()
    shard.create_topic("a1", 1)
    response, _ = shard.heartbeat(join("m", "a.*"))
    shard.create_topic("a2", 1)
    heartbeat = ConsumerGroupHeartbeatRequest("g", "m", response.member_epoch)
    shard.heartbeat(heartbeat, may_describe={"a2"}.__contains__)
    assert resolved(shard, "a.*") == {"a2"}


@pytest.mark.needs_re2
def test_patterns_are_resolved_again_after_some_time() -> None:
    """What a member may describe can change without any change of topics."""
    shard = InMemoryConsumerShard()
    shard.create_topic("a1", 1)
    shard.create_topic("a2", 1)
    response, _ = shard.heartbeat(join("m", "a.*"), may_describe={"a1"}.__contains__)
    heartbeat = ConsumerGroupHeartbeatRequest("g", "m", response.member_epoch)
    shard.clock.move(PATTERN_REFRESH_MS - 1)
    assert shard.heartbeat(heartbeat)[1] == []
    shard.clock.move(1)
    epoch = shard.group().epoch
    response, _ = shard.heartbeat(heartbeat)
    assert (resolved(shard, "a.*"), shard.group().epoch) == ({"a1", "a2"}, epoch + 1)
    heartbeat = ConsumerGroupHeartbeatRequest("g", "m", response.member_epoch)
    shard.heartbeat(heartbeat)
    assert shard.heartbeat(heartbeat)[1] == []
    shard.clock.move(PATTERN_REFRESH_MS)
    _, records = shard.heartbeat(heartbeat)
    assert [type(record.key) for record in records] == [logged.ConsumerGroupRegularExpressionKey]
    assert shard.group().epoch == epoch + 1, "the same topics are no reason for a new epoch"
    assert shard.heartbeat(heartbeat)[1] == []


@pytest.mark.needs_re2
def test_patterns_that_change_all_the_time_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.coordinator.group.consumer.patterns.PATTERNS_MAX", 10)
    shard = InMemoryConsumerShard()
    shard.create_topic("orders", 1)
    patterns = Patterns(shard.current, ())
    for number in range(100):
        assert patterns.topics(f"orders|x{number}") == {"orders"}
    assert len(patterns._topics) <= 10
    assert patterns.topics("orders|x0") == {"orders"}, "one that was dropped is matched again"


@pytest.mark.needs_re2
def test_other_members_patterns_do_not_drop_one_that_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.coordinator.group.consumer.patterns.PATTERNS_MAX", 10)
    shard = InMemoryConsumerShard()
    shard.create_topic("a1", 1)
    response, _ = shard.heartbeat(join("m", "a.*"))
    for number in range(20):
        shard.groups.patterns.topics(f"x{number}")
    shard.create_topic("a2", 1)
    shard.heartbeat(ConsumerGroupHeartbeatRequest("g", "m", response.member_epoch))
    assert resolved(shard, "a.*") == {"a1", "a2"}


@pytest.mark.needs_re2
def test_a_new_pattern_does_not_check_all_others_if_they_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.coordinator.group.consumer.patterns.PATTERNS_MAX", 10)
    lookups: list[object] = []

    class AllUsed:
        def __contains__(self, pattern: object) -> bool:
            lookups.append(pattern)
            return True

    patterns = Patterns(InMemoryConsumerShard().current, AllUsed())
    for number in range(1_000):
        patterns.topics(f"x{number}")
    assert len(lookups) < 2_000
