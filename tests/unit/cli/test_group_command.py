"""The parts of `moldau group` and of members that need no broker: reset targets, ages of records, stored offsets."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from moldau.base.errors import ErrorCode
from moldau.base.errors import KafkaError as BrokerError
from moldau.base.ids import TopicPartition
from moldau.cli.group.commands import _list_rows
from moldau.cli.group.lag import (
    PartitionLag,
    first_timestamp,
    first_timestamps,
    log_ends,
    partition_lags,
    whole_batches,
)
from moldau.cli.group.targets import Kind, Target, parse_target, parse_topic, resolve
from moldau.cli.main import main
from moldau.cli.offsets import BadOffset, PartitionBounds
from moldau.cli.records.consume_group import Membership
from moldau.cli.records.pattern_subscription import FIRST_REFRESH_SECONDS, REFRESH_SECONDS, PatternSubscription
from moldau.cli.stop_signals import StopSignals
from moldau.cli.stored_offsets import store_printed
from moldau.client.admin.group_values import Committed, DescribedGroup, ListedGroup, Node
from moldau.client.admin.groups import NotAnswered
from moldau.client.cluster import Cluster, Offsets, Topic
from moldau.client.confluent import KafkaError, KafkaException
from moldau.client.decoding import DecodingBudget
from moldau.client.properties import for_librdkafka
from moldau.wire.batch import BATCH_HEADER, BATCH_HEADER_BYTES, DELETE_HORIZON_BIT, LENGTH_PREFIX, read_header
from moldau.wire.compression import Compression
from moldau.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from moldau.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from moldau.wire.records import ControlType, Record, append_varint, build_batch, control_record

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("earliest", Target(Kind.START)),
        ("start", Target(Kind.START)),
        ("latest", Target(Kind.END)),
        ("end", Target(Kind.END)),
        ("current", Target(Kind.CURRENT)),
        ("12", Target(Kind.OFFSET, 12)),
        ("+12", Target(Kind.SHIFT, 12)),
        ("-12", Target(Kind.SHIFT, -12)),
        ("@-1h", Target(Kind.TIME, NOW_MS - 3_600_000)),
        ("@1700000000000", Target(Kind.TIME, 1_700_000_000_000)),
        ("@2026-11-15", Target(Kind.TIME, 1_794_700_800_000)),
    ],
)
def test_targets(text: str, target: Target) -> None:
    assert parse_target(text, NOW_MS) == target


@pytest.mark.parametrize("text", ["@1969-12-31T23:59:59.999Z", "@1969-12-31", "@1970-01-01T00:00:00+01:00"])
def test_times_before_1970_are_refused_because_list_offsets_gives_them_other_meanings(text: str) -> None:
    with pytest.raises(BadOffset, match="is before 1970"):
        parse_target(text, NOW_MS)
    assert parse_target("@1970-01-01", NOW_MS) == Target(Kind.TIME, 0)


@pytest.mark.parametrize("text", ["", "+", "-", "1.5", "@", "@yesterday", "1:2", "Earliest", "٣", "9" * 5000])
def test_invalid_targets_are_refused(text: str) -> None:
    with pytest.raises(BadOffset):
        parse_target(text, NOW_MS)


@pytest.mark.parametrize(
    ("target", "committed", "offset"),
    [
        (Target(Kind.START), 15, 10),
        (Target(Kind.END), 15, 20),
        (Target(Kind.OFFSET, 12), 15, 12),
        (Target(Kind.OFFSET, 3), 15, 10),
        (Target(Kind.OFFSET, 99), None, 20),
        (Target(Kind.SHIFT, -2), 15, 13),
        (Target(Kind.SHIFT, -9), 15, 10),
        (Target(Kind.SHIFT, 9), 15, 20),
        (Target(Kind.SHIFT, 1), None, None),
        (Target(Kind.CURRENT), 15, 15),
        (Target(Kind.CURRENT), None, 20),
        (Target(Kind.TIME, 7), 15, 18),
        (Target(Kind.TIME, 8), 15, 20),  # no record is that young
    ],
)
def test_a_target_is_resolved_inside_the_log(target: Target, committed: int | None, offset: int | None) -> None:
    assert resolve(target, committed, PartitionBounds(10, 20, {7: 18})) == offset


def test_topics_with_and_without_partitions() -> None:
    assert parse_topic("orders") == ("orders", [])
    assert parse_topic("orders:0,3") == ("orders", [0, 3])
    for wrong in ("orders:", "orders:a", ":0", "orders:0,", "orders:-1", "orders:" + "9" * 5000):
        with pytest.raises(BadOffset):
            parse_topic(wrong)


def test_reset_takes_the_partitions_from_the_file_or_from_topic_but_not_from_both(tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text("orders,0,3\n")
    unreachable = ["--bootstrap-server", "127.0.0.1:1"]
    words = ["group", "reset", "billing", "--from-file", str(plan), "--topic", "orders", *unreachable]
    result = CliRunner().invoke(main, words)
    assert result.exit_code != 0
    assert "--topic cannot be used with --from-file" in result.output


@pytest.mark.parametrize(
    ("committed", "end", "records"), [(3, 10, 7), (10, 10, 0), (12, 10, 0), (None, 10, None), (3, None, None)]
)
def test_lag_in_records(committed: int | None, end: int | None, records: int | None) -> None:
    assert PartitionLag(TopicPartition("t", 0), committed, end, None).records == records


def batch_of(*timestamps: int, base_offset: int = 0, codec: Compression = Compression.NONE) -> bytes:
    records = [Record(-1, timestamp, None, b"v") for timestamp in timestamps]
    return bytes(build_batch(records, base_offset=base_offset, compression=codec))


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_the_timestamp_of_the_first_waiting_record(codec: Compression) -> None:
    ((header, batch),) = whole_batches(memoryview(batch_of(100, 200, 300, base_offset=7, codec=codec)))
    found = [first_timestamp(header, batch, offset, DecodingBudget()) for offset in (0, 7, 8, 9, 10)]
    assert found == [100, 100, 200, 300, None]


def test_a_batch_beyond_the_budget_has_the_least_possible_age() -> None:
    spent = DecodingBudget(records_max=2, batches=1)
    ((header, batch),) = whole_batches(memoryview(batch_of(100, 200, 300, base_offset=7)))
    assert first_timestamp(header, batch, 8, spent) == 300
    assert first_timestamp(header._replace(record_count=1_000_000), batch, 8, DecodingBudget()) == 300


def test_a_delete_horizon_is_not_the_timestamp_of_a_record() -> None:
    tombstone = bytearray(1)
    for number in (100 - NOW_MS, 0, 1):  # Timestamp delta from the horizon, offset delta, bytes of the key.
        append_varint(tombstone, number)
    tombstone += b"k\x01\x00"
    body = bytearray()
    append_varint(body, len(tombstone))
    body += tombstone
    header = read_header(batch_of(100, base_offset=7))._replace(
        batch_length=BATCH_HEADER_BYTES - LENGTH_PREFIX.size + len(body),
        attributes=DELETE_HORIZON_BIT,
        base_timestamp=NOW_MS,
    )
    batch = memoryview(BATCH_HEADER.pack(*header) + body)
    assert first_timestamp(header, batch, 7, DecodingBudget()) == 100


def test_markers_are_not_records_and_an_incomplete_batch_is_left_out() -> None:
    marker = bytes(build_batch([control_record(ControlType.COMMIT, b"", 5)], is_control=True))
    ((header, batch),) = whole_batches(memoryview(marker))
    assert first_timestamp(header, batch, 0, DecodingBudget()) is None
    two = batch_of(1) + batch_of(2, base_offset=1)
    assert [len(list(whole_batches(memoryview(two[:cut])))) for cut in (len(two), len(two) - 1, 70, 3)] == [2, 1, 1, 0]


def test_other_groups_are_listed_if_a_coordinator_does_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    well = DescribedGroup("well", "Classic", "consumer", "Empty", "", Node(1, "host", 9092), ())
    silent = NotAnswered(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    groups = SimpleNamespace(
        each_described=lambda _: {"well": well, "silent": silent},
        each_committed=lambda _: {"well": {}, "silent": silent},
    )
    connection: Any = SimpleNamespace(groups=groups, cluster=None)
    listed = [ListedGroup(name, "Classic", "consumer", "Empty") for name in ("silent", "well")]
    assert list(_list_rows(connection, listed)) == [
        ("silent", "Empty", "Classic", None, None, None),
        ("well", "Empty", "Classic", 0, 0, None),
    ]
    assert capsys.readouterr().err == (
        "moldau: group silent: coordinator not available; its coordinator is not available; try again in a moment\n"
    )


class Moving(Cluster):
    """A topic `t` whose leader moves: requests fail with these errors first."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__("localhost:1", {})
        self._errors = list(errors)

    def refresh(self, names: Iterable[str] | None, create: bool = False) -> None:
        self._addresses = {1: ("host", 1)}
        self._topics = {"t": Topic("t", b"", {0: 1})}

    def list_offsets(self, timestamps: Mapping[TopicPartition, int], read_committed: bool = False) -> Offsets:
        if self._errors:
            raise self._errors.pop(0)
        return dict.fromkeys(timestamps, 7)


