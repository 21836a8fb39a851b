"""Reads the requests of clients as they reach the broker, and its responses as it sends them, for the checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from machines.connection import AnswersFrames

from groups.ledger import ALLOWED
from moldau.base.promise import Promise
from moldau.security.acls.access import Access
from moldau.server.conversation import LongReply, Reply
from moldau.server.late_replies import map_long_reply
from moldau.wire.apis import request_class, response_class
from moldau.wire.codec import Outgoing, decode_from
from moldau.wire.frames import read_request_header, read_response

if TYPE_CHECKING:
    from groups.world import GroupsWorld


@dataclass(slots=True, eq=False)
class Call:
    """A request that has reached the broker."""

    sender: str
    connection: int
    """Connections are numbered in the order in which they were opened."""
    api: int
    version: int
    request: Any
    delivered_ms: int
    is_late: bool = False
    """Whether its sender has given up on it since, and sent another that overtook it."""
    noted: dict[Any, Any] = field(default_factory=dict)
    """What the checks remember until the response."""


class Watch:
    """The requests of groups that the process has not answered yet."""

    def __init__(self, world: GroupsWorld) -> None:
        self._world = world
        self.parked: dict[Call, None] = {}

    def delivered(self, call: Call) -> None:
        self._world.check_loaded()
        self._world.ledger.delivered(call)
        self.parked[call] = None

    def answered(self, call: Call, reply: Outgoing) -> None:
        if call not in self.parked:
            return  # from a process that has ended
        del self.parked[call]
        _, response = read_response(response_class(call.api), bytes(reply[4:]), call.api, call.version)
        self._world.ledger.answered(call, response)

    def process_ends(self) -> None:
        parked, self.parked = self.parked, {}
        for call in parked:
            self._world.ledger.unanswered(call)


class WatchedRouter:
    """Stands before the router of a node and reads what passes."""

    def __init__(self, world: GroupsWorld, router: AnswersFrames) -> None:
        self._world = world
        self._router = router

    def served(self) -> dict[int, tuple[int, int]]:
        return self._router.served()

    def answer(self, listener: str, address: str, access: Access, frame: memoryview) -> Reply:
        (api, version, _, client_id), position = read_request_header(frame)
        if api not in ALLOWED:
            return self._router.answer(listener, address, access, frame)
        request, _ = decode_from(request_class(api), frame, version, position)
        connection = int(address.rpartition(":")[2])
        call = Call(client_id or "", connection, api, version, request, self._world.elapsed_ms)
        self._world.watch.delivered(call)
        reply = self._router.answer(listener, address, access, frame)
        note = partial(self._note, call)
        if isinstance(reply, LongReply):
            return map_long_reply(reply, note)
        return reply.map(note) if isinstance(reply, Promise) else note(reply)

    def _note(self, call: Call, reply: Outgoing) -> Outgoing:
        self._world.watch.answered(call, reply)
        return reply
