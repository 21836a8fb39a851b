"""Whether a replica outside of the ISR may lead when no other is active, although acknowledged records are lost then.

`unclean.leader.election.enable` of the topic decides, otherwise that of the brokers. It does not apply to ElectLeaders:
there the client chooses.
"""

from __future__ import annotations

from collections.abc import Callable

from moldau.base.broker_configs import broker_value
from moldau.base.config_def import BrokerLayers
from moldau.base.settings import cluster, topics
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigResource


def unclean_allowed(image: MetadataImage, broker_configs: BrokerLayers) -> Callable[[str], bool]:
    """Return a function of the topic's name. The brokers' value is read once, since a change may concern thousands."""
    default = bool(broker_value(cluster.UNCLEAN_LEADER_ELECTION_ENABLE, broker_configs))
    row = topics.UNCLEAN_LEADER_ELECTION_ENABLE

    def allowed(topic: str) -> bool:
        text = image.configs_of(ConfigResource.TOPIC, topic).get(row.name)
        return default if text is None else bool(row.parse(text))

    return allowed
