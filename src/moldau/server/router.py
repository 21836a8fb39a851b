"""Turns a frame into its reply: header, version, decoding, the handler's answer, encoding. It knows no single API.

What it must know of an API the handler declares. A key or version that no handler serves closes the connection, as in
Kafka, except that ApiVersions is answered in any version (KIP-511).
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

from moldau.base.counters import REQUESTS_FAILED, Counters
from moldau.base.errors import MalformedData, StorageFault
from moldau.base.loop_watch import LOOP_WATCH
from moldau.base.ports import RunInThread
from moldau.base.promise import Promise, resolved
from moldau.runtime.internal_errors import InternalErrors
from moldau.security.acls.access import Access
from moldau.server.conversation import LongReply, Reply
from moldau.server.handler import Answer, Caller, Handler
from moldau.server.late_replies import frame_by, framed_when_ready, map_long_reply, reply_when_decoded
from moldau.server.request_counts import NOT_TIMED, TIMED_EVERY, RequestCounts
from moldau.server.routes import Route, make_route
from moldau.server.throttling import NotThrottling, ThrottledRequest, Throttling, pausing
from moldau.wire.apis import APIS, ApiKey
from moldau.wire.codec import NO_REPLY, UNREADABLE, NoReply, Outgoing, Refusal, TooManyElements, malformed
from moldau.wire.frames import read_request_header
from moldau.wire.schema import Message

log = logging.getLogger("moldau.server")
KNOWN_MAX = 16
"""APIs and versions that a connection remembers. Clients use a few; a hostile one must not fill the memory."""
KNOWN_HEADER_BYTES_MAX = 256
"""The longest header that it remembers: a client id may have 32 KiB, also before the client has authenticated."""
_START = struct.Struct(">hhi")
"""The fixed start of a header: key, version and correlation id. Within one API and version only the last changes."""


class Router:
    def __init__(
        self,
        throttling: Throttling | None = None,
        run_in_thread: RunInThread | None = None,
        counters: Counters | None = None,
    ) -> None:
        self.throttling: Throttling | NotThrottling = throttling or NotThrottling()
        self.run_in_thread = run_in_thread
        self._counters = counters or Counters()
        self._errors = InternalErrors()
        self._handlers: dict[int, Handler] = {}
        self._answers: dict[int, Answer] = {}
        self._listed: dict[int, tuple[int, int]] = {}
        self._routes: dict[tuple[int, int], Route] = {}

    def serve(
        self, handlers: Iterable[Handler], answer_of: Callable[[Handler], Answer] = lambda each: each.answer
    ) -> None:
        """`answer_of` returns the function that answers the requests of a handler."""
        for handler in handlers:
            schema = APIS[handler.api]
            assert schema.lowest <= handler.versions[0], handler.api
            assert handler.versions[1] <= schema.highest, handler.api
            assert handler.api not in self._handlers, handler.api
            self._handlers[handler.api] = handler
            self._answers[handler.api] = answer_of(handler)
        self._handlers = dict(sorted(self._handlers.items()))
        self._listed = {
            key: (handler.versions[0] if handler.listed_from is None else handler.listed_from, handler.versions[1])
            for key, handler in self._handlers.items()
        }

    def served(self) -> dict[int, tuple[int, int]]:
        """Return the API keys and versions that are served."""
        return {key: handler.versions for key, handler in self._handlers.items()}

    def listed(self) -> dict[int, tuple[int, int]]:
        """Return the API keys and versions that ApiVersions lists. It is the same object until that changes."""
        return self._listed

    def counts(self) -> list[RequestCounts]:
        """Return the counts of all APIs and versions that were requested."""
        return [route.counts for route in self._routes.values()]

    def for_connection(self, listener: str, address: str, access: Access) -> ConnectionRouter:
        """Return the router for the requests of one connection."""
        return ConnectionRouter(self, listener, address, access)

    def answer(self, listener: str, address: str, access: Access, frame: memoryview) -> Reply:
        """Answer a single request."""
        return ConnectionRouter(self, listener, address, access).answer(frame)

    def ask_here(self, api: ApiKey, request: Message) -> Message | Promise[Any]:
        """Answer a request that this node sends to itself, without the network."""
        handler = self._handlers[api]
        answer = self._answers[api](request, Caller("", "", None, handler.versions[1]))
        assert isinstance(answer, Message | Promise), f"{api.name} is answered"
        return answer

    def find_route(self, key: int, version: int) -> Route | None:
        """Return the route for this API and version; None for ApiVersions in an unknown version."""
        route = self._routes.get((key, version))
        if route is not None:
            return route
        handler = self._handlers.get(key)
        if handler is None:
            raise MalformedData(f"API key {key} is not served")
        low, high = handler.versions
        if not low <= version <= high:
            if handler.answers_unknown_versions:
                return None
            raise MalformedData(f"{APIS[key].name} version {version} is not served, {low} to {high} are")
        route = self._routes[key, version] = make_route(handler, self._answers[key], version)
        return route

    def log_error(self, message: str, *arguments: object) -> None:
        """Count and log an internal error, the exception that is being handled."""
        self._counters.add(REQUESTS_FAILED)
        self._errors.log(log, message, *arguments)


class _Known(NamedTuple):
    """The last header of an API and version on one connection. While it stays the same, `caller` and `route` are
    reused."""

    header: bytes
    """The bytes after the correlation id: client id and tagged fields."""
    position: int
    """Where the body begins."""
    caller: Caller
    route: Route


class ConnectionRouter:
    """Answers the requests of one connection. What is the same in all of them is looked up and decoded once."""

    __slots__ = ("_access", "_address", "_known", "_listener", "_router", "_throttling")

    def __init__(self, router: Router, listener: str, address: str, access: Access) -> None:
        self._router = router
        self._throttling = router.throttling
        self._listener = listener
        self._address = address
        self._access = access
        self._known: dict[tuple[int, int], _Known] = {}

    def answer(self, frame: memoryview) -> Reply:
        """Answer the request in a frame. Raise MalformedData if the connection must be closed."""
        size = len(frame)
        if size < _START.size:
            read_request_header(frame)  # raises
        key, version, correlation_id = _START.unpack_from(frame)
        known = self._known.get((key, version))
        if known is None or frame[_START.size : known.position] != known.header:
            known = self._learn(frame, key, version)
            if known is None:
                return self._answer_unknown_version(frame, correlation_id)
        _, position, caller, route = known
        LOOP_WATCH.api = route.name
        counts = route.counts
        if size > route.bytes_max:
            counts.failures += 1
            raise MalformedData(f"{route.name} of {size} bytes; the limit is {route.bytes_max}")
        if size > route.decoded_on_loop_bytes and self._router.run_in_thread is not None:
            return self._answer_large(self._router.run_in_thread, route, frame, position, correlation_id, caller)
        try:
            # Bytes after the request are ignored, as in Kafka: librdkafka sends some after Metadata v13.
            request, _ = route.decode(frame, position, size)
        except TooManyElements:
            run_in_thread = self._router.run_in_thread or _run_here
            return self._answer_large(run_in_thread, route, frame, position, correlation_id, caller)
        except UNREADABLE as error:
            counts.failures += 1
            raise malformed(route.request, version, error) from error
        except MalformedData:
            counts.failures += 1
            raise
        counts.requests += 1
        if self._throttling.is_active:
            return self._call_throttled(route, request, correlation_id, caller, size)
        if counts.requests % TIMED_EVERY == 1:
            return self._call_handler(route, request, correlation_id, caller)
        try:
            response = route.answer(request, caller)
            if isinstance(response, Message):
                return route.frame(correlation_id, response)
            if isinstance(response, NoReply):
                return NO_REPLY
            return self._reply_later(route, correlation_id, response, None, NOT_TIMED)
        except Exception as error:
            raise self._failure(route, caller, error) from error

    def _answer_large(
        self,
        run_in_thread: RunInThread,
        route: Route,
        frame: memoryview,
        position: int,
        correlation_id: int,
        caller: Caller,
    ) -> Reply:
        """Decode a large request in a thread, then handle it on the loop."""
        size = len(frame)

        def handle(request: Message | Exception, decoding_s: float) -> Reply:
            if isinstance(request, UNREADABLE):
                request = malformed(route.request, caller.version, request)
            if isinstance(request, Exception):
                try:
                    raise request
                except Exception as error:
                    raise self._failure(route, caller, error) from error
            route.counts.requests += 1
            if self._throttling.is_active:
                return self._call_throttled(route, request, correlation_id, caller, size, decoding_s)
            return self._call_handler(route, request, correlation_id, caller)

        return reply_when_decoded(run_in_thread, route.decode_long, frame, position, handle)

    def _learn(self, frame: memoryview, key: int, version: int) -> _Known | None:
        """Decode the header; return None for ApiVersions in an unknown version."""
        (_, _, _, client_id), position = read_request_header(frame)
        route = self._router.find_route(key, version)
        if route is None:
            return None
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        caller = Caller(self._listener, self._address, client_id, version, self._access)
        known = _Known(bytes(frame[_START.size : position]), position, caller, route)
        if len(known.header) <= KNOWN_HEADER_BYTES_MAX:
            self._known[key, version] = known
        return known

    def _answer_unknown_version(self, frame: memoryview, correlation_id: int) -> Reply:
        """Answer ApiVersions in an unknown version in the format of version 0 (KIP-511)."""
        (key, version, _, client_id), _ = read_request_header(frame)
        route = self._router.find_route(key, 0)
        assert route is not None, "version 0 is served"
        LOOP_WATCH.api = route.name
        route.counts.requests += 1
        caller = Caller(self._listener, self._address, client_id, version, self._access)
        return self._call_handler(route, route.request(), correlation_id, caller)

    def _call_handler(
        self,
        route: Route,
        request: Message,
        correlation_id: int,
        caller: Caller,
        throttled: ThrottledRequest | None = None,
    ) -> Reply:
        """Call the handler and frame its response; `throttled` counts the request for quotas. The time of some requests
        is measured for metrics."""
        counts = route.counts
        began_s = perf_counter() if counts.requests % TIMED_EVERY == 1 else NOT_TIMED
        answer = route.answer if throttled is None else throttled.measured(route.answer)
        try:
            response = answer(request, caller)
            if began_s:
                counts.note_handled(began_s, isinstance(response, Promise))
            if isinstance(response, NoReply):
                pause_ms = 0 if throttled is None else throttled.pause_ms()
                return pausing(pause_ms, NoReply()) if pause_ms else NO_REPLY
            if isinstance(response, Promise):
                return self._reply_later(route, correlation_id, response, throttled, began_s)
            if throttled is None:
                return route.frame(correlation_id, response)
            return throttled.frame(route.frame, correlation_id, response)
        except Exception as error:
            raise self._failure(route, caller, error) from error

    def _reply_later(
        self,
        route: Route,
        correlation_id: int,
        response: Promise[Any],
        throttled: ThrottledRequest | None,
        began_s: float,
    ) -> Promise[Outgoing]:
        run_in_thread = self._router.run_in_thread
        if not isinstance(response, LongReply):
            return framed_when_ready(response, partial(self._late_frame, route, correlation_id, throttled, began_s))
        if run_in_thread is not None:
            in_thread = partial(self._frame_in_thread, run_in_thread, route, correlation_id, throttled, began_s)
            return map_long_reply(response, in_thread)
        return map_long_reply(response, partial(self._late_frame, route, correlation_id, throttled, began_s))

    def _call_throttled(
        self,
        route: Route,
        request: Message,
        correlation_id: int,
        caller: Caller,
        size: int,
        decoding_s: float = 0.0,
    ) -> Reply:
        """Count the request for the quotas of its client. The reply tells the connection how long to pause."""
        assert isinstance(self._throttling, Throttling), "only quotas throttle"
        throttled = ThrottledRequest(
            self._throttling, route.handler, caller.client, caller.access, request, size, decoding_s
        )
        return self._call_handler(route, request, correlation_id, caller, throttled)

    def _frame_in_thread(
        self,
        run_in_thread: RunInThread,
        route: Route,
        correlation_id: int,
        throttled: ThrottledRequest | None,
        began_s: float,
        response: Any,
    ) -> Outgoing | Promise[Outgoing]:
        if not isinstance(response, Message):
            return self._late_frame(route, correlation_id, throttled, began_s, response)
        if began_s:
            route.counts.note_response(began_s)
        try:
            pause_ms = 0 if throttled is None else throttled.set_pause(response)
        except Exception:
            return self._unwritable(route)
        framed = frame_by(run_in_thread, partial(self._late_frame, route, correlation_id, None, NOT_TIMED, response))
        # With a pause, an empty frame would not close the connection.
        return framed.map(lambda reply: pausing(pause_ms, reply) if reply else reply) if pause_ms else framed

    def _late_frame(
        self,
        route: Route,
        correlation_id: int,
        throttled: ThrottledRequest | None,
        began_s: float,
        response: Message | MalformedData | NoReply,
    ) -> Outgoing:
        """Return the frame. Raise nothing: whoever completes this reply may go on with those of other clients.
        `began_s` is when the handler was called, or NOT_TIMED."""
        if began_s:
            route.counts.note_response(began_s)
        if isinstance(response, NoReply):
            return NO_REPLY if throttled is None else pausing(throttled.pause_ms(), NoReply())
        if isinstance(response, MalformedData):
            route.counts.failures += 1
            return Refusal(f"{route.name}: {response}")
        try:
            if throttled is None:
                return route.frame(correlation_id, response)
            return throttled.frame(route.frame, correlation_id, response)
        except Exception:
            return self._unwritable(route)

    def _unwritable(self, route: Route) -> Outgoing:
        """Return the empty frame that closes the connection. Called while the exception is handled."""
        route.counts.failures += 1
        self._router.log_error("the reply to %s cannot be written", route.name)
        return Outgoing()

    def _failure(self, route: Route, caller: Caller, error: Exception) -> MalformedData:
        """Return the error that closes the connection; log a bug of ours."""
        route.counts.failures += 1
        if isinstance(error, MalformedData | StorageFault):
            return MalformedData(f"{route.name}: {error}")
        self._router.log_error("%s v%d from %s failed", route.name, caller.version, caller.address)
        return MalformedData(f"{route.name} failed here: {error!r}")


def _run_here(work: Callable[[], None]) -> Promise[StorageFault | None]:
    """For a router that was given no threads."""
    work()
    return resolved(None)
