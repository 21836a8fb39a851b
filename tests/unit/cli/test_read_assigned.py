"""Reading assigned partitions: what `moldau consume` does without a group."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from moldau.cli.connect import CommandFailed
from moldau.cli.partition_offsets import ResolvedRange
from moldau.cli.records.consume import read_assigned


def record(offset: int) -> Any:
    return SimpleNamespace(
        topic=lambda: "t", partition=lambda: 0, offset=lambda: offset, error=lambda: None, value=lambda: b"v"
    )


def error(name: str) -> Any:
    kafka_error = SimpleNamespace(name=lambda: name, code=lambda: 1, str=lambda: name)
    return SimpleNamespace(topic=lambda: None, partition=lambda: None, offset=lambda: None, error=lambda: kafka_error)


class Consumer:
    def __init__(self, *messages: Any) -> None:
        self.messages = list(messages)

    def assign(self, partitions: Any) -> None: ...

    def pause(self, partitions: Any) -> None: ...

    def poll(self, timeout_s: float) -> Any:
        return self.messages.pop(0)

    def consume(self, count: int, timeout_s: float) -> list[Any]:
        return []


class Printed:
    def __init__(self) -> None:
        self.offsets: list[int] = []

    def print(self, message: Any) -> None:
        self.offsets.append(message.offset())

    def reached_limit(self) -> bool:
        return False

    def flush(self) -> None: ...


RANGES = {("t", 0): ResolvedRange(0, 2)}


def test_a_user_without_rights_on_the_group_can_read() -> None:
    """librdkafka needs a group's name and looks for its coordinator, although nothing is committed."""
    printed = Printed()
    refused = error("GROUP_AUTHORIZATION_FAILED")
    read_assigned(Consumer(refused, record(0), refused, record(1)), RANGES, printed)  # type: ignore[arg-type]
    assert printed.offsets == [0, 1]


def test_any_other_error_ends_the_command() -> None:
    with pytest.raises(CommandFailed, match="TOPIC_AUTHORIZATION_FAILED"):
        read_assigned(Consumer(error("TOPIC_AUTHORIZATION_FAILED")), RANGES, Printed())  # type: ignore[arg-type]
