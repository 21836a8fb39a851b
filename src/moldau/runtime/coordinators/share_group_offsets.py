"""Reads where share groups are in their partitions, and how far behind (KIP-1226), for DescribeShareGroupOffsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from moldau.base.ids import TopicPartition, Uuid
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems
from moldau.base.turns import CHANGES_A_TURN
from moldau.runtime.coordinators.partition_ends import Ends, PartitionEnds
from moldau.runtime.own_work import OwnWork
from moldau.share.ports import ShareKey, ShareStates
from moldau.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsResponsePartition
from moldau.wire.messages.read_share_group_state_summary import PartitionResult

_Summaries = dict[TopicPartition, PartitionResult]
UNKNOWN: Final = -1
"""A start offset, a count or a lag."""
NO_LEADER_EPOCH: Final = 0
"""In summaries it is not checked."""


class ShareTopic(NamedTuple):
    """Partitions of a topic to be read."""

    name: str
    topic_id: Uuid
    partitions: Sequence[int]
    """As a client named them: perhaps twice, or some that do not exist."""
    partition_count: int


class Offsets(NamedTuple):
    summaries: Mapping[TopicPartition, PartitionResult]
    ends: Ends

    def of(self, name: str, index: int) -> DescribeShareGroupOffsetsResponsePartition:
        """Return what is known of a partition. As in Kafka, one that has no state, or whose state cannot be read, has
        no offset, and no error."""
        place = TopicPartition(name, index)
        summary = self.summaries.get(place)
        if summary is None or summary.error_code:
            return DescribeShareGroupOffsetsResponsePartition(index, UNKNOWN, NO_LEADER_EPOCH, UNKNOWN)
        start, epoch, end = summary.start_offset, summary.leader_epoch, self.ends.get(place)
        if end is None:
            return DescribeShareGroupOffsetsResponsePartition(index, start, epoch, UNKNOWN)
        if end.error_code:
            message = f"the end of {place} is unknown: {end.error_code.name}"
            return DescribeShareGroupOffsetsResponsePartition(index, error_code=end.error_code, error_message=message)
        lag = end.offset - start - summary.delivery_complete_count
        return DescribeShareGroupOffsetsResponsePartition(index, start, epoch, lag)


class ShareGroupOffsets:
    def __init__(self, states: ShareStates, ends: PartitionEnds, own_work: OwnWork) -> None:
        self._states = states
        self._ends = ends
        self._own_work = own_work

    def read(self, group_id: str, topics: Sequence[ShareTopic]) -> Promise[Offsets]:
        """Return a promise of the offsets of all these partitions that exist."""
        return self._summaries(group_id, topics).and_then(self._with_ends)

    def _summaries(self, group_id: str, topics: Sequence[ShareTopic]) -> Promise[_Summaries]:
        """Read the states without their batches, in turns of the loop."""
        result: Promise[_Summaries] = Promise()
        summaries: _Summaries = {}
        asked: set[TopicPartition] = set()
        has_asked = False

        def complete_if_all_are_there() -> None:
            if has_asked and len(summaries) == len(asked):
                result.complete(summaries)

        def on_summary(place: TopicPartition, summary: PartitionResult) -> None:
            summaries[place] = summary
            complete_if_all_are_there()

        def ask() -> Steps[None]:
            nonlocal has_asked
            turn = TurnItems(CHANGES_A_TURN)
            for name, topic_id, partitions, count in topics:
                for index in partitions:
                    place = TopicPartition(name, index)
                    if 0 <= index < count and place not in asked:
                        asked.add(place)
                        key = ShareKey(group_id, topic_id, index)
                        self._states.read_summary(key, NO_LEADER_EPOCH).then(partial(on_summary, place))
                    if turn.ends_after(1):
                        yield
            has_asked = True
            complete_if_all_are_there()

        self._own_work.long_work(ask())()
        return result

    def _with_ends(self, summaries: _Summaries) -> Promise[Offsets]:
        with_lag = [place for place, summary in summaries.items() if _has_lag(summary)]
        return self._ends.ask(with_lag).map(partial(Offsets, summaries))


def _has_lag(summary: PartitionResult) -> bool:
    return not summary.error_code and UNKNOWN not in (summary.start_offset, summary.delivery_complete_count)
