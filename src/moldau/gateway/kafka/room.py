"""How many bytes may be under way to the brokers: whoever has more waits, and reads no more from its device."""

from __future__ import annotations

import asyncio
from collections import deque


class Room:
    def __init__(self, limit: int, shared: Room | None = None) -> None:
        """`shared` is the room of all: what is taken here is taken there too."""
        self._limit, self._shared = limit, shared
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def bytes_taken(self) -> int:
        return self._taken

    async def take(self, size: int) -> None:
        """Wait until there is room, in turn, and take it. What is larger than the limit has room alone."""
        await self._take(size)
        if self._shared is not None:
            try:
                await self._shared.take(size)
            except asyncio.CancelledError:
                self._release(size)
                raise

    def give_back(self, size: int) -> None:
        self._release(size)
        if self._shared is not None:
            self._shared.give_back(size)

    async def _take(self, size: int) -> None:
        if not self._waiting and self._has_room(size):
            self._taken += size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._grant()
            else:
                self._release(size)
            raise

    def _release(self, size: int) -> None:
        self._taken -= size
        self._grant()

    def _grant(self) -> None:
        """Let those in who are first and have room. A turn is cancelled before its waiter runs again and knows it."""
        while self._waiting:
            size, turn = self._waiting[0]
            if not turn.cancelled():
                if not self._has_room(size):
                    return
                self._taken += size
                turn.set_result(None)
            self._waiting.popleft()

    def _has_room(self, size: int) -> bool:
        return not self._taken or self._taken + size <= self._limit
