"""Whole nodes in one process and in virtual time, each with its clients' and its controllers' listener, and a besieger.

What a node may never do is told at once: an exception that a handler did not mean, a late reply that cannot be written,
a fault. `Besieged.ask` sends one request as a hostile client would and gives what comes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from moldau.assembly import Assembly, World
from moldau.base.errors import ErrorCode, KafkaError, MalformedData, StorageFault
from moldau.base.promise import Promise
from moldau.local_cluster import NodeAddress, node_properties
from moldau.replica.flushing import Flushable
from moldau.server.router import Router
from moldau.settings import from_properties
from moldau.testing.clock import FakeClock, FakeTimers
from moldau.testing.files import MemoryFiles
from moldau.testing.ports import at_once
from moldau.wire.apis import ApiKey, response_class
from moldau.wire.codec import Outgoing
from moldau.wire.frames import read_response, request_frame
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.wire.records import IN_LINE, Record, build_batch
from moldau.wire.schema import Message

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
CLIENT_PORT, CONTROLLER_PORT = 9000, 9100
PATIENCE_MS = 60_000


class Refused:
    """The connection was closed for what was sent."""


def whole(reply: Outgoing) -> bytes:
    """With the records that are still in their files."""
    out, position = bytearray(), 0
    for place, records in reply.slices:
        out += reply[position:place]
        out += records.read()
        position = place
    return bytes(out + reply[position:])


@dataclass
class Sent:
    """A request, and what became of it so far."""

    api: ApiKey
    version: int
    told: Callable[[Any], None] = lambda _: None
    outcome: Any = None
    """A response, `Refused`, or None while it waits."""
    size: int = 0

    @property
    def is_waiting(self) -> bool:
        return self.outcome is None

    def replied(self, reply: Outgoing) -> None:
        assert reply, f"the reply to {self.api.name} v{self.version} could not be written"
        body = memoryview(whole(reply))[4:]
        _, outcome = read_response(response_class(self.api), body, self.api, self.version)
        self.came_to(outcome)

    def came_to(self, outcome: Any) -> None:
        self.outcome = outcome
        self.told(outcome)


def put(router: Router, frame: bytes | bytearray, sent: Sent, listener: str = "CONTROLLER") -> Sent:
    """Hands a frame to a router as a connection would: in a buffer that is another's as soon as the call returns."""
    buffer = bytearray(frame[4:])
    try:
        reply = router.answer(listener, "198.51.100.7:666", memoryview(buffer))
    except MalformedData as bad:
        cause = bad.__cause__
        if cause is not None and not isinstance(cause, (MalformedData, StorageFault)) and "failed here" in str(bad):
            raise AssertionError(f"{sent.api.name} v{sent.version} broke its handler") from cause
        sent.came_to(Refused())
        return sent
    if isinstance(reply, Promise):
        reply.then(sent.replied)
    elif reply is None:
        sent.came_to(Refused())
    else:
        sent.replied(reply)
    buffer[:] = b"\xaa" * len(buffer)
    return sent


class _Line:
    """A `Peer` whose other end is a router of this process, a millisecond away; nobody is there, a refusal."""

    def __init__(self, wires: _Wires, port: int) -> None:
        self._wires = wires
        self._port = port

    def ask(self, api: ApiKey, request: Message, timeout_ms: int, version: int | None = None) -> Promise[Any]:
        answer: Promise[Any] = Promise()
        router = self._wires.routers.get(self._port)
        timers = self._wires.timers
        if router is None:
            timers.after_ms(1, lambda: answer.complete(KafkaError(ErrorCode.NETWORK_EXCEPTION)))
            return answer
        spoken = router.served()[api][1] if version is None else version
        frame = request_frame(api, spoken, 1, None, request)
        late = timers.after_ms(timeout_ms, lambda: answer.complete(KafkaError(ErrorCode.REQUEST_TIMED_OUT)))

        def came(outcome: Any) -> None:
            assert not isinstance(outcome, Refused), f"{api.name} of a node was refused"
            if late.is_pending:
                late.cancel()
                timers.soon(lambda: answer.complete(outcome))

        timers.after_ms(1, lambda: put(router, frame, Sent(api, spoken, came)))
        return answer

    def close(self) -> None:
        """What is under way is answered or times out."""


