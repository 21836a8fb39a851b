"""Asks a leader for the start and end offsets of its logs, for followers whose fetch offset is out of range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.client.peers import Peer
from moldau.replica.partition import Partition
from moldau.wire.apis import ApiKey
from moldau.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST: Final = -1
EARLIEST: Final = -2
LeaderOffsets = dict[Partition, tuple[int, int] | KafkaError]
_Offsets = dict[tuple[str, int], int | KafkaError]


def ask_offsets(peer: Peer, node_id: int, partitions: Sequence[Partition], timeout_ms: int) -> Promise[LeaderOffsets]:
    """Return a promise of each log's (start, end) or its error. A follower gets the log end offset, not the high
    watermark."""
    offsets: Promise[LeaderOffsets] = Promise()
    starts = peer.ask(ApiKey.LIST_OFFSETS, _request(node_id, partitions, EARLIEST), timeout_ms)
    ends = peer.ask(ApiKey.LIST_OFFSETS, _request(node_id, partitions, LATEST), timeout_ms)

    def pair(first: ListOffsetsResponse | KafkaError) -> None:
        ends.then(lambda last: offsets.complete(_pair(partitions, _offsets(first), _offsets(last))))

    starts.then(pair)
    return offsets


def _request(node_id: int, partitions: Sequence[Partition], timestamp: int) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for partition in partitions:
        entry = ListOffsetsPartition(partition.name.partition, partition.state.leader_epoch, timestamp)
        topics.setdefault(partition.name.topic, []).append(entry)
    return ListOffsetsRequest(node_id, topics=[ListOffsetsTopic(name, entries) for name, entries in topics.items()])


def _offsets(response: ListOffsetsResponse | KafkaError) -> _Offsets | KafkaError:
    if isinstance(response, KafkaError):
        return response
    return {
        (topic.name, each.partition_index): KafkaError(ErrorCode(each.error_code)) if each.error_code else each.offset
        for topic in response.topics
        for each in topic.partitions
    }


def _pair(partitions: Sequence[Partition], starts: _Offsets | KafkaError, ends: _Offsets | KafkaError) -> LeaderOffsets:
    offsets: LeaderOffsets = {}
    for partition in partitions:
        start, end = _offset(starts, partition), _offset(ends, partition)
        if isinstance(start, KafkaError):
            offsets[partition] = start
        elif isinstance(end, KafkaError):
            offsets[partition] = end
        else:
            offsets[partition] = (start, end)
    return offsets


def _offset(offsets: _Offsets | KafkaError, partition: Partition) -> int | KafkaError:
    if isinstance(offsets, KafkaError):
        return offsets
    return offsets.get(partition.name, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
