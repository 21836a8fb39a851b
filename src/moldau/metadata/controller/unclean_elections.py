"""Whether a replica that is behind may lead a topic when no other is left: acknowledged records are lost by it.

`unclean.leader.election.enable` of the topic says so, or that of the brokers. A leader that somebody asked for with
ElectLeaders is another matter: whoever asks has decided.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from moldau.base.broker_configs import broker_value
from moldau.base.config_def import BrokerLayers
from moldau.base.topic_configs import TOPIC_CONFIGS
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigResource

KEY: Final = "unclean.leader.election.enable"


def unclean_allowed(image: MetadataImage, broker: BrokerLayers) -> Callable[[str], bool]:
    """The answer for each topic; that of the brokers is looked up once, for a broker's end may concern thousands."""
    by_default = bool(broker_value(KEY, broker))

    def allowed(topic: str) -> bool:
        text = image.configs_of(ConfigResource.TOPIC, topic).get(KEY)
        return by_default if text is None else bool(TOPIC_CONFIGS[KEY].parse(text))

    return allowed
