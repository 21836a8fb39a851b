"""Reads where share groups are in their partitions, and how far behind (KIP-1226), for DescribeShareGroupOffsets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition, Uuid
from moldau.base.promise import Promise, resolved
from moldau.base.steps import Steps, TurnItems
from moldau.base.turns import CHANGES_A_TURN
from moldau.runtime.coordinators.partition_ends import End, PartitionEnds
from moldau.runtime.own_work import OwnWork
from moldau.share.ports import ShareKey, ShareStates
from moldau.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsResponsePartition
from moldau.wire.messages.read_share_group_state_summary import PartitionResult

UNKNOWN: Final = -1
"""A start offset, a count or a lag."""
NO_LEADER_EPOCH: Final = 0
"""In summaries it is not checked."""


class ShareTopic(NamedTuple):
    """Partitions of a topic to be read."""

    name: str
    topic_id: Uuid
    partitions: Sequence[int]


Offsets = dict[TopicPartition, DescribeShareGroupOffsetsResponsePartition]
_Summaries = dict[TopicPartition, PartitionResult]


class ShareGroupOffsets:
    def __init__(self, states: ShareStates, ends: PartitionEnds, own_work: OwnWork) -> None:
        self._states = states
        self._ends = ends
        self._own_work = own_work

    def read(self, group_id: str, topics: Sequence[ShareTopic]) -> Promise[Offsets]:
        return self._summaries(group_id, topics).and_then(self._with_lags)

    def _summaries(self, group_id: str, topics: Sequence[ShareTopic]) -> Promise[_Summaries]:
        """Read the states without their batches, in turns of the loop."""
        keys = {
            TopicPartition(topic.name, index): ShareKey(group_id, topic.topic_id, index)
            for topic in topics
            for index in topic.partitions
        }
        if not keys:
            return resolved({})
        result: Promise[_Summaries] = Promise()
        summaries: _Summaries = {}

        def on_summary(place: TopicPartition, summary: PartitionResult) -> None:
            summaries[place] = summary
            if len(summaries) == len(keys):
                result.complete(summaries)

        def steps() -> Steps[None]:
            turn = TurnItems(CHANGES_A_TURN)
            for place, key in keys.items():
                self._states.read_summary(key, NO_LEADER_EPOCH).then(partial(on_summary, place))
                if turn.ends_after(1):
                    yield

        self._own_work.long_work(steps())()
        return result

    def _with_lags(self, summaries: _Summaries) -> Promise[Offsets]:
        with_lag = [place for place, summary in summaries.items() if _has_lag(summary)]
        return self._ends.ask(with_lag).map(
            lambda ends: {place: _offset(place, summary, ends.get(place)) for place, summary in summaries.items()}
        )


def _has_lag(summary: PartitionResult) -> bool:
    return not summary.error_code and UNKNOWN not in (summary.start_offset, summary.delivery_complete_count)


def _offset(
    place: TopicPartition, summary: PartitionResult, end: End | None
) -> DescribeShareGroupOffsetsResponsePartition:
    """Return what is known of a partition. As in Kafka, one whose state cannot be read has no offset, and no error."""
    if summary.error_code:
        return DescribeShareGroupOffsetsResponsePartition(place.partition, UNKNOWN, NO_LEADER_EPOCH, UNKNOWN)
    start, epoch = summary.start_offset, summary.leader_epoch
    if end is None:
        return DescribeShareGroupOffsetsResponsePartition(place.partition, start, epoch, UNKNOWN)
    if end.error_code:
        message = f"the end of {place} is unknown: {end.error_code.name}"
        return DescribeShareGroupOffsetsResponsePartition(
            place.partition, error_code=end.error_code, error_message=message
        )
    lag = end.offset - start - summary.delivery_complete_count
    return DescribeShareGroupOffsetsResponsePartition(place.partition, start, epoch, lag, ErrorCode.NONE)
