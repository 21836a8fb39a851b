"""The administrative requests to the controller: a pure function decides each, with this node's defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from moldau.base.clock import Clock
from moldau.base.config_def import BrokerLayers
from moldau.base.counters import MUTATIONS_THROTTLED, Counters
from moldau.base.promise import Promise
from moldau.base.steps import Steps
from moldau.base.topic_configs import check_topic_configs, effective_topic_configs, memoized_by_overrides
from moldau.metadata.broker_configs import broker_layers
from moldau.metadata.controller.acls import decide_create_acls, decide_delete_acls
from moldau.metadata.controller.client_quotas import decide_alter_client_quotas
from moldau.metadata.controller.configs import decide_alter_configs, decide_incremental_alter_configs
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.elections import decide_elect_leaders
from moldau.metadata.controller.features import decide_update_features
from moldau.metadata.controller.reassignments import decide_alter_reassignments, decide_list_reassignments
from moldau.metadata.controller.scram_credentials import decide_alter_user_scram_credentials, new_scram_secret
from moldau.metadata.controller.topics import (
    Charge,
    TopicRules,
    decide_create_partitions,
    decide_create_topics,
    decide_delete_topics,
    new_uuid,
    unlimited,
)
from moldau.metadata.image import MetadataImage
from moldau.runtime.controller.active import Controller
from moldau.security.principals import Client
from moldau.security.quotas.mutations import MutationLimits
from moldau.wire.apis import ApiKey
from moldau.wire.messages.create_topics import CreatableTopicConfigs
from moldau.wire.schema import Message

Decide = Callable[[MetadataImage, Any], Decision[Any] | Steps[Decision[Any]]]
DecideMutation = Callable[[MetadataImage, Any, Charge], Steps[Decision[Any]]]


class Admin:
    def __init__(
        self,
        controller: Controller,
        node_id: int,
        static: Mapping[str, str],
        num_partitions: int,
        replication_factor: int,
        delete_enabled: bool,
        rng: Random,
        clock: Clock,
        mutation_limits: MutationLimits,
        counters: Counters,
        case_insensitive_names: bool = False,
    ) -> None:
        self._controller = controller
        self._node_id = node_id
        self._static = static
        self._num_partitions = num_partitions
        self._replication_factor = replication_factor
        self._delete_enabled = delete_enabled
        self._case_insensitive_names = case_insensitive_names
        self._clock = clock
        self._limits = mutation_limits
        self._counters = counters
        self._mutations: dict[ApiKey, DecideMutation] = {
            ApiKey.CREATE_TOPICS: lambda image, request, charge: decide_create_topics(
                image, request, self._topic_rules(image), rng, charge
            ),
            ApiKey.DELETE_TOPICS: lambda image, request, charge: decide_delete_topics(
                image, request, self._topic_rules(image), charge
            ),
            ApiKey.CREATE_PARTITIONS: lambda image, request, charge: decide_create_partitions(
                image, request, rng, charge
            ),
        }
        self._decisions: dict[ApiKey, Decide] = {
            ApiKey.ALTER_CONFIGS: lambda image, request: decide_alter_configs(image, request, self._layers(image)),
            ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda image, request: decide_incremental_alter_configs(
                image, request, self._layers(image)
            ),
            ApiKey.ELECT_LEADERS: decide_elect_leaders,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda image, request: decide_alter_reassignments(
                image, request, self._layers(image)
            ),
            ApiKey.LIST_PARTITION_REASSIGNMENTS: decide_list_reassignments,
            ApiKey.UPDATE_FEATURES: decide_update_features,
            ApiKey.ALTER_CLIENT_QUOTAS: decide_alter_client_quotas,
            ApiKey.CREATE_ACLS: lambda image, request: decide_create_acls(image, request, lambda: new_uuid(rng)),
            ApiKey.DELETE_ACLS: decide_delete_acls,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda image, request: decide_alter_user_scram_credentials(
                image, request, partial(new_scram_secret, rng)
            ),
        }

    def __contains__(self, api: ApiKey) -> bool:
        return api in self._decisions or api in self._mutations

    def ask(self, api: ApiKey, request: Message, version: int = 0, client: Client | None = None) -> Promise[Any]:
        """Return a promise of the response, or of KafkaError NOT_CONTROLLER if this node is not the leader. `client` is
        the one whose quotas count; None for requests of the brokers themselves."""
        mutate = self._mutations.get(api)
        if mutate is not None:
            return self._controller.submit(lambda image: self._mutate(mutate, image, api, request, version, client))
        decide = self._decisions[api]
        return self._controller.submit(lambda image: decide(image, request))

    def _mutate(
        self,
        decide: DecideMutation,
        image: MetadataImage,
        api: ApiKey,
        request: Message,
        version: int,
        client: Client | None,
    ) -> Steps[Decision[Any]]:
        quota = self._limits.quota(image.client_quotas, api, version, client, self._clock.monotonic_ms())
        if quota is None:
            return (yield from decide(image, request, unlimited))
        decision = yield from decide(image, request, quota.charge)
        if quota.pause_ms:
            self._counters.add(MUTATIONS_THROTTLED)
            decision.response.throttle_time_ms = quota.pause_ms
        return decision

    def _layers(self, image: MetadataImage) -> BrokerLayers:
        return broker_layers(image, self._node_id, self._static)

    def _topic_rules(self, image: MetadataImage) -> TopicRules:
        layers = self._layers(image)

        def describe(overrides: Mapping[str, str]) -> Sequence[CreatableTopicConfigs]:
            return [
                CreatableTopicConfigs(
                    entry.name, entry.value, entry.definition.read_only, entry.source, entry.definition.sensitive
                )
                for entry in effective_topic_configs(overrides, layers)
            ]

        return TopicRules(
            num_partitions=self._num_partitions,
            replication_factor=self._replication_factor,
            delete_enabled=self._delete_enabled,
            check_configs=memoized_by_overrides(lambda overrides: check_topic_configs(overrides, layers)),
            describe_configs=memoized_by_overrides(describe),
            case_insensitive_names=self._case_insensitive_names,
        )
