"""Error responses, in the format of each API, for requests that could not be sent to the controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from moldau.base.errors import KafkaError
from moldau.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from moldau.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse
from moldau.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from moldau.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from moldau.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from moldau.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from moldau.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from moldau.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from moldau.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse as IncrementalResourceResponse,
)
from moldau.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from moldau.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from moldau.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from moldau.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from moldau.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from moldau.wire.schema import Message


def error_response(request: Message, error: KafkaError) -> Message:
    """Return the response that reports the error for everything in the request."""
    return _ERROR_RESPONSES[request.__class__](request, error)


def _create_topics(request: CreateTopicsRequest, error: KafkaError) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(
                name=topic.name,
                error_code=error.code,
                error_message=error.message,
                num_partitions=-1,
                replication_factor=-1,
                configs=(),
            )
            for topic in request.topics
        ]
    )


def _delete_topics(request: DeleteTopicsRequest, error: KafkaError) -> DeleteTopicsResponse:
    by_name = [DeletableTopicResult(name, error_code=error.code) for name in request.topic_names]
    by_name_or_id = [
        DeletableTopicResult(topic.name, topic.topic_id, error.code, error.message) for topic in request.topics
    ]
    return DeleteTopicsResponse(responses=by_name_or_id or by_name)


def _create_partitions(request: CreatePartitionsRequest, error: KafkaError) -> CreatePartitionsResponse:
    results = [CreatePartitionsTopicResult(topic.name, error.code, error.message) for topic in request.topics]
    return CreatePartitionsResponse(results=results)


def _alter_configs(request: AlterConfigsRequest, error: KafkaError) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(error.code, error.message, each.resource_type, each.resource_name)
            for each in request.resources
        ]
    )


def _incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, error: KafkaError
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalResourceResponse(error.code, error.message, each.resource_type, each.resource_name)
            for each in request.resources
        ]
    )


def _with_code(response: type[Any]) -> Callable[[Any, KafkaError], Message]:
    """For APIs with one error code for the whole request."""
    return lambda request, error: response(error_code=error.code)


def _with_message(response: type[Any]) -> Callable[[Any, KafkaError], Message]:
    return lambda request, error: response(error_code=error.code, error_message=error.message)


_ERROR_RESPONSES: Final[dict[type[Message], Callable[[Any, KafkaError], Message]]] = {
    CreateTopicsRequest: _create_topics,
    DeleteTopicsRequest: _delete_topics,
    CreatePartitionsRequest: _create_partitions,
    AlterConfigsRequest: _alter_configs,
    IncrementalAlterConfigsRequest: _incremental_alter_configs,
    ElectLeadersRequest: _with_code(ElectLeadersResponse),
    AlterPartitionReassignmentsRequest: _with_message(AlterPartitionReassignmentsResponse),
    ListPartitionReassignmentsRequest: _with_message(ListPartitionReassignmentsResponse),
    UpdateFeaturesRequest: _with_message(UpdateFeaturesResponse),
    UnregisterBrokerRequest: _with_message(UnregisterBrokerResponse),
    DescribeQuorumRequest: _with_code(DescribeQuorumResponse),
    AddRaftVoterRequest: _with_message(AddRaftVoterResponse),
    RemoveRaftVoterRequest: _with_message(RemoveRaftVoterResponse),
}