def test_the_lag_waits_for_a_leader_that_moves() -> None:
    moved, dead = BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER), ConnectionRefusedError("Connection refused")
    partition = TopicPartition("t", 0)
    assert log_ends(Moving(dead, moved), [partition]) == {partition: 7}
    with pytest.raises(BrokerError):
        log_ends(Moving(BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)), [partition])


def test_the_age_is_unknown_if_the_leader_dies() -> None:
    class Dead(Moving):
        def channel(self, node_id: int) -> Any:
            raise ConnectionRefusedError("Connection refused")

    (lag,) = partition_lags(Dead(), [], {TopicPartition("t", 0): Committed(5)}, NOW_MS)
    assert (lag.records, lag.seconds) == (2, None)


class FakePartition:
    def __init__(self, topic: str, partition: int) -> None:
        self.topic, self.partition = topic, partition


class TestMembership:
    def test_a_member_is_done_when_all_partitions_are_at_their_end(self) -> None:
        member = Membership()
        assert not member.is_done()
        member.callbacks["on_assign"](None, [FakePartition("t", 0), FakePartition("t", 1)])
        member.reached_end(("t", 0))
        assert not member.is_done()
        member.reached_end(("t", 1))
        assert member.is_done()
        member.left_end(("t", 1))
        assert not member.is_done()

    def test_partitions_are_assigned_and_revoked_one_by_one(self) -> None:
        member = Membership()
        member.callbacks["on_assign"](None, [FakePartition("t", 0)])
        member.reached_end(("t", 0))
        member.callbacks["on_assign"](None, [FakePartition("t", 1)])
        assert not member.is_done()
        member.callbacks["on_revoke"](None, [FakePartition("t", 1)])
        assert member.is_done()
        member.callbacks["on_revoke"](None, [FakePartition("t", 0)])
        member.callbacks["on_assign"](None, [FakePartition("t", 0)])
        assert not member.is_done(), "the end was reached before the partition was revoked"

    def test_a_member_without_partitions_is_done_at_once(self) -> None:
        member = Membership()
        member.callbacks["on_assign"](None, [])
        assert member.is_done()


