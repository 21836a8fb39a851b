"""The five APIs of share coordinators. Their messages have the same form: partitions by topic id, of one group."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from moldau.base.errors import ErrorCode
from moldau.base.ids import Uuid
from moldau.coordinator.machine import Outcome
from moldau.coordinator.share.partition_states import PartitionStates
from moldau.wire.apis import ApiKey
from moldau.wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from moldau.wire.schema import Message


class ShareApi(NamedTuple):
    """An API with the classes of its messages. `decide(states, key, data)` decides about one partition."""

    api: ApiKey
    request_class: Callable[[str, list[Any]], Message]
    topic_class: Callable[[Uuid, list[Any]], Message]
    response_class: Callable[[list[Any]], Message]
    topic_result_class: Callable[[Uuid, list[Any]], Message]
    result_class: Callable[[int, int, str | None], Any]
    decide: Callable[..., Outcome[Any]]

    def request(self, group_id: str, partitions: Iterable[tuple[Uuid, Any]]) -> Message:
        """Return the request for these partitions, each with its topic's id."""
        return self.request_class(group_id, [self.topic_class(*topic) for topic in _by_topic(partitions)])

    def response(self, results: Iterable[tuple[Uuid, Any]]) -> Message:
        """Return the response with these results of partitions, each with its topic's id."""
        return self.response_class([self.topic_result_class(*topic) for topic in _by_topic(results)])

    def error(self, partition: int, code: ErrorCode, message: str | None = None) -> Any:
        """Return the result for a partition whose request failed."""
        return self.result_class(partition, code, message)


def _by_topic(partitions: Iterable[tuple[Uuid, Any]]) -> list[tuple[Uuid, list[Any]]]:
    topics: dict[Uuid, list[Any]] = {}
    for topic_id, partition in partitions:
        topics.setdefault(topic_id, []).append(partition)
    return list(topics.items())


INITIALIZE: Final = ShareApi(
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    initialize_share_group_state.InitializeShareGroupStateRequest,
    initialize_share_group_state.InitializeStateData,
    initialize_share_group_state.InitializeShareGroupStateResponse,
    initialize_share_group_state.InitializeStateResult,
    initialize_share_group_state.PartitionResult,
    PartitionStates.initialize,
)
READ: Final = ShareApi(
    ApiKey.READ_SHARE_GROUP_STATE,
    read_share_group_state.ReadShareGroupStateRequest,
    read_share_group_state.ReadStateData,
    read_share_group_state.ReadShareGroupStateResponse,
    read_share_group_state.ReadStateResult,
    read_share_group_state.PartitionResult,
    PartitionStates.read,
)
WRITE: Final = ShareApi(
    ApiKey.WRITE_SHARE_GROUP_STATE,
    write_share_group_state.WriteShareGroupStateRequest,
    write_share_group_state.WriteStateData,
    write_share_group_state.WriteShareGroupStateResponse,
    write_share_group_state.WriteStateResult,
    write_share_group_state.PartitionResult,
    PartitionStates.write,
)
DELETE: Final = ShareApi(
    ApiKey.DELETE_SHARE_GROUP_STATE,
    delete_share_group_state.DeleteShareGroupStateRequest,
    delete_share_group_state.DeleteStateData,
    delete_share_group_state.DeleteShareGroupStateResponse,
    delete_share_group_state.DeleteStateResult,
    delete_share_group_state.PartitionResult,
    PartitionStates.delete,
)
READ_SUMMARY: Final = ShareApi(
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    read_share_group_state_summary.ReadShareGroupStateSummaryRequest,
    read_share_group_state_summary.ReadStateSummaryData,
    read_share_group_state_summary.ReadShareGroupStateSummaryResponse,
    read_share_group_state_summary.ReadStateSummaryResult,
    read_share_group_state_summary.PartitionResult,
    PartitionStates.read_summary,
)
