"""What share coordinators keep of share groups: which records of a partition are done, and how often others came.

A read without a leader epoch changes nothing. Nobody but the leader of a partition knows what members hold now.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition, Uuid, uuid_text
from moldau.client.cluster import SHARE_PARTITION, Cluster
from moldau.client.requests.ask import raise_error
from moldau.wire.apis import ApiKey
from moldau.wire.messages.read_share_group_state import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateData,
)

AVAILABLE: Final = "available"
ACKNOWLEDGED: Final = "acknowledged"
ARCHIVED: Final = "archived"
STATES: Final = {0: AVAILABLE, 2: ACKNOWLEDGED, 4: ARCHIVED}
NO_LEADER_EPOCH: Final = -1


class StateRange(NamedTuple):
    """Records in a row with the same state, which were delivered the same number of times."""

    first: int
    last: int
    state: str
    deliveries: int

    @property
    def records(self) -> int:
        return self.last - self.first + 1


StateRanges = tuple[StateRange, ...]
_Place = tuple[Uuid, int]


def read_states(
    cluster: Cluster, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, StateRanges]:
    """Return what is known of records from the start offset on, by partition. Of a partition that nobody has read
    nothing is known. Raise the first error."""
    places = {(cluster.topic(each.topic).topic_id, each.partition): each for each in partitions}
    states: dict[TopicPartition, StateRanges] = {}
    for node, its_places in _by_coordinator(cluster, group_id, places).items():
        topics: dict[Uuid, list[PartitionData]] = {}
        for topic_id, index in its_places:
            topics.setdefault(topic_id, []).append(PartitionData(index, NO_LEADER_EPOCH))
        request = ReadShareGroupStateRequest(group_id, [ReadStateData(*topic) for topic in topics.items()])
        response = cluster.channel(node).ask(ApiKey.READ_SHARE_GROUP_STATE, request, ReadShareGroupStateResponse)
        for topic in response.results:
            for result in topic.partitions:
                states[places[Uuid(bytes(topic.topic_id)), result.partition]] = _ranges(result)
    return states


def _by_coordinator(cluster: Cluster, group_id: str, places: Iterable[_Place]) -> dict[int, list[_Place]]:
    keys = {f"{group_id}:{uuid_text(topic_id)}:{index}": (topic_id, index) for topic_id, index in places}
    by_node: dict[int, list[_Place]] = {}
    for each in cluster.coordinators(SHARE_PARTITION, list(keys)) if keys else ():
        raise_error(each.error_code, each.error_message)
        by_node.setdefault(each.node_id, []).append(keys[each.key])
    return by_node


def _ranges(result: PartitionResult) -> StateRanges:
    if result.error_code == ErrorCode.INVALID_REQUEST:  # the state is not initialized
        return ()
    raise_error(result.error_code, result.error_message)
    return tuple(
        StateRange(each.first_offset, each.last_offset, STATES.get(each.delivery_state, AVAILABLE), each.delivery_count)
        for each in result.state_batches
    )
