"""How many in-sync replicas acks=all needs: `min.insync.replicas` of the topic, otherwise that of the brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from moldau.base.broker_configs import broker_value
from moldau.base.config_def import BrokerLayers
from moldau.base.topic_configs import TOPIC_CONFIGS
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigResource

KEY: Final = "min.insync.replicas"


def min_insync_replicas(image: MetadataImage, broker_configs: BrokerLayers) -> Callable[[str], int]:
    """Return a function of the topic's name. The brokers' value is read once, since a change may concern thousands."""
    default = broker_value(KEY, broker_configs)
    assert isinstance(default, int), "its type"

    def of_topic(topic: str) -> int:
        text = image.configs_of(ConfigResource.TOPIC, topic).get(KEY)
        value = default if text is None else TOPIC_CONFIGS[KEY].parse(text)
        assert isinstance(value, int), "its type"
        return value

    return of_topic
