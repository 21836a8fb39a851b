"""A server on a real socket that answers requests as the test chooses, correctly or not."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from harness.patience import PATIENCE_S

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.client.peer_connections import PeerConnection
from moldau.platforms.event_loop import new_loop
from moldau.wire.apis import ApiKey
from moldau.wire.frames import Framing, RequestHeader, read_request_header
from moldau.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.wire.schema import Message

VERSIONS = {ApiKey.API_VERSIONS: (0, 4), ApiKey.HEARTBEAT: (0, 4), ApiKey.FETCH: (4, 17)}
PATIENCE_MS = int(1000 * PATIENCE_S)
HEARTBEAT = HeartbeatRequest(group_id="g", member_id="m")

Answer = Callable[[RequestHeader, asyncio.StreamWriter], Awaitable[None]]


def framed(header: RequestHeader, response: Message) -> bytes:
    return bytes(Framing(header.api_key, header.api_version).frame(header.correlation_id, response))


async def politely(header: RequestHeader, writer: asyncio.StreamWriter) -> None:
    """The throttle time shows which request was answered."""
    writer.write(framed(header, HeartbeatResponse(throttle_time_ms=header.correlation_id)))


async def silently(header: RequestHeader, writer: asyncio.StreamWriter) -> None:
    """Read the request and do not answer."""


def with_bytes(data: bytes) -> Answer:
    """Answer every request with these bytes, in which `%c` is the correlation id."""

    async def answer(header: RequestHeader, writer: asyncio.StreamWriter) -> None:
        writer.write(data.replace(b"%c", struct.pack(">i", header.correlation_id)))

    return answer


class ScriptedPeer:
    def __init__(self, answer: Answer = politely, versions: dict[Any, tuple[int, int]] | None = None) -> None:
        self.answer = answer
        self.versions = versions or VERSIONS
        self.asked: list[RequestHeader] = []
        """All requests but ApiVersions."""
        self.handshakes: list[int] = []
        self.connections = 0
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self, port: int = 0, tls: ssl.SSLContext | None = None) -> ScriptedPeer:
        self._server = await asyncio.start_server(self._talk, "127.0.0.1", port, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]
        _running.add(self)
        return self

    async def stop(self) -> None:
        _running.discard(self)
        self._server.close()
        self.hang_up()
        await self._server.wait_closed()

    def hang_up(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                header, _ = read_request_header(await reader.readexactly(size))
                if header.api_key == ApiKey.API_VERSIONS:
                    self.answer_handshake(header, writer)
                    continue
                self.asked.append(header)
                await self.answer(header, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def answer_handshake(self, header: RequestHeader, writer: asyncio.StreamWriter) -> None:
        self.handshakes.append(header.api_version)
        highest = self.versions[ApiKey.API_VERSIONS][1]
        if header.api_version > highest:
            old = header._replace(api_version=0)
            writer.write(framed(old, ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)))
            return
        supported = [
            ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in self.versions.items()
        ]
        writer.write(framed(header, ApiVersionsResponse(api_keys=supported)))


async def until(holds: Callable[[], bool]) -> None:
    """Wait until the condition holds; the test's own time limit ends the wait."""
    while True:
        if holds():
            return
        await asyncio.sleep(0.001)


async def answer_to(later: Promise[Any]) -> Any:
    """Wait for the promise and return its value."""
    assert not later.done, "the promise was completed before the request could be sent"
    await until(lambda: later.done)
    return later.value()


async def heartbeat(peer: PeerConnection, timeout_ms: int = PATIENCE_MS, version: int | None = None) -> Any:
    """Return the response, or the code of the error."""
    came = await answer_to(peer.ask(ApiKey.HEARTBEAT, HEARTBEAT, timeout_ms, version))
    return came.code if isinstance(came, KafkaError) else came


_running: set[ScriptedPeer] = set()


def run(test: Coroutine[Any, Any, None], uvloop: bool = True) -> None:
    """Run the test within its time limit. A failed test leaves peers running, for which uvloop would wait for ever."""

    async def run_and_stop_peers() -> None:
        try:
            await asyncio.wait_for(test, PATIENCE_S)
        finally:
            for peer in tuple(_running):
                await peer.stop()

    with asyncio.Runner(loop_factory=new_loop if uvloop else asyncio.new_event_loop) as runner:
        runner.run(run_and_stop_peers())
