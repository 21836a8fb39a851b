"""The parts of the collector without I/O: pace, history, lags, rebalances, problems."""

from __future__ import annotations

from array import array

from moldau.base.ids import TopicPartition
from moldau.client.admin.cluster_values import BrokerNode
from moldau.client.admin.group_values import Member
from moldau.console.collector.ages import WRITTEN_MAX, Age, Ages
from moldau.console.collector.collector import PERIODS
from moldau.console.collector.history import EVERY_MS, GONE_MAX, POINTS_MAX, History
from moldau.console.collector.lags import ends_of_read_partitions, rebalance, set_lags
from moldau.console.collector.pace import Pace
from moldau.console.collector.state import (
    LASTING_FAILURES,
    ClusterState,
    GroupState,
    LogDir,
    TopicState,
    known_sum,
    layout_of,
)
from moldau.console.endpoints.groups import direction
from moldau.console.endpoints.topics import topic_row
from moldau.console.problems import AFFECTED_MAX, STEP_NAMES, problems_of
from moldau.operations.lag import PartitionLag


def topic(name: str = "orders", ends: tuple[int, ...] = (10, 20), starts: tuple[int, ...] = (0, 5)) -> TopicState:
    count = len(ends)
    state = TopicState(name, False, bytes(16), array("i", [1] * count), [(1, 2)] * count, [(1, 2)] * count)
    state.note_starts(array("q", starts))
    state.note_ends(array("q", ends), 100.0)
    return state


def group(offsets: dict[str, tuple[list[int], list[int]]], name: str = "billing") -> GroupState:
    state = GroupState(name, "Classic", "consumer", "Stable", offsets_known=True)
    state.offsets = {each: (array("i", indexes), array("q", values)) for each, (indexes, values) in offsets.items()}
    return state


def test_an_expensive_step_is_read_less_often() -> None:
    pace = Pace({"cheap": 1.0, "costly": 1.0})
    assert list(pace.due(0.0)) == ["cheap", "costly"]
    pace.done("cheap", 0.0, 0.001, resting=False)
    pace.done("costly", 0.0, 0.5, resting=False)
    assert list(pace.due(1.0)) == ["cheap"]
    assert list(pace.due(9.9)) == ["cheap"]
    assert list(pace.due(10.0)) == ["cheap", "costly"]
    pace.hurry("costly")
    assert "costly" in list(pace.due(1.0))


def test_without_viewers_everything_is_read_less_often() -> None:
    pace = Pace({"cheap": 1.0})
    pace.done("cheap", 0.0, 0.0, resting=True)
    assert list(pace.due(4.9)) == []
    assert list(pace.due(5.0)) == ["cheap"]


def test_an_unreachable_cluster_is_asked_less_and_less_often() -> None:
    pace = Pace({"a": 1.0, "b": 1.0})
    waits = []
    now = 0.0
    for _ in range(6):
        pace.failed(now)
        waits.append(pace.seconds_until_due(now))
        now += waits[-1]
    assert waits == [0.5, 1.0, 2.0, 5.0, 5.0, 5.0]


def test_history_keeps_recent_points_and_thins_older_ones() -> None:
    history = History()
    for step in range(5000):
        assert history.is_due(step * EVERY_MS)
        history.note({"lag": {"g": float(step), "idle": 0.0}}, step * EVERY_MS)
    times, values = history.times_ms(), history.values(("lag", "g"))
    assert len(times) == len(values) <= 2 * POINTS_MAX + 1
    assert times == sorted(times)
    assert values == [time / EVERY_MS for time in times]
    assert times[0] < 500 * EVERY_MS, "the first points are still kept"
    assert history.last(("lag", "g"), 3) == [4997.0, 4998.0, 4999.0]
    assert set(history.values(("lag", "idle"))) == {0.0}
    assert not history.is_due(4999 * EVERY_MS + 1)


def test_history_goes_on_when_the_clock_is_set_back() -> None:
    history = History()
    for step in range(POINTS_MAX + 20):
        history.note({"lag": {"g": float(step)}}, step * EVERY_MS)
    assert history.is_due(10 * EVERY_MS)
    history.note({"lag": {"g": 1000.0}}, 10 * EVERY_MS)
    assert not history.is_due(10 * EVERY_MS + 1)
    history.note({"lag": {"g": 1001.0}}, 11 * EVERY_MS)
    times = history.times_ms()
    assert times == sorted(set(times))
    assert times[-2:] == [10 * EVERY_MS, 11 * EVERY_MS]
    assert history.values(("lag", "g"))[-2:] == [1000.0, 1001.0]


