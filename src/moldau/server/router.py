"""Turns a frame into its reply: header, version, decoding, the handler's answer, encoding. It knows no single API.

The APIs that a node serves are a list of handlers. A key or version outside it closes the connection, as in Kafka,
except that ApiVersions is answered in any version (KIP-511).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from moldau.base.errors import MalformedData, StorageFault
from moldau.base.limits import DEFAULT_REQUEST_BYTES_MAX
from moldau.base.loop_watch import LOOP_WATCH
from moldau.base.ports import RunInThread
from moldau.base.promise import Promise
from moldau.security.acls.access import UNRESTRICTED, Access
from moldau.security.principals import Client
from moldau.security.quotas.mutations import STRICT_FROM_VERSION
from moldau.server.conversation import Reply
from moldau.server.throttling import Throttling
from moldau.wire.apis import APIS, ApiKey, request_class
from moldau.wire.codec import UNREADABLE, Decoder, Outgoing, decoder, malformed
from moldau.wire.frames import Framing, read_request_header
from moldau.wire.messages.fetch import FetchResponse
from moldau.wire.schema import Message

log = logging.getLogger("moldau.server")
TIMED_EVERY = 16
"""Of so many requests of an API and version, the time of one is measured: two readings of the clock would cost each
request as much as all its counting."""
NOT_TIMED = 0.0


class LongReply(Promise[Any]):
    """A promise of a long response. It is encoded in a thread: that may take longer than the loop may stop."""

    __slots__ = ()


class Caller(NamedTuple):
    """The client that sent a request, the version of the request, and what the client may do."""

    listener: str
    address: str
    client_id: str | None
    version: int
    access: Access = UNRESTRICTED

    @property
    def client(self) -> Client:
        """The client as quotas count it."""
        return Client(self.access.principal, self.client_id or "")


class Handler(Protocol):
    """One API. `answer` is plain code without `await`, so that the order on the wire is the order in the log."""

    @property
    def api(self) -> ApiKey: ...

    @property
    def versions(self) -> tuple[int, int]: ...

    def answer(self, request: Any, caller: Caller) -> Message | Promise[Any] | None: ...


_new_caller = partial(tuple.__new__, Caller)
"""Makes a Caller without its own constructor, whose cost every request would pay."""


class RequestCounts:
    """Requests of one API in one version, and the seconds that some of them took; metrics read it."""

    __slots__ = ("failures", "key", "local_s", "requests", "timed", "total_s", "version")

    def __init__(self, key: int, version: int) -> None:
        self.key = key
        self.version = version
        self.requests = 0
        self.failures = 0
        """Requests that closed their connection. An error code in a response is not a failure."""
        self.timed = 0
        """The requests whose times were measured."""
        self.local_s = 0.0
        """Their time in handlers, on the event loop."""
        self.total_s = 0.0
        """Their time until there was a response."""


class _Route(NamedTuple):
    """The functions and limits for requests of one API in one version, so that they are looked up once."""

    key: int
    name: str
    answer: Callable[[Any, Caller], Message | Promise[Any] | None]
    request: type[Message]
    decode: Decoder
    response: Framing
    bytes_max: int
    counts: RequestCounts


class PausingFraming(Framing):
    """For APIs with a quota that the controller counts: the connection pauses for the time that the response says."""

    __slots__ = ()

    def frame(self, correlation_id: int, response: Any) -> Outgoing:
        framed = super().frame(correlation_id, response)
        framed.pause_ms = response.throttle_time_ms
        return framed


class Router:
    def __init__(self, throttling: Throttling | None = None, run_in_thread: RunInThread | None = None) -> None:
        self._throttling = throttling
        self._run_in_thread = run_in_thread
        self._handlers: dict[int, Handler] = {}
        self._routes: dict[tuple[int, int], _Route] = {}

    def serve(self, handlers: Iterable[Handler]) -> None:
        for handler in handlers:
            schema = APIS[handler.api]
            assert schema.lowest <= handler.versions[0], handler.api
            assert handler.versions[1] <= schema.highest, handler.api
            self._handlers[handler.api] = handler

    def served(self) -> dict[int, tuple[int, int]]:
        """Return the API keys and versions that ApiVersions lists."""
        return {key: handler.versions for key, handler in sorted(self._handlers.items())}

    def counts(self) -> list[RequestCounts]:
        """Return the counts of all APIs and versions that were requested."""
        return [route.counts for route in self._routes.values()]

    def answer(self, listener: str, address: str, access: Access, frame: memoryview) -> Reply:
        """Answer the request in a frame. Raise MalformedData if the connection must be closed."""
        (key, version, correlation_id, client_id), position = read_request_header(frame)
        route = self._routes.get((key, version))
        if route is None:
            route = self._find_route(key, version)
            if route is None:
                caller = Caller(listener, address, client_id, version, access)
                return self._answer_any_version(frame, correlation_id, caller)
        size = len(frame)
        if size > route.bytes_max:
            raise MalformedData(f"{route.name} of {size} bytes; the limit is {route.bytes_max}")
        try:
            # Bytes after the request are ignored, as in Kafka: librdkafka sends some after Metadata v13.
            request, _ = route.decode(frame, position, size)
        except UNREADABLE as error:
            route.counts.failures += 1
            raise malformed(route.request, version, error) from error
        LOOP_WATCH.api = route.name
        caller = _new_caller((listener, address, client_id, version, access))
        if self._throttling is not None and self._throttling.is_active:
            return self._call_throttled(self._throttling, route, request, correlation_id, caller, size)
        return self._call_handler(route, request, correlation_id, caller)

    def ask_here(self, api: ApiKey, request: Message) -> Message | Promise[Any]:
        """Answer a request that this node sends to itself, without the network."""
        handler = self._handlers[api]
        answer = handler.answer(request, Caller("", "", None, handler.versions[1]))
        assert answer is not None, f"{api.name} is answered"
        return answer

    def _find_route(self, key: int, version: int) -> _Route | None:
        """Return the route for this API and version; None for ApiVersions in an unknown version."""
        handler = self._handlers.get(key)
        if handler is None:
            raise MalformedData(f"API key {key} is not served")
        low, high = handler.versions
        if not low <= version <= high:
            if key == ApiKey.API_VERSIONS:
                return None
            raise MalformedData(f"{APIS[key].name} version {version} is not served, {low} to {high} are")
        route = self._routes[key, version] = _Route(
            key=key,
            name=APIS[key].name,
            answer=handler.answer,
            request=request_class(key),
            decode=decoder(request_class(key), version),
            response=PausingFraming(key, version) if key in STRICT_FROM_VERSION else Framing(key, version),
            bytes_max=sys.maxsize if key == ApiKey.PRODUCE else _bytes_max(handler),
            counts=RequestCounts(key, version),
        )
        return route

    def _answer_any_version(self, frame: memoryview, correlation_id: int, caller: Caller) -> Reply:
        """Answer ApiVersions in an unknown version in the format of version 0 (KIP-511)."""
        route = self._routes.get((ApiKey.API_VERSIONS, 0)) or self._find_route(ApiKey.API_VERSIONS, 0)
        assert route is not None, "version 0 is served"
        return self._call_handler(route, route.request(), correlation_id, caller)

    def _call_handler(
        self,
        route: _Route,
        request: Message,
        correlation_id: int,
        caller: Caller,
        frame: Callable[[Message], Outgoing] | None = None,
    ) -> Reply:
        """Call the handler and frame its response; by `frame`, if it is not None."""
        counts = route.counts
        counts.requests += 1
        began_s = perf_counter() if counts.requests % TIMED_EVERY == 1 else NOT_TIMED
        try:
            response = route.answer(request, caller)
            if began_s:
                _note_time(counts, began_s, isinstance(response, Promise))
            if response is None:
                return None
            if isinstance(response, LongReply) and frame is None and self._run_in_thread is not None:
                return response.and_then(partial(_frame_in_thread, self._run_in_thread, route, correlation_id, began_s))
            if isinstance(response, Promise):
                return response.map(lambda message: _late_frame(route, correlation_id, message, frame, began_s))
            return route.response.frame(correlation_id, response) if frame is None else frame(response)
        except (MalformedData, StorageFault) as error:
            counts.failures += 1
            raise MalformedData(f"{route.name}: {error}") from error
        except Exception as error:
            counts.failures += 1
            log.exception("%s v%d from %s failed", route.name, caller.version, caller.address)
            raise MalformedData(f"{route.name} failed here: {error!r}") from error

    def _call_throttled(
        self, throttling: Throttling, route: _Route, request: Message, correlation_id: int, caller: Caller, size: int
    ) -> Reply:
        """Count the request for the quotas of its client. The reply tells the connection how long to pause."""
        took_s = 0.0
        client_id, principal = caller.client_id or "", caller.access.principal

        def answer(request: Any, caller: Caller) -> Message | Promise[Any] | None:
            nonlocal took_s
            began_s = throttling.now_s()
            response = route.answer(request, caller)
            took_s = throttling.now_s() - began_s
            return response

        def frame(response: Message) -> Outgoing:
            pause_ms = throttling.pause_ms(route.key, principal, client_id, request, size, took_s)
            if isinstance(response, FetchResponse):
                pause_ms = max(pause_ms, throttling.fetch_pause_ms(principal, client_id, request, response))
            if pause_ms and hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = max(response.throttle_time_ms, pause_ms)
            framed = route.response.frame(correlation_id, response)
            framed.pause_ms = max(framed.pause_ms, pause_ms)
            return framed

        reply = self._call_handler(route._replace(answer=answer), request, correlation_id, caller, frame)
        if reply is None:
            reply = Outgoing()
            reply.pause_ms = throttling.pause_ms(route.key, principal, client_id, request, size, took_s)
            return reply if reply.pause_ms else None
        return reply


def _bytes_max(handler: Handler) -> int:
    """Return the handler's own limit, `request_bytes_max`, or the default."""
    limit: int = getattr(handler, "request_bytes_max", DEFAULT_REQUEST_BYTES_MAX)
    return limit


def _frame_in_thread(
    run_in_thread: RunInThread, route: _Route, correlation_id: int, began_s: float, response: Message
) -> Promise[Outgoing]:
    framed = Outgoing()

    def work() -> None:
        nonlocal framed
        framed = _late_frame(route, correlation_id, response, None, began_s)

    return run_in_thread(work).map(lambda _: framed)


def _note_time(counts: RequestCounts, began_s: float, has_to_wait: bool) -> None:
    took_s = perf_counter() - began_s
    counts.timed += 1
    counts.local_s += took_s
    if not has_to_wait:
        counts.total_s += took_s


def _late_frame(
    route: _Route,
    correlation_id: int,
    response: Message,
    frame: Callable[[Message], Outgoing] | None,
    began_s: float,
) -> Outgoing:
    """Return the frame, or an empty one, which closes the connection. The caller completes replies of several clients:
    a fault in this reply must not stop the others. `began_s` is when the handler was called, or NOT_TIMED."""
    if began_s:
        route.counts.total_s += perf_counter() - began_s
    try:
        return route.response.frame(correlation_id, response) if frame is None else frame(response)
    except Exception:
        log.exception("the reply to %s cannot be written", route.name)
        return Outgoing()
