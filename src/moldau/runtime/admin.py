"""What clients may ask the controller to do: each request decided by a pure function, under this node's defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from moldau.base.later import Later
from moldau.base.topic_configs import check_topic_configs, effective_topic_configs
from moldau.metadata.controller.configs import broker_layers, decide_alter_configs, decide_incremental_alter_configs
from moldau.metadata.controller.producer_ids import decide_allocate
from moldau.metadata.controller.topics import (
    TopicDefaults,
    decide_create_partitions,
    decide_create_topics,
    decide_delete_topics,
)
from moldau.metadata.image import MetadataImage
from moldau.runtime.controller_loop import Controller
from moldau.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from moldau.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from moldau.wire.messages.create_topics import CreatableTopicConfigs, CreateTopicsRequest, CreateTopicsResponse
from moldau.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from moldau.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


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
    ) -> None:
        self._controller = controller
        self._node_id = node_id
        self._static = static
        self._num_partitions = num_partitions
        self._replication_factor = replication_factor
        self._delete_enabled = delete_enabled
        self._rng = rng

    def create_topics(self, ask: CreateTopicsRequest) -> Later[CreateTopicsResponse]:
        return self._controller.submit(lambda image: decide_create_topics(image, ask, self._defaults(image), self._rng))

    def delete_topics(self, ask: DeleteTopicsRequest) -> Later[DeleteTopicsResponse]:
        return self._controller.submit(lambda image: decide_delete_topics(image, ask, self._defaults(image)))

    def create_partitions(self, ask: CreatePartitionsRequest) -> Later[CreatePartitionsResponse]:
        return self._controller.submit(lambda image: decide_create_partitions(image, ask, self._rng))

    def alter_configs(self, ask: AlterConfigsRequest) -> Later[AlterConfigsResponse]:
        return self._controller.submit(
            lambda image: decide_alter_configs(image, ask, broker_layers(image, self._node_id, self._static))
        )

    def incremental_alter_configs(self, ask: IncrementalAlterConfigsRequest) -> Later[IncrementalAlterConfigsResponse]:
        return self._controller.submit(
            lambda image: decide_incremental_alter_configs(
                image, ask, broker_layers(image, self._node_id, self._static)
            )
        )

    def allocate_producer_ids(self) -> Later[range]:
        return self._controller.submit(
            lambda image: decide_allocate(image, self._node_id, image.brokers[self._node_id].epoch)
        )

    def _defaults(self, image: MetadataImage) -> TopicDefaults:
        layers = broker_layers(image, self._node_id, self._static)

        def described(overrides: Mapping[str, str]) -> Sequence[CreatableTopicConfigs]:
            return [
                CreatableTopicConfigs(
                    entry.name, entry.value, entry.definition.read_only, entry.source, entry.definition.sensitive
                )
                for entry in effective_topic_configs(overrides, layers)
            ]

        return TopicDefaults(
            num_partitions=self._num_partitions,
            replication_factor=self._replication_factor,
            delete_enabled=self._delete_enabled,
            check_configs=lambda overrides: check_topic_configs(overrides, layers),
            describe_configs=described,
        )
