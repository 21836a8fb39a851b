"""A connection between two processes in virtual time: two pipes that carry bytes in order, and fail as TCP does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from machines.process import Process
from moldau.base.errors import ErrorCode, KafkaError, MalformedData, StorageFault
from moldau.base.promise import Promise
from moldau.security.acls.access import UNRESTRICTED, Access
from moldau.server.conversation import ConnectionBudget, Conversation, Reply
from moldau.wire.apis import APIS, ApiKey, response_class
from moldau.wire.codec import Outgoing
from moldau.wire.frames import read_response, request_frame
from moldau.wire.schema import Message

if TYPE_CHECKING:
    from machines.network import Network, SimulatedPeer

ZOMBIE_SHARE = 0.5
"""Share of the messages in flight that still arrive after their sender has given up."""
FRAME_BYTES_MAX = 1 << 24
Deliver = Callable[[], None]


class AnswersFrames(Protocol):
    """A router, or what stands before it."""

    def served(self) -> dict[int, tuple[int, int]]: ...

    def answer(self, listener: str, address: str, access: Access, frame: memoryview) -> Reply: ...


class Listening(NamedTuple):
    """A process that accepts connections at an address."""

    process: Process
    router: AnswersFrames
    name: str
    on_closed: Callable[[str], None]
    """Called with the address of a client whose connection is closed."""


class Pipe:
    """One direction of a connection: messages arrive in order, or wait while the link is cut."""

    __slots__ = ("_due_ms", "_network", "_queue", "is_lost", "source", "target", "waiting")

    def __init__(self, network: Network, source: str, target: str) -> None:
        self._network = network
        self.source = source
        self.target = target
        self._queue: deque[Deliver] = deque()
        self.waiting = 0
        """Number of messages that would have arrived by now if the link were not cut."""
        self.is_lost = False
        """Nothing arrives any more, and neither end is notified."""
        self._due_ms = 0

    def send(self, deliver: Deliver) -> None:
        if not self.is_lost:
            self._queue.append(deliver)
            self._schedule()

    def _schedule(self) -> None:
        network = self._network
        now_ms = network.now_ms()
        self._due_ms = max(self._due_ms, now_ms + network.latency_ms(self.source, self.target))
        network.timers.after_ms(self._due_ms - now_ms, self._arrive)

    def _arrive(self) -> None:
        """Deliver the first message in the pipe."""
        if self.is_lost or not self._queue:
            return
        if self._network.is_cut(self.source, self.target):
            self.waiting += 1
            self._network.blocked[self] = None
        else:
            self._queue.popleft()()

    def release(self) -> None:
        """Deliver what waited: the link is up again."""
        waiting, self.waiting = self.waiting, 0
        for _ in range(waiting):
            self._schedule()

    def discard(self) -> None:
        self._queue.clear()
        self.waiting = 0


class PendingRequest:
    __slots__ = ("api", "correlation_id", "is_over", "later", "request", "timer", "version")

    def __init__(self, api: ApiKey, request: Message, version: int | None) -> None:
        self.api = api
        self.request = request
        self.version = version
        self.later: Promise[Any] = Promise()
        self.correlation_id = 0
        self.is_over = False
        self.timer: Any = None


class Connection:
    """Both ends of a connection. The client's end belongs to `owner`; the server's is made when the first bytes
    arrive."""

    def __init__(self, network: Network, owner: Process, host: str, port: int, peer: SimulatedPeer) -> None:
        self._network = network
        self._owner = owner
        self._peer = peer
        self._address = (host, port)
        self._number = network.next_number()
        self._client_address = f"{owner.host}:{self._number}"
        self._there = Pipe(network, owner.host, host)
        self._back = Pipe(network, host, owner.host)
        self._unsent: deque[PendingRequest] | None = deque()
        """Requests that wait until the connection is open."""
        self._in_flight: deque[PendingRequest] = deque()
        self.is_closed = False
        """Whether the client's end is closed."""
        self._server: Listening | None = None
        self._served: dict[int, tuple[int, int]] = {}
        self._conversation: Conversation | None = None
        self._there.send(self._syn_arrived)

    # --- the client's end -----------------------------------------------------------------------------------------

    def ask(self, pending: PendingRequest) -> None:
        if self._unsent is not None:
            self._unsent.append(pending)
        else:
            self._send(pending)

    def _opened(self) -> None:
        if self.is_closed or self._unsent is None:
            return
        unsent, self._unsent = self._unsent, None
        for pending in unsent:
            if not self.is_closed:
                self._send(pending)

    def _send(self, pending: PendingRequest) -> None:
        served = self._served.get(pending.api)
        highest = APIS[pending.api].highest
        version = pending.version if pending.version is not None else min(highest, served[1]) if served else -1
        if served is None or not served[0] <= version <= served[1]:
            self.drop(pending, ErrorCode.UNSUPPORTED_VERSION)
            return
        pending.version = version
        pending.correlation_id = self._network.next_number()
        self._in_flight.append(pending)
        frame = request_frame(pending.api, version, pending.correlation_id, self._owner.host, pending.request)
        if self._network.loses():
            self._lose()
        else:
            self._there.send(lambda: self._bytes_arrived(frame))

    def _lose(self) -> None:
        """Lose a message: the connection breaks, or hangs until a request times out."""
        network = self._network
        network.lost += 1
        self._there.is_lost = self._back.is_lost = True
        if network.rng.random() < 0.5:
            network.timers.after_ms(network.latency_ms(self._there.source, self._there.target), self._reset)

    def _replied(self, frame: bytes) -> None:
        if self.is_closed:
            return
        pending = self._in_flight.popleft()
        assert pending.version is not None
        correlation_id, response = read_response(response_class(pending.api), frame[4:], pending.api, pending.version)
        assert correlation_id == pending.correlation_id, "a response to another request"
        self._settle(pending, response)

    def _settle(self, pending: PendingRequest, value: Any) -> None:
        if not pending.is_over:
            pending.is_over = True
            pending.timer.cancel()
            pending.later.complete(value)

    def timed_out(self, pending: PendingRequest) -> None:
        self.drop(pending, ErrorCode.REQUEST_TIMED_OUT)

    def _reset(self) -> None:
        self._owner.act(lambda: self.drop(None, ErrorCode.NETWORK_EXCEPTION))

    def drop(self, culprit: PendingRequest | None, code: ErrorCode) -> None:
        """Close the client's end: all unanswered requests fail."""
        if self.is_closed:
            return
        self._hang_up()
        failed = [*self._in_flight, *(self._unsent or ())]
        if culprit is not None and culprit not in failed:
            failed.append(culprit)
        self._in_flight.clear()
        for pending in failed:
            self._settle(pending, KafkaError(code if pending is culprit else ErrorCode.NETWORK_EXCEPTION))

    def _hang_up(self) -> None:
        self.is_closed = True
        self._peer.connection_closed(self)
        self._network.connections.pop(self._number, None)
        if self._there.waiting and self._network.rng.random() >= ZOMBIE_SHARE:
            self._there.discard()
        self._there.send(self._fin_arrived)

    def process_died(self, process: Process) -> None:
        """The process's kernel closes the connection, so the other end is notified."""
        if process is self._owner and not self.is_closed:
            self._hang_up()
        if self._server is not None and process is self._server.process:
            self._back.send(self._reset)

    def power_lost(self, process: Process) -> None:
        """The other end is not notified."""
        if process is self._owner:
            self.is_closed = True
            self._network.connections.pop(self._number, None)
            self._there.discard()

    # --- the server's end -----------------------------------------------------------------------------------------

    def _syn_arrived(self) -> None:
        listening = self._network.listening.get(self._address)
        if listening is None or not listening.process.is_alive:
            self._back.send(self._reset)  # connection refused
            return
        self._server = listening
        self._served = listening.router.served()
        # The kernel accepts connections even for a stopped process.
        self._conversation = Conversation(
            lambda frame: listening.router.answer(listening.name, self._client_address, UNRESTRICTED, frame),
            self._send_replies,
            FRAME_BYTES_MAX,
            ConnectionBudget(FRAME_BYTES_MAX),
        )
        self._back.send(lambda: self._owner.act(self._opened))

    def _bytes_arrived(self, frame: bytearray) -> None:
        assert self._server is not None
        if not self._server.process.is_alive:
            self._back.send(self._reset)
            return
        self._server.process.act(lambda: self._feed(frame))

    def _feed(self, frame: bytearray) -> None:
        conversation = self._conversation
        if conversation is None:
            return
        try:
            conversation.feed(memoryview(frame))
        except MalformedData as bad:
            self._network.judge_refusal(bad)
            self._close_server()
            return
        self._send_replies()

    def _send_replies(self) -> None:
        while self._conversation is not None and (reply := self._conversation.next_reply()) is not None:
            if not reply:
                self._network.world.violated("a reply could not be written")
                self._close_server()
                return
            try:
                frame = _whole(reply)
            except StorageFault:
                self._close_server()
                return
            if self._network.loses():
                self._lose()
            else:
                self._back.send(self._reply_delivery(frame))

    def _reply_delivery(self, frame: bytes) -> Deliver:
        return lambda: self._owner.act(lambda: self._replied(frame))

    def _close_server(self) -> None:
        self._closed_by_client()
        self._back.send(self._reset)

    def _fin_arrived(self) -> None:
        server = self._server
        if server is not None and server.process.is_alive:
            server.process.act(self._closed_by_client)

    def _closed_by_client(self) -> None:
        if self._conversation is not None and self._server is not None:
            self._conversation.close()
            self._conversation = None
            self._server.on_closed(self._client_address)


def _whole(reply: Outgoing) -> bytes:
    """Return the reply with the records that are still in their files inserted, as they are now."""
    if not reply.slices:
        return bytes(reply)
    out = bytearray()
    position = 0
    for place, records in reply.slices:
        out += reply[position:place]
        out += records.read()
        position = place
    out += reply[position:]
    return bytes(out)
