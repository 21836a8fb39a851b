"""The values that apply if a topic's own configs are removed: DescribeConfigs over our own channel.

They are the next of the synonyms in the response. confluent-kafka keeps only one synonym of each name, so there a value
of server.properties is hidden by Kafka's default. They are optional, as the sizes of topics are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moldau.base.errors import KafkaError, MalformedData, UnusableProperty
from moldau.cli.cluster_metadata import ClusterMetadata
from moldau.cli.connect import Broker
from moldau.client.broker_admin import TOPIC
from moldau.client.channel import Channel
from moldau.client.properties import security
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

TIMEOUT_SECONDS: Final = 2.0


def config_defaults(
    broker: Broker, metadata: ClusterMetadata, topics: Sequence[str]
) -> dict[str, dict[str, str | None]]:
    """Return the default of each config of each topic, from the first broker that answers. Topics whose configs the
    user may not read are left out; so are all if no broker answers."""
    request = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, name, None) for name in topics], True)
    try:
        how = security(broker.client_config)
    except UnusableProperty:  # librdkafka has mechanisms that our own channel lacks
        return {}
    for node in metadata.brokers.values():
        try:
            with Channel(node.host, node.port, how, TIMEOUT_SECONDS) as channel:
                return defaults_of(channel.ask(ApiKey.DESCRIBE_CONFIGS, request, DescribeConfigsResponse))
        except (OSError, KafkaError, MalformedData):
            continue
    return {}


def defaults_of(response: DescribeConfigsResponse) -> dict[str, dict[str, str | None]]:
    return {
        topic.resource_name: {
            entry.name: next((each.value for each in entry.synonyms if each.source != entry.config_source), None)
            for entry in topic.configs
        }
        for topic in response.results
        if not topic.error_code
    }
