"""Makes the coordinators of a broker: of groups and of transactions."""

from __future__ import annotations

from moldau.assembly.world import World
from moldau.metadata.current import CurrentImage
from moldau.replica.partitions import Partitions
from moldau.runtime.broker.broker_client import BrokerClient
from moldau.runtime.broker.producer_ids import ProducerIds
from moldau.runtime.controller.channel import ControllerChannel
from moldau.runtime.coordinators.group import GroupCoordinator, offsets_topic
from moldau.runtime.coordinators.topic import CoordinatorTopic
from moldau.runtime.coordinators.transaction import TransactionCoordinator, transaction_topic
from moldau.settings import Settings


def group_coordinator(
    settings: Settings, world: World, current: CurrentImage, channel: ControllerChannel, partitions: Partitions
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
