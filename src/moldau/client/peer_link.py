"""A bad line between two nodes, for tests: it holds what passes for a while, or for as long as the line is cut.

Nothing is lost, as nothing is on a connection that TCP repairs: what was held passes when the line is mended, unless
somebody has given up by then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

Link = Callable[[str, int], int | None]
"""How the line to a host and port is just now: by how many milliseconds it delays each way, or None: cut."""

CUT_POLL_S: Final = 0.01
T = TypeVar("T")


class Line(Generic[T]):
    """One direction of a connection: `send` leads to `deliver`, in order, when the line allows it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, delay_ms: Callable[[], int | None], deliver: Callable[[T], None]
    ) -> None:
        self._loop = loop
        self._delay_ms = delay_ms
        self._deliver = deliver
        self._held: deque[tuple[float, T]] = deque()
        self._beat: asyncio.TimerHandle | None = None

    def send(self, what: T) -> None:
        self._held.append((self._loop.time() + (self._delay_ms() or 0) / 1000, what))
        if self._beat is None:
            self._pass_on()

    def close(self) -> None:
        self._held.clear()
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None

    def _pass_on(self) -> None:
        self._beat = None
        held = self._held
        while held:
            wait_s = CUT_POLL_S if self._delay_ms() is None else held[0][0] - self._loop.time()
            if wait_s > 0:
                self._beat = self._loop.call_later(wait_s, self._pass_on)
                return
            self._deliver(held.popleft()[1])


async def until_mended(link: Link | None, host: str, port: int) -> None:
    """Nobody connects over a line that is cut."""
    while True:
        if link is None or link(host, port) is not None:
            return
        await asyncio.sleep(CUT_POLL_S)
