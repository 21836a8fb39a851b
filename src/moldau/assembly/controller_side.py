"""What a node with the controller role has: the controller, its periodic duties, and its request handlers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any

from moldau.assembly.world import World
from moldau.base.clock import Timers
from moldau.base.cluster_settings import VoterAddress
from moldau.base.config_def import BrokerLayers
from moldau.base.counters import Counters
from moldau.base.promise import Promise
from moldau.metadata.broker_configs import broker_layers
from moldau.metadata.controller.broker_sessions import BrokerSessions
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage
from moldau.runtime.controller.active import Controller
from moldau.runtime.controller.admin import Admin
from moldau.runtime.controller.broker_requests import BrokerRequests
from moldau.runtime.controller.delegation_tokens import ControllerTokens
from moldau.runtime.controller.duties import ControllerDuties
from moldau.runtime.controller.first_records import read_first_records
from moldau.runtime.log_levels import LogLevels
from moldau.runtime.quorum.committed_metadata import CommittedMetadata
from moldau.runtime.quorum.driver import QuorumDriver
from moldau.security.principals import Client
from moldau.security.quotas.mutations import MutationLimits
from moldau.server.apis import controller_handlers, create_handlers, decided_handlers, forwarded_handler
from moldau.server.audit import AuditLog, audited
from moldau.server.handlers.authorized_requests.listener_configs import refusing_listener_configs
from moldau.server.handlers.forwarded import Deciders
from moldau.server.parts import ControllerParts
from moldau.server.router import Router
from moldau.settings import Settings
from moldau.wire.apis import ApiKey
from moldau.wire.schema import Message


class ControllerSide:
    def __init__(
        self,
        settings: Settings,
        world: World,
        driver: QuorumDriver,
        committed: CommittedMetadata,
        current: CurrentImage,
        cluster_id: str,
        case_insensitive_names: bool,
        counters: Counters,
        audit: AuditLog,
    ) -> None:
        """`case_insensitive_names`: whether names of topics that differ only in case collide, because the file system
        of the data directory ignores case."""
        self._settings = settings
        self._static: Mapping[str, str] = settings.broker_layers().static
        self._driver = driver
        self.controller = Controller(driver, committed, current, world.own_work())
        sessions = BrokerSessions(settings.sessions.session_timeout_ms, settings.sessions.heartbeat_interval_ms)
        self.duties = ControllerDuties(
            settings.node_id,
            self.controller,
            sessions,
            settings.sessions,
            settings.balance,
            self._layers,
            world.clock,
            world.own_work(),
            world.rng,
            read_first_records(world.files, settings.log_dirs[0]),
        )
        self.controller.add_duties(self.duties)
        self.broker_requests = BrokerRequests(
            self.controller, self.duties, sessions, self._layers, cluster_id, world.clock
        )
        self.admin = Admin(
            self.controller,
            settings.node_id,
            self._static,
            settings.num_partitions,
            settings.default_replication_factor,
            settings.delete_topic_enable,
            world.rng,
            world.clock,
            MutationLimits(settings.controller_quota_window.total_ms // 1000),
            counters,
            case_insensitive_names,
        )
        self.tokens = ControllerTokens(
            self.controller, settings.delegation_tokens, world.clock, world.own_work(), world.rng
        )
        self.controller.add_duties(self.tokens)
        self._deciders = Deciders(self.admin, self.broker_requests, self.tokens, driver)
        self.router = Router(None, world.run_codec or world.run_in_thread, counters)
        self._serve(current, cluster_id, world.rng, world.timers, audit)

    def connection_gone(self, address: str) -> None:
        """Called when a connection to a controller listener has ended. Connections to other listeners may have the same
        address."""
        self.duties.connection_gone(address)

    def ask(self, api: ApiKey, request: Message, version: int, client: Client | None = None) -> Promise[Any]:
        """Handle a request to the controller; the response may be a KafkaError NOT_CONTROLLER. `client` is the one for
        which a broker forwards it, if there is one."""
        return decided_handlers()[api].decide(self._deciders, request, version, client)

    def _serve(self, current: CurrentImage, cluster_id: str, rng: Random, timers: Timers, audit: AuditLog) -> None:
        parts = ControllerParts(
            current=current,
            driver=self._driver,
            forward=self.ask,
            forwarded=forwarded_handler,
            connections=self.duties,
            missing_for_views=lambda: None,  # only brokers evaluate views
            with_listener_configs=partial(refusing_listener_configs, current=current),
            log_levels=LogLevels(),
            timers=timers,
            listed=self.router.listed,
            kraft_version=self._driver.kraft_version,
            controllers=self._voters,
            active_controller=lambda: self._driver.leader_id,
            node_id=self._settings.node_id,
            cluster_id=cluster_id,
            static_configs=self._static,
            has_authorizer=self._settings.authorizer.is_enabled,
            rng=rng,
        )
        handlers = create_handlers(controller_handlers(), parts)
        self.router.serve(handlers, partial(audited, audit=audit, timers=timers))

    def _voters(self) -> list[VoterAddress]:
        return [
            VoterAddress(voter.key.id, endpoint.host, endpoint.port)
            for voter in self._driver.quorum.voters
            for endpoint in voter.endpoints[:1]
        ]

    def _layers(self, image: MetadataImage) -> BrokerLayers:
        return broker_layers(image, self._settings.node_id, self._static)
