"""Sends requests to brokers by their id, also to this node itself."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.promise import Promise, resolved
from moldau.client.peers import Peers
from moldau.metadata.current import CurrentImage
from moldau.runtime.internal_errors import INTERNAL_ERRORS
from moldau.wire.apis import ApiKey
from moldau.wire.schema import Message

log = logging.getLogger("moldau.peers")
TIMEOUT_MS: Final = 30_000
HandleLocally = Callable[[ApiKey, Message], Message | Promise[Any]]


class BrokerClient:
    """`handle_locally` handles requests of this node to itself, without a connection."""

    def __init__(
        self,
        node_id: int,
        current: CurrentImage,
        peers: Peers,
        listener: str,
        purpose: str,
        handle_locally: HandleLocally,
    ) -> None:
        self._node_id = node_id
        self._current = current
        self._peers = peers
        self._listener = listener
        self._purpose = purpose
        self._handle_locally = handle_locally

    def ask(self, node_id: int, api: ApiKey, request: Message) -> Promise[Any]:
        """Return a promise of the response or of a KafkaError: BROKER_NOT_AVAILABLE if the broker is unknown, fenced
        or has no such listener, else as in `Peer`. For this node itself there is no timeout, and the promise may be
        complete already."""
        if node_id == self._node_id:
            return self._ask_locally(api, request)
        broker = self._current.image.brokers.get(node_id)
        endpoint = None if broker is None or broker.fenced else broker.endpoint(self._listener)
        if endpoint is None:
            return resolved(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE))
        return self._peers.to(endpoint.host, endpoint.port, self._purpose).ask(api, request, TIMEOUT_MS)

    def _ask_locally(self, api: ApiKey, request: Message) -> Promise[Any]:
        try:
            response = self._handle_locally(api, request)
        except Exception as fault:
            # Another node would close the connection: the caller gets the same error, which is retriable.
            INTERNAL_ERRORS.log(
                log, "node %d: %s request to itself (%s) failed", self._node_id, api.name, self._purpose
            )
            return resolved(KafkaError(ErrorCode.NETWORK_EXCEPTION, repr(fault)))
        return resolved(response).map(_as_error)


def _as_error(response: Any) -> Any:
    """A handler closes the connection with MalformedData; this node has none to itself."""
    if isinstance(response, MalformedData):
        return KafkaError(ErrorCode.NETWORK_EXCEPTION, str(response))
    return response