def test_history_distinguishes_unknown_values_from_zero() -> None:
    history = History()
    history.note({"lag": {"g": 0.0, "h": None}, "size": {"t": None}}, 0)
    history.note({"lag": {"g": None}}, EVERY_MS)
    assert history.values(("lag", "g")) == [0.0, None]
    history.note({"lag": {"g": 5.0, "h": None}, "size": {"t": 7.0}}, 2 * EVERY_MS)
    history.note({}, 3 * EVERY_MS)
    assert history.values(("lag", "g")) == [0.0, None, 5.0, None]
    assert history.values(("lag", "h")) == [None] * 4
    assert history.values(("size", "t")) == [None, 0.0, 7.0, None]
    assert history.last(("lag", "g"), 2) == [5.0, None]


def test_series_with_only_unknown_values_take_no_memory() -> None:
    history = History()
    for step in range(10):
        history.note({"size": {f"topic-{each}": None for each in range(1000)}}, step * EVERY_MS)
    assert history._recent.width == history._long.width == 0
    assert history.values(("size", "topic-7"))[-1] is None


def test_deleted_series_are_removed_from_the_history() -> None:
    history = History()
    for step in range(3000):
        history.note({"lag": {f"group-{step}": 1.0, "stays": float(step)}}, step * EVERY_MS)
        assert history._recent.width < 2 * GONE_MAX
        assert history._long.width < 2 * GONE_MAX
    assert history.values(("lag", "group-2999"))[-1] == 1.0
    assert history.values(("lag", "stays")) == [time / EVERY_MS for time in history.times_ms()]
    assert history.values(("lag", "group-2999"))[:-1] == [0.0] * (len(history.times_ms()) - 1)


def test_known_sum_ignores_unknown_values() -> None:
    assert known_sum([]) == 0
    assert known_sum([None, None]) is None
    assert known_sum([None, 2, 3]) == 5


def test_lag_in_records_and_seconds() -> None:
    topics = {"orders": topic()}
    reading = group({"orders": ([0, 1], [7, 20])})
    ages = Ages()
    ages.note_ends({("orders", 0): 0, ("orders", 1): 20}, 0)
    ages.note_ends(ends_of_read_partitions([reading], topics), 10_000)
    readers = set_lags([reading], topics, ages, 12_000)
    assert (reading.lag, reading.age) == (3, Age(5.0, False))
    assert [(each.group_id, each.lag, each.age) for each in readers["orders"]] == [("billing", 3, Age(5.0, False))]


def test_a_partition_that_could_not_be_read_keeps_its_history() -> None:
    topics = {"orders": topic()}
    reading = group({"orders": ([0, 1], [5, 20])})
    ages = Ages()
    ages.note_ends({("orders", 0): 0, ("orders", 1): 20}, 0)
    for now_ms, end in ((10_000, 10), (20_000, -1), (30_000, 10)):
        topics["orders"].note_ends(array("q", (end, 20)), now_ms / 1000)
        ages.note_ends(ends_of_read_partitions([reading], topics), now_ms)
    set_lags([reading], topics, ages, 30_000)
    assert (reading.lag, reading.age) == (5, Age(25.0, False))


def test_a_bounded_number_of_looked_up_records_is_remembered() -> None:
    ages = Ages()
    ages.note_ends({("orders", 0): WRITTEN_MAX * 2}, 0)
    for offset in range(WRITTEN_MAX + 7):
        ages.note_looked_up([PartitionLag(TopicPartition("orders", 0), offset, WRITTEN_MAX * 2, 60.0)], 0)
    assert ages.age(("orders", 0), 6, 1000) == Age(1.0, True)
    assert ages.age(("orders", 0), 7, 1000) == Age(61.0, False)


def test_the_lag_of_a_deleted_topic_or_of_micro_batch_ids_is_unknown() -> None:
    gone = group({"deleted": ([0], [7])})
    spark = group({"orders": ([0], [7])}, "spark")
    spark.holds_micro_batch_ids = True
    readers = set_lags([gone, spark], {"orders": topic()}, Ages(), 0)
    assert gone.lag is None
    assert spark.lag is None
    assert "orders" not in readers


def test_the_rate_is_averaged_over_several_seconds() -> None:
    state = topic(ends=(10, 20))
    assert state.rate is None
    state.note_ends(array("q", [40, 20]), 102.0)
    assert state.rate == 15.0
    assert state.partition_rate(0) == 15.0
    for second in range(3, 30):
        state.note_ends(array("q", [40, 20]), 100.0 + second)
    assert state.rate == 0.0
    state.note_ends(array("q", [-1, 21]), 130.0)
    rate = state.rate
    assert rate is not None
    assert 0 < rate < 1, "a partition that could not be read does not count"