class _Wires:
    def __init__(self, timers: FakeTimers) -> None:
        self.timers = timers
        self.routers: dict[int, Router] = {}
        self.asked: dict[tuple[str, int], None] = {}

    def to(self, host: str, port: int, purpose: str) -> _Line:
        self.asked[host, port] = None
        return _Line(self, port if host == "127.0.0.1" else -1)


class _PromptFlusher:
    """A disk that takes a millisecond."""

    def __init__(self, timers: FakeTimers) -> None:
        self._timers = timers

    def request(self, log: Flushable) -> None:
        self._timers.after_ms(1, lambda: self._flush(log))

    def _flush(self, log: Flushable) -> None:
        log.log.flush()
        log.flushed()


class Besieged:
    def __init__(self, nodes: int, seed: int = 1, **properties: str) -> None:
        """Settings are Kafka's, with underscores."""
        self._properties = {name.replace("_", "."): value for name, value in properties.items()}
        self.clock = FakeClock()
        self.timers = FakeTimers(self.clock)
        self.rng = Random(seed)
        self.wires = _Wires(self.timers)
        self.routers: dict[int, Router] = {}
        self.faults: list[Exception] = []
        addresses = [NodeAddress(node, CLIENT_PORT + node, CONTROLLER_PORT + node) for node in range(1, nodes + 1)]
        self.nodes = {each.id: self._node(each, addresses) for each in addresses}
        started = [each.start(each.settings.advertised_listeners) for each in self.nodes.values()]
        self.until(lambda: all(each.done for each in started), "all brokers serve")
        self.create("victim", partitions=2)

    def _node(self, address: NodeAddress, addresses: list[NodeAddress]) -> Assembly:
        properties = node_properties(address, addresses, "data") | self._properties
        settings = replace(from_properties(properties), cluster_id=CLUSTER_ID)
        node = Assembly(settings, self._world())
        assert node.broker_side is not None
        assert node.controller_side is not None
        self.routers[address.port] = node.broker_side.router
        self.routers[address.controller_port] = node.controller_side.router
        self.wires.routers.update(self.routers)
        return node

    def _world(self) -> World:
        return World(
            clock=self.clock,
            timers=self.timers,
            files=MemoryFiles(),
            rng=Random(self.rng.random()),
            flusher=_PromptFlusher(self.timers),
            peers=self.wires,
            run_in_thread=at_once,
            disk_space=lambda: (0, 0),
            on_fault=self.faults.append,
            boot_id="the one and only",
        )

    # --- time -----------------------------------------------------------------------------------------------------

    def until(self, holds: Callable[[], object], what: str, patience_ms: int = PATIENCE_MS) -> None:
        for _ in range(0, patience_ms, 5):
            if holds():
                return
            self.timers.advance(5)
        raise AssertionError(f"not within {patience_ms} ms: {what}")

    # --- who is there ---------------------------------------------------------------------------------------------

    def leader(self) -> Assembly | None:
        """Whom a majority follows, itself included, in the latest epoch."""
        drivers = [node.driver for node in self.nodes.values()]
        epoch = max(driver.leader_epoch for driver in drivers)
        leaders = [node for node in self.nodes.values() if node.driver.is_leader and node.driver.leader_epoch == epoch]
        if not leaders:
            return None
        leader_id = leaders[0].settings.node_id
        following = [each for each in drivers if (each.leader_id, each.leader_epoch) == (leader_id, epoch)]
        return leaders[0] if len(following) * 2 > len(drivers) else None

    def led(self) -> Assembly:
        self.until(lambda: self.leader() is not None, "somebody leads")
        found = self.leader()
        assert found is not None
        return found

    @property
    def standing(self) -> tuple[int, int, int]:
        """Leader, epoch, and how far the metadata log is committed."""
        leader = self.led()
        return leader.settings.node_id, leader.driver.leader_epoch, leader.driver.high_watermark

    def cut_off(self, node: int) -> None:
        """Nobody fetches from that node any more; its clients still reach it."""
        del self.wires.routers[CLIENT_PORT + node]

    def heal(self) -> None:
        self.wires.routers.update(self.routers)

    # --- a hostile client -----------------------------------------------------------------------------------------

    def put(self, node: int, frame: bytes | bytearray, sent: Sent, *, to_controller: bool = True) -> Sent:
        port = (CONTROLLER_PORT if to_controller else CLIENT_PORT) + node
        return put(self.routers[port], frame, sent, "CONTROLLER" if to_controller else "PLAINTEXT")

    def post(self, request: Message, api: ApiKey, version: int, node: int = 0, *, to_controller: bool = True) -> Sent:
        """Sends a request to a node, the leader if none is named, and does not wait."""
        frame = request_frame(api, version, 7, "besieger", request)
        node = node or self.led().settings.node_id
        return self.put(node, frame, Sent(api, version, size=len(frame)), to_controller=to_controller)

    def ask(self, request: Message, api: ApiKey, version: int, node: int = 0, *, to_controller: bool = True) -> Any:
        """Sends a request and gives the response to it, or `Refused`."""
        sent = self.post(request, api, version, node, to_controller=to_controller)
        self.until(lambda: not sent.is_waiting, f"{api.name} v{version} is answered")
        return sent.outcome

    # --- a well-behaved one ---------------------------------------------------------------------------------------

    def create(self, name: str, partitions: int = 1) -> None:
        asked = CreateTopicsRequest([CreatableTopic(name, partitions, -1)], timeout_ms=5_000)
        made = self.ask(asked, ApiKey.CREATE_TOPICS, 7, node=1, to_controller=False).topics[0]
        assert made.error_code == ErrorCode.NONE, made.error_message
        self.until(lambda: self._is_led(name), f"{name} is led")

    def _is_led(self, name: str) -> bool:
        for node_id, node in self.nodes.items():
            topic = node.current.image.topics.get(name)
            if topic is None:
                return False
            for index, state in enumerate(topic.partitions):
                if state.leader < 0 or (state.leader == node_id and not self._leads(node, name, index)):
                    return False
        return True

    def _leads(self, node: Assembly, name: str, index: int) -> bool:
        assert node.broker_side is not None
        found = node.broker_side.partitions.find(name, index)
        return found is not None and found.is_leader

    def write(self, name: str, value: bytes = b"v") -> int:
        """Produces with acks=all to the leader of partition 0; gives the offset."""
        sent = self.begin_write(name, value)
        self.until(lambda: not sent.is_waiting, f"{name} is written to")
        written = sent.outcome.responses[0].partition_responses[0]
        assert written.error_code == ErrorCode.NONE, ErrorCode(written.error_code).name
        return int(written.base_offset)

    def begin_write(self, name: str, value: bytes = b"v") -> Sent:
        image = self.led().current.image
        leader = image.topics[name].partitions[0].leader
        batch = build_batch([Record(IN_LINE, self.clock.now_ms(), None, value)])
        data = [TopicProduceData(name=name, partition_data=[PartitionProduceData(0, bytes(batch))])]
        asked = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=data)
        return self.post(asked, ApiKey.PRODUCE, 11, leader, to_controller=False)

    def check_health(self) -> None:
        """All brokers take part, and a topic can be made and written to by a client of any of them."""
        self.until(self._all_live, "all brokers are unfenced")
        name = f"healthy-{self.rng.randrange(1 << 60)}"
        self.create(name)
        assert [self.write(name), self.write(name)] == [0, 1]
        assert not self.faults

    def _all_live(self) -> bool:
        live = {broker.id for broker in self.led().current.image.live_brokers()}
        return live >= set(self.nodes)
