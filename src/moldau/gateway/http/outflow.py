"""Records out: `GET /topics/TOPIC/records` answers with server-sent events, over a web socket, or with one page of
records; `PUT /topics/TOPIC/groups/GROUP` notes how far a group has got."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from moldau.gateway.http.intake import Intake, headers_of_failure
from moldau.gateway.http.outgoing import Outgoing
from moldau.gateway.http.positions import positions_of, said, text_of
from moldau.gateway.http.sockets import RecordSocket
from moldau.gateway.http.starts import EARLIEST, LATEST, Start, positions_at, start_of
from moldau.gateway.http.visitors import Visitors, headers_of
from moldau.gateway.http.words import API_ERRORS
from moldau.gateway.ports import Account
from moldau.gateway.steady_reader import SteadyReader
from moldau.web.failures import ApiError, bad_request, too_many
from moldau.web.requests import path_names
from moldau.web.responses import error_response, json_response
from moldau.web.streams import EventStreams, StreamLimits

ALIVE_EVERY_S: Final = 15.0
STREAM_S_MAX: Final = 1_800.0
"""Then the reader comes again, and its login is checked again."""
EVENT_STREAM: Final = "text/event-stream"
PAGE_MAX: Final = 5_000
PAGE_RECORDS: Final = 500
WAIT_S_MAX: Final = 30
FETCH_S: Final = 5
"""How long records that are there may take: who waits for none that come wants these."""

Endpoint = Callable[[Request], Awaitable[Response]]


class Outflow:
    def __init__(self, visitors: Visitors, intake: Intake) -> None:
        self._visitors, self._intake, self._streams_max = visitors, intake, intake.limits.streams
        stream_limits = StreamLimits(self._streams_max, STREAM_S_MAX, ALIVE_EVERY_S)
        self._events = EventStreams(stream_limits, API_ERRORS, "streams of records")
        self.open = 0
        """Event streams and web sockets."""

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/topics/{topic}/records", _told(self._records), methods=["GET"]),
            WebSocketRoute("/topics/{topic}/records", self._socket),
            Route("/topics/{topic}/groups/{group}", _told(self._place), methods=["GET"]),
            Route("/topics/{topic}/groups/{group}", _told(self._commit), methods=["PUT"]),
        ]

    def stop(self) -> None:
        """End all event streams, so that the server can stop."""
        self._events.stop()

    # --- records ----------------------------------------------------------------------------------------------------

    async def _records(self, request: Request) -> Response:
        if EVENT_STREAM not in request.headers.get("accept", ""):
            return await self._page(request)
        start, _ = start_of(request.scope["query_string"], LATEST, request.headers.get("last-event-id"))
        account = await self._account(request)
        topic = path_names(request)["topic"]
        outgoing = await self._begin(account, topic, start)
        if request.method == "HEAD":  # its answer has an end
            outgoing.close()
            return Response(media_type=EVENT_STREAM)
        try:
            response = self._events.response(outgoing.events, on_end=lambda: self._end(outgoing))
        except BaseException:
            outgoing.close()
            raise
        self.open += 1
        return response

    async def _page(self, request: Request) -> Response:
        start, others = start_of(request.scope["query_string"], EARLIEST, others=("max", "wait"))
        records_max = _number(others, "max", PAGE_RECORDS, PAGE_MAX)
        wait_s = _number(others, "wait", 1, WAIT_S_MAX)
        account, topic = await self._account(request), path_names(request)["topic"]
        outgoing = await self._begin(account, topic, start)
        try:
            if not wait_s and outgoing.is_behind(await account.bounds(topic)):
                wait_s = FETCH_S
            return Response(await outgoing.page(records_max, wait_s), media_type="application/json")
        finally:
            outgoing.close()

    async def _socket(self, socket: WebSocket) -> None:
        try:
            start, _ = start_of(socket.scope["query_string"], LATEST)
            account = await self._account(socket)
            topic = path_names(socket)["topic"]
            outgoing = await self._begin(account, topic, start)
        except Exception as error:
            await socket.send_denial_response(_refused(error))
            return
        self.open += 1
        try:
            await socket.accept()
            await RecordSocket(socket, outgoing, account, topic, start.group).serve(STREAM_S_MAX)
        finally:
            self._end(outgoing)

    async def _begin(self, account: Account, topic: str, start: Start) -> Outgoing:
        if self.open >= self._streams_max:
            raise too_many(f"{self._streams_max} streams of records are open, which is the most; try again later")
        positions = await positions_at(account, topic, start)
        return Outgoing(SteadyReader(account, topic, positions, is_whole=start.partition is None))

    def _end(self, outgoing: Outgoing) -> None:
        self.open -= 1
        outgoing.close()

    # --- the places of groups ---------------------------------------------------------------------------------------

    async def _place(self, request: Request) -> Response:
        account, names = await self._account(request), path_names(request)
        committed = await account.committed(names["group"], names["topic"])
        return json_response({"position": text_of(committed) if committed else None})

    async def _commit(self, request: Request) -> Response:
        account, names = await self._account(request), path_names(request)
        body = await self._intake.body(request.receive, headers_of(request.scope))
        position = said(body, "position")
        if position is None:
            raise bad_request('the body must be {"position": "0:13,1:40"}, the next offset of each partition')
        await account.commit(names["group"], names["topic"], positions_of(position))
        return json_response({"position": position})

    async def _account(self, connection: HTTPConnection) -> Account:
        return await self._visitors.account(connection.scope, headers_of(connection.scope))


def _told(endpoint: Endpoint) -> Endpoint:
    """Return an endpoint that answers with its errors."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except asyncio.CancelledError:  # the server stops
            return _refused(ApiError(503, "STOPPING", "the gateway stops"))
        except Exception as error:
            return _refused(error)

    return answer


def _refused(error: Exception) -> Response:
    failed = API_ERRORS.of(error)
    response = error_response(failed)
    for name, value in headers_of_failure(failed):
        response.headers[name.decode()] = value.decode()
    return response


def _number(given: dict[str, str], name: str, default: int, most: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not text.isdecimal() or not text.isascii() or len(text) > 6 or int(text) > most:
        raise bad_request(f"{name} {text[:20]!r} is not a number up to {most}")
    return int(text)