class FakeMessage:
    def __init__(self, partition: int, offset: int) -> None:
        self._partition, self._offset = partition, offset

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset


class FakeConsumer:
    """Records what is stored; like librdkafka, it refuses offsets of partitions that are not assigned."""

    def __init__(self, assigned: set[int] = frozenset(), topics: Any = ()) -> None:  # type: ignore[assignment]
        self.assigned, self.topics = assigned, topics
        self.stored: list[tuple[int, int]] = []
        self.subscriptions: list[list[str]] = []

    def store_offsets(self, message: FakeMessage) -> None:
        if message.partition() not in self.assigned:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.stored.append((message.partition(), message.offset()))

    def subscribe(self, names: list[str], **_: Any) -> None:
        self.subscriptions.append(names)

    def asking_within(self, seconds: float) -> Any:
        def ask(*_: object) -> MetadataResponse:
            if self.topics is None:
                raise ConnectionError("the broker is silent")
            return MetadataResponse(topics=[MetadataResponseTopic(name=name) for name in self.topics])

        return ask

    def close(self) -> None:
        pass


def test_the_last_record_of_each_partition_is_stored_and_a_lost_partition_is_not() -> None:
    consumer = FakeConsumer(assigned={0, 1})
    store_printed(consumer, [FakeMessage(0, 5), FakeMessage(1, 7), FakeMessage(2, 1), FakeMessage(0, 6)])
    assert sorted(consumer.stored) == [(0, 6), (1, 7)]


