"""Which path of the REST proxy is answered by what."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

from starlette.types import Receive, Scope, Send

from moldau.gateway.http.intake import Intake
from moldau.gateway.http.proxy import records, topics
from moldau.gateway.http.proxy.clusters import Clusters
from moldau.gateway.http.proxy.consumer_calls import ConsumerCalls
from moldau.gateway.http.proxy.consumers import Consumers
from moldau.gateway.http.proxy.failures import ProxyError, proxy_error
from moldau.gateway.http.proxy.requests import JSON, V2, Answer, Request, json_answer, unquoted
from moldau.gateway.http.proxy.streamed_records import Streams
from moldau.gateway.http.visitors import Visitors, headers_of

Call = Callable[[Request], Awaitable[Answer | None]]
"""Answers a request; None if it has sent its answer itself."""
OWN_ROOTS: Final = ("v3", "consumers", "brokers")
"""Paths that begin so are the proxy's alone; those below /topics are also the gateway's."""
KNOWN_TYPES: Final = b"application/vnd.kafka."
EVENTS: Final = b"text/event-stream"


class Route(NamedTuple):
    path: re.Pattern[str]
    calls: Mapping[str, Call]


def route(path: str, **calls: Call) -> Route:
    """`path` has {} in place of names."""
    return Route(re.compile(re.escape(path).replace(r"\{\}", "([^/]+)")), calls)


class RestProxy:
    def __init__(self, visitors: Visitors, intake: Intake) -> None:
        self._visitors, self._intake = visitors, intake
        clusters = Clusters()
        streams = Streams(clusters)
        self.consumers = Consumers(intake.limits)
        calls = ConsumerCalls(self.consumers)
        self._routes = [
            route("/topics", GET=topics.names),
            route("/topics/{}", GET=topics.topic, POST=records.append),
            route("/topics/{}/partitions", GET=topics.partitions),
            route("/topics/{}/partitions/{}", GET=topics.partition, POST=records.append_to_partition),
            route("/topics/{}/partitions/{}/offsets", GET=topics.offsets),
            route("/brokers", GET=topics.brokers),
            route("/consumers/{}", POST=calls.create),
            route("/consumers/{}/instances/{}", DELETE=calls.delete),
            route(
                "/consumers/{}/instances/{}/subscription",
                GET=calls.subscription,
                POST=calls.subscribe,
                DELETE=calls.unsubscribe,
            ),
            route("/consumers/{}/instances/{}/assignments", GET=calls.assignment, POST=calls.assign),
            route("/consumers/{}/instances/{}/records", GET=calls.records),
            route("/consumers/{}/instances/{}/positions", POST=calls.seek),
            route("/consumers/{}/instances/{}/positions/beginning", POST=calls.seek_to_beginning),
            route("/consumers/{}/instances/{}/positions/end", POST=calls.seek_to_end),
            route("/consumers/{}/instances/{}/offsets", GET=calls.committed, POST=calls.commit),
            route("/v3/clusters", GET=clusters.all),
            route("/v3/clusters/{}", GET=clusters.one),
            route("/v3/clusters/{}/topics", GET=clusters.topics, POST=clusters.create_topic),
            route("/v3/clusters/{}/topics/{}", GET=clusters.topic, DELETE=clusters.delete_topic),
            route("/v3/clusters/{}/topics/{}/partitions", GET=clusters.partitions),
            route("/v3/clusters/{}/topics/{}/partitions/{}", GET=clusters.partition),
            route("/v3/clusters/{}/topics/{}/records", POST=streams.append),
        ]

    def serves(self, scope: Scope) -> bool:
        """Whether a request is one of the proxy's, not of the gateway's own."""
        path = _path(scope)
        if path.partition("/")[2].partition("/")[0] in OWN_ROOTS:
            return True
        found = self._found(path)
        if found is None or scope["method"] not in found[0].calls:
            return False
        headers = headers_of(scope)
        if EVENTS in headers.get(b"accept", b""):
            return False
        is_of_both = scope["method"] == "POST" and path.count("/") == 2
        return not is_of_both or headers.get(b"content-type", b"").lower().startswith(KNOWN_TYPES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = _path(scope)
        try:
            answer = await self._answer(scope, receive, send, path)
        except asyncio.CancelledError:  # the server stops
            stops = ProxyError(503, 503, "the gateway stops; what it did not answer may be appended")
            answer = _told(stops, path)
        except Exception as error:
            answer = _told(proxy_error(error), path)
        if answer is None:
            return
        if answer.status >= 300:
            self._intake.counters.refused += 1
        content_type = (b"content-type", answer.content_type.encode())
        head = [*([content_type] if answer.body else []), (b"content-length", b"%d" % len(answer.body))]
        if answer.status == 204:
            head = []
        await send({"type": "http.response.start", "status": answer.status, "headers": [*head, *answer.headers]})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer(self, scope: Scope, receive: Receive, send: Send, path: str) -> Answer | None:
        headers = headers_of(scope)
        account = await self._visitors.account(scope, headers)
        found = self._found(path)
        if found is None:
            raise ProxyError(404, 404, f"HTTP 404 Not Found: the gateway does not have {path[:100]}")
        call = found[0].calls.get(scope["method"])
        if call is None:
            raise ProxyError(405, 405, f"HTTP 405 Method Not Allowed: known are {', '.join(found[0].calls)}")
        names = [unquoted(name) for name in found[1].groups()]
        return await call(Request(scope, receive, send, headers, names, account, self._intake))

    def _found(self, path: str) -> tuple[Route, re.Match[str]] | None:
        for each in self._routes:
            match = each.path.fullmatch(path)
            if match is not None:
                return each, match
        return None


def _path(scope: Scope) -> str:
    path: str = scope["raw_path"].decode("latin-1")
    return path.removesuffix("/") or "/"


def _told(error: ProxyError, path: str) -> Answer:
    content_type = JSON if path.startswith("/v3") else V2
    return json_answer(error.body(), content_type, error.status, error.headers)
