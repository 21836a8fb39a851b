"""From a frame to its reply: header, version, decode, the handler's answer, encode. Nothing here knows an API.

Which APIs a node serves is a list of handlers; a key or version outside it ends the connection, as Kafka does, except
that ApiVersions answers any version (KIP-511).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from moldau.base.errors import MalformedData, StorageFault
from moldau.base.later import Later
from moldau.base.limits import PLAIN_REQUEST_BYTES_MAX
from moldau.server.conversation import Reply
from moldau.wire.apis import APIS, ApiKey, request_class
from moldau.wire.codec import Outgoing, decode_from
from moldau.wire.frames import RequestHeader, read_request_header, response_frame
from moldau.wire.schema import Message

log = logging.getLogger("moldau.server")


class Caller(NamedTuple):
    """Who asks, and in which version."""

    listener: str
    address: str
    client_id: str | None
    version: int


class Handler(Protocol):
    """One API. `answer` is plain code, run to the end: order on the wire is order in the log."""

    @property
    def api(self) -> ApiKey: ...

    @property
    def versions(self) -> tuple[int, int]: ...

    def answer(self, ask: Any, caller: Caller) -> Message | Later[Any] | None: ...


class Router:
    def __init__(self) -> None:
        self._handlers: dict[int, Handler] = {}

    def serve(self, handlers: Iterable[Handler]) -> None:
        for handler in handlers:
            known = APIS[handler.api]
            assert known.lowest <= handler.versions[0], handler.api
            assert handler.versions[1] <= known.highest, handler.api
            self._handlers[handler.api] = handler

    def served(self) -> dict[int, tuple[int, int]]:
        """The keys and versions that ApiVersions tells."""
        return {key: handler.versions for key, handler in sorted(self._handlers.items())}

    def answer(self, frame: memoryview, listener: str, address: str) -> Reply:
        """Raises MalformedData for what ends the connection."""
        header, position = read_request_header(frame)
        key, version, _, client_id = header
        handler = self._handlers.get(key)
        if handler is None:
            raise MalformedData(f"API key {key} is not served")
        if len(frame) > PLAIN_REQUEST_BYTES_MAX and key != ApiKey.PRODUCE:
            raise MalformedData(f"{APIS[key].name} of {len(frame)} bytes; the limit is {PLAIN_REQUEST_BYTES_MAX}")
        low, high = handler.versions
        if not low <= version <= high:
            if key != ApiKey.API_VERSIONS:
                raise MalformedData(f"{APIS[key].name} version {version} is not served, {low} to {high} are")
            header = header._replace(api_version=0)
            ask: Message = request_class(key)()
        else:
            # Bytes behind the request are let be, as Kafka does: librdkafka sends some after Metadata v13.
            ask, _ = decode_from(request_class(key), frame, version, position)
        try:
            response = handler.answer(ask, Caller(listener, address, client_id, version))
            return self._reply(header, response)
        except (MalformedData, StorageFault) as fault:
            raise MalformedData(f"{APIS[key].name}: {fault}") from fault
        except Exception as fault:
            log.exception("%s v%d from %s failed", APIS[key].name, version, address)
            raise MalformedData(f"{APIS[key].name} failed here: {fault!r}") from fault

    def _reply(self, header: RequestHeader, response: Message | Later[Message] | None) -> Reply:
        if response is None:
            return None
        key, version, correlation_id, _ = header
        if isinstance(response, Later):
            return response.map(lambda ready: _late_frame(key, version, correlation_id, ready))
        return response_frame(key, version, correlation_id, response)


def _late_frame(key: int, version: int, correlation_id: int, response: Message) -> Outgoing:
    """The frame, or an empty one, which ends the connection. Whoever completes a late answer is in the middle of other
    clients' business: what is wrong with this reply must not stop theirs."""
    try:
        return response_frame(key, version, correlation_id, response)
    except Exception:
        log.exception("the reply to %s v%d cannot be written", APIS[key].name, version)
        return Outgoing()
