"""Connections between nodes over faulty links: a link delays what passes, or holds it for as long as it is cut.

Nothing is lost, as on a connection that TCP repairs: what was held passes when the link is repaired, unless the
connection was closed meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from moldau.base.buffers import Buffer
from moldau.client.peer_connections import PeerConnection, PeerConnections, TlsContext
from moldau.client.response_frames import ResponseFrames

Link = Callable[[str, int], int | None]
"""The current state of the link to a host and port: its delay in milliseconds each way, or None if it is cut."""

CUT_POLL_S: Final = 0.01
T = TypeVar("T")


class Line(Generic[T]):
    """One direction of a connection: calls `deliver` with each sent item, in order, when the link allows it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, delay_ms: Callable[[], int | None], deliver: Callable[[T], None]
    ) -> None:
        self._loop = loop
        self._delay_ms = delay_ms
        self._deliver = deliver
        self._held: deque[tuple[float, T]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def send(self, item: T) -> None:
        self._held.append((self._loop.time() + (self._delay_ms() or 0) / 1000, item))
        if self._timer is None:
            self._deliver_due()

    def close(self) -> None:
        self._held.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _deliver_due(self) -> None:
        self._timer = None
        held = self._held
        while held:
            wait_s = CUT_POLL_S if self._delay_ms() is None else held[0][0] - self._loop.time()
            if wait_s > 0:
                self._timer = self._loop.call_later(wait_s, self._deliver_due)
                return
            self._deliver(held.popleft()[1])


class FaultyPeers(PeerConnections):
    """The connections of a node over links that `link` delays or cuts."""

    def __init__(self, loop: asyncio.AbstractEventLoop, link: Link, tls: TlsContext | None = None) -> None:
        super().__init__(loop, tls)
        self._link = link

    def _connection(self, host: str, port: int, purpose: str) -> PeerConnection:
        return FaultyConnection(self._loop, host, port, purpose, self._warn, self._link, self._tls)


class FaultyConnection(PeerConnection):
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        host: str,
        port: int,
        purpose: str,
        warn: Callable[[str], None],
        link: Link,
        tls: TlsContext | None,
    ) -> None:
        super().__init__(loop, host, port, purpose, warn, tls)
        self._link = link
        self._lines: list[Line[Any]] = []

    async def _connect(self, frames: ResponseFrames) -> asyncio.Transport:
        """Wait while the link is cut, then connect."""
        while True:
            if self._delay_ms() is not None:
                return await super()._connect(frames)
            await asyncio.sleep(CUT_POLL_S)

    def _sender(self, transport: asyncio.WriteTransport) -> Callable[[Buffer], None]:
        return self._line(super()._sender(transport))

    def _receiver(self) -> Callable[[memoryview], None]:
        return self._line(super()._receiver())

    def _drop(self, why: str) -> None:
        for line in self._lines:
            line.close()
        self._lines.clear()
        super()._drop(why)

    def _line(self, deliver: Callable[[Any], None]) -> Callable[[Any], None]:
        line: Line[Any] = Line(self._loop, self._delay_ms, deliver)
        self._lines.append(line)
        return line.send

    def _delay_ms(self) -> int | None:
        return self._link(self._host, self._port)
