"""The connections of a node to other nodes, on the sockets of a running loop: `Peers` as it is in a real process.

Callbacks all the way: a request is written when it is asked, its promise is completed when the response is cut from
the bytes received. Only opening a connection is a task. One timer for each connection looks after all its deadlines.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from moldau import __version__
from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.promise import Promise
from moldau.client.response_frames import ResponseFrames
from moldau.wire.apis import APIS, ApiKey, response_class
from moldau.wire.frames import read_response, request_frame
from moldau.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.wire.schema import Buffer, Message

log = logging.getLogger("moldau.peers")

RECONNECT_BACKOFF_S: Final = 0.02
"""Between a connection that could not be opened and the next try: whoever asks again at once must not spin."""
TIMER_SLACK_S: Final = 0.002
"""A loop counts in milliseconds and may wake one too early."""
HANDSHAKE_VERSION: Final = 3
CORRELATION_ID_MAX: Final = (1 << 31) - 1

Versions = dict[int, tuple[int, int]]


class _Asked:
    """A request whose answer is still to come."""

    __slots__ = ("answer", "api", "correlation_id", "deadline", "request", "version")

    def __init__(self, api: ApiKey, request: Message, version: int | None, deadline: float) -> None:
        self.answer: Promise[Any] = Promise()
        self.api = api
        self.request: Message | None = request
        """Let go of once it is sent."""
        self.version = version
        self.correlation_id = 0
        self.deadline = deadline


class PeerConnections:
    """All connections of one node."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._peers: dict[tuple[str, int, str], PeerConnection] = {}
        self._is_closed = False
        self._told_second, self._untold = -1, 0

    def to(self, host: str, port: int, purpose: str) -> PeerConnection:
        """The connection to that node for that purpose; a new one if the last was closed."""
        key = (host, port, purpose)
        known = self._peers.get(key)
        if known is None or known.is_closed:
            known = self._peers[key] = self._connection(host, port, purpose)
            if self._is_closed:
                known.close()
        return known

    def _connection(self, host: str, port: int, purpose: str) -> PeerConnection:
        return PeerConnection(self._loop, host, port, purpose, self._tell)

    def close_all(self) -> None:
        """Ends all connections; whoever asks after that is told so."""
        self._is_closed = True
        for peer in self._peers.values():
            peer.close()

    def _tell(self, line: str) -> None:
        """One line a second at most: a peer that speaks nonsense is tried again and again."""
        second = int(self._loop.time())
        if second == self._told_second:
            self._untold += 1
            return
        more = f" ({self._untold} more like it)" if self._untold else ""
        self._told_second, self._untold = second, 0
        log.warning("%s%s", line.encode("unicode_escape").decode(), more)


