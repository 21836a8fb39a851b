"""The controllers of a cluster as a client sees them, on their own listener (KIP-919): the active one answers.

A `Cluster` whose nodes are controllers. It has no topics; when the active controller changes, the retry of the refused
request finds the new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from moldau.base.errors import ErrorCode, KafkaError
from moldau.client.cluster import Cluster
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from moldau.wire.schema import Message

M = TypeVar("M", bound=Message)

CONTROLLERS: Final = 2
"""DescribeCluster's endpoint type."""


class Controllers(Cluster):
    _active: int | None = None

    def nodes(self) -> Mapping[int, tuple[str, int]]:
        request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
        response = super().ask_any(ApiKey.DESCRIBE_CLUSTER, request, DescribeClusterResponse)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), response.error_message)
        self._addresses = {node.broker_id: (node.host, node.port) for node in response.brokers}
        self._active = response.controller_id
        return self._addresses

    def ask_any(
        self, key: ApiKey, request: Message, response_type: type[M], versions: tuple[int, int] | None = None
    ) -> M:
        """Send a request to the active controller."""
        if self._active is None:
            self.nodes()
        if self._active not in self._addresses:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "No controller is active now")
        return self.channel(self._active).ask(key, request, response_type, versions)

    def forget(self) -> None:
        super().forget()
        self._active = None
