"""How many in-sync replicas acks=all needs: `min.insync.replicas` of the topic, otherwise that of the brokers."""

from __future__ import annotations

from collections.abc import Callable

from moldau.base.broker_configs import broker_integer
from moldau.base.config_def import BrokerLayers
from moldau.base.settings import log, topics
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigResource


def min_insync_replicas(image: MetadataImage, broker_configs: BrokerLayers) -> Callable[[str], int]:
    """Return a function of the topic's name. The brokers' value is read once, since a change may concern thousands."""
    default = broker_integer(log.MIN_INSYNC_REPLICAS, broker_configs)

    row = topics.MIN_INSYNC_REPLICAS

    def of_topic(topic: str) -> int:
        text = image.configs_of(ConfigResource.TOPIC, topic).get(row.name)
        value = default if text is None else row.parse(text)
        assert isinstance(value, int), "its type"
        return value

    return of_topic
