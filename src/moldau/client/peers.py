"""How a node talks to other nodes: ask, and be answered later. Who carries it is not known here.

Each purpose has a connection of its own to a node, since answers come in the order of their questions: a fetch that
waits for data must not hold up a vote.
"""

from __future__ import annotations

from typing import Any, Protocol

from moldau.base.promise import Promise
from moldau.wire.apis import ApiKey
from moldau.wire.schema import Message


class Peer(Protocol):
    """One connection to one node, opened when it is first needed and again after it broke."""

    def ask(self, api: ApiKey, request: Message, timeout_ms: int, version: int | None = None) -> Promise[Any]:
        """The response, or a KafkaError: NETWORK_EXCEPTION, REQUEST_TIMED_OUT, UNSUPPORTED_VERSION. It never comes
        before this call has returned. Without a version the highest that both sides know is spoken.

        After a failure the connection is dropped, and with it all that is still unanswered on it.
        """
        ...

    def close(self) -> None: ...


class Peers(Protocol):
    def to(self, host: str, port: int, purpose: str) -> Peer:
        """The connection to that node for that purpose: the same object each time."""
        ...
