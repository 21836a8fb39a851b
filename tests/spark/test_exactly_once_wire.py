"""The sink's commit on the wire: a driver killed with -9 at every step, and two drivers that meet. No Spark needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from commit_on_the_wire import STEPS, Sink, expected
from committed_records import committed_records

from moldau.base.errors import ErrorCode, KafkaError

GATES = [
    f"{when} {step}" for step in STEPS for when in ("before", "amid", "after") if when != "amid" or step == "write"
]


def seen(bootstrap: str, topics: list[str]) -> list[str]:
    return sorted((one.value() or b"").decode() for topic in topics for one in committed_records(bootstrap, topic))


@pytest.fixture
def topics(create_topic: Callable[[int], str]) -> list[str]:
    return [create_topic(2), create_topic(1)]


@pytest.fixture
def sink(bootstrap: str, topics: list[str], tmp_path: Path) -> Sink:
    return Sink(bootstrap, f"sink-{topics[0]}", topics, tmp_path)


def test_a_driver_killed_at_every_step_of_a_commit_leaves_each_batch_once(
    bootstrap: str, topics: list[str], sink: Sink
) -> None:
    """One batch after the other, each first by a driver that dies a step later than the last one did."""
    for batch_id, at in enumerate(GATES):
        assert sink.commit_and_die(batch_id, sink.staged(batch_id, attempt=1), at), f"it dies {at}"
        is_new = sink.commit(batch_id, sink.staged(batch_id, attempt=2))
        assert is_new == (at != "after end"), f"after a driver that died {at}"
    assert seen(bootstrap, topics) == expected(range(len(GATES)))


@pytest.mark.parametrize("paused", [f"before {step}" for step in STEPS[1:]])
def test_a_driver_that_was_only_away_meets_its_successor(
    bootstrap: str, topics: list[str], sink: Sink, paused: str
) -> None:
    """It stops before a step, another one writes the batch, and it goes on."""
    successor = []

    def gate(step: str) -> None:
        if step == paused and not successor:
            successor.append(sink.commit(0, sink.staged(0, attempt=2)))

    first = sink.staged(0, attempt=1)
    if paused == "before last_batch":
        assert sink.commit(0, first, gate) is False, "it finds the batch there"
    else:
        with pytest.raises(KafkaError, match="another run of this query has taken over") as refused:
            sink.commit(0, first, gate)
        assert refused.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert successor == [True]
    assert seen(bootstrap, topics) == expected([0])


def test_an_aborted_batch_is_invisible_at_once(bootstrap: str, topics: list[str], sink: Sink) -> None:
    """A failure that the driver survives does not leave readers waiting for a transaction to time out."""

    def gate(step: str) -> None:
        if step == "before note_batch":
            raise ConnectionError(step)

    with pytest.raises(ConnectionError):
        sink.commit(0, sink.staged(0, attempt=1), gate)
    assert seen(bootstrap, topics) == []
