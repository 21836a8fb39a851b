"""The configs of a broker in the image: those of the broker itself, and the defaults of all brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moldau.base.config_def import BrokerLayers
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigResource

CLUSTER_DEFAULT: Final = ""
"""The resource name of the configs of all brokers."""


def broker_layers(image: MetadataImage, node_id: int, static: Mapping[str, str]) -> BrokerLayers:
    """Return the configs of one broker: its own dynamic ones, those of all brokers, and those of its file."""
    return BrokerLayers(
        dynamic=image.configs_of(ConfigResource.BROKER, str(node_id)),
        dynamic_default=image.configs_of(ConfigResource.BROKER, CLUSTER_DEFAULT),
        static=static,
    )
