"""Rounds of the collector: outages, groups with errors, dead brokers, large topics."""

from __future__ import annotations

from array import array
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from harness.patience import PATIENCE_S

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.client.admin.cluster_values import BrokerNode, DescribedCluster
from moldau.client.admin.group_values import (
    SHARE,
    Committed,
    CommittedOffsets,
    DescribedGroup,
    ListedGroup,
    Member,
    Node,
    ShareOffset,
    ShareOffsets,
)
from moldau.console.collector import collector as module
from moldau.console.collector.collector import PERIODS, Collector, known_of
from moldau.console.collector.readings import read_offsets
from moldau.console.collector.state import TopicState
from moldau.console.endpoints.groups import group_row, known_group
from moldau.console.endpoints.overview import overview_data
from moldau.console.endpoints.topics import topic_row
from moldau.console.live import EVENTS_EVERY_SECONDS
from moldau.operations.lag import PartitionLag
from moldau.testing.clock import FakeClock
from moldau.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

NOW_MS = 1_800_000_000_000
ORDERS = TopicPartition("orders", 0)


class ScriptedGroups:
    """A model of the group coordinators."""

    def __init__(self, committed: dict[str, CommittedOffsets | KafkaError]) -> None:
        self.answers = committed

    def listed(self) -> list[ListedGroup]:
        return [ListedGroup(each, "Classic", "consumer", "Stable") for each in self.answers]

    def each_committed(self, group_ids: list[str]) -> dict[str, CommittedOffsets | KafkaError]:
        return {each: self.answers[each] for each in group_ids}

    def each_described(self, group_ids: list[str]) -> dict[str, DescribedGroup | KafkaError]:
        node = Node(1, "host", 9092)
        return {
            each: answer
            if isinstance(answer := self.answers[each], KafkaError)
            else DescribedGroup(each, "Classic", "consumer", "Stable", "range", node, ())
            for each in group_ids
        }


@pytest.fixture
def clock() -> FakeClock:
    """Of a machine that was started long after 1970, as all are."""
    return FakeClock(NOW_MS)


