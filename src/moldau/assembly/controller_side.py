"""What a node with the controller role has: the controller, its periodic duties, and its request handlers."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from moldau.assembly.world import World
from moldau.base.clock import Timers
from moldau.base.cluster_settings import VoterAddress
from moldau.base.config_def import BrokerLayers
from moldau.base.counters import Counters
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise, resolved
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
from moldau.security.principals import ANONYMOUS, Client
from moldau.security.quotas.mutations import MutationLimits
from moldau.server.audit import AuditLog, audited
from moldau.server.handlers.api_versions import ApiVersions
from moldau.server.handlers.authorized_requests import authorize_functions
from moldau.server.handlers.authorized_requests.listener_configs import refusing_listener_configs
from moldau.server.handlers.authorized_requests.log_levels import with_log_levels
from moldau.server.handlers.controller.broker_apis import broker_api_handlers
from moldau.server.handlers.controller.describe_cluster import DescribeControllers
from moldau.server.handlers.controller.envelope import Envelope
from moldau.server.handlers.describe_acls import DescribeAcls
from moldau.server.handlers.describe_configs import DescribeConfigs
from moldau.server.handlers.forwarded import forwarded_handlers
from moldau.server.handlers.quorum import quorum_handlers
from moldau.server.handlers.sasl import SaslAuthenticate, SaslHandshake
from moldau.server.router import Router
from moldau.settings import Settings
from moldau.wire.apis import ApiKey
from moldau.wire.schema import Message

QUORUM_APIS = frozenset({ApiKey.DESCRIBE_QUORUM, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER})
"""Forwarded to the controller like the others, but handled by the quorum."""


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
        self.router = Router(None, world.run_codec or world.run_in_thread, counters)
        self._serve(current, cluster_id, world.rng, world.timers, audit)

    def connection_gone(self, address: str) -> None:
        """Called when a connection to a controller listener has ended. Connections to other listeners may have the same
        address."""
        self.duties.connection_gone(address)

    def ask(self, api: ApiKey, request: Message, version: int, client: Client | None = None) -> Promise[Any]:
        """Handle a request to the controller; the response may be a KafkaError NOT_CONTROLLER. `client` is the one for
        which a broker forwards it, if there is one."""
        if api in QUORUM_APIS:
            return self._ask_quorum(request, version)
        if api in self.tokens:
            return self.tokens.ask(api, request, ANONYMOUS if client is None else client.principal)
        if api in self.broker_requests:
            return self.broker_requests.ask(api, request)
        return self.admin.ask(api, request, version, client)

    def _ask_quorum(self, request: Message, version: int) -> Promise[Any]:
        if not self._driver.is_leader:
            return resolved(KafkaError(ErrorCode.NOT_CONTROLLER))
        return resolved(self._driver.answer(request, version))

    def _serve(self, current: CurrentImage, cluster_id: str, rng: Random, timers: Timers, audit: AuditLog) -> None:
        quorum = quorum_handlers(self._driver, timers)
        has_authorizer = self._settings.authorizer.is_enabled
        node_id, log_levels = self._settings.node_id, LogLevels()
        authorize = with_log_levels(authorize_functions(current, rng, has_authorizer), node_id, log_levels)
        for api in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS):
            authorize[api] = refusing_listener_configs(authorize[api], current)
        forwarded = audited(forwarded_handlers(self.ask, authorize, timers), audit, timers)
        self.router.serve(
            [
                *audited(quorum, audit, timers),
                *(handler for handler in forwarded if handler.api not in QUORUM_APIS),
                *broker_api_handlers(self.ask, self.duties),
                Envelope(self.ask),
                ApiVersions(current, self.router.served, self._driver.kraft_version),
                DescribeAcls(current, has_authorizer, timers),
                DescribeConfigs(current, node_id, self._static, timers, log_levels),
                SaslHandshake(),
                SaslAuthenticate(),
                DescribeControllers(self._voters, lambda: self._driver.leader_id, cluster_id),
            ]
        )

    def _voters(self) -> list[VoterAddress]:
        return [
            VoterAddress(voter.key.id, endpoint.host, endpoint.port)
            for voter in self._driver.quorum.voters
            for endpoint in voter.endpoints[:1]
        ]

    def _layers(self, image: MetadataImage) -> BrokerLayers:
        return broker_layers(image, self._settings.node_id, self._static)