def test_a_row_of_the_topic_list() -> None:
    state = topic()
    state.isr = [(1,), (1, 2)]
    cluster = ClusterState(read={"offsets"})
    row = topic_row(state, cluster)
    assert (row["records"], row["partitions"], row["replicas"]) == (25, 2, 2)
    assert (row["under_replicated"], row["without_leader"], row["lag"], row["groups"]) == (1, 0, None, 0)
    state.note_starts(array("q", [-1, 0]))
    assert topic_row(state, cluster)["records"] is None


def member(name: str, *partitions: int) -> Member:
    return Member(
        f"{name}-id", None, name, "/127.0.0.1", frozenset(TopicPartition("orders", each) for each in partitions)
    )


def test_the_cause_of_a_rebalance() -> None:
    one, two = member("one", 0, 1), member("two", 1)
    joined = rebalance((one,), (member("one", 0), two), "Stable", 5, {})
    assert joined is not None
    assert (joined.cause, joined.joined, joined.from_members, joined.to_members) == (
        "two joined", ("two (127.0.0.1)",), 1, 2,
    )  # fmt: skip
    left = rebalance((one, two), (one,), "Stable", 5, {})
    assert left is not None
    assert left.cause == "two left"
    moved = rebalance((one,), (member("one", 0),), "Stable", 5, {})
    assert moved is not None
    assert moved.cause == "partitions moved between the members"
    assert rebalance((one, two), (one, two), "Stable", 5, {}) is None


def cluster_state() -> ClusterState:
    state = ClusterState()
    state.nodes = {each: BrokerNode(each, "host", 9092, None, False) for each in (1, 2)}
    state.alive = frozenset({1, 2})
    state.topics = {"orders": topic()}
    state.layout = layout_of(state.topics.values())
    return state


def test_a_healthy_cluster_has_no_problems() -> None:
    assert problems_of(cluster_state()) == []


def test_problems_say_what_to_do() -> None:
    state = cluster_state()
    state.alive = frozenset({1})
    state.topics["orders"].isr = [(1,), (1,)]
    state.topics["orders"].leaders = array("i", [1, -1])
    state.layout = layout_of(state.topics.values())
    state.log_dirs = {1: [LogDir("/data", 5, 100, 5, None), LogDir("/broken", 0, None, None, "KAFKA_STORAGE_ERROR")]}
    late = group({})
    late.lag, late.age = 7, Age(1000.0, True)
    state.groups = {"billing": late}
    titles = [problem.title for problem in problems_of(state)]
    assert titles == [
        "Broker 2 is down",
        "1 partition is offline: clients can neither read nor write there",
        "Broker 1: the directory /broken is offline (KAFKA_STORAGE_ERROR)",
        "1 partition is under-replicated",
        "Broker 1: only 5 % of the disk of /data is free",
        "1 group is more than 5 minutes behind",
    ]
    assert all(problem.what_to_do for problem in problems_of(state))
    assert problems_of(state)[1].what_to_do == "Start broker 2."


def test_a_problem_names_the_first_of_all_that_it_counts() -> None:
    state = cluster_state()
    for number in range(AFFECTED_MAX + 28):
        state.groups[f"group-{number:02}"] = waiting = group({}, f"group-{number:02}")
        waiting.state, waiting.lag = "Empty", 1
    (data,) = [each.data() for each in problems_of(state)]
    assert data["title"] == "48 groups without members have unread records"
    assert (len(data["affected"]), data["affected_total"]) == (AFFECTED_MAX, 48)


def test_unreadable_parts_are_reported_by_the_names_that_users_know() -> None:
    state = cluster_state()
    for step in ("ends", "quorum"):
        for _ in range(LASTING_FAILURES):
            state.failures.note(step, "broker 2 does not answer")
    problems = problems_of(state)
    assert [each.title for each in problems] == [
        "The log end offsets cannot be read",
        "The controller quorum cannot be read",
    ]
    assert problems[0].what_to_do.startswith("broker 2 does not answer. What is shown was read before; see whether")
    assert set(STEP_NAMES) == set(PERIODS)


def test_the_direction_of_a_lag() -> None:
    assert direction([0, 1]) is None
    assert direction([0, 0, 0, 0]) == "steady"
    assert direction([100, 101, 99, 100]) == "steady"
    assert direction([0, 10, 50, 100]) == "growing"
    assert direction([100, None, 50, 10, 0]) == "shrinking"
