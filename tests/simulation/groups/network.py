"""The network between clients and the broker: requests and responses are delayed, get lost, and end with the process. A
share of them goes as bytes through the router, the rest directly to its handler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from reading_client import EXCUSE_MS

from moldau.base.promise import Promise
from moldau.security.acls.access import UNRESTRICTED
from moldau.server.handler import Caller
from moldau.wire.apis import response_class
from moldau.wire.frames import read_response, request_frame
from moldau.wire.schema import Message

if TYPE_CHECKING:
    from groups.node import Process
    from groups.world import GroupsWorld

FRAMED_SHARE = 0.25
SLOW_SHARE = 0.005
SLOW_MS = 3_000
LATE_MS = 20_000
"""How long a late message may still have consequences."""
LOSS = 0.002
ADDRESS = "10.0.0.7:41234"
OnReply = Callable[[Any], None]
"""Called with the response, or None if there was none."""


@dataclass(slots=True, eq=False)
class Call:
    """A request in flight, as client, broker and checks see it."""

    sender: str
    api: int
    version: int
    request: Any
    on_reply: OnReply
    asked_ms: int
    delivered_ms: int = -1
    is_over: bool = False
    """Whether the client no longer waits."""
    noted: dict[Any, Any] = field(default_factory=dict)
    """What the checks remember until the response."""


class Network:
    def __init__(self, world: GroupsWorld, rng: Random) -> None:
        self._world = world
        self._rng = rng
        self.loss = LOSS
        self.lost = 0
        self._last_due_ms: dict[str, int] = {}
        self.parked: dict[Call, int] = {}
        """Requests that the process has not answered yet, with the time of their arrival."""

    def latency_ms(self, sender: str) -> int:
        if self._rng.random() < SLOW_SHARE:
            self._excuse(sender, LATE_MS)
            return self._rng.randint(100, SLOW_MS)
        return self._rng.randint(1, 12)

    def _excuse(self, sender: str, duration_ms: int) -> None:
        client = self._world.clients.get(sender)
        if client is not None:
            client.excuse(duration_ms)

    def ask(self, sender: str, api: int, version: int, request: Message, timeout_ms: int, on_reply: OnReply) -> None:
        call = Call(sender, api, version, request, on_reply, self._world.elapsed_ms)
        timers = self._world.timers
        if not self._is_lost(sender):
            # All use one connection: none overtakes another.
            due_ms = max(self._world.elapsed_ms + self.latency_ms(sender), self._last_due_ms.get(sender, 0))
            self._last_due_ms[sender] = due_ms
            timers.after_ms(due_ms - self._world.elapsed_ms, lambda: self._deliver(call))
        timers.after_ms(timeout_ms, lambda: self._reply(call, None))

    def _is_lost(self, sender: str) -> bool:
        if self._rng.random() >= self.loss:
            return False
        self.lost += 1
        self._excuse(sender, EXCUSE_MS)
        return True

    def _deliver(self, call: Call) -> None:
        if call.is_over:
            return
        process = self._world.process
        if process is None:
            self._send_back(call, None)
            return
        call.delivered_ms = self._world.elapsed_ms
        self._world.ledger.delivered(call)
        self.parked[call] = call.delivered_ms
        if self._rng.random() < FRAMED_SHARE:
            answer = self._as_frame(process, call)
        else:
            answer = process.handlers[call.api].answer(
                call.request, Caller("PLAINTEXT", ADDRESS, call.sender, call.version)
            )
        if isinstance(answer, Promise):
            answer.then(lambda response: self._answered(call, response))
        else:
            self._answered(call, answer)

    def _as_frame(self, process: Process, call: Call) -> Any:
        frame = request_frame(call.api, call.version, 7, call.sender, call.request)
        answer = process.router.answer("PLAINTEXT", ADDRESS, UNRESTRICTED, memoryview(bytes(frame[4:])))
        assert answer is not None
        if isinstance(answer, Promise):
            return answer.map(lambda reply: self._read(call, reply))
        return self._read(call, answer)

    def _read(self, call: Call, reply: Any) -> Message:
        assert reply, f"the reply to {call.request} could not be written"
        _, response = read_response(response_class(call.api), bytes(reply[4:]), call.api, call.version)
        return response

    def _answered(self, call: Call, response: Any) -> None:
        if self.parked.pop(call, None) is None:
            return  # from a process that has ended
        self._world.ledger.answered(call, response)
        if not self._is_lost(call.sender):
            self._send_back(call, response)

    def _send_back(self, call: Call, response: Any) -> None:
        self._world.timers.after_ms(self.latency_ms(call.sender), lambda: self._reply(call, response))

    def _reply(self, call: Call, response: Any) -> None:
        if not call.is_over:
            call.is_over = True
            call.on_reply(response)

    def disconnected(self) -> None:
        """The process has ended with all its unanswered requests."""
        parked, self.parked = self.parked, {}
        for call in parked:
            self._world.ledger.unanswered(call)
            self._send_back(call, None)
