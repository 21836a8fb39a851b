"""What the controller decides administrative requests with: this node's defaults, and the quotas of clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from moldau.base.clock import Clock
from moldau.base.config_def import BrokerLayers
from moldau.base.counters import MUTATIONS_THROTTLED, Counters
from moldau.base.promise import Promise
from moldau.base.steps import Steps
from moldau.base.topic_configs import check_topic_configs, effective_topic_configs, memoized_by_overrides
from moldau.metadata.broker_configs import broker_layers
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.topics import (
    Charge,
    TopicRules,
    unlimited,
)
from moldau.metadata.image import MetadataImage
from moldau.runtime.controller.active import Controller
from moldau.security.principals import Client
from moldau.security.quotas.mutations import MutationLimits
from moldau.wire.messages.create_topics import CreatableTopicConfigs

Decide = Callable[[MetadataImage], Decision[Any] | Steps[Decision[Any]]]
DecideMutation = Callable[[MetadataImage, Charge], Steps[Decision[Any]]]


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
        self.rng = rng
        self._limits = mutation_limits
        self._counters = counters

    def submit(self, decide: Decide) -> Promise[Any]:
        """Return a promise of the response, or of KafkaError NOT_CONTROLLER if this node is not the leader."""
        return self._controller.submit(decide)

    def submit_mutation(self, decide: DecideMutation, client: Client | None, *, knows_error: bool) -> Promise[Any]:
        """The same for a change that counts for the quota of its client; None for requests of the brokers themselves.
        `knows_error`: whether the client knows the error THROTTLING_QUOTA_EXCEEDED."""
        return self._controller.submit(lambda image: self._mutate(decide, image, client, knows_error))

    def _mutate(
        self, decide: DecideMutation, image: MetadataImage, client: Client | None, knows_error: bool
    ) -> Steps[Decision[Any]]:
        quota = self._limits.quota(image.client_quotas, client, knows_error, self._clock.monotonic_ms())
        if quota is None:
            return (yield from decide(image, unlimited))
        decision = yield from decide(image, quota.charge)
        if quota.pause_ms:
            self._counters.add(MUTATIONS_THROTTLED)
            decision.response.throttle_time_ms = quota.pause_ms
        return decision

    def layers(self, image: MetadataImage) -> BrokerLayers:
        return broker_layers(image, self._node_id, self._static)

    def topic_rules(self, image: MetadataImage) -> TopicRules:
        layers = self.layers(image)

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
