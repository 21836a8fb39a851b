"""The parts of a node that its handlers use. The parameters of a handler's `__init__` are named after these fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from moldau.base.clock import Clock, Timers
from moldau.base.cluster_settings import VoterAddress
from moldau.base.counters import Counters
from moldau.base.ports import DiskSpace, RunInThread
from moldau.metadata.current import CurrentImage
from moldau.replica.partitions import Partitions
from moldau.replica.replication import Replication
from moldau.replica.sessions import SessionCache
from moldau.replica.throttle import ThrottledReplicas
from moldau.replica.verification import Verifications
from moldau.replica.view_counts import ViewCounts
from moldau.replica.waiting import ParkedFetches
from moldau.runtime.broker.producer_ids import ProducerIds
from moldau.runtime.controller.channel import AskController, TopicCreator
from moldau.runtime.coordinators.group import GroupCoordinator
from moldau.runtime.coordinators.share import ShareCoordinator
from moldau.runtime.coordinators.share_group_offsets import ShareGroupOffsets
from moldau.runtime.coordinators.transaction import TransactionCoordinator
from moldau.runtime.coordinators.transaction_gate import TransactionGate
from moldau.runtime.log_levels import LogLevels
from moldau.runtime.quorum.driver import QuorumDriver
from moldau.runtime.share.fetches import ShareFetches
from moldau.runtime.share.partitions import SharePartitions
from moldau.security.token_settings import TokenSettings
from moldau.server.client_software import ClientSoftware
from moldau.server.handler import Handler
from moldau.server.handlers.authorized_requests.authorized import Authorize
from moldau.server.handlers.controller.broker_apis import BrokerConnections
from moldau.server.handlers.telemetry import Telemetry
from moldau.wire.messages.fetch import FetchResponse


@dataclass(frozen=True, slots=True)
class BrokerParts:
    current: CurrentImage
    partitions: Partitions
    replication: Replication
    throttled: ThrottledReplicas
    rack_aware_reads: bool
    creator: TopicCreator
    forward: AskController
    missing_for_views: Callable[[], str | None]
    with_listener_configs: Callable[[Authorize], Authorize]
    log_levels: LogLevels
    find_view_counts: Callable[[str], ViewCounts | None]
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    share_coordinator: ShareCoordinator
    share_offsets: ShareGroupOffsets
    shares: SharePartitions
    share_fetches: ShareFetches
    verifications: Verifications
    gate: TransactionGate
    producer_ids: ProducerIds
    sessions: SessionCache
    parked: ParkedFetches[FetchResponse]
    clock: Clock
    timers: Timers
    listed: Callable[[], dict[int, tuple[int, int]]]
    kraft_version: Callable[[], int]
    node_id: int
    cluster_id: str
    static_configs: Mapping[str, str]
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
    software: ClientSoftware
    run_in_thread: RunInThread
    run_codec: RunInThread


@dataclass(frozen=True, slots=True)
class ControllerParts:
    current: CurrentImage
    driver: QuorumDriver
    forward: AskController
    forwarded: Callable[[int], type[Handler] | None]
    connections: BrokerConnections
    missing_for_views: Callable[[], str | None]
    with_listener_configs: Callable[[Authorize], Authorize]
    log_levels: LogLevels
    timers: Timers
    listed: Callable[[], dict[int, tuple[int, int]]]
    kraft_version: Callable[[], int]
    controllers: Callable[[], Sequence[VoterAddress]]
    active_controller: Callable[[], int]
    node_id: int
    cluster_id: str
    static_configs: Mapping[str, str]
    has_authorizer: bool
    rng: Random
