"""The network between processes, in virtual time, and `moldau.client.peers` over it.

When a process dies, its connections close and the other ends are notified at once. A host that loses power or is
disconnected does not answer: messages to it wait and arrive when the link is up again, even if their sender has timed
out.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from machines.connection import Connection, Listening, PendingRequest, Pipe
from machines.process import Process
from moldau.base.errors import ErrorCode, MalformedData, StorageFault
from moldau.base.promise import Promise
from moldau.wire.apis import ApiKey
from moldau.wire.schema import Message

if TYPE_CHECKING:
    from machines.world import World

LATENCY_MS = (1, 5)
SLOW_SHARE = 0.004
SLOW_MS = (20, 400)
LOSS = 0.0004
After = Callable[[int, Callable[[], None]], Any]


class SimulatedPeer:
    """Implements `moldau.client.peers.Peer` over this network."""

    def __init__(self, network: Network, owner: Process, after_ms: After, host: str, port: int) -> None:
        self._network = network
        self._owner = owner
        self._after_ms = after_ms
        self._host = host
        self._port = port
        self._connection: Connection | None = None

    def ask(self, api: ApiKey, request: Message, timeout_ms: int, version: int | None = None) -> Promise[Any]:
        if self._connection is None:
            self._connection = Connection(self._network, self._owner, self._host, self._port, self)
            self._network.opened(self._connection)
        connection = self._connection
        pending = PendingRequest(api, request, version)
        pending.timer = self._after_ms(timeout_ms, lambda: connection.timed_out(pending))
        connection.ask(pending)
        return pending.later

    def connection_closed(self, connection: Connection) -> None:
        if self._connection is connection:
            self._connection = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.drop(None, ErrorCode.NETWORK_EXCEPTION)


class SimulatedPeers:
    """Implements `moldau.client.peers.Peers`: the network as one process sees it."""

    def __init__(self, network: Network, owner: Process, after_ms: After) -> None:
        self._network = network
        self._owner = owner
        self._after_ms = after_ms
        self._peers: dict[tuple[str, int, str], SimulatedPeer] = {}

    def to(self, host: str, port: int, purpose: str) -> SimulatedPeer:
        found = self._peers.get((host, port, purpose))
        if found is None:
            found = SimulatedPeer(self._network, self._owner, self._after_ms, host, port)
            self._peers[host, port, purpose] = found
        return found

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()


class Network:
    def __init__(self, world: World, rng: Random) -> None:
        self.world = world
        self.rng = rng
        self.timers = world.timers
        self.now_ms = world.clock.monotonic_ms
        self.listening: dict[tuple[str, int], Listening] = {}
        self.connections: dict[int, Connection] = {}
        self.blocked: dict[Pipe, None] = {}
        """Pipes with waiting messages."""
        self.loss = 0.0
        self.slow_ms = SLOW_MS
        """How long a message takes that is slow."""
        self.lost = 0
        self._cuts: dict[tuple[str, str], int] = {}
        """Number of faults that cut the link from one host to another."""
        self._without_power: dict[str, None] = {}
        self._slow: dict[str, int] = {}
        """Factor by which messages to and from a host take longer."""
        self._numbers = 0

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def opened(self, connection: Connection) -> None:
        self.connections[connection._number] = connection

    def latency_ms(self, source: str, target: str) -> int:
        chance = self.rng.random
        is_slow = chance() < SLOW_SHARE
        if is_slow:
            self.world.message_is_slow(source, target)
        low, high = self.slow_ms if is_slow else LATENCY_MS
        latency_ms = low + int(chance() * (high - low))
        if self._slow:
            latency_ms *= max(self._slow.get(source, 1), self._slow.get(target, 1))
        return latency_ms

    def loses(self) -> bool:
        return self.rng.random() < self.loss

    # --- processes ------------------------------------------------------------------------------------------------

    def listen(self, host: str, port: int, listening: Listening) -> None:
        self.listening[host, port] = listening

    def process_died(self, process: Process) -> None:
        for connection in list(self.connections.values()):
            connection.process_died(process)

    def power_lost(self, process: Process) -> None:
        for connection in list(self.connections.values()):
            connection.power_lost(process)
        for pipe in self.blocked:
            if pipe.source == process.host:
                pipe.discard()

    def power_off(self, host: str) -> None:
        """The host loses power: it does not even refuse connections."""
        self._without_power[host] = None

    def power_on(self, host: str) -> None:
        self._without_power.pop(host, None)
        self._release()

    # --- links ----------------------------------------------------------------------------------------------------

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts or target in self._without_power

    def cut(self, source: str, target: str) -> None:
        self._cuts[source, target] = self._cuts.get((source, target), 0) + 1

    def restore(self, source: str, target: str) -> None:
        left = self._cuts.pop((source, target), 0) - 1
        if left > 0:
            self._cuts[source, target] = left
        else:
            self._release()

    def restore_all(self) -> None:
        self._cuts.clear()
        self._slow.clear()
        self._release()

    def slow_down(self, host: str, factor: int) -> None:
        self._slow[host] = factor

    def speed_up(self, host: str) -> None:
        self._slow.pop(host, None)

    def _release(self) -> None:
        free = [pipe for pipe in self.blocked if not self.is_cut(pipe.source, pipe.target)]
        for pipe in free:
            del self.blocked[pipe]
            pipe.release()

    # --- checks ---------------------------------------------------------------------------------------------------

    def judge_refusal(self, bad: MalformedData) -> None:
        """A broker may close a connection for malformed data or a disk error, never for an internal error."""
        cause = bad.__cause__
        if cause is None or not isinstance(cause, (MalformedData, StorageFault)):
            self.world.failed_inside(bad if cause is None else cause)
