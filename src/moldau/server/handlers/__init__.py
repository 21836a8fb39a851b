"""The handlers of a broker, one module for each API or few related ones. Each handler gets only what it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from moldau.base.clock import Clock, Timers
from moldau.base.counters import Counters
from moldau.base.ports import DiskSpace, RunInThread
from moldau.metadata.current import CurrentImage
from moldau.replica.partitions import Partitions
from moldau.replica.replication import Replication
from moldau.replica.sessions import SessionCache
from moldau.replica.throttle import ThrottledReplicas
from moldau.replica.verification import Verifications
from moldau.replica.waiting import ParkedFetches
from moldau.runtime.broker.producer_ids import ProducerIds
from moldau.runtime.controller.channel import ControllerChannel
from moldau.runtime.coordinators.group import GroupCoordinator
from moldau.runtime.coordinators.transaction import TransactionCoordinator
from moldau.runtime.coordinators.transaction_gate import TransactionGate
from moldau.runtime.listener_configs import ListenerConfigs
from moldau.runtime.log_levels import LogLevels
from moldau.runtime.views.ports import missing_for_views
from moldau.security.token_settings import TokenSettings
from moldau.server.handlers.alter_replica_log_dirs import AlterReplicaLogDirs
from moldau.server.handlers.api_versions import ApiVersions
from moldau.server.handlers.authorized_requests import authorize_functions
from moldau.server.handlers.authorized_requests.listener_configs import checking_listener_configs
from moldau.server.handlers.authorized_requests.log_levels import with_log_levels
from moldau.server.handlers.authorized_requests.views import refusing_views
from moldau.server.handlers.delete_records import DeleteRecords
from moldau.server.handlers.describe_acls import DescribeAcls
from moldau.server.handlers.describe_client_quotas import DescribeClientQuotas
from moldau.server.handlers.describe_cluster import DescribeCluster
from moldau.server.handlers.describe_configs import DescribeConfigs
from moldau.server.handlers.describe_delegation_token import DescribeDelegationToken
from moldau.server.handlers.describe_log_dirs import DescribeLogDirs
from moldau.server.handlers.describe_producers import DescribeProducers
from moldau.server.handlers.describe_topic_partitions import DescribeTopicPartitions
from moldau.server.handlers.describe_user_scram_credentials import DescribeUserScramCredentials
from moldau.server.handlers.fetch import Fetch
from moldau.server.handlers.forwarded import forwarded_handlers
from moldau.server.handlers.groups.consumer import ConsumerGroupDescribe, ConsumerGroupHeartbeat
from moldau.server.handlers.groups.find_coordinator import FindCoordinator
from moldau.server.handlers.groups.listing import DeleteGroups, DescribeGroups, ListGroups
from moldau.server.handlers.groups.membership import Heartbeat, JoinGroup, LeaveGroup, SyncGroup
from moldau.server.handlers.groups.offsets import OffsetCommit, OffsetDelete, OffsetFetch
from moldau.server.handlers.init_producer_id import InitProducerId
from moldau.server.handlers.list_config_resources import ListConfigResources
from moldau.server.handlers.list_offsets import ListOffsets
from moldau.server.handlers.metadata import Metadata
from moldau.server.handlers.offset_for_leader_epoch import OffsetForLeaderEpoch
from moldau.server.handlers.produce import Produce
from moldau.server.handlers.sasl import SaslAuthenticate, SaslHandshake
from moldau.server.handlers.telemetry import GetTelemetrySubscriptions, PushTelemetry, Telemetry
from moldau.server.handlers.transactions.add_partitions import AddOffsetsToTxn, AddPartitionsToTxn
from moldau.server.handlers.transactions.commit_offsets import TxnOffsetCommit
from moldau.server.handlers.transactions.end_txn import EndTxn
from moldau.server.handlers.transactions.listing import DescribeTransactions, ListTransactions
from moldau.server.handlers.transactions.write_markers import WriteTxnMarkers
from moldau.server.router import Handler
from moldau.wire.apis import ApiKey
from moldau.wire.messages.fetch import FetchResponse


@dataclass(frozen=True, slots=True)
class HandlerDependencies:
    """The parts of a node that its handlers use."""

    current: CurrentImage
    partitions: Partitions
    replication: Replication
    throttled: ThrottledReplicas
    rack_aware_reads: bool
    channel: ControllerChannel
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    verifications: Verifications
    gate: TransactionGate
    producer_ids: ProducerIds
    sessions: SessionCache
    parked: ParkedFetches[FetchResponse]
    clock: Clock
    timers: Timers
    served: Callable[[], dict[int, tuple[int, int]]]
    kraft_version: Callable[[], int]
    node_id: int
    cluster_id: str
    static: Mapping[str, str]
    listener_configs: ListenerConfigs | None
    log_dir: str
    disk_space: DiskSpace
    auto_create_topics: bool
    fetch_bytes_max: int
    rng: Random
    has_authorizer: bool
    has_consumer_protocol: bool
    delegation_tokens: TokenSettings
    counters: Counters
    telemetry: Telemetry
    run_in_thread: RunInThread
    run_codec: RunInThread


def handlers(node: HandlerDependencies) -> list[Handler]:
    current, partitions, channel = node.current, node.partitions, node.channel
    log_levels = LogLevels()
    functions = authorize_functions(current, node.rng, node.has_authorizer)
    authorize = with_log_levels(functions, node.node_id, log_levels)
    authorize[ApiKey.CREATE_TOPICS] = refusing_views(authorize[ApiKey.CREATE_TOPICS], missing_for_views)
    if node.listener_configs is not None:
        for api in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS):
            authorize[api] = checking_listener_configs(
                authorize[api], node.node_id, current, node.static, node.listener_configs, node.run_in_thread
            )
    return [
        Produce(current, partitions, node.gate, node.clock, node.timers, node.counters, node.run_codec),
        Fetch(
            current,
            partitions,
            node.sessions,
            node.parked,
            node.clock,
            node.fetch_bytes_max,
            node_id=node.node_id,
            replication=node.replication,
            throttled=node.throttled,
            rack_aware_reads=node.rack_aware_reads,
        ),
        ListOffsets(partitions, node.timers, node.run_in_thread),
        Metadata(current, partitions, channel, node.cluster_id, node.auto_create_topics, node.timers),
        ApiVersions(current, node.telemetry.listed(node.served), node.kraft_version, node.telemetry.software),
        SaslHandshake(),
        SaslAuthenticate(),
        DeleteRecords(partitions, node.timers),
        InitProducerId(node.producer_ids, node.transactions, node.counters),
        OffsetForLeaderEpoch(partitions, node.timers),
        DescribeConfigs(current, node.node_id, node.static, node.timers, log_levels, partitions.view_counts),
        DescribeLogDirs(partitions, node.log_dir, node.disk_space, node.timers),
        AlterReplicaLogDirs(partitions, node.log_dir, node.timers),
        DescribeCluster(current, node.cluster_id),
        DescribeUserScramCredentials(current, node.timers),
        DescribeProducers(partitions, node.timers),
        DescribeTopicPartitions(current, partitions, node.timers),
        FindCoordinator(current, node.groups, node.transactions, node.timers),
        JoinGroup(node.groups, node.timers),
        SyncGroup(node.groups),
        Heartbeat(node.groups),
        LeaveGroup(node.groups),
        OffsetCommit(node.groups, node.timers),
        OffsetFetch(node.groups, node.timers),
        OffsetDelete(node.groups, node.timers),
        ListGroups(node.groups, node.timers),
        DescribeGroups(node.groups, node.timers),
        DeleteGroups(node.groups, node.timers),
        ConsumerGroupHeartbeat(node.groups, node.timers, node.has_consumer_protocol),
        ConsumerGroupDescribe(node.groups, node.timers, node.has_consumer_protocol),
        AddPartitionsToTxn(current, node.transactions, node.timers),
        AddOffsetsToTxn(node.transactions, node.groups),
        EndTxn(node.transactions),
        TxnOffsetCommit(current, node.groups, partitions, node.gate, node.timers),
        WriteTxnMarkers(partitions, node.groups, node.verifications, node.clock, node.timers, node.counters),
        ListTransactions(node.transactions, node.timers),
        DescribeTransactions(node.transactions, node.timers),
        DescribeAcls(current, node.has_authorizer, node.timers),
        DescribeClientQuotas(current, node.timers),
        DescribeDelegationToken(current, node.delegation_tokens, node.timers),
        ListConfigResources(current),
        GetTelemetrySubscriptions(node.telemetry, node.clock, node.rng),
        PushTelemetry(node.telemetry, node.clock, node.run_in_thread),
        *forwarded_handlers(channel.forward, authorize, node.timers),
    ]