class PeerConnection:
    """A `Peer`: connected when first asked, and again when asked after it broke."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, host: str, port: int, purpose: str, tell: Callable[[str], None]
    ) -> None:
        self.is_closed = False
        self._loop = loop
        self._host, self._port, self._purpose = host, port, purpose
        self._tell = tell
        self._waiting: deque[_Asked] = deque()
        """Asked before the connection was ready for them."""
        self._asked: deque[_Asked] = deque()
        """Sent and not answered, oldest first."""
        self._versions: Versions | None = None
        self._correlation_id = 0
        self._handshake_version = HANDSHAKE_VERSION
        self._opening: asyncio.Task[None] | None = None
        self._frames: ResponseFrames | None = None
        self._send_bytes: Callable[[Buffer], None] = _nowhere
        self._open_not_before = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def ask(self, api: ApiKey, request: Message, timeout_ms: int, version: int | None = None) -> Promise[Any]:
        asked = _Asked(api, request, version, self._loop.time() + timeout_ms / 1000)
        if self.is_closed:
            self._fail(asked, ErrorCode.NETWORK_EXCEPTION, "the connection was closed here")
            return asked.answer
        if self._versions is None:
            self._waiting.append(asked)
            if self._opening is None:
                self._opening = self._loop.create_task(self._open(), name=f"connect to {self}")
        else:
            self._send(asked, self._versions)
        self._watch(asked.deadline)
        return asked.answer

    def close(self) -> None:
        self.is_closed = True
        self._drop("the connection was closed here")

    def __str__(self) -> str:
        return f"{self._host}:{self._port}"

    # --- opening ------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        """Connects and asks what the other side speaks. The task stays the sign of a connection until that is lost."""
        this = asyncio.current_task()
        frames = ResponseFrames(self._receiver(), self._lost)
        try:
            await asyncio.sleep(max(0.0, self._open_not_before - self._loop.time()))
            transport = await self._connect(frames)
        except (OSError, UnicodeError, OverflowError) as refused:
            self._open_not_before = self._loop.time() + RECONNECT_BACKOFF_S
            if self._opening is this:
                self._opening = None
                self._drop(f"cannot be reached: {refused}")
            return
        if self._opening is not this:
            frames.end()
            return
        sock = transport.get_extra_info("socket")
        with suppress(OSError):  # macOS, if the peer has ended the connection already: that is told in a moment
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = frames
        self._send_bytes = self._sender(transport)
        self._handshake_version = HANDSHAKE_VERSION
        self._ask_versions()

    async def _connect(self, frames: ResponseFrames) -> asyncio.Transport:
        transport, _ = await self._loop.create_connection(lambda: frames, self._host, self._port)
        return transport

    def _sender(self, transport: asyncio.WriteTransport) -> Callable[[Buffer], None]:
        return transport.write

    def _receiver(self) -> Callable[[memoryview], None]:
        return self._received

    def _ask_versions(self) -> None:
        self._correlation_id = 1
        request = ApiVersionsRequest(client_software_name="moldau", client_software_version=__version__)
        self._send_bytes(request_frame(ApiKey.API_VERSIONS, self._handshake_version, 1, self._purpose, request))

    def _learn_versions(self, frame: memoryview) -> None:
        """A node that does not know our version of the question answers in version 0 (KIP-511)."""
        if frame[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big") and self._handshake_version:
            self._handshake_version = 0
            self._ask_versions()
            return
        correlation_id, told = read_response(ApiVersionsResponse, frame, ApiKey.API_VERSIONS, self._handshake_version)
        if correlation_id != 1 or told.error_code:
            raise MalformedData(f"no answer to ApiVersions: error {told.error_code}, request {correlation_id}")
        versions = self._versions = {api.api_key: (api.min_version, api.max_version) for api in told.api_keys}
        waiting, self._waiting = self._waiting, deque()
        for asked in waiting:
            self._send(asked, versions)

    # --- asking and being answered ------------------------------------------------------------------------------

    def _send(self, asked: _Asked, versions: Versions) -> None:
        version = _common_version(asked.api, asked.version, versions)
        if version is None:
            wanted = APIS[asked.api].name + ("" if asked.version is None else f" version {asked.version}")
            self._fail(asked, ErrorCode.UNSUPPORTED_VERSION, f"{wanted} is not spoken there")
            return
        assert asked.request is not None, "sent twice"
        self._correlation_id = asked.correlation_id = self._correlation_id % CORRELATION_ID_MAX + 1
        frame = request_frame(asked.api, version, asked.correlation_id, self._purpose, asked.request)
        asked.version, asked.request = version, None
        self._asked.append(asked)
        self._send_bytes(frame)

    def _received(self, frame: memoryview) -> None:
        try:
            if self._versions is None:
                self._learn_versions(frame)
                return
            answered, response = self._read(frame)
        except MalformedData as bad:
            self._lost(str(bad), is_nonsense=True)
            return
        answered.complete(response)

    def _read(self, frame: memoryview) -> tuple[Promise[Any], Message]:
        if not self._asked:
            raise MalformedData("a response that nobody asked for")
        asked = self._asked[0]
        assert asked.version is not None, "sent in some version"
        cls: type[Message] = response_class(asked.api)
        correlation_id, response = read_response(cls, frame, asked.api, asked.version)
        if correlation_id != asked.correlation_id:
            raise MalformedData(f"a response to request {correlation_id}, where {asked.correlation_id} was the next")
        self._asked.popleft()
        return asked.answer, response

    # --- the end ------------------------------------------------------------------------------------------------

    def _watch(self, deadline: float) -> None:
        """The timer beats at the earliest deadline there was; answers do not move it, so few requests touch it."""
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_later(max(0.0, deadline - self._loop.time()), self._beat)

    def _beat(self) -> None:
        self._timer = None
        deadlines = [asked.deadline for pending in (self._asked, self._waiting) for asked in pending]
        if not deadlines:
            return
        earliest = min(deadlines)
        if earliest > self._loop.time() + TIMER_SLACK_S:
            self._watch(earliest)
        else:
            self._drop("no answer in time")

    def _lost(self, why: str, is_nonsense: bool) -> None:
        if is_nonsense:
            self._tell(f"the connection to {self} ({self._purpose}) is given up: {why}")
        self._drop(why)

    def _drop(self, why: str) -> None:
        """Forgets the connection; all that is unanswered fails, soon: whoever is told may ask again at once."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
        if self._frames is not None:
            self._frames.end()
            self._frames = None
        self._send_bytes, self._versions = _nowhere, None
        unanswered = [*self._asked, *self._waiting]
        self._asked.clear()
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._loop.time() + TIMER_SLACK_S
        for asked in unanswered:
            is_late = asked.deadline <= now
            self._fail(asked, ErrorCode.REQUEST_TIMED_OUT if is_late else ErrorCode.NETWORK_EXCEPTION, why)

    def _fail(self, asked: _Asked, code: ErrorCode, why: str) -> None:
        self._loop.call_soon(asked.answer.complete, KafkaError(code, f"{self}: {why}"))


def _common_version(api: ApiKey, wanted: int | None, versions: Versions) -> int | None:
    lowest, highest = versions.get(api, (0, -1))
    if wanted is not None:
        return wanted if lowest <= wanted <= highest else None
    version = min(highest, APIS[api].highest)
    return version if version >= max(lowest, APIS[api].lowest) else None


def _nowhere(data: Buffer) -> None:
    raise AssertionError("a request was written before there was a connection")
