"""The nodes and topics that the other end of a channel knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.wire.apis import ApiKey

if TYPE_CHECKING:
    from moldau.client.channel import Channel
    from moldau.wire.messages.metadata import MetadataResponse


def all_metadata(channel: Channel) -> MetadataResponse:
    from moldau.wire.messages.metadata import MetadataRequest, MetadataResponse

    return channel.ask(ApiKey.METADATA, MetadataRequest(topics=None), MetadataResponse)


def node_addresses(channel: Channel) -> dict[str, tuple[str, int]]:
    """Return the addresses of the brokers, by id; on a controllers' listener, those of the controllers."""
    if channel.offers(ApiKey.METADATA):
        return {str(broker.node_id): (broker.host, broker.port) for broker in all_metadata(channel).brokers}
    from moldau.client.controllers import CONTROLLER_ENDPOINTS
    from moldau.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

    request = DescribeClusterRequest(endpoint_type=CONTROLLER_ENDPOINTS)
    response = channel.ask(ApiKey.DESCRIBE_CLUSTER, request, DescribeClusterResponse)
    return {str(node.broker_id): (node.host, node.port) for node in response.brokers}
