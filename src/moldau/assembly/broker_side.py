"""What a node with the broker role has: partitions and their replication, coordinators, producer ids, the broker's
registration, and the request handlers.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from moldau.assembly.world import World
from moldau.base.broker_configs import broker_integer
from moldau.base.config_def import BrokerLayers, ConfigDef
from moldau.base.counters import Counters
from moldau.base.ids import Uuid
from moldau.base.listeners import Listener
from moldau.base.promise import Promise
from moldau.base.settings.groups import GROUP_SHARE_MAX_SHARE_SESSIONS
from moldau.base.settings.log import PRODUCER_ID_EXPIRATION_MS
from moldau.base.settings.own import MOLDAU_MAX_DECOMPRESSED_BYTES, MOLDAU_VIEWS_KEPT_BYTES
from moldau.base.settings.transactions import TRANSACTION_PARTITION_VERIFICATION_ENABLE
from moldau.base.topic_configs import topic_config_texts
from moldau.log.store import LogStore
from moldau.metadata.apply import Changes
from moldau.metadata.broker_configs import broker_layers
from moldau.metadata.controller.broker_sessions import HEARTBEATS_WITHOUT_CONNECTION
from moldau.metadata.controller.features import SUPPORTED
from moldau.metadata.controller.topics import new_uuid
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigResource
from moldau.replica.follower_log import FollowerLog
from moldau.replica.new_logs import NewLogs
from moldau.replica.partitions import Partitions
from moldau.replica.replication import Replication
from moldau.replica.sessions import SessionCache
from moldau.replica.throttle import Throttles
from moldau.replica.verification import Verifications
from moldau.replica.views import Views
from moldau.replica.waiting import ParkedFetches
from moldau.runtime.broker.broker_client import BrokerClient
from moldau.runtime.broker.chunked_layout import ChunkedLayout
from moldau.runtime.broker.disk_room import DiskRoom
from moldau.runtime.broker.leader_lease import LeaderLease
from moldau.runtime.broker.lifecycle import BrokerLifecycle
from moldau.runtime.broker.producer_ids import ProducerIds, controller_allocator
from moldau.runtime.broker.registration_gate import RegistrationGate
from moldau.runtime.chores import Chores
from moldau.runtime.cleaning.cleaner import LogCleaner
from moldau.runtime.cleaning.ports import ThreadSegmentCleaner
from moldau.runtime.cleaning.settings import cleaner_settings
from moldau.runtime.controller.channel import ControllerChannel
from moldau.runtime.coordinators.group import GroupCoordinator, offsets_topic
from moldau.runtime.coordinators.partition_ends import PartitionEnds
from moldau.runtime.coordinators.share import ShareCoordinator, share_state_topic
from moldau.runtime.coordinators.share_group_offsets import ShareGroupOffsets
from moldau.runtime.coordinators.share_states import CoordinatedShareStates
from moldau.runtime.coordinators.topic import CoordinatorTopic
from moldau.runtime.coordinators.transaction import TransactionCoordinator, transaction_topic
from moldau.runtime.coordinators.transaction_gate import Patience, TransactionGate
from moldau.runtime.coordinators.transaction_verifier import TransactionVerifier
from moldau.runtime.fault_log import FaultLog
from moldau.runtime.housekeeping import Housekeeping
from moldau.runtime.image_log import LeadershipLog
from moldau.runtime.log_levels import LogLevels
from moldau.runtime.replication.fetchers import ReplicaFetchers
from moldau.runtime.replication.isr_changes import IsrChanges
from moldau.runtime.share.dead_letters import DeadLetters
from moldau.runtime.share.fetches import ShareFetches
from moldau.runtime.share.partitions import SharePartitions
from moldau.runtime.views.ports import ViewsInThread, missing_for_views
from moldau.security.quotas.limits import ClientLimits
from moldau.server.apis import broker_handlers, create_handlers
from moldau.server.audit import AuditLog, audited
from moldau.server.handlers.authorized_requests.authorized import Authorize
from moldau.server.handlers.authorized_requests.listener_configs import checking_listener_configs
from moldau.server.handlers.telemetry import Telemetry
from moldau.server.parts import BrokerParts
from moldau.server.router import Router
from moldau.server.throttling import Throttling
from moldau.settings import Settings
from moldau.share.ports import ShareStates
from moldau.share.sessions import ShareSessions
from moldau.views.shown_runs import ResultBudget
from moldau.wire.messages.broker_registration import BrokerRegistrationRequest, Feature
from moldau.wire.messages.broker_registration import Listener as RegisteredListener
from moldau.wire.messages.fetch import FetchResponse

log = logging.getLogger("moldau.node")
log_of_views = logging.getLogger("moldau.views")
OPEN_RETRY_MS = 5_000
FETCH_SESSION_EVICTION_MS = 120_000
QUOTA_CLEANUP_MS = 600_000


class BrokerSide:
    def __init__(
        self,
        settings: Settings,
        world: World,
        store: LogStore,
        current: CurrentImage,
        channel: ControllerChannel,
        kraft_version: Callable[[], int],
        cluster_id: str,
        directory_id: Uuid,
        on_registered: Callable[[int], None],
        counters: Counters,
        audit: AuditLog,
    ) -> None:
        self._settings = settings
        self._world = world
        self._static: Mapping[str, str] = settings.broker_layers().static
        self._current = current
        self._kraft_version = kraft_version
        self._cluster_id = cluster_id
        self._directory_id = directory_id
        self._counters = counters
        self._own_work = world.own_work()
        self.lifecycle = BrokerLifecycle(
            settings.node_id,
            settings.sessions,
            channel,
            current,
            world.lease_clock or world.clock,
            self._own_work,
            new_uuid(world.rng),
            on_registered,
            lambda *contact: self._lease.renew(*contact),
        )
        self._isr_changes = self._isr_proposals(channel)
        self.replication = self._replication()
        self._throttles = Throttles(settings.node_id, self._static, world.clock)
        self._faults = self._disk_faults()
        self.partitions = self._partitions(store)
        self._lease = self._leader_lease()
        self.views = views_of(self.partitions, world, settings.broker_layers())
        self._fetchers = self._replica_fetchers(store)
        self.share_coordinator = share_coordinator(settings, world, current, channel, self.partitions)
        self._coordinated_share_states = CoordinatedShareStates(
            settings.node_id, self.share_coordinator, self._broker_client("share states"), self._own_work
        )
        self.share_states: ShareStates = self._coordinated_share_states
        self.groups = group_coordinator(settings, world, current, channel, self.partitions, self.share_states)
        self._partition_ends = PartitionEnds(current, self._broker_client("ends of partitions"))
        self.share_offsets = ShareGroupOffsets(self.share_states, self._partition_ends, self._own_work)
        self.producer_ids = ProducerIds(controller_allocator(channel, settings.node_id, lambda: self.lifecycle.epoch))
        self._brokers = self._broker_client("transactions")
        self.transactions = transaction_coordinator(
            settings, world, current, channel, self.partitions, self.producer_ids, self._brokers
        )
        self.shares = self._share_partitions(channel)
        self.share_fetches = ShareFetches(self.shares, world.timers, world.run_in_thread)
        self.verifications = Verifications()
        self.parked: ParkedFetches[FetchResponse] = ParkedFetches(world.timers)
        self.housekeeping = self._log_housekeeping(store)
        self.cleaner = self._log_cleaner()
        self._chores = Chores(self._own_work)
        self.sessions = self._fetch_sessions()
        self.throttling = self._client_throttling()
        self.telemetry = Telemetry(settings.broker_layers())
        self.router = Router(self.throttling, world.run_codec or world.run_in_thread, counters)
        self.handlers = create_handlers(broker_handlers(), self._handler_parts(channel))
        self.router.serve(self.handlers, partial(audited, audit=audit, timers=world.timers))
        self._chunked_layout = self._layout(store)
        self._follow_images()

    def _layout(self, store: LogStore) -> ChunkedLayout:
        world = self._world
        new_logs = NewLogs(self._settings.node_id, store, world.run_in_thread, world.clock, world.rng, self._faults)
        return ChunkedLayout(self._on_image, self._finish_some, new_logs, self._own_work)

    def _share_partitions(self, channel: ControllerChannel) -> SharePartitions:
        world = self._world
        dead_letters = DeadLetters(
            self._current,
            self._broker_client("dead letters"),
            channel,
            lambda: broker_layers(self._current.image, self._settings.node_id, self._static),
            lambda overrides: self._topic_configs(self._current.image, overrides),
            world.clock,
            self._own_work,
            world.run_in_thread,
        )
        return SharePartitions(
            self.partitions,
            self._current,
            self.share_states,
            self.groups.configs.share_limits_of,
            dead_letters,
            ShareSessions(self._number(GROUP_SHARE_MAX_SHARE_SESSIONS)),
            world.clock,
            self._own_work,
            world.run_in_thread,
        )

    def _follow_images(self) -> None:
        node_id, current = self._settings.node_id, self._current
        layout_gate = RegistrationGate(node_id, self.lifecycle.incarnation_id, self._chunked_layout.on_image)
        current.add_listener(layout_gate.on_image)
        leaderships = LeadershipLog(node_id, current)
        log_gate = RegistrationGate(node_id, self.lifecycle.incarnation_id, leaderships.on_image)
        current.add_listener(log_gate.on_image)
        current.add_listener(self.lifecycle.on_image)
        current.add_listener(self.telemetry.on_image)
        if self._world.listener_configs is not None:
            current.add_listener(self._world.listener_configs.on_image)

    def _isr_proposals(self, channel: ControllerChannel) -> IsrChanges:
        return IsrChanges(
            self._settings.node_id,
            lambda: self.lifecycle.epoch,
            lambda api, request: channel.ask(api, request, "isr"),
            self._own_work,
        )

    def _replication(self) -> Replication:
        settings, world = self._settings, self._world
        return Replication(
            world.clock,
            self._isr_changes,
            settings.replication.lag_time_max_ms,
            world.lease_clock,
            HEARTBEATS_WITHOUT_CONNECTION * settings.sessions.heartbeat_interval_ms,
        )

    def _leader_lease(self) -> LeaderLease:
        wait_ms = self._settings.replication.fetch.wait_max_ms
        return LeaderLease(self.partitions, self.replication, wait_ms, self._own_work, self._on_lease_changed)

    def _disk_faults(self) -> DiskRoom:
        world, directory = self._world, self._settings.log_dirs[0]
        in_log = FaultLog(log.error, world.clock)
        on_change = self.lifecycle.set_cannot_write
        return DiskRoom(
            in_log, world.files, directory, world.disk_space, world.run_in_thread, self._own_work, on_change
        )

    def _partitions(self, store: LogStore) -> Partitions:
        node_id, world = self._settings.node_id, self._world
        return Partitions(node_id, store, world.flusher, self._topic_configs, world.rng, self._faults, self.replication)

    def _replica_fetchers(self, store: LogStore) -> ReplicaFetchers:
        settings, world = self._settings, self._world
        return ReplicaFetchers(
            settings.node_id,
            self.partitions,
            FollowerLog(store, log.error),
            world.peers,
            settings.inter_broker_listener_name,
            lambda: self.lifecycle.epoch,
            settings.replication.fetch,
            world.clock,
            self._own_work,
            self._throttles.follower,
        )

    def _log_housekeeping(self, store: LogStore) -> Housekeeping:
        return Housekeeping(
            self.partitions,
            store,
            self._world.flusher,
            self._world.clock,
            self._own_work,
            lambda: self._number(PRODUCER_ID_EXPIRATION_MS),
            lambda partition: self.cleaner.is_cleaning(partition),
        )

    def _log_cleaner(self) -> LogCleaner:
        world = self._world
        return LogCleaner(
            self.partitions,
            world.cleaner or ThreadSegmentCleaner(world.files, world.run_in_thread),
            cleaner_settings(self._settings.broker_layers()),
            world.clock,
            self._own_work,
            world.run_in_thread,
            self.housekeeping.delete_expired,
            lambda: self.housekeeping.write_checkpoints(world.run_in_thread, world.on_fault),
            lambda: self.housekeeping.purge(world.run_in_thread, world.on_fault),
        )

    def _broker_client(self, purpose: str) -> BrokerClient:
        return BrokerClient(
            self._settings.node_id,
            self._current,
            self._world.peers,
            self._settings.inter_broker_listener_name,
            purpose,
            lambda api, request: self.router.ask_here(api, request),
        )

    def _transaction_gate(self) -> TransactionGate:
        world, topic_settings = self._world, self._settings.transaction_log
        verifier = TransactionVerifier(self.transactions.find, self._brokers, world.timers)
        patience = Patience(topic_settings.add_partitions_retry_ms, topic_settings.add_partitions_retry_max_ms)
        return TransactionGate(
            self.verifications,
            verifier,
            world.clock,
            world.timers,
            patience,
            lambda: bool(self._number(TRANSACTION_PARTITION_VERIFICATION_ENABLE)),
        )

    def _number(self, row: ConfigDef) -> int:
        """Return a config of this broker as it is set now: a number, or a boolean."""
        return broker_integer(row, broker_layers(self._current.image, self._settings.node_id, self._static))

    def _handler_parts(self, channel: ControllerChannel) -> BrokerParts:
        settings, world = self._settings, self._world
        return BrokerParts(
            current=self._current,
            partitions=self.partitions,
            replication=self.replication,
            throttled=self._throttles.leader,
            rack_aware_reads=settings.replication.rack_aware_reads,
            creator=channel,
            forward=channel.forward,
            missing_for_views=missing_for_views,
            with_listener_configs=self._with_listener_configs,
            log_levels=LogLevels(),
            find_view_counts=self.partitions.view_counts,
            groups=self.groups,
            transactions=self.transactions,
            share_coordinator=self.share_coordinator,
            share_offsets=self.share_offsets,
            shares=self.shares,
            share_fetches=self.share_fetches,
            verifications=self.verifications,
            gate=self._transaction_gate(),
            producer_ids=self.producer_ids,
            sessions=self.sessions,
            parked=self.parked,
            clock=world.clock,
            timers=world.timers,
            listed=self.telemetry.listed(self.router.listed),
            kraft_version=self._kraft_version,
            node_id=settings.node_id,
            cluster_id=self._cluster_id,
            static_configs=self._static,
            log_dir=os.path.abspath(settings.log_dirs[0]),
            disk_space=world.disk_space,
            auto_create_topics=settings.auto_create_topics_enable,
            fetch_bytes_max=settings.fetch_max_bytes,
            rng=world.rng,
            has_authorizer=settings.authorizer.is_enabled,
            has_consumer_protocol=settings.groups.has_consumer_protocol,
            delegation_tokens=settings.delegation_tokens,
            counters=self._counters,
            telemetry=self.telemetry,
            software=self.telemetry.software,
            run_in_thread=world.run_in_thread,
            run_codec=world.run_codec or world.run_in_thread,
        )

    def _with_listener_configs(self, authorize: Authorize) -> Authorize:
        """Return the function that also checks changes of this broker's listeners, if it has any."""
        world = self._world
        if world.listener_configs is None:
            return authorize
        return checking_listener_configs(
            authorize,
            self._settings.node_id,
            self._current,
            self._static,
            world.listener_configs,
            world.run_in_thread,
        )

    def _on_image(self, image: MetadataImage, changes: Changes) -> None:
        """Called by ChunkedLayout, a part of a large change at a time. Partitions are updated before what uses them."""
        self.partitions.on_image(image, changes, self._world.clock.now_ms())
        self._on_partitions_changed(image, changes)

    def _finish_some(self, count: int) -> bool:
        # Stop fetching a partition first, then delete its log.
        are_fetched = self._fetchers.remove_some()
        has_updates = self.partitions.update_some()
        return self.partitions.remove_some(count, self._world.clock.now_ms()) or has_updates or are_fetched

    def _on_partitions_changed(self, image: MetadataImage, changes: Changes) -> None:
        self._throttles.on_image(image, changes)
        self._fetchers.on_image(image, changes)
        self.groups.on_image(image, changes)
        self.transactions.on_image(image, changes)
        self.share_coordinator.on_image(image, changes)
        self.shares.on_partitions_changed()
        if any(kind == ConfigResource.BROKER for kind, _ in changes.configs):
            self.cleaner.reconfigure(cleaner_settings(broker_layers(image, self._settings.node_id, self._static)))

    def _on_lease_changed(self) -> None:
        self.groups.shards.follow_lease()
        self.transactions.shards.follow_lease()
        self.share_coordinator.shards.follow_lease()
        self.shares.on_partitions_changed()

    def connection_gone(self, address: str) -> None:
        """Called when a client's connection has ended."""
        self.telemetry.connection_gone(address)
        self.share_fetches.connection_gone(address)

    def _fetch_sessions(self) -> SessionCache:
        slots = self._settings.max_incremental_fetch_session_cache_slots
        return SessionCache(slots, FETCH_SESSION_EVICTION_MS, self._world.rng)

    def _client_throttling(self) -> Throttling:
        self._current.add_listener(self._set_quotas)
        return Throttling(ClientLimits(self._settings.quota_window), self._world.clock, self._counters)

    def _set_quotas(self, image: MetadataImage, changes: Changes) -> None:
        if changes.has_client_quotas:
            self.throttling.set_quotas(image.client_quotas)

    def _retry_opening(self) -> None:
        """Try again to open partitions whose log could not be opened."""
        if missing := self.partitions.missing_by_topic():
            self._chunked_layout.on_image(self._current.image, Changes(topics=missing))

    def start(self, advertised: Sequence[Listener], previous_epoch: int) -> Promise[None]:
        """Register the broker; the promise is completed when it serves clients. `previous_epoch` is the broker epoch of
        the last process, below 0 if records of it may be lost."""
        registration = broker_registration(
            self._settings, self._cluster_id, self._directory_id, advertised, previous_epoch
        )
        serving: Promise[None] = Promise()
        unfenced = self.lifecycle.start(registration)
        unfenced.then(lambda _: self._chunked_layout.when_done(lambda: self._start_serving(serving)))
        return serving

    def _start_serving(self, serving: Promise[None]) -> None:
        self._start_chores()
        serving.complete(None)

    def _start_chores(self) -> None:
        settings, logs, world, every = self._settings, self.housekeeping, self._world, self._chores.every
        in_thread = world.run_in_thread, world.on_fault
        every(settings.log_retention_check_interval_ms, partial(logs.retain, *in_thread))
        every(OPEN_RETRY_MS, self._retry_opening)
        # The default is "never", and yet flush.ms of a topic holds.
        every(min(settings.log_flush_scheduler_interval_ms, 1000), logs.flush_by_time)
        check_ms, guards = settings.producer_id_expiration_check_interval_ms, self.verifications
        every(check_ms, logs.expire_producers)
        every(check_ms, lambda: guards.expire(world.clock.monotonic_ms(), self._number(PRODUCER_ID_EXPIRATION_MS)))
        every(QUOTA_CLEANUP_MS, lambda: self.throttling.limits.forget_idle(world.clock.monotonic_ms()))
        every(settings.transaction_log.removal_check_interval_ms, self.transactions.expire)
        every(settings.offsets_retention_check_interval_ms, self.groups.expire_offsets)
        every(settings.share_coordinator.cold_snapshot_interval_ms, self.share_coordinator.snapshot_cold)
        every(settings.share_state_topic.prune_interval_ms, self.share_coordinator.prune)
        every(settings.replica_high_watermark_checkpoint_interval_ms, partial(logs.write_checkpoints, *in_thread))
        self.cleaner.start()
        self._isr_changes.look_for_laggards(self.partitions, max(settings.replication.lag_time_max_ms // 2, 1))

    def leave(self) -> Promise[None]:
        """Hand over leadership of partitions; the promise is completed when others lead them, or none can."""
        return self.lifecycle.leave()

    def release(self) -> None:
        """Send responses to waiting requests, before a listener stops."""
        self.parked.release_all()
        self.share_fetches.release_all()
        self.groups.close()
        self.transactions.close()
        self._coordinated_share_states.close()
        self.share_coordinator.close()

    def stop(self) -> None:
        """Stop everything that works without a request."""
        self.cleaner.stop()
        self.views.close()
        self.lifecycle.close()
        self._lease.close()
        self._faults.close()
        self._fetchers.close()
        self._isr_changes.close()
        self._chores.stop()
        self.shares.close()
        self.housekeeping.stop()
        self._chunked_layout.stop()
        self._finish_some(sys.maxsize)
        # A long request whose client has gone may have turns left, and the logs are about to be closed.
        for partition in self.partitions.all():
            partition.withhold()

    def _topic_configs(self, image: MetadataImage, overrides: Mapping[str, str]) -> Mapping[str, str]:
        """All configs of a topic with these overrides, as texts."""
        texts = topic_config_texts(overrides, broker_layers(image, self._settings.node_id, self._static))
        return {**texts, MOLDAU_MAX_DECOMPRESSED_BYTES.name: str(self._settings.decompressed_bytes_max)}


def views_of(partitions: Partitions, world: World, configs: BrokerLayers) -> Views:
    """Make the partitions show views."""
    evaluator = world.views or ViewsInThread(world.run_in_thread)
    budget = ResultBudget(broker_integer(MOLDAU_VIEWS_KEPT_BYTES, configs))
    views = Views(evaluator, budget, log_of_views.error, partitions.traffic, world.clock, world.timers)
    partitions.views = views
    return views


def group_coordinator(
    settings: Settings,
    world: World,
    current: CurrentImage,
    channel: ControllerChannel,
    partitions: Partitions,
    share_states: ShareStates,
) -> GroupCoordinator:
    topic = offsets_topic(
        settings.offsets_topic_num_partitions,
        settings.offsets_topic_replication_factor,
        settings.offsets_topic_segment_bytes,
    )
    return GroupCoordinator(
        settings.groups,
        CoordinatorTopic(topic, current, channel),
        settings.node_id,
        partitions,
        current,
        world.clock,
        world.own_work(),
        world.rng,
        settings.broker_layers().static,
        share_states,
    )


def transaction_coordinator(
    settings: Settings,
    world: World,
    current: CurrentImage,
    channel: ControllerChannel,
    partitions: Partitions,
    producer_ids: ProducerIds,
    brokers: BrokerClient,
) -> TransactionCoordinator:
    topic = transaction_topic(
        settings.transaction_log.num_partitions,
        settings.transaction_log.replication_factor,
        settings.transaction_log.segment_bytes,
        settings.transaction_log.min_insync_replicas,
    )
    return TransactionCoordinator(
        settings.transactions,
        CoordinatorTopic(topic, current, channel),
        settings.node_id,
        partitions,
        current,
        producer_ids,
        brokers,
        world.clock,
        world.own_work(),
    )


def share_coordinator(
    settings: Settings, world: World, current: CurrentImage, channel: ControllerChannel, partitions: Partitions
) -> ShareCoordinator:
    topic = share_state_topic(
        settings.share_state_topic.num_partitions,
        settings.share_state_topic.replication_factor,
        settings.share_state_topic.segment_bytes,
        settings.share_state_topic.min_insync_replicas,
    )
    return ShareCoordinator(
        settings.share_coordinator,
        CoordinatorTopic(topic, current, channel),
        settings.node_id,
        partitions,
        current,
        world.clock,
        world.own_work(),
    )


def broker_registration(
    settings: Settings, cluster_id: str, directory_id: Uuid, advertised: Sequence[Listener], previous_epoch: int
) -> BrokerRegistrationRequest:
    """`previous_epoch`: the broker epoch of the previous run; below 0 if records of that run may be lost."""
    return BrokerRegistrationRequest(
        broker_id=settings.node_id,
        cluster_id=cluster_id,
        listeners=[
            RegisteredListener(each.name, each.host, each.port, each.security_protocol_id) for each in advertised
        ],
        features=[Feature(name, low, high) for name, (low, high) in SUPPORTED.items()],
        rack=settings.broker_rack,
        log_dirs=[directory_id],
        previous_broker_epoch=previous_epoch,
    )
