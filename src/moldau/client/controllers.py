"""The controllers of a cluster as a client sees them, on their own listener (KIP-919).

`Controllers` is a `Cluster` whose nodes are controllers and that has no topics. Requests go to the active controller.
If another controller has become active, the request fails with NOT_CONTROLLER, and its retry finds the active one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from moldau.base.errors import ErrorCode, KafkaError
from moldau.client.cluster import Cluster
from moldau.client.requests.ask import raise_refusal
from moldau.client.requests.metadata import CONTROLLERS, described_cluster
from moldau.wire.apis import ApiKey
from moldau.wire.schema import Message

M = TypeVar("M", bound=Message)


class Controllers(Cluster):
    _active: int | None = None
    """The node id of the active controller; None before it is requested."""

    def nodes(self) -> Mapping[int, tuple[str, int]]:
        response = described_cluster(super().ask_any, CONTROLLERS)
        raise_refusal(response)
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
