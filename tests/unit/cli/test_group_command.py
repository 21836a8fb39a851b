"""The parts of `moldau group` and of members that need no broker: flags of reset, the list, stored offsets."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.cli.group.commands import _list_rows
from moldau.cli.main import main
from moldau.cli.records.consume_group import Membership
from moldau.cli.records.pattern_subscription import FIRST_REFRESH_SECONDS, REFRESH_SECONDS, PatternSubscription
from moldau.cli.stop_signals import StopSignals
from moldau.cli.stored_offsets import store_printed
from moldau.client.admin.group_coordinators import NotAnswered
from moldau.client.admin.group_values import DescribedGroup, ListedGroup, Node, ShareOffset
from moldau.client.confluent import KafkaError, KafkaException
from moldau.client.properties import for_librdkafka
from moldau.wire.messages.metadata import MetadataResponse, MetadataResponseTopic


def test_reset_takes_the_partitions_from_the_file_or_from_topic_but_not_from_both(tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text("orders,0,3\n")
    unreachable = ["--bootstrap-server", "127.0.0.1:1"]
    words = ["group", "reset", "billing", "--from-file", str(plan), "--topic", "orders", *unreachable]
    result = CliRunner().invoke(main, words)
    assert result.exit_code != 0
    assert "--topic cannot be used with --from-file" in result.output


def test_other_groups_are_listed_if_a_coordinator_does_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    well = DescribedGroup("well", "Classic", "consumer", "Empty", "", Node(1, "host", 9092), ())
    silent = NotAnswered(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    groups = SimpleNamespace(
        each_described=lambda _: {"well": well, "silent": silent},
        each_committed=lambda _: {"well": {}, "silent": silent},
    )
    shared = DescribedGroup("shared", "Share", "share", "Empty", "simple", Node(1, "host", 9092), ())
    orders = [TopicPartition("orders", index) for index in range(4)]
    offsets = {
        orders[0]: ShareOffset(7, 0, 2),
        orders[1]: ShareOffset(7),
        orders[2]: None,
        orders[3]: ShareOffset(1, 0, 3),
    }
    share = SimpleNamespace(
        each_described=lambda _: {"shared": shared, "silent queue": silent},
        each_offsets=lambda _: {"shared": offsets, "silent queue": silent},
    )
    connection: Any = SimpleNamespace(groups=groups, share=share, cluster=None)
    listed = [ListedGroup(name, "Classic", "consumer", "Empty") for name in ("silent", "well")]
    listed += [ListedGroup(name, "Share", "share", "Empty") for name in ("shared", "silent queue")]
    assert list(_list_rows(connection, listed)) == [
        ("silent", "Empty", "Classic", None, None, None),
        ("well", "Empty", "Classic", 0, 0, None),
        ("shared", "Empty", "Share", 0, 1, 5),
        ("silent queue", "Empty", "Share", None, None, None),
    ]
    reason = "coordinator not available; its coordinator is not available; try again in a moment"
    assert capsys.readouterr().err == f"moldau: group silent queue: {reason}\nmoldau: group silent: {reason}\n"


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
