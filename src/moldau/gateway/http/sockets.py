"""Records over a web socket: the gateway sends messages with records, the client may say how far its group has got."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.websockets import WebSocket, WebSocketDisconnect

from moldau.gateway.http.outgoing import Outgoing
from moldau.gateway.http.positions import positions_of, said
from moldau.gateway.http.words import API_ERRORS
from moldau.gateway.ports import Account
from moldau.web.failures import ApiError, bad_request
from moldau.web.responses import json_bytes

COME_AGAIN: Final = 1001
PROBLEM: Final = 1011


class RecordSocket:
    """A web socket that was accepted."""

    def __init__(self, socket: WebSocket, outgoing: Outgoing, account: Account, topic: str, group: str | None) -> None:
        self._socket, self._outgoing = socket, outgoing
        self._account, self._topic, self._group = account, topic, group

    async def serve(self, seconds_max: float) -> None:
        """Until the client leaves, an error that stays, or for so long: then the client is to come again."""
        talking = [asyncio.create_task(self._tell(), name="tell"), asyncio.create_task(self._hear(), name="hear")]
        try:
            done, _ = await asyncio.wait(talking, timeout=seconds_max, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                await self._socket.close(COME_AGAIN, "log in again")
            for task in done:
                await self._end(task)
        finally:
            for task in talking:
                task.cancel()
            await asyncio.gather(*talking, return_exceptions=True)

    async def _tell(self) -> None:
        while True:
            await self._socket.send_text((await self._outgoing.message()).decode())

    async def _hear(self) -> None:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message["code"])
            try:
                answer: dict[str, Any] = await self._heard(message.get("text") or "")
            except Exception as error:
                answer = API_ERRORS.of(error).body()
            await self._socket.send_text(json_bytes(answer).decode())

    async def _heard(self, text: str) -> dict[str, Any]:
        """Do what the client says: `{"commit": "0:13,1:40"}`."""
        position = said(text.encode(), "commit")
        if position is None:
            raise bad_request('expected {"commit": POSITION}')
        if self._group is None:
            raise bad_request("a commit needs ?group=GROUP")
        await self._account.commit(self._group, self._topic, positions_of(position))
        return {"committed": position}

    async def _end(self, task: asyncio.Task[None]) -> None:
        error = task.exception()
        if isinstance(error, WebSocketDisconnect):
            return
        if not isinstance(error, Exception):
            raise AssertionError(f"a web socket ended without a reason: {error!r}")
        failed: ApiError = API_ERRORS.of(error)
        await self._socket.send_text(json_bytes(failed.body()).decode())
        await self._socket.close(PROBLEM, failed.code)
