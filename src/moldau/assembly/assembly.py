"""A node: the data directory, its quorum member, and the parts of its roles."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from moldau.assembly.broker_side import BrokerSide
from moldau.assembly.connections import NodeConnections
from moldau.assembly.controller_side import ControllerSide
from moldau.assembly.world import World
from moldau.base.counters import Counters
from moldau.base.ids import METADATA_TOPIC_UUID, TopicPartition
from moldau.base.listeners import Listener
from moldau.base.promise import Promise, resolved
from moldau.base.topic_names import METADATA_TOPIC
from moldau.log import meta_properties
from moldau.log.config import LogConfig
from moldau.log.reports import StoreReport
from moldau.log.reserve import Reserve, ReservedFiles
from moldau.log.store import LogStore
from moldau.metadata.apply import Changes
from moldau.metadata.controller.topics import new_uuid
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage
from moldau.raft.machine import Quorum
from moldau.raft.member import Member, RaftSettings
from moldau.raft.voters import Endpoint, VoterSet, static_voters
from moldau.runtime.broker.boot_marker import UNKNOWN, BootMarker
from moldau.runtime.broker.missing_logs import MissingLogs
from moldau.runtime.controller.channel import ControllerChannel
from moldau.runtime.fault_log import FaultLog
from moldau.runtime.image_log import BrokerLog
from moldau.runtime.quorum.committed_metadata import CommittedMetadata
from moldau.runtime.quorum.driver import QuorumDriver
from moldau.runtime.quorum.metadata_log import MetadataLog
from moldau.runtime.quorum.snapshots import MetadataSnapshots
from moldau.runtime.quorum.state_file import QuorumStateFile
from moldau.runtime.reserve_upkeep import ReserveUpkeep
from moldau.security.acls.access import UNRESTRICTED, Access, Restricted, Unrestricted
from moldau.security.hosts import acl_host
from moldau.security.principals import ANONYMOUS, Principal
from moldau.server.audit import AuditLog
from moldau.settings import Settings

log = logging.getLogger("moldau.node")
REASONS_MAX = 10
METADATA = TopicPartition(METADATA_TOPIC, 0)
CONTROLLER_LISTENER = "CONTROLLER"
"""Name of the controller listener if none is configured: a single node needs none."""


class Assembly:
    def __init__(self, settings: Settings, world: World) -> None:
        """Lock and load the data directory. StorageFault if that fails, ForeignDirectory if it belongs to another
        node."""
        self.settings = settings
        directory = settings.log_dirs[0]
        report = FaultLog(log.error, world.clock)
        reserve = Reserve(world.files, directory, settings.reserve_bytes, world.disk_space, report)
        self._files = ReservedFiles(world.files, directory, reserve)
        self._world = replace(world, files=self._files)
        self._reserve_upkeep = ReserveUpkeep(reserve, world.run_in_thread, world.own_work(), world.clock)
        self.current = CurrentImage()
        self.store = LogStore(self._files, directory)
        try:
            self._load_store()
            self._build()
        except BaseException:
            self.store.abandon()
            raise

    def _load_store(self) -> None:
        settings, world = self.settings, self._world
        meta = meta_properties.claim(
            world.files,
            settings.log_dirs[:1],
            settings.node_id,
            settings.cluster_id,
            lambda: new_uuid(world.rng),
            is_alone=settings.is_alone,
        )[0]
        self.cluster_id, self._directory_id = meta.cluster_id, meta.directory_id
        if self.store.is_case_insensitive:
            log.warning(
                "%s: this file system ignores case; a topic whose name differs from another's only in case is refused",
                self.store.directory,
            )
        self._boot_marker = BootMarker(world.files, settings.log_dirs[0], world.boot_id)
        report = self.store.load(lambda _: LogConfig(), world.clock.now_ms(), self._boot_marker.forget)
        if report.logs and not report.was_clean:
            log.warning("unclean shutdown of the last run: %d logs were checked", report.logs)
        for recovered in report.recovered:
            log.warning("recovered: %s", recovered)
        for directory, reason in report.unreadable:
            log.error("%s cannot be read and is left as it is: %s", directory, reason)
        self._previous_epoch = self._complete_epoch(report)

    def _complete_epoch(self, report: StoreReport) -> int:
        """Return the broker epoch of the last process, if this node has all records that it had then; else -1."""
        epoch = report.broker_epoch if report.broker_epoch >= 0 else self._boot_marker.broker_epoch()
        damage = report.damage
        if epoch >= 0 and METADATA not in self.store:
            damage.append(f"{METADATA} is missing")
        if not damage:
            return epoch
        # The next start may see no damage any more, and until this one has registered, it is not complete either.
        self._boot_marker.forget()
        if self.settings.is_broker:
            warn_of_damage(damage)
        return UNKNOWN

    def _build(self) -> None:
        settings, world = self.settings, self._world
        self.counters = Counters()
        self.connections = NodeConnections(settings, self.current, self.counters, world.connection_descriptors)
        self.audit = AuditLog(world.clock, self.counters, settings.authorizer.is_enabled)
        self.authorizer = settings.authorizer.authorizer()
        if self.authorizer is not None:
            self.current.add_listener(self._change_acls)
        metadata_log = self._metadata_log()
        committed = CommittedMetadata(metadata_log, self.current, world.own_work())
        quorum = self._quorum(metadata_log)
        controller_peers = world.controller_peers or world.peers
        flusher = world.quorum_flusher or world.flusher
        self.driver = QuorumDriver(
            quorum, controller_peers, world.clock, world.own_work(), flusher, world.run_in_thread, world.on_fault
        )
        self.controller_side: ControllerSide | None = None
        if settings.is_controller:
            self.controller_side = ControllerSide(
                settings,
                world,
                self.driver,
                committed,
                self.current,
                self.cluster_id,
                self.store.is_case_insensitive,
                self.counters,
                self.audit,
            )
        local = None if self.controller_side is None else self.controller_side.ask
        self.channel = ControllerChannel(self.driver, local, controller_peers, world.clock, world.own_work())
        self.driver.add_listener(committed if self.controller_side is None else self.controller_side.controller)
        self.driver.add_listener(self)
        snapshots = MetadataSnapshots(
            self.driver, settings.quorum.bytes_between_snapshots, world.run_in_thread, world.own_work()
        )
        self.current.add_listener(snapshots.on_image)
        if self.controller_side is not None:
            controller = self.controller_side.controller
            self.current.add_listener(BrokerLog(settings.node_id, self.current, lambda: controller.is_active).on_image)
        self._missing_logs = MissingLogs(settings.node_id, self.store, metadata_log, world.own_work())
        self.current.add_listener(self._missing_logs.on_image)
        self.broker_side: BrokerSide | None = None
        if settings.is_broker:
            self.broker_side = BrokerSide(
                settings,
                world,
                self.store,
                self.current,
                self.channel,
                self.driver.kraft_version,
                self.cluster_id,
                self._directory_id,
                self._boot_marker.note,
                self.counters,
                self.audit,
            )

    def _metadata_log(self) -> MetadataLog:
        metadata = self.store.get(METADATA) or self.store.create(
            METADATA, METADATA_TOPIC_UUID, LogConfig(), self._world.clock.now_ms()
        )
        return MetadataLog(metadata, self.store, self._world.files)

    def _quorum(self, metadata_log: MetadataLog) -> Quorum:
        settings, world = self.settings, self._world
        listener = next((each.name for each in settings.controller_listeners), CONTROLLER_LISTENER)
        return Quorum(
            Member(settings.node_id, self._directory_id, self.cluster_id, listener, self._endpoints(listener)),
            self._voters(listener),
            [Endpoint(listener, host, port) for host, port in settings.quorum.bootstrap_servers],
            metadata_log,
            QuorumStateFile(world.files, metadata_log.log.directory),
            world.rng,
            world.clock,
            RaftSettings(
                election_timeout_ms=settings.quorum.election_timeout_ms,
                election_backoff_max_ms=settings.quorum.election_backoff_max_ms,
                fetch_timeout_ms=settings.quorum.fetch_timeout_ms,
                request_timeout_ms=settings.quorum.request_timeout_ms,
                retry_backoff_ms=settings.quorum.retry_backoff_ms,
                fetch_bytes_max=settings.quorum.fetch_max_bytes,
                snapshot_piece_bytes_max=settings.quorum.fetch_snapshot_max_bytes,
            ),
        )

    def _endpoints(self, listener: str) -> tuple[Endpoint, ...]:
        """The endpoints at which other controllers reach this one."""
        own = next((voter for voter in self.settings.quorum.voters if voter.id == self.settings.node_id), None)
        if own is not None:
            return (Endpoint(listener, own.host, own.port),)
        return tuple(Endpoint(each.name, each.host, each.port) for each in self.settings.advertised_controllers)

    def _voters(self, listener: str) -> VoterSet:
        """The voters of the settings; without them the metadata log has them, or this controller is the only one."""
        settings = self.settings
        if settings.quorum.voters:
            return static_voters({each.id: (each.host, each.port) for each in settings.quorum.voters}, listener)
        if not settings.is_alone:
            return VoterSet()
        own = self._endpoints(listener) or (Endpoint(listener, "localhost", 0),)
        return static_voters({settings.node_id: (own[0].host, own[0].port)}, listener)

    # --- lifecycle ----------------------------------------------------------------------------------------------

    def start(self, advertised: Sequence[Listener]) -> Promise[None]:
        """Join the quorum. The promise is completed when this node serves requests."""
        self._reserve_upkeep.start()
        self.driver.start()
        if self.broker_side is None:
            return resolved(None)
        if self._previous_epoch == UNKNOWN:
            return self.broker_side.start(advertised, UNKNOWN)
        return self._missing_logs.known.and_then(partial(self._start_broker, self.broker_side, advertised))

    def _start_broker(
        self, broker_side: BrokerSide, advertised: Sequence[Listener], missing: list[TopicPartition]
    ) -> Promise[None]:
        if missing:
            warn_of_damage([f"the log of {partition} is missing or has no topic id" for partition in missing])
        return broker_side.start(advertised, UNKNOWN if missing else self._previous_epoch)

    def leave(self) -> Promise[None]:
        """Hand over what this node leads. The promise is completed when others lead it, or none can."""
        left: Promise[None] = Promise()
        if self.broker_side is None:
            return self.driver.resign()
        self.broker_side.leave().then(lambda _: self.driver.resign().then(left.complete))
        return left

    def release(self) -> None:
        """Send responses to waiting requests, before a listener stops. It may be called again for the next one."""
        if self.broker_side is not None:
            self.broker_side.release()

    def stop(self) -> None:
        """Stop all periodic work."""
        self._reserve_upkeep.stop()
        if self.broker_side is not None:
            self.broker_side.stop()
            self.broker_side.release()  # an image may have opened coordinators since the last time
        self.driver.stop()

    def halt(self) -> None:
        """Stop all periodic work without telling anyone, as if the process had died."""
        self._reserve_upkeep.stop()
        if self.broker_side is not None:
            self.broker_side.stop()
        self.driver.halt()

    def close(self) -> None:
        """Sync everything and write the clean-shutdown marker. Blocks."""
        self._files.is_stopping = True
        run_all = self._world.run_all
        if self.broker_side is None:
            self.store.close(run_all=run_all)
        else:
            high_watermarks = self.broker_side.housekeeping.high_watermarks()
            self.store.close(high_watermarks, self.broker_side.lifecycle.epoch, run_all)

    def distrust(self) -> None:
        """Mark that the disk failed: the next start must not rely on what this one wrote. StorageFault if that
        fails."""
        if self.broker_side is not None:
            self._boot_marker.forget()

    def abandon(self) -> None:
        """Unlock the directory without closing the logs, as a crash would."""
        self.store.abandon()

    def access(self, principal: Principal, host: str) -> Access:
        """Return what a client may do that is this principal and connects from that host."""
        if self.authorizer is None:
            return UNRESTRICTED if principal == ANONYMOUS else Unrestricted(principal)
        return Restricted(self.authorizer, principal, acl_host(host), self.audit.denied)

    def _change_acls(self, image: MetadataImage, changes: Changes) -> None:
        assert self.authorizer is not None
        if changes.acls_added or changes.acls_removed:
            self.authorizer.change(changes.acls_added, changes.acls_removed)

    # --- callbacks of the quorum --------------------------------------------------------------------------------

    def leading(self, epoch: int) -> None:
        log.info("node %d is the active controller from controller epoch %d on", self.settings.node_id, epoch)

    def no_longer_leading(self) -> None:
        log.info("node %d is no longer the active controller", self.settings.node_id)

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        """Send controller requests to the new leader, and a heartbeat at once."""
        self.channel.leader_changed()
        if leader_id >= 0 and self.broker_side is not None:
            self._world.own_work().soon(self.broker_side.lifecycle.beat_now)

    def committed(self, high_watermark: int) -> None:
        """Nothing to do: committed records arrive with the image."""


def warn_of_damage(reasons: Sequence[str]) -> None:
    """Say why this broker registers without the epoch of its previous run."""
    more = f" (and {len(reasons) - REASONS_MAX} more)" if len(reasons) > REASONS_MAX else ""
    log.warning(
        "records of the last run may be lost: this broker leaves every in-sync set that has other members until it has "
        "caught up; %s%s",
        "; ".join(reasons[:REASONS_MAX]),
        more,
    )
