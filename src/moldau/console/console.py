"""The console as a whole: sessions and logins around the handlers, who has which access to the cluster."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from moldau import __version__
from moldau.console.access import Access
from moldau.console.call import Call, Endpoint
from moldau.console.condition_workers import Conditions
from moldau.console.daemon_pool import Threads
from moldau.console.endpoints import ENDPOINTS, STREAMS
from moldau.console.live import Streams
from moldau.console.metrics_reader import MetricsReader
from moldau.console.next_steps import API_ERRORS
from moldau.console.options import CREDENTIAL_LENGTH_MAX, ConsoleOptions, properties_of
from moldau.console.pages import application
from moldau.console.sessions import IDLE_SECONDS, Login, Sessions
from moldau.web.failures import ApiError, bad_request, too_many
from moldau.web.requests import path_names, query_of, read_json
from moldau.web.responses import error_response, json_response

log = logging.getLogger(__name__)

TOKEN_HEADER: Final = "x-console-token"
SAFE_METHODS: Final = ("GET", "HEAD")
BODY_BYTES_MAX: Final = 2 << 20
USERS_MAX: Final = 8
"""Users with a collector of their own, which takes memory."""
LOGINS_AT_ONCE: Final = 4
FAILED_LOGIN_SECONDS: Final = 0.5


class Console:
    def __init__(self, options: ConsoleOptions) -> None:
        self.options = options
        self._threads = Threads()
        self.streams = Streams(self._threads)
        self.sessions: Sessions[Access] = Sessions(
            secrets.token_bytes(32), lambda: secrets.token_urlsafe(32), time.monotonic, self._on_session_end
        )
        self._conditions = Conditions()
        self._accesses: dict[tuple[str, str, str], Access] = {}
        self._anonymous: Access | None = None
        self._logins = asyncio.Semaphore(LOGINS_AT_ONCE)
        if not options.login_required:
            self._anonymous = self._new_access(dict(options.properties), None)

    def app(self) -> Any:
        routes = [
            Route("/api/session", self._session, methods=["GET"]),
            Route("/api/login", self._login, methods=["POST"]),
            Route("/api/logout", self._logout, methods=["POST"]),
            *(Route(each.path, self._answer(each), methods=[each.method]) for each in ENDPOINTS),
            *(Route(each.path, self._stream(each), methods=["GET"]) for each in STREAMS),
        ]
        return application(self.options, routes, self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, app: Any) -> AsyncIterator[None]:
        self._conditions.start(asyncio.get_running_loop())
        if self._anonymous is not None:
            self._anonymous.collector.start()
        ending = asyncio.create_task(self._end_idle_sessions(), name="idle sessions")
        try:
            yield
        finally:
            ending.cancel()
            self.stop()

    def stop(self) -> None:
        self.streams.stop()
        self.sessions.end_all()
        if self._anonymous is not None:
            self._anonymous.close()
        self.streams.close()
        self._conditions.close()
        self._threads.stop()

    async def _end_idle_sessions(self) -> None:
        while True:
            await asyncio.sleep(30)
            self.sessions.end_idle()

    # --- sessions ---------------------------------------------------------------------------------------------------

    async def _session(self, request: Request) -> Response:
        session_id = self._session_id(request) or ""
        is_new = not 20 <= len(session_id) <= 128 or not session_id.isascii()
        if is_new:
            session_id = self.sessions.new_id()
        response = json_response(self._session_data(session_id))
        if is_new:
            self._set_cookie(response, session_id)
        return response

    def _session_id(self, request: Request) -> str | None:
        return request.cookies.get(self.options.cookie)

    def _session_data(self, session_id: str) -> dict[str, Any]:
        login = self.sessions.login(session_id)
        return {
            "login_required": self.options.login_required,
            "user": None if login is None else login.user,
            "token": self.sessions.token(session_id),
            "mechanisms": list(self.options.mechanisms) if self.options.login_required else [],
            "read_only": self.options.read_only,
            "bootstrap": self.options.bootstrap,
            "version": __version__,
            "idle_seconds": int(IDLE_SECONDS),
            "features": {
                "pipelines": bool(self.options.pipelines),
                "metrics": bool(self.options.metrics),
                "learn": not self.options.read_only,
            },
        }

    def _set_cookie(self, response: Response, session_id: str) -> None:
        name = self.options.cookie
        response.set_cookie(name, session_id, httponly=True, samesite="strict", secure=self.options.is_tls)

    async def _login(self, request: Request) -> Response:
        try:
            self._check_token(request)
            body = await read_json(request, BODY_BYTES_MAX)
            if not self.options.login_required:
                raise bad_request("this console asks for no login")
            user, password, mechanism = _credentials(body, self.options)
            self.sessions.check_room()
            async with self._logins:
                session_id = self._begin_session(user, await self._access_of(user, password, mechanism))
        except Exception as error:
            return error_response(API_ERRORS.of(error))
        self.sessions.end(self._session_id(request))  # after the new one has begun: both may be of the same user
        response = json_response(self._session_data(session_id))
        self._set_cookie(response, session_id)
        return response

    def _begin_session(self, user: str, access: Access) -> str:
        access.uses += 1
        try:
            return self.sessions.add(user, access)
        except ApiError:
            self._on_session_end(access)
            raise

    async def _access_of(self, user: str, password: str, mechanism: str) -> Access:
        """Return the access of a user whom the cluster accepts. Each login is checked by the cluster."""
        access = self._new_access(properties_of(self.options, user, password, mechanism), user)
        try:
            await self._threads.run(True, _connect, access)
        except Exception:
            access.close()
            await asyncio.sleep(FAILED_LOGIN_SECONDS)  # slows down guessing
            raise
        key = (user, mechanism, password)
        known = self._accesses.get(key)
        if known is not None:
            access.close()
            return known
        if len(self._accesses) >= USERS_MAX:
            access.close()
            raise too_many(f"{USERS_MAX} users are logged in, which is the most; try again when one has logged out")
        self._accesses[key] = access
        access.collector.start()
        return access

    def _new_access(self, properties: dict[str, str], user: str | None) -> Access:
        metrics = MetricsReader(self.options.metrics) if self.options.metrics else None
        return Access(self.options.bootstrap, properties, user, metrics, self._conditions)

    def _on_session_end(self, access: Access) -> None:
        self.streams.wake()
        access.uses -= 1
        if access.uses <= 0:
            self._accesses = {key: each for key, each in self._accesses.items() if each is not access}
            access.close()

    async def _logout(self, request: Request) -> Response:
        try:
            self._check_token(request)
        except ApiError as error:
            return error_response(error)
        self.sessions.end(self._session_id(request))
        response = json_response({"ok": True})
        response.delete_cookie(self.options.cookie)
        return response

    def _check_token(self, request: Request) -> None:
        if not self.sessions.has_token(self._session_id(request), request.headers.get(TOKEN_HEADER)):
            raise ApiError(403, "BAD_TOKEN", "the token of the session is missing or old; load the page again")

    def _access(self, request: Request) -> Access:
        if self._anonymous is not None:
            return self._anonymous
        login: Login[Access] | None = self.sessions.login(self._session_id(request))
        if login is None:
            raise ApiError(401, "LOGIN_REQUIRED", "log in first: the session is new, or it has ended")
        return login.access

    # --- endpoints --------------------------------------------------------------------------------------------------

    async def _call(self, request: Request, endpoint: Endpoint) -> Call:
        body = None
        if request.method not in SAFE_METHODS:
            self._check_token(request)
            if self.options.read_only and endpoint.changes:
                raise ApiError(403, "READ_ONLY", "this console is read-only: it changes nothing")
            body = await read_json(request, BODY_BYTES_MAX)
        access = self._access(request)
        call = Call(self.options, access, path_names(request), query_of(request, endpoint.parameters), body)
        call.only_fields(endpoint.fields)
        return call

    def _answer(self, endpoint: Endpoint) -> Any:
        async def answer(request: Request) -> Response:
            try:
                call = await self._call(request, endpoint)
                async with call.access.turns if endpoint.asks_cluster else nullcontext():
                    response: Response = await self._threads.run(endpoint.asks_cluster, _respond, endpoint, call)
                return response
            except ClientDisconnect:
                return Response(status_code=400)
            except Exception as error:
                return error_response(API_ERRORS.of(error))

        return answer

    def _may_watch(self, session_id: str | None) -> bool:
        """Whether a stream may go on. Who watches is not idle."""
        return self._anonymous is not None or self.sessions.login(session_id) is not None

    def _stream(self, endpoint: Endpoint) -> Any:
        async def stream(request: Request) -> Response:
            try:
                call = await self._call(request, endpoint)
                session_id = self._session_id(request)
                return self.streams.response(endpoint.handler(call), lambda: self._may_watch(session_id))
            except Exception as error:
                return error_response(API_ERRORS.of(error))

        return stream


def _respond(endpoint: Endpoint, call: Call) -> Response:
    """Call the handler and make its answer JSON, both in the thread."""
    result = endpoint.handler(call)
    return result if isinstance(result, Response) else json_response(result, endpoint.status)


def _connect(access: Access) -> None:
    with access.cluster():
        pass


def _credentials(body: Any, options: ConsoleOptions) -> tuple[str, str, str]:
    if not isinstance(body, dict):
        raise bad_request("the body must be a JSON object with user and password")
    user, password = body.get("user"), body.get("password")
    mechanism = body.get("mechanism") or options.mechanisms[0]
    for name, value in (("user", user), ("password", password), ("mechanism", mechanism)):
        if not isinstance(value, str) or not 0 < len(value) <= CREDENTIAL_LENGTH_MAX:
            raise bad_request(f"{name}: expected a text of 1 to {CREDENTIAL_LENGTH_MAX} characters")
    assert isinstance(user, str)
    assert isinstance(password, str)
    return user, password, str(mechanism).upper()
