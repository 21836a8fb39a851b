"""Requests to a cluster as a whole: elections, reassignments, the quorum, features, brokers.

Brokers forward what the controller decides. Temporary errors, such as a missing controller during an election, are
retried; other errors of a request are raised, errors of its parts are returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, TypeVar

from moldau.base.acl_operations import AclOperation, operations_of
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition, Uuid, by_topic
from moldau.client.admin.cluster_values import (
    BrokerNode,
    ClusterMetadata,
    DescribedCluster,
    ElectionType,
    Endpoint,
    Features,
    PartitionReplicas,
    Quorum,
    QuorumReplica,
    Reassignment,
    TopicReplicas,
    UpgradeType,
)
from moldau.client.cluster import Cluster
from moldau.client.controllers import Controllers
from moldau.client.requests.api_versions import api_versions_request
from moldau.client.requests.ask import Ask, error_of, raise_error, raise_refusal
from moldau.client.requests.controller import describe_quorum, list_reassignments
from moldau.client.requests.metadata import BROKERS, CONTROLLERS, described_cluster, metadata
from moldau.wire.apis import ApiKey
from moldau.wire.messages import (
    add_raft_voter,
    alter_partition_reassignments,
    elect_leaders,
    update_features,
)
from moldau.wire.messages.api_versions import ApiVersionsResponse
from moldau.wire.messages.describe_quorum import ReplicaState
from moldau.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from moldau.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from moldau.wire.schema import Message

T = TypeVar("T")
M = TypeVar("M", bound=Message)

TRANSIENT: Final = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
MOVED: Final = TRANSIENT | {ErrorCode.OFFSET_NOT_AVAILABLE}
"""Temporary errors of a partition. A new leader has no offset until its followers have fetched from it."""
Positions = dict[TopicPartition, int | KafkaError]
"""The offset of each partition, or its error."""
Outcomes = dict[TopicPartition, KafkaError | None]
"""The error of each partition; None on success."""


class _Moved(KafkaError):
    """The leader of a partition is not known, or is another broker now."""


class ClusterAdmin:
    """Requests are repeated until `timeout_ms` has passed. On exit it closes the given cluster."""

    def __init__(self, cluster: Cluster, timeout_ms: int, change_seconds: float | None = None) -> None:
        self.cluster = cluster
        self.timeout_ms = timeout_ms
        self._change_seconds = change_seconds
        """How long the response to a change of topics is awaited, if longer than other responses."""

    def __enter__(self) -> ClusterAdmin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cluster.close()

    def patiently(self, action: Callable[[], T]) -> T:
        return self.cluster.retry(action, self.timeout_ms, TRANSIENT)

    def ask(self, key: ApiKey, request: Message, response_type: type[M], node_id: int | None = None) -> M:
        """Return the response of any node, or of `node_id`. Raise its error for the whole request, if it has one."""

        def attempt() -> M:
            if node_id is None:
                response = self.cluster.ask_any(key, request, response_type)
            else:
                if node_id not in self.cluster.nodes():
                    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"There is no node {node_id} in the cluster")
                response = self.cluster.channel(node_id).ask(key, request, response_type)
            raise_refusal(response)
            return response

        return self.patiently(attempt)

    @property
    def change_ms(self) -> int:
        return self.cluster.timeout_ms if self._change_seconds is None else int(self._change_seconds * 1000)

    def ask_change(self, key: ApiKey, request: Message, response_type: type[M], /) -> M:
        """Send a change of topics to any node; return its response, which is awaited for `change_ms`."""

        def attempt() -> M:
            response = self.cluster.asking_within(self.change_ms / 1000)(key, request, response_type)
            raise_refusal(response)
            return response

        return self.patiently(attempt)

    # --- brokers and topics -----------------------------------------------------------------------------------------

    def described(self, fenced_too: bool = False) -> DescribedCluster:
        endpoints = CONTROLLERS if isinstance(self.cluster, Controllers) else BROKERS
        response = described_cluster(self.ask, endpoints, fenced_too)
        nodes = {
            node.broker_id: BrokerNode(node.broker_id, node.host, node.port, node.rack, node.is_fenced)
            for node in sorted(response.brokers, key=lambda node: node.broker_id)
        }
        return DescribedCluster(response.cluster_id, response.controller_id, nodes)

    def permitted_operations(self) -> frozenset[AclOperation]:
        """Return what the user may do with the cluster itself; nothing if they may not describe it."""
        response = described_cluster(self.ask, permitted_operations=True)
        return frozenset(operations_of(max(0, response.cluster_authorized_operations)))

    def metadata(self) -> ClusterMetadata:
        return cluster_metadata(self.ask)

    def topics(self) -> Mapping[str, TopicReplicas]:
        """Return all topics by name. None is requested by name, because a broker might create it."""
        return self.metadata().topics

    def unregister_broker(self, broker_id: int) -> None:
        self.ask(ApiKey.UNREGISTER_BROKER, UnregisterBrokerRequest(broker_id=broker_id), UnregisterBrokerResponse)

    # --- offsets ----------------------------------------------------------------------------------------------------

    def each_offset(self, timestamps: Mapping[TopicPartition, int], read_committed: bool = False) -> Positions:
        """Return the offset at its timestamp of each partition, or its error: one hides no other."""
        return self._each(timestamps, lambda each: self.cluster.each_offset(each, read_committed))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> Positions:
        """Delete the records before these offsets; return where each log starts now, or its error."""
        return self._each(before, self.cluster.each_deletion)

    def _each(
        self, arguments: Mapping[TopicPartition, int], ask: Callable[[Mapping[TopicPartition, int]], Positions]
    ) -> Positions:
        """Ask the leaders; for partitions whose leader has moved, ask the next one until the timeout."""
        results: Positions = {}

        def attempt() -> None:
            results.update(
                ask({each: value for each, value in arguments.items() if not isinstance(results.get(each), int)})
            )
            for result in results.values():
                if isinstance(result, KafkaError) and result.code in MOVED:
                    raise _Moved(result.code)

        with suppress(_Moved):  # it is among the results
            self.cluster.retry(attempt, self.timeout_ms, MOVED)
        return results

    # --- leaders and replicas ---------------------------------------------------------------------------------------

    def elect_leaders(self, kind: ElectionType, partitions: Iterable[TopicPartition] | None) -> Outcomes:
        """None means all partitions; the result then has only those where an election was needed."""
        topics = None
        if partitions is not None:
            topics = [elect_leaders.TopicPartitions(name, indexes) for name, indexes in by_topic(partitions).items()]
        request = elect_leaders.ElectLeadersRequest(int(kind), topics, self.timeout_ms)
        response = self.ask(ApiKey.ELECT_LEADERS, request, elect_leaders.ElectLeadersResponse)
        return {
            TopicPartition(topic.topic, each.partition_id): error_of(each.error_code, each.error_message)
            for topic in response.replica_election_results
            for each in topic.partition_result
        }

    def alter_reassignments(
        self, target_replicas: Mapping[TopicPartition, Sequence[int] | None], may_change_replication_factor: bool = True
    ) -> Outcomes:
        """Start to move partitions to these replicas; None cancels a move in progress."""
        api = alter_partition_reassignments
        topics = [
            api.ReassignableTopic(
                name,
                [api.ReassignablePartition(index, target_replicas[TopicPartition(name, index)]) for index in indexes],
            )
            for name, indexes in by_topic(sorted(target_replicas)).items()
        ]
        request = api.AlterPartitionReassignmentsRequest(self.timeout_ms, may_change_replication_factor, topics)
        response = self.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request, api.AlterPartitionReassignmentsResponse)
        return {
            TopicPartition(topic.name, each.partition_index): error_of(each.error_code, each.error_message)
            for topic in response.responses
            for each in topic.partitions
        }

    def reassignments(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, Reassignment]:
        """Return the reassignments in progress: all, or those of these partitions."""
        return {
            partition: Reassignment(tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas))
            for partition, each in list_reassignments(self.ask, self.timeout_ms, partitions).items()
        }

    # --- the quorum -------------------------------------------------------------------------------------------------

    def quorum(self) -> Quorum:
        def attempt() -> Quorum:
            response = describe_quorum(self.ask)
            partition = response.topics[0].partitions[0]
            raise_error(partition.error_code, partition.error_message)
            endpoints = {
                node.node_id: tuple(Endpoint(each.name, each.host, each.port) for each in node.listeners)
                for node in response.nodes
            }
            return Quorum(
                partition.leader_id,
                partition.leader_epoch,
                partition.high_watermark,
                tuple(map(_quorum_replica, partition.current_voters)),
                tuple(map(_quorum_replica, partition.observers)),
                endpoints,
            )

        return self.patiently(attempt)

    def add_voter(self, voter_id: int, directory_id: Uuid, endpoints: Iterable[Endpoint]) -> None:
        listeners = [add_raft_voter.Listener(*endpoint) for endpoint in endpoints]
        request = add_raft_voter.AddRaftVoterRequest(None, self.timeout_ms, voter_id, directory_id, listeners)
        self.ask(ApiKey.ADD_RAFT_VOTER, request, add_raft_voter.AddRaftVoterResponse)

    def remove_voter(self, voter_id: int, directory_id: Uuid) -> None:
        request = RemoveRaftVoterRequest(None, voter_id, directory_id)
        self.ask(ApiKey.REMOVE_RAFT_VOTER, request, RemoveRaftVoterResponse)

    # --- features ---------------------------------------------------------------------------------------------------

    def features(self, node_id: int | None = None) -> Features:
        """Return the features that a node (any, or `node_id`) supports, and the finalized levels that it knows."""
        request = api_versions_request()
        response = self.ask(ApiKey.API_VERSIONS, request, ApiVersionsResponse, node_id)
        return Features(
            {each.name: (each.min_version, each.max_version) for each in response.supported_features},
            {each.name: each.max_version_level for each in response.finalized_features},
            response.finalized_features_epoch if response.finalized_features_epoch >= 0 else None,
        )

    def update_features(
        self, levels: Mapping[str, int], kind: UpgradeType, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Return the error of each feature, or None. All are changed or none, so an error applies to all."""
        updates = [update_features.FeatureUpdateKey(name, level, int(kind)) for name, level in levels.items()]
        request = update_features.UpdateFeaturesRequest(self.timeout_ms, updates, validate_only)
        results: dict[str, KafkaError | None] = dict.fromkeys(levels)
        try:
            response = self.ask(ApiKey.UPDATE_FEATURES, request, update_features.UpdateFeaturesResponse)
        except KafkaError as error:
            return dict.fromkeys(levels, error)
        results.update((each.feature, error_of(each.error_code, each.error_message)) for each in response.results)
        return results


def cluster_metadata(ask: Ask) -> ClusterMetadata:
    response = metadata(ask)
    topics = {
        topic.name or "": TopicReplicas(
            topic.name or "",
            topic.is_internal,
            {
                each.partition_index: PartitionReplicas(
                    each.leader_id, tuple(each.replica_nodes), tuple(each.isr_nodes)
                )
                for each in sorted(topic.partitions, key=lambda each: each.partition_index)
            },
        )
        for topic in response.topics
    }
    nodes = {
        node.node_id: BrokerNode(node.node_id, node.host, node.port, node.rack, is_fenced=False)
        for node in sorted(response.brokers, key=lambda node: node.node_id)
    }
    return ClusterMetadata(response.cluster_id or "", response.controller_id, nodes, topics)


def _quorum_replica(state: ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        state.replica_id,
        bytes(state.replica_directory_id),
        state.log_end_offset,
        state.last_fetch_timestamp,
        state.last_caught_up_timestamp,
    )
