"""Error responses, in the format of each API, for requests to the controller or the quorum that are denied or cannot be
sent."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

from moldau.base.errors import KafkaError
from moldau.base.steps import Steps, TurnItems, map_in_steps, no_steps
from moldau.base.turns import LISTED_A_TURN
from moldau.metadata.controller.delegation_tokens import refused_creation
from moldau.security.principals import ANONYMOUS
from moldau.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from moldau.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ResponseEntityData,
    ResponseEntryData,
)
from moldau.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse
from moldau.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from moldau.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from moldau.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from moldau.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from moldau.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from moldau.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from moldau.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from moldau.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from moldau.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from moldau.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from moldau.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from moldau.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from moldau.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from moldau.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from moldau.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
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
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from moldau.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from moldau.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from moldau.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from moldau.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from moldau.wire.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from moldau.wire.messages.vote import VoteRequest, VoteResponse
from moldau.wire.schema import Message


def error_response(request: Message, error: KafkaError) -> Steps[Message]:
    """Return the response that reports the error for everything in the request. It may name thousands of things."""
    return _ERROR_RESPONSES[request.__class__](request, error)


def _create_topics(request: CreateTopicsRequest, error: KafkaError) -> Steps[CreateTopicsResponse]:
    topics = yield from map_in_steps(
        TurnItems(LISTED_A_TURN),
        request.topics,
        lambda topic: CreatableTopicResult(
            name=topic.name,
            error_code=error.code,
            error_message=error.message,
            num_partitions=-1,
            replication_factor=-1,
            configs=(),
        ),
    )
    return CreateTopicsResponse(topics=topics)


def _delete_topics(request: DeleteTopicsRequest, error: KafkaError) -> Steps[DeleteTopicsResponse]:
    turn = TurnItems(LISTED_A_TURN)
    by_name = yield from map_in_steps(
        turn, request.topic_names, lambda name: DeletableTopicResult(name, error_code=error.code)
    )
    by_name_or_id = yield from map_in_steps(
        turn,
        request.topics,
        lambda topic: DeletableTopicResult(topic.name, topic.topic_id, error.code, error.message),
    )
    return DeleteTopicsResponse(responses=by_name_or_id or by_name)


def _create_partitions(request: CreatePartitionsRequest, error: KafkaError) -> Steps[CreatePartitionsResponse]:
    results = yield from map_in_steps(
        TurnItems(LISTED_A_TURN),
        request.topics,
        lambda topic: CreatePartitionsTopicResult(topic.name, error.code, error.message),
    )
    return CreatePartitionsResponse(results=results)


def _alter_configs(request: AlterConfigsRequest, error: KafkaError) -> Steps[AlterConfigsResponse]:
    responses = yield from map_in_steps(
        TurnItems(LISTED_A_TURN),
        request.resources,
        lambda each: AlterConfigsResourceResponse(error.code, error.message, each.resource_type, each.resource_name),
    )
    return AlterConfigsResponse(responses=responses)


def _incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, error: KafkaError
) -> Steps[IncrementalAlterConfigsResponse]:
    responses = yield from map_in_steps(
        TurnItems(LISTED_A_TURN),
        request.resources,
        lambda each: IncrementalResourceResponse(error.code, error.message, each.resource_type, each.resource_name),
    )
    return IncrementalAlterConfigsResponse(responses=responses)


def _elect_leaders(request: ElectLeadersRequest, error: KafkaError) -> Steps[ElectLeadersResponse]:
    turn = TurnItems(LISTED_A_TURN)
    results: list[ReplicaElectionResult] = []
    for each in request.topic_partitions or ():
        partitions = yield from map_in_steps(
            turn, each.partitions, lambda index: PartitionResult(index, error.code, error.message)
        )
        results.append(ReplicaElectionResult(each.topic, partitions))
        if turn.ends_after(1):
            yield
    return ElectLeadersResponse(error_code=error.code, replica_election_results=results)


def _alter_reassignments(
    request: AlterPartitionReassignmentsRequest, error: KafkaError
) -> Steps[AlterPartitionReassignmentsResponse]:
    turn = TurnItems(LISTED_A_TURN)
    topics: list[ReassignableTopicResponse] = []
    for topic in request.topics:
        partitions = yield from map_in_steps(
            turn,
            topic.partitions,
            lambda each: ReassignablePartitionResponse(each.partition_index, error.code, error.message),
        )
        topics.append(ReassignableTopicResponse(topic.name, partitions))
        if turn.ends_after(1):
            yield
    return AlterPartitionReassignmentsResponse(error_code=error.code, error_message=error.message, responses=topics)


def _list_reassignments(
    request: ListPartitionReassignmentsRequest, error: KafkaError
) -> Steps[ListPartitionReassignmentsResponse]:
    turn = TurnItems(LISTED_A_TURN)
    topics: list[OngoingTopicReassignment] = []
    for topic in request.topics or ():
        partitions = yield from map_in_steps(turn, topic.partition_indexes, OngoingPartitionReassignment)
        topics.append(OngoingTopicReassignment(topic.name, partitions))
        if turn.ends_after(1):
            yield
    return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message, topics=topics)


def _create_acls(request: CreateAclsRequest, error: KafkaError) -> Steps[CreateAclsResponse]:
    count = len(request.creations)
    if count > LISTED_A_TURN:
        yield  # so that the response is encoded in a thread
    return CreateAclsResponse(results=[AclCreationResult(error.code, error.message)] * count)


def _delete_acls(request: DeleteAclsRequest, error: KafkaError) -> Steps[DeleteAclsResponse]:
    count = len(request.filters)
    if count > LISTED_A_TURN:
        yield  # so that the response is encoded in a thread
    return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(error.code, error.message)] * count)


def _fetch(request: FetchRequest, error: KafkaError) -> Steps[FetchResponse]:
    """Up to v12, in which topics have names, each partition has the error too: before v7 it is the only place."""
    turn = TurnItems(LISTED_A_TURN)
    topics: list[FetchableTopicResponse] = []
    for topic in request.topics:
        if topic.topic:
            partitions = yield from map_in_steps(
                turn,
                topic.partitions,
                lambda each: PartitionData(each.partition, error.code, high_watermark=-1, records=b""),
            )
            topics.append(FetchableTopicResponse(topic=topic.topic, partitions=partitions))
        if turn.ends_after(1):
            yield
    return FetchResponse(error_code=error.code, session_id=request.session_id, responses=topics)


def _alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, error: KafkaError
) -> Steps[AlterUserScramCredentialsResponse]:
    name = attrgetter("name")
    users = list(dict.fromkeys([*map(name, request.deletions), *map(name, request.upsertions)]))
    results = yield from map_in_steps(
        TurnItems(LISTED_A_TURN),
        users,
        lambda user: AlterUserScramCredentialsResult(user, error.code, error.message),
    )
    return AlterUserScramCredentialsResponse(results=results)


def _with_code(response: type[Any]) -> Callable[[Any, KafkaError], Steps[Message]]:
    """For APIs with one error code for the whole request."""
    return lambda request, error: no_steps(response(error_code=error.code))


def _with_message(response: type[Any]) -> Callable[[Any, KafkaError], Steps[Message]]:
    return lambda request, error: no_steps(response(error_code=error.code, error_message=error.message))


def _alter_client_quotas(request: AlterClientQuotasRequest, error: KafkaError) -> Steps[AlterClientQuotasResponse]:
    turn = TurnItems(LISTED_A_TURN)
    entries: list[ResponseEntryData] = []
    for entry in request.entries:
        entity = yield from map_in_steps(
            turn, entry.entity, lambda part: ResponseEntityData(part.entity_type, part.entity_name)
        )
        entries.append(ResponseEntryData(error.code, error.message, entity))
        if turn.ends_after(1):
            yield
    return AlterClientQuotasResponse(entries=entries)


_ERROR_RESPONSES: Final[dict[type[Message], Callable[[Any, KafkaError], Steps[Message]]]] = {
    CreateTopicsRequest: _create_topics,
    DeleteTopicsRequest: _delete_topics,
    CreatePartitionsRequest: _create_partitions,
    AlterConfigsRequest: _alter_configs,
    IncrementalAlterConfigsRequest: _incremental_alter_configs,
    ElectLeadersRequest: _elect_leaders,
    AlterPartitionReassignmentsRequest: _alter_reassignments,
    ListPartitionReassignmentsRequest: _list_reassignments,
    AlterClientQuotasRequest: _alter_client_quotas,
    UpdateFeaturesRequest: _with_message(UpdateFeaturesResponse),
    UnregisterBrokerRequest: _with_message(UnregisterBrokerResponse),
    DescribeQuorumRequest: _with_message(DescribeQuorumResponse),
    AddRaftVoterRequest: _with_message(AddRaftVoterResponse),
    RemoveRaftVoterRequest: _with_message(RemoveRaftVoterResponse),
    CreateAclsRequest: _create_acls,
    DeleteAclsRequest: _delete_acls,
    VoteRequest: _with_code(VoteResponse),
    BeginQuorumEpochRequest: _with_code(BeginQuorumEpochResponse),
    EndQuorumEpochRequest: _with_code(EndQuorumEpochResponse),
    FetchRequest: _fetch,
    FetchSnapshotRequest: _with_code(FetchSnapshotResponse),
    UpdateRaftVoterRequest: _with_code(UpdateRaftVoterResponse),
    AlterUserScramCredentialsRequest: _alter_user_scram_credentials,
    CreateDelegationTokenRequest: lambda request, error: no_steps(refused_creation(request, ANONYMOUS, error.code)),
    RenewDelegationTokenRequest: _with_code(RenewDelegationTokenResponse),
    ExpireDelegationTokenRequest: _with_code(ExpireDelegationTokenResponse),
}