@pytest.fixture
def collector(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Collector:
    """A collector without a cluster: its topic has ten records."""
    collector = Collector("localhost:1", {}, clock=clock)
    for step in PERIODS.keys() - {"groups", "offsets", "members"}:
        monkeypatch.setattr(collector, f"_read_{step}", lambda: None)
    topic = TopicState("orders", False, bytes(16), array("i", [1]), [(1,)], [(1,)])
    topic.note_starts(array("q", [0]))
    topic.note_ends(array("q", [10]), 1.0)
    collector.state.topics = {"orders": topic}
    use_groups(collector, {"billing": {TopicPartition("orders", 0): Committed(7)}})
    return collector


def use_groups(collector: Collector, committed: dict[str, CommittedOffsets | KafkaError]) -> None:
    setattr(collector, "_groups", ScriptedGroups(committed))  # noqa: B010


def round_of(collector: Collector) -> dict[str, Any]:
    collector.hurry()
    collector._round()
    return overview_data(collector)


def refuse() -> None:
    raise ConnectionRefusedError("no broker answers")


def test_an_outage_is_reported_and_adds_nothing_to_the_history(
    collector: Collector, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = round_of(collector)
    assert (before["read_ms"], before["read_error"], before["complete"]) == (NOW_MS, None, True)
    assert len(before["history"]["times_ms"]) == 1
    assert before["lag"] == 3
    working = collector._read_brokers
    monkeypatch.setattr(collector, "_read_brokers", refuse)
    version = collector.state.version
    for _ in range(3):
        clock.move(60_000)
        during = round_of(collector)
        assert during["read_error"] == "the cluster does not answer: no broker answers"
        assert during["read_ms"] == NOW_MS, "the time of the last successful read"
        assert during["history"] == before["history"], "old values are not added"
        assert during["lag_seconds"] == before["lag_seconds"]
    assert collector.state.version == version + 3, "pages are updated"
    monkeypatch.setattr(collector, "_read_brokers", working)
    clock.move(60_000)
    after = round_of(collector)
    assert (after["read_ms"], after["read_error"]) == (clock.now_ms(), None)
    assert len(after["history"]["times_ms"]) == 2


def ages_of(collector: Collector) -> list[tuple[float, bool]]:
    """The lag in time of `billing` as all pages show it, and whether it is said to be the least possible one."""
    group, state = collector.state.groups["billing"], collector.state
    page = known_group(collector, group)
    row = topic_row(state.topics["orders"], state)
    (partition,) = page["partitions"]
    answers = [group_row(group), overview_data(collector), row, page, partition]
    return [(each["lag_seconds"], each["lag_seconds_at_least"]) for each in answers]


def test_all_pages_show_the_same_lag_in_time_by_the_clock_that_nobody_sets(
    collector: Collector, clock: FakeClock
) -> None:
    round_of(collector)
    clock.move(3_000)
    clock.jump(-86_400_000)
    collector.state.topics["orders"].note_ends(array("q", [20]), 3.0)
    use_groups(collector, {"billing": {ORDERS: Committed(15)}})
    clock.move(2_000)
    round_of(collector)
    clock.move(1_500)
    round_of(collector)
    assert ages_of(collector) == [(4.0, False)] * 5, "half of 5 s after the first round, and 1.5 s later"


def test_of_a_lag_from_before_the_start_pages_say_that_it_is_at_least_so_long(
    collector: Collector, clock: FakeClock
) -> None:
    round_of(collector)
    clock.move(81_000)
    round_of(collector)
    assert ages_of(collector) == [(81.0, True)] * 5
    collector.ages.note_looked_up([PartitionLag(ORDERS, 7, 10, 345.0)], collector.monotonic_ms())
    clock.move(5_000)
    round_of(collector)
    assert ages_of(collector) == [(350.0, False)] * 5, "somebody has opened the group's page"
    use_groups(collector, {"billing": {ORDERS: Committed(8)}})
    round_of(collector)
    assert ages_of(collector) == [(86.0, True)] * 5, "of the next record nothing is known yet"
    use_groups(collector, {"billing": {ORDERS: Committed(10)}})
    round_of(collector)
    assert ages_of(collector) == [(0.0, False)] * 5


def test_a_part_that_fails_in_three_rounds_is_reported_as_a_problem(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    working = collector._read_groups
    monkeypatch.setattr(collector, "_read_groups", refuse)
    titles = [[each["title"] for each in round_of(collector)["problems"]] for _ in range(3)]
    assert ["The groups cannot be read" in each for each in titles] == [False, False, True]
    monkeypatch.setattr(collector, "_read_groups", working)
    assert "The groups cannot be read" not in [each["title"] for each in round_of(collector)["problems"]]


def test_an_error_of_one_group_does_not_hide_other_groups(collector: Collector) -> None:
    offsets = {TopicPartition("orders", 0): Committed(7)}
    refused = KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    use_groups(collector, {"a": refused, "billing": offsets, "z": refused})
    data = round_of(collector)
    groups = collector.state.groups
    assert (groups["billing"].lag, groups["a"].lag) == (3, None)
    assert (groups["billing"].members, groups["a"].members) == ((), None)
    assert (data["lag"], data["complete"]) == (3, True)
    use_groups(collector, {"a": refused})
    data = round_of(collector)
    assert (data["lag"], data["history"]["lag"]) == (None, [3.0]), "unknown, not zero"
    use_groups(collector, {})
    assert round_of(collector)["lag"] == 0


def test_a_chunk_without_a_known_group_does_not_hide_later_groups(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GROUPS_AT_ONCE", 2)
    refused = KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    use_groups(collector, {"a": refused, "b": refused, "mine": {TopicPartition("orders", 0): Committed(7)}})
    round_of(collector)
    mine = collector.state.groups["mine"]
    assert (mine.lag, mine.members) == (3, ())


def test_known_of_raises_if_all_groups_failed() -> None:
    refused = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    answers: dict[str, int | KafkaError] = {"a": 1, "b": refused, "c": refused}

    def read(group_ids: list[str]) -> dict[str, int | KafkaError]:
        return {each: answers[each] for each in group_ids}

    assert list(known_of(read, ["a", "b"])) == [("a", 1)]
    assert list(known_of(read, [])) == []
    with pytest.raises(KafkaError):
        list(known_of(read, ["b", "c"]))


def test_a_part_that_is_refused_in_three_rounds_is_reported_as_a_problem(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def read_groups() -> None:
        raise KafkaError(code)

    monkeypatch.setattr(collector, "_read_groups", read_groups)
    titles = [[each["title"] for each in round_of(collector)["problems"]] for _ in range(3)]
    assert ["The groups cannot be read" in each for each in titles] == [False, False, True]
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert "The groups cannot be read" not in [each["title"] for each in round_of(collector)["problems"]]


def test_await_users_change_waits_until_the_broker_shows_the_change(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers learn of a new topic one after the other."""
    topics = collector.state.topics
    answers = iter([topics, topics, {**topics, "new": topics["orders"]}])

    def read_topics() -> None:
        collector.state.topics = next(answers, collector.state.topics)

    monkeypatch.setattr(collector, "_read_topics", read_topics)
    collector.start()
    try:
        collector.await_users_change(PATIENCE_S, lambda state: "new" in state.topics)
        assert "new" in collector.state.topics
    finally:
        collector.stop()
        collector.join(PATIENCE_S)


class ScriptedCluster:
    """A model of the collector's connections and of its admin: brokers 1 and 2, of which some are alive."""

    def __init__(self, *alive: int) -> None:
        self.alive = frozenset(alive)
        self.broken = False
        """Whether the connection to a dead broker fails at its next use."""
        self.closed = 0

    def nodes(self) -> None:
        if self.broken or not self.alive:
            raise ConnectionResetError("no broker answers")

    def close(self) -> None:
        self.broken = False
        self.closed += 1

    def drop(self, node_id: int) -> None:
        assert node_id not in self.alive

    def channel(self, node_id: int) -> Any:
        assert node_id not in self.alive
        raise ConnectionRefusedError("it is dead")

    def described(self, fenced_too: bool) -> DescribedCluster:
        assert fenced_too
        return DescribedCluster(
            "id", 1, {each: BrokerNode(each, "host", 9092, None, each not in self.alive) for each in (1, 2)}
        )


def use_cluster(collector: Collector, monkeypatch: pytest.MonkeyPatch, *alive: int) -> ScriptedCluster:
    cluster = ScriptedCluster(*alive)
    setattr(collector, "_cluster", cluster)  # noqa: B010
    setattr(collector, "_admin", cluster)  # noqa: B010
    monkeypatch.setattr(collector, "_read_brokers", partial(Collector._read_brokers, collector))
    return cluster


def test_the_read_periods_are_short_enough_to_see_a_dead_broker() -> None:
    """A killed broker is to be shown within two seconds: the console adds less than one to the time of the cluster."""
    assert PERIODS["brokers"] + EVENTS_EVERY_SECONDS < 1
    assert PERIODS["ends"] <= 1


def test_a_dead_broker_is_published_before_the_steps_that_wait_for_it(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = use_cluster(collector, monkeypatch, 1, 2)
    round_of(collector)
    published: list[list[bool]] = []
    collector.listeners.add(lambda: published.append([each["alive"] for each in overview_data(collector)["brokers"]]))
    monkeypatch.setattr(collector, "_read_groups", lambda: published.append([]))
    cluster.alive, cluster.broken = frozenset({1}), True
    data = round_of(collector)
    assert published[0] == [True, False], "before the groups were read"
    assert [] in published
    assert (data["read_error"], cluster.closed) == (None, 1), "another broker answered at once"


def test_the_brokers_are_read_between_the_steps_of_a_long_round(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = use_cluster(collector, monkeypatch, 1, 2)
    round_of(collector)

    def wait_in_vain() -> None:
        cluster.alive = frozenset({1})
        raise TimeoutError("the coordinator is dead")

    seen: list[frozenset[int]] = []
    monkeypatch.setattr(collector, "_read_groups", wait_in_vain)
    monkeypatch.setattr(collector, "_read_offsets", lambda: seen.append(collector.state.alive))
    data = round_of(collector)
    assert seen == [frozenset({1})]
    assert data["read_error"] is None, "one unreachable broker is not an unreachable cluster"
    cluster.alive = frozenset()
    seen.clear()
    data = round_of(collector)
    assert (data["read_error"], seen) == ("the cluster does not answer: no broker answers", [])


def test_an_unresponsive_leader_is_shown_before_the_cluster_fences_it(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_cluster(collector, monkeypatch, 2)
    topics = collector.state.topics
    offsets, silent = read_offsets(collector._cluster, topics.values(), -1)
    assert (offsets["orders"].tolist(), silent) == ([-1], {1})
    collector.state.alive = frozenset({1, 2})
    collector.state.nodes = {each: BrokerNode(each, "host", 9092, None, False) for each in (1, 2)}
    published: list[list[bool]] = []
    collector.listeners.add(lambda: published.append([each["answers"] for each in overview_data(collector)["brokers"]]))
    Collector._read_ends(collector)
    assert published == [[False, True]]
    (problem, *_) = overview_data(collector)["problems"]
    assert problem["title"] == "Broker 1 does not answer"
    assert collector._pace.is_due("brokers", 0.0), "the brokers are read next"


def test_offsets_of_a_large_topic_are_read_in_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.console.collector.readings.PARTITIONS_PER_REQUEST", 4)
    requests: list[list[tuple[str, list[int]]]] = []

    class Channel:
        def ask(self, api: object, request: Any, response: object) -> ListOffsetsResponse:
            topics = [(topic.name, [each.partition_index for each in topic.partitions]) for topic in request.topics]
            requests.append(topics)
            return ListOffsetsResponse(
                topics=[
                    ListOffsetsTopicResponse(
                        name, [ListOffsetsPartitionResponse(index, offset=10 + index) for index in indexes]
                    )
                    for name, indexes in topics
                ]
            )

    cluster: Any = SimpleNamespace(channel=lambda leader: Channel())
    counts = {"a": 1, "b": 9, "c": 2}
    topics = [
        TopicState(name, False, bytes(16), array("i", [1] * count), [(1,)] * count, [(1,)] * count)
        for name, count in counts.items()
    ]
    offsets, _ = read_offsets(cluster, topics, -1)
    assert {name: its_offsets.tolist() for name, its_offsets in offsets.items()} == {
        name: [10 + index for index in range(count)] for name, count in counts.items()
    }
    assert requests == [
        [("a", [0]), ("b", [0, 1, 2])],
        [("b", [3, 4, 5, 6])],
        [("b", [7, 8]), ("c", [0, 1])],
    ]


class ScriptedShareGroups:
    """A model of the coordinators of share groups."""

    def __init__(self, offsets: ShareOffsets) -> None:
        self.offsets = offsets

    def each_offsets(self, group_ids: list[str]) -> dict[str, ShareOffsets]:
        return dict.fromkeys(group_ids, self.offsets)

    def each_described(self, group_ids: list[str]) -> dict[str, DescribedGroup]:
        node = Node(1, "host", 9092)
        members = tuple(Member(each, None, each, "/host", frozenset({ORDERS})) for each in ("one", "two"))
        return {each: DescribedGroup(each, SHARE, "share", "Stable", "simple", node, members) for each in group_ids}


@pytest.mark.parametrize(("lag", "seconds"), [(4, 0.0), (0, 0.0), (None, None)])
def test_the_lag_of_a_share_group_is_what_its_coordinator_counts(
    collector: Collector, lag: int | None, seconds: float | None
) -> None:
    """Not the distance to the end of the log, which is eight, and no guess where nothing is counted."""
    groups = ScriptedGroups({})
    groups.listed = lambda: [ListedGroup("workers", SHARE, "share", "Stable")]  # type: ignore[method-assign]
    setattr(collector, "_groups", groups)  # noqa: B010
    offsets: ShareOffsets = {ORDERS: ShareOffset(2, lag=lag), TopicPartition("orders", 1): None}
    setattr(collector, "_share_groups", ScriptedShareGroups(offsets))  # noqa: B010
    round_of(collector)
    group = collector.state.groups["workers"]
    row, page = group_row(group), known_group(collector, group)
    assert (row["type"], row["members"], row["topics"], row["lag"]) == (SHARE, 2, 1, lag)
    assert (row["lag_seconds"], page["lag"]) == (seconds, lag)
    (place,) = page["partitions"]
    assert (place["committed"], place["end"], place["lag"], place["members"]) == (2, 10, lag, ["one", "two"])
    (reader,) = collector.state.readers["orders"]
    assert (reader.group_id, reader.lag) == ("workers", lag)
