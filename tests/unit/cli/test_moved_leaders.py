"""Tools that ask the leaders of partitions ask the new leader if one has moved."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.cli.kafka import delete_records, get_offsets
from moldau.cli.kafka.connection import clients, leaders
from moldau.cli.kafka.connection.leaders import Leaders
from moldau.cli.kafka.tool import ToolFailed
from moldau.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from moldau.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

MOVED, STAYED = TopicPartition("t", 0), TopicPartition("t", 1)
OFFSETS = {MOVED: 5, STAYED: 5}
BROKERS = {1: ("one", 1), 2: ("two", 1)}
FORMER = Leaders(BROKERS, {MOVED: 1, STAYED: 2}, frozenset())
ELECTING = Leaders(BROKERS, {MOVED: -1, STAYED: 2}, frozenset())
NOW = Leaders(BROKERS, {MOVED: 2, STAYED: 2}, frozenset())
NOT_LEADER = (
    "org.apache.kafka.common.errors.NotLeaderOrFollowerException: For requests intended only for the leader,"
    " this error indicates that the broker is not the current leader. For requests intended for any replica,"
    " this error indicates that the broker is not a replica of the topic partition."
)


class Brokers:
    """Broker 1 leads nothing any more; broker 2 leads everything."""

    def __init__(self, host: str, asked: list[tuple[str, int]]) -> None:
        self._host, self._asked = host, asked

    def __enter__(self) -> Brokers:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, key: int, request: Any, response_type: type[Any]) -> Any:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER if self._host == "one" else ErrorCode.NONE
        indexes = [each.partition_index for each in request.topics[0].partitions]
        self._asked += [(self._host, index) for index in indexes]
        if response_type is DeleteRecordsResponse:
            deleted = [DeleteRecordsPartitionResult(index, 5, error) for index in indexes]
            return DeleteRecordsResponse(topics=[DeleteRecordsTopicResult(name="t", partitions=deleted)])
        found = [ListOffsetsPartitionResponse(partition_index=i, error_code=error, offset=5) for i in indexes]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=found)])


class Metadata:
    """What the cluster says when it is asked for the leaders again; an error at the end of the list."""

    def __init__(self, *answers: Leaders) -> None:
        self._answers = list(answers)

    def __call__(self) -> Leaders:
        if not self._answers:
            raise ToolFailed("no broker answers")
        return self._answers.pop(0)


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    asked: list[tuple[str, int]] = []
    monkeypatch.setattr(clients, "channel_to", lambda host, *_: Brokers(host, asked))
    monkeypatch.setattr(leaders, "PAUSE_SECONDS", 0)
    return asked


def test_records_are_deleted_by_the_new_leader(asked: list[tuple[str, int]]) -> None:
    assert delete_records._delete(FORMER, OFFSETS, {}, Metadata(FORMER, ELECTING, NOW)) == {
        MOVED: "low_watermark: 5",
        STAYED: "low_watermark: 5",
    }
    assert asked == [("one", 0), ("two", 1), ("one", 0), ("two", 0)]


def test_offsets_are_listed_by_the_new_leader(capsys: pytest.CaptureFixture[str]) -> None:
    assert get_offsets._offsets(FORMER, [MOVED, STAYED], -1, {}, Metadata(FORMER, ELECTING, NOW)) == OFFSETS
    assert capsys.readouterr().err == ""


def test_the_retries_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaders, "RETRY_SECONDS", -1)
    answers = delete_records._delete(FORMER, OFFSETS, {}, Metadata(NOW))
    assert answers == {MOVED: f"error: {NOT_LEADER}", STAYED: "low_watermark: 5"}


def test_answers_are_kept_if_the_cluster_cannot_be_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert get_offsets._offsets(FORMER, [MOVED, STAYED], -1, {}, Metadata()) == {STAYED: 5}
    skipped = "Skip getting offsets for topic-partition t-0 due to error: "
    assert capsys.readouterr().err == f"{skipped}{NOT_LEADER}\n"
