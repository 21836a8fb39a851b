"""kafka-consumer-groups --reset-offsets while a leader moves, and where one group of several fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.cli.kafka import consumer_groups
from moldau.cli.kafka.group_offsets import reset
from moldau.cli.kafka.tool import ToolFailed
from moldau.client import cluster as client
from moldau.client.admin.group_values import Committed
from moldau.client.cluster import EARLIEST, Cluster, Offsets, Topic

PARTITION = TopicPartition("orders", 0)


class MovingLeader(Cluster):
    """The partition's leader has just moved: the node that the metadata names refuses the first request."""

    def __init__(self) -> None:
        super().__init__("localhost:1", {})
        self.refusals = 1

    def topic(self, name: str, create: bool = False) -> Topic:
        return Topic(name, b"i" * 16, {0: 1})

    def nodes(self) -> Mapping[int, tuple[str, int]]:
        return {1: ("localhost", 9092)}

    def list_offsets(self, timestamps: Mapping[TopicPartition, int], read_committed: bool = False) -> Offsets:
        if self.refusals:
            self.refusals -= 1
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return {partition: 3 if timestamp == EARLIEST else 9 for partition, timestamp in timestamps.items()}


class EmptyGroups:
    """Groups without members that have committed offset 5."""

    def __init__(self, failing: str = "") -> None:
        self._failing = failing
        self.commits: dict[str, Offsets] = {}

    def described(self, group_ids: Sequence[str]) -> dict[str, KafkaError]:
        return dict.fromkeys(group_ids, KafkaError(ErrorCode.GROUP_ID_NOT_FOUND))

    def committed(self, group_ids: Sequence[str]) -> dict[str, Any]:
        return {group_id: {PARTITION: Committed(5)} for group_id in group_ids}

    def commit(self, group_id: str, offsets: Offsets) -> None:
        if group_id == self._failing:
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        self.commits[group_id] = offsets


@pytest.fixture(autouse=True)
def no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "BACKOFF_SECONDS_FIRST", 0)


def run(groups: Any, cluster: Cluster, *words: str) -> None:
    reset.reset(consumer_groups.FLAGS.parse(["--reset-offsets", "--all-topics", *words]), groups, cluster)


@pytest.mark.parametrize(
    ("scenario", "offset"),
    [
        (["--to-earliest"], 3),
        (["--to-latest"], 9),
        (["--to-offset", "100"], 9),
        (["--shift-by", "1"], 6),
        (["--to-datetime", "2026-11-15T00:00:00.000"], 9),
    ],
)
def test_a_moving_leader_does_not_end_the_tool(scenario: list[str], offset: int) -> None:
    groups = EmptyGroups()
    run(groups, MovingLeader(), "--group", "one", "--execute", *scenario)
    assert groups.commits == {"one": {PARTITION: offset}}


def test_groups_that_were_reset_before_a_failure_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    groups = EmptyGroups(failing="two")
    with pytest.raises(ToolFailed):
        run(groups, MovingLeader(), "--group", "one", "--group", "two", "--execute", "--to-earliest")
    assert groups.commits == {"one": {PARTITION: 3}}
    header, row = capsys.readouterr().out.split("\n")[1:3]
    assert (header.split()[0], row.split()) == ("GROUP", ["one", "orders", "0", "3"])


def test_a_dry_run_that_fails_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    class Refusing(MovingLeader):
        def list_offsets(self, timestamps: Mapping[TopicPartition, int], read_committed: bool = False) -> Offsets:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    with pytest.raises(ToolFailed):
        run(EmptyGroups(), Refusing(), "--group", "one", "--to-earliest")
    assert capsys.readouterr().out == ""
