"""How a node sends requests to other nodes and gets responses later. The transport is not known here.

Each purpose has its own connection to a node, because responses come in the order of requests: a fetch that waits for
data must not delay a vote.
"""

from __future__ import annotations

from typing import Any, Protocol

from moldau.base.promise import Promise
from moldau.wire.apis import ApiKey
from moldau.wire.schema import Message


class Peer(Protocol):
    """One connection to one node, opened when first needed and again after it broke."""

    def ask(self, api: ApiKey, request: Message, timeout_ms: int, version: int | None = None) -> Promise[Any]:
        """Return a promise of the response, or of a KafkaError: NETWORK_EXCEPTION, REQUEST_TIMED_OUT,
        UNSUPPORTED_VERSION. It is never complete before this call returns. Without a version, the highest that both
        sides support is used.

        After a failure the connection is closed, and all requests in flight on it fail.
        """
        ...

    def close(self) -> None: ...


class Peers(Protocol):
    def to(self, host: str, port: int, purpose: str) -> Peer:
        """Return the connection to that node for that purpose: the same object each time."""
        ...
