"""What a cluster as a whole is asked and told, where confluent-kafka has no such call: elections, reassignments, the
quorum, features, brokers.

Brokers pass on to the controller what is the controller's. What passes by itself, such as a controller that is being
elected, is waited for; any other refusal of a request is raised, a refusal of one of its parts is a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, TypeVar

from moldau import __version__
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition, Uuid
from moldau.base.names import METADATA_TOPIC
from moldau.client.cluster import Cluster, by_topic
from moldau.client.cluster_values import (
    BrokerNode,
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
from moldau.client.controllers import CONTROLLERS, Controllers
from moldau.wire.apis import ApiKey
from moldau.wire.messages import (
    add_raft_voter,
    alter_partition_reassignments,
    describe_quorum,
    elect_leaders,
    list_partition_reassignments,
    update_features,
)
from moldau.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from moldau.wire.messages.metadata import MetadataRequest, MetadataResponse
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
BROKERS: Final = 1
"""DescribeCluster's endpoint type."""

Outcomes = dict[TopicPartition, KafkaError | None]
"""What came of each partition; None where it went well."""


class ClusterAdmin:
    """Every call ends within `timeout_ms`, or raises. Closes the cluster it was given."""

    def __init__(self, cluster: Cluster, timeout_ms: int) -> None:
        self.cluster = cluster
        self._timeout_ms = timeout_ms

    def __enter__(self) -> ClusterAdmin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cluster.close()

    def patiently(self, action: Callable[[], T]) -> T:
        return self.cluster.retry(action, self._timeout_ms, TRANSIENT)

    def ask(self, key: ApiKey, request: Message, answer: type[M], node_id: int | None = None) -> M:
        """The answer of any node, or of one. Its error, if it has one for the whole request, is raised."""

        def ask() -> M:
            if node_id is None:
                said = self.cluster.ask_any(key, request, answer)
            else:
                if node_id not in self.cluster.nodes():
                    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"There is no node {node_id} in the cluster")
                said = self.cluster.channel(node_id).ask(key, request, answer)
            raise_refusal(said)
            return said

        return self.patiently(ask)

    # --- brokers and topics -----------------------------------------------------------------------------------------

    def described(self, fenced_too: bool = False) -> DescribedCluster:
        of_controllers = isinstance(self.cluster, Controllers)
        request = DescribeClusterRequest(
            endpoint_type=CONTROLLERS if of_controllers else BROKERS, include_fenced_brokers=fenced_too
        )
        answer = self.ask(ApiKey.DESCRIBE_CLUSTER, request, DescribeClusterResponse)
        nodes = {
            node.broker_id: BrokerNode(node.broker_id, node.host, node.port, node.rack, node.is_fenced)
            for node in sorted(answer.brokers, key=lambda node: node.broker_id)
        }
        return DescribedCluster(answer.cluster_id, answer.controller_id, nodes)

    def topics(self) -> dict[str, TopicReplicas]:
        """All there are, by name. None is asked for by name, for a broker might create it."""
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer = self.ask(ApiKey.METADATA, request, MetadataResponse)
        return {
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
            for topic in answer.topics
        }

    def unregister_broker(self, broker_id: int) -> None:
        self.ask(ApiKey.UNREGISTER_BROKER, UnregisterBrokerRequest(broker_id=broker_id), UnregisterBrokerResponse)

    # --- leaders and replicas ---------------------------------------------------------------------------------------

    def elect_leaders(self, kind: ElectionType, partitions: Iterable[TopicPartition] | None) -> Outcomes:
        """None stands for all partitions; of those, only the ones where something was to do are answered."""
        named = None
        if partitions is not None:
            named = [elect_leaders.TopicPartitions(name, indexes) for name, indexes in by_topic(partitions).items()]
        request = elect_leaders.ElectLeadersRequest(int(kind), named, self._timeout_ms)
        answer = self.ask(ApiKey.ELECT_LEADERS, request, elect_leaders.ElectLeadersResponse)
        return {
            TopicPartition(topic.topic, each.partition_id): _outcome(each.error_code, each.error_message)
            for topic in answer.replica_election_results
            for each in topic.partition_result
        }

    def alter_reassignments(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None], may_change_replication_factor: bool = True
    ) -> Outcomes:
        """Begins to move partitions to these replicas; None cancels a move that is under way."""
        api = alter_partition_reassignments
        topics = [
            api.ReassignableTopic(
                name, [api.ReassignablePartition(index, wanted[TopicPartition(name, index)]) for index in indexes]
            )
            for name, indexes in by_topic(sorted(wanted)).items()
        ]
        request = api.AlterPartitionReassignmentsRequest(self._timeout_ms, may_change_replication_factor, topics)
        answer = self.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request, api.AlterPartitionReassignmentsResponse)
        return {
            TopicPartition(topic.name, each.partition_index): _outcome(each.error_code, each.error_message)
            for topic in answer.responses
            for each in topic.partitions
        }

    def reassignments(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, Reassignment]:
        """The moves that are under way: all, or of these partitions."""
        api = list_partition_reassignments
        named = None
        if partitions is not None:
            grouped = by_topic(sorted(partitions))
            named = [api.ListPartitionReassignmentsTopics(name, indexes) for name, indexes in grouped.items()]
        request = api.ListPartitionReassignmentsRequest(self._timeout_ms, named)
        answer = self.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, request, api.ListPartitionReassignmentsResponse)
        return {
            TopicPartition(topic.name, each.partition_index): Reassignment(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for topic in answer.topics
            for each in topic.partitions
        }

    # --- the quorum -------------------------------------------------------------------------------------------------

    def quorum(self) -> Quorum:
        api = describe_quorum
        request = api.DescribeQuorumRequest([api.RequestTopicData(METADATA_TOPIC, [api.RequestPartitionData(0)])])

        def ask() -> Quorum:
            answer = self.ask(ApiKey.DESCRIBE_QUORUM, request, api.DescribeQuorumResponse)
            partition = answer.topics[0].partitions[0]
            if partition.error_code:
                raise KafkaError(ErrorCode(partition.error_code), partition.error_message)
            endpoints = {
                node.node_id: tuple(Endpoint(each.name, each.host, each.port) for each in node.listeners)
                for node in answer.nodes
            }
            return Quorum(
                partition.leader_id,
                partition.leader_epoch,
                partition.high_watermark,
                tuple(map(_quorum_replica, partition.current_voters)),
                tuple(map(_quorum_replica, partition.observers)),
                endpoints,
            )

        return self.patiently(ask)

    def add_voter(self, voter_id: int, directory_id: Uuid, endpoints: Iterable[Endpoint]) -> None:
        listeners = [add_raft_voter.Listener(*endpoint) for endpoint in endpoints]
        request = add_raft_voter.AddRaftVoterRequest(None, self._timeout_ms, voter_id, directory_id, listeners)
        self.ask(ApiKey.ADD_RAFT_VOTER, request, add_raft_voter.AddRaftVoterResponse)

    def remove_voter(self, voter_id: int, directory_id: Uuid) -> None:
        request = RemoveRaftVoterRequest(None, voter_id, directory_id)
        self.ask(ApiKey.REMOVE_RAFT_VOTER, request, RemoveRaftVoterResponse)

    # --- features ---------------------------------------------------------------------------------------------------

    def features(self, node_id: int | None = None) -> Features:
        """What a node supports, any or this one, and what the cluster is set to as far as that node knows."""
        request = ApiVersionsRequest(client_software_name="moldau", client_software_version=__version__)
        answer = self.ask(ApiKey.API_VERSIONS, request, ApiVersionsResponse, node_id)
        return Features(
            {each.name: (each.min_version, each.max_version) for each in answer.supported_features},
            {each.name: each.max_version_level for each in answer.finalized_features},
            answer.finalized_features_epoch if answer.finalized_features_epoch >= 0 else None,
        )

    def update_features(
        self, levels: Mapping[str, int], kind: UpgradeType, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """What came of each feature. All are changed or none, so a refusal is that of all."""
        updates = [update_features.FeatureUpdateKey(name, level, int(kind)) for name, level in levels.items()]
        request = update_features.UpdateFeaturesRequest(self._timeout_ms, updates, validate_only)
        found: dict[str, KafkaError | None] = dict.fromkeys(levels)
        try:
            answer = self.ask(ApiKey.UPDATE_FEATURES, request, update_features.UpdateFeaturesResponse)
        except KafkaError as error:
            return dict.fromkeys(levels, error)
        found.update((each.feature, _outcome(each.error_code, each.error_message)) for each in answer.results)
        return found


def raise_refusal(answer: Message) -> None:
    """Raises the error that an answer has for its whole request, if it has a place for one."""
    code = getattr(answer, "error_code", 0)
    if code:
        raise KafkaError(ErrorCode(code), getattr(answer, "error_message", None))


def _outcome(error_code: int, message: str | None) -> KafkaError | None:
    return KafkaError(ErrorCode(error_code), message) if error_code else None


def _quorum_replica(state: describe_quorum.ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        state.replica_id,
        bytes(state.replica_directory_id),
        state.log_end_offset,
        state.last_fetch_timestamp,
        state.last_caught_up_timestamp,
    )
