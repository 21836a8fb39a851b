"""Tools that ask the leaders of partitions show what the others answered if one leader does not."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.base.ids import TopicPartition
from moldau.cli.kafka import delete_records, get_offsets
from moldau.cli.kafka.connection import clients
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

FIRST, SECOND, THIRD = (TopicPartition("t", index) for index in range(3))
LEADERS = Leaders({1: ("one", 1), 2: ("two", 1), 3: ("three", 1)}, {FIRST: 1, SECOND: 2, THIRD: 3}, frozenset())


class Answering:
    def __enter__(self) -> Answering:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, key: int, request: Any, response_type: type[Any]) -> Any:
        index = request.topics[0].partitions[0].partition_index
        if response_type is DeleteRecordsResponse:
            deleted = DeleteRecordsPartitionResult(partition_index=index, low_watermark=5)
            return DeleteRecordsResponse(topics=[DeleteRecordsTopicResult(name="t", partitions=[deleted])])
        found = ListOffsetsPartitionResponse(partition_index=index, offset=5)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])


class Closing(Answering):
    def ask(self, *_: object) -> Any:
        raise ConnectionResetError("connection reset")


@pytest.fixture(autouse=True)
def _brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    def channel_to(host: str, *_: object) -> Answering:
        if host == "one":
            raise ToolFailed("one:1 does not answer")
        return Closing() if host == "two" else Answering()

    monkeypatch.setattr(clients, "channel_to", channel_to)


def test_records_are_deleted_where_leaders_answer() -> None:
    assert delete_records._delete(LEADERS, dict.fromkeys((FIRST, SECOND, THIRD), 5), {}, lambda: LEADERS) == {
        FIRST: "error: one:1 does not answer",
        SECOND: "error: two:1: connection reset",
        THIRD: "low_watermark: 5",
    }


def test_offsets_are_listed_where_leaders_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert get_offsets._offsets(LEADERS, [FIRST, SECOND, THIRD], -1, {}, lambda: LEADERS) == {THIRD: 5}
    assert capsys.readouterr().err.splitlines() == [
        "Skip getting offsets for topic-partition t-0 due to error: one:1 does not answer",
        "Skip getting offsets for topic-partition t-1 due to error: two:1: connection reset",
    ]
