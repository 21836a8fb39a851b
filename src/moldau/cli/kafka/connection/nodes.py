"""The nodes and topics that the other end of a channel knows, and a connection to the active controller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from moldau.cli.kafka.connection import clients
from moldau.cli.kafka.tool import ToolFailed
from moldau.wire.apis import ApiKey

if TYPE_CHECKING:
    from moldau.client.channel import Channel
    from moldau.wire.messages.describe_cluster import DescribeClusterResponse
    from moldau.wire.messages.metadata import MetadataResponse


def all_metadata(channel: Channel) -> MetadataResponse:
    from moldau.client.requests.metadata import metadata

    return metadata(channel.ask)


def node_addresses(channel: Channel) -> dict[str, tuple[str, int]]:
    """Return the addresses of the brokers, by id; on a controllers' listener, those of the controllers."""
    if channel.offers(ApiKey.METADATA):
        return {str(broker.node_id): (broker.host, broker.port) for broker in all_metadata(channel).brokers}
    return {str(node.broker_id): (node.host, node.port) for node in _controllers(channel).brokers}


def channel_to_active_controller(bootstrap_controllers: str, java_config: Mapping[str, str]) -> Channel:
    """Return a connection to the active controller, which any controller names. The others refuse changes."""
    with clients.channel(bootstrap_controllers, java_config) as channel:
        response = _controllers(channel)
    active = next((node for node in response.brokers if node.broker_id == response.controller_id), None)
    if active is None:
        raise ToolFailed("No controller is active now; try again in a moment")
    return clients.channel_to(active.host, active.port, java_config)


def _controllers(channel: Channel) -> DescribeClusterResponse:
    from moldau.client.requests.metadata import CONTROLLERS, described_cluster

    response = described_cluster(channel.ask, CONTROLLERS)
    clients.raise_for_error(response.error_code, response.error_message)
    return response
