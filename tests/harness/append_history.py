"""What a producer said of each record, held against the logs: what was given a place is there once, at that place and
in order; what was refused is not there, unless the error says that it may be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from moldau.base.errors import KafkaError
from moldau.base.ids import TopicPartition
from moldau.gateway.ports import Appended, Place

MAY_BE_THERE = "may have been appended"


@dataclass(eq=False)
class AppendCall:
    topic: str
    values: Sequence[bytes]
    """No two records of a history have the same."""
    outcome: Appended | KafkaError | None = None
    """None: the caller went away."""
    follows: AppendCall | None = None
    """The call before it of the same caller, who had waited for its end."""


def check(calls: Sequence[AppendCall], logs: Mapping[TopicPartition, Sequence[bytes | None]]) -> None:
    """`logs` are the values of each partition, whose index is their offset."""
    found: defaultdict[tuple[str, bytes | None], list[Place]] = defaultdict(list)
    for (topic, partition), values in logs.items():
        for offset, value in enumerate(values):
            found[topic, value].append(Place(partition, offset))
    sent = {(call.topic, value) for call in calls for value in call.values}
    assert found.keys() <= sent, "only what was sent is there"
    for call in calls:
        _check_call(call, [found.get((call.topic, value), []) for value in call.values])


def _check_call(call: AppendCall, found: Sequence[Sequence[Place]]) -> None:
    assert all(len(places) <= 1 for places in found), f"a record is there twice: {found}"
    if call.outcome is None:
        return
    if isinstance(call.outcome, KafkaError):
        assert not any(found), f"there are records of a call that failed as a whole: {call.outcome}"
        return
    assert len(call.outcome) == len(call.values)
    for outcome, places in zip(call.outcome, found, strict=True):
        if isinstance(outcome, Place):
            assert places == [outcome], f"it was said to be at {outcome}, and is at {places}"
        elif MAY_BE_THERE not in str(outcome):
            assert not places, f"the record is there: {outcome}"
    last = _last_offsets(call.follows, call.topic)
    for outcome in call.outcome:
        if isinstance(outcome, Place):
            assert outcome.offset > last.get(outcome.partition, -1), "the records of a caller are in order"
            last[outcome.partition] = outcome.offset


def _last_offsets(call: AppendCall | None, topic: str) -> dict[int, int]:
    """Return the last offset of each partition that the callers before were given."""
    while call is not None:
        if call.topic == topic and isinstance(call.outcome, Sequence):
            places = [outcome for outcome in call.outcome if isinstance(outcome, Place)]
            return {place.partition: place.offset for place in places}
        call = call.follows
    return {}