def test_a_pattern_is_refreshed_and_a_silent_broker_changes_nothing() -> None:
    consumer = FakeConsumer(topics=[])
    pattern = PatternSubscription(consumer, consumer, lambda name: name.startswith("a"))  # type: ignore[arg-type]
    pattern.refresh(0.0)
    consumer.topics = ["a1", "b"]
    pattern.refresh(FIRST_REFRESH_SECONDS / 2)
    assert consumer.subscriptions == []
    pattern.refresh(FIRST_REFRESH_SECONDS)
    consumer.topics = None
    pattern.refresh(10 * REFRESH_SECONDS)
    consumer.topics = ["a2", "a1"]
    pattern.refresh(20 * REFRESH_SECONDS)
    pattern.refresh(30 * REFRESH_SECONDS)
    assert consumer.subscriptions == [["a1"], ["a1", "a2"]]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_recorded_and_a_second_one_of_either_kind_ends_the_process(number: signal.Signals) -> None:
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    with StopSignals() as stop:
        assert stop.exit_status == 0
        os.kill(os.getpid(), number)
        assert stop.exit_status == 128 + number
        assert [signal.getsignal(each) for each in before] == [signal.SIG_DFL, signal.SIG_DFL]
    assert {each: signal.getsignal(each) for each in before} == before


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with StopSignals() as stop:
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.exit_status == 143
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("java_config", "librdkafka_name"),
    [
        ("org.apache.kafka.clients.consumer.RoundRobinAssignor", "roundrobin"),
        ("org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "cooperative-sticky"),
        ("RangeAssignor,org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "range"),
        ("com.example.Mine", None),
        ("roundrobin", "roundrobin"),
    ],
)
def test_java_assignors_are_translated_for_librdkafka(java_config: str, librdkafka_name: str | None) -> None:
    assert (
        for_librdkafka({"partition.assignment.strategy": java_config}).get("partition.assignment.strategy")
        == librdkafka_name
    )


def test_a_dead_leader_is_dialled_once_for_the_ages_of_all_records() -> None:
    """The other leader has a marker before the record, so that it is asked twice."""
    marker = bytes(build_batch([control_record(ControlType.COMMIT, b"", 5)], is_control=True))
    batches = [marker, batch_of(NOW_MS, base_offset=1)]
    dialled: list[int] = []

    def answer(*_: object) -> FetchResponse:
        data = PartitionData(0, records=memoryview(batches.pop(0)))
        return FetchResponse(responses=[FetchableTopicResponse(b"", "t", [data])])

    class HalfDead(Moving):
        def refresh(self, names: Iterable[str] | None, create: bool = False) -> None:
            self._addresses = {1: ("host", 1), 2: ("host", 2)}
            self._topics = {"t": Topic("t", b"", {0: 1, 1: 2})}

        def channel(self, node_id: int) -> Any:
            dialled.append(node_id)
            if node_id == 2:
                raise ConnectionRefusedError("Connection refused")
            return SimpleNamespace(ask=answer)

    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    assert first_timestamps(HalfDead(), {first: 0, second: 0}) == {first: NOW_MS}
    assert dialled == [1, 2, 1]
