"""The controllers of a cluster as a client sees them, at their own listener (KIP-919): the active one answers.

A `Cluster` whose nodes are controllers. It knows of no topics; a controller that is active no more is found anew when
its refusal is retried.
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
        answer = super().ask_any(ApiKey.DESCRIBE_CLUSTER, request, DescribeClusterResponse)
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), answer.error_message)
        self._addresses = {node.broker_id: (node.host, node.port) for node in answer.brokers}
        self._active = answer.controller_id
        return self._addresses

    def ask_any(self, key: ApiKey, request: Message, answer: type[M], versions: tuple[int, int] | None = None) -> M:
        """Asks the active controller."""
        if self._active is None:
            self.nodes()
        if self._active not in self._addresses:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "No controller is active now")
        return self.channel(self._active).ask(key, request, answer, versions)

    def forget(self) -> None:
        super().forget()
        self._active = None
