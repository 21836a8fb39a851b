"""A cluster of whole nodes in one process and in virtual time, each with a client and a controller listener.

A test fails at once when a node does what it must never do: a handler raises an unexpected exception, or a late reply
cannot be encoded. `AttackedCluster.ask` sends one request as a hostile client would and returns the outcome.
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
from moldau.security.acls.access import UNRESTRICTED
from moldau.server.router import Router
from moldau.settings import from_properties
from moldau.testing.clock import FakeClock, FakeTimers
from moldau.testing.files import MemoryFiles
from moldau.testing.ports import at_once
from moldau.wire.apis import ApiKey, response_class
from moldau.wire.codec import NO_REPLY, Outgoing, Refusal
from moldau.wire.frames import read_response, request_frame
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.wire.records import NEXT_OFFSET, Record, build_batch
from moldau.wire.schema import Message

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
CLIENT_PORT, CONTROLLER_PORT = 9000, 9100
PATIENCE_MS = 60_000


class ConnectionClosed:
    """The outcome of a request for which the broker closed the connection."""


def reply_bytes(reply: Outgoing) -> bytes:
    """Return the reply with the records that are still in their files inserted."""
    out, position = bytearray(), 0
    for place, records in reply.slices:
        out += reply[position:place]
        out += records.read()
        position = place
    return bytes(out + reply[position:])


@dataclass
class SentRequest:
    """A request and its outcome so far."""

    api: ApiKey
    version: int
    on_outcome: Callable[[Any], None] = lambda _: None
    outcome: Any = None
    """A response, `ConnectionClosed`, or None while the request waits."""
    size: int = 0

    @property
    def is_waiting(self) -> bool:
        return self.outcome is None

    def on_reply(self, reply: Outgoing) -> None:
        if isinstance(reply, Refusal):  # of a large request, which is decoded in a thread, or of a long one
            assert "failed here" not in reply.refusal, reply.refusal
            self.finish(ConnectionClosed())
            return
        assert reply, f"the reply to {self.api.name} v{self.version} could not be written"
        body = memoryview(reply_bytes(reply))[4:]
        _, outcome = read_response(response_class(self.api), body, self.api, self.version)
        self.finish(outcome)

    def finish(self, outcome: Any) -> None:
        self.outcome = outcome
        self.on_outcome(outcome)


def deliver(router: Router, frame: bytes | bytearray, sent: SentRequest, listener: str = "CONTROLLER") -> SentRequest:
    """Hand a frame to a router as a connection would: in a buffer that is overwritten as soon as the call returns."""
    buffer = bytearray(frame[4:])
    try:
        reply = router.answer(listener, "198.51.100.7:666", UNRESTRICTED, memoryview(buffer))
    except MalformedData as bad:
        cause = bad.__cause__
        if cause is not None and not isinstance(cause, (MalformedData, StorageFault)) and "failed here" in str(bad):
            raise AssertionError(f"{sent.api.name} v{sent.version} broke its handler") from cause
        sent.finish(ConnectionClosed())
        return sent
    if isinstance(reply, Promise):
        reply.then(sent.on_reply)
    elif reply is NO_REPLY:
        sent.finish(ConnectionClosed())
    else:
        sent.on_reply(reply)
    buffer[:] = b"\xaa" * len(buffer)
    return sent


class _LoopbackPeer:
    """A `Peer` whose other end is a router of this process, one millisecond away, or an error if no router is there."""

    def __init__(self, network: _Network, port: int) -> None:
        self._network = network
        self._port = port

    def ask(self, api: ApiKey, request: Message, timeout_ms: int, version: int | None = None) -> Promise[Any]:
        promise: Promise[Any] = Promise()
        router = self._network.routers.get(self._port)
        timers = self._network.timers
        if router is None:
            timers.after_ms(1, lambda: promise.complete(KafkaError(ErrorCode.NETWORK_EXCEPTION)))
            return promise
        actual_version = router.served()[api][1] if version is None else version
        frame = request_frame(api, actual_version, 1, None, request)
        timeout = timers.after_ms(timeout_ms, lambda: promise.complete(KafkaError(ErrorCode.REQUEST_TIMED_OUT)))

        def on_outcome(outcome: Any) -> None:
            assert not isinstance(outcome, ConnectionClosed), (
                f"the connection was closed for {api.name} from another node"
            )
            if timeout.is_pending:
                timeout.cancel()
                timers.soon(lambda: promise.complete(outcome))

        timers.after_ms(1, lambda: deliver(router, frame, SentRequest(api, actual_version, on_outcome)))
        return promise

    def close(self) -> None:
        """Requests in flight are still answered or time out."""


class _Network:
    def __init__(self, timers: FakeTimers) -> None:
        self.timers = timers
        self.routers: dict[int, Router] = {}
        self.contacted_addresses: dict[tuple[str, int], None] = {}

    def to(self, host: str, port: int, purpose: str) -> _LoopbackPeer:
        self.contacted_addresses[host, port] = None
        return _LoopbackPeer(self, port if host == "127.0.0.1" else -1)


class _PromptFlusher:
    """A disk on which a flush takes one millisecond."""

    def __init__(self, timers: FakeTimers) -> None:
        self._timers = timers

    def request(self, log: Flushable) -> None:
        self._timers.after_ms(1, lambda: self._flush(log))

    def _flush(self, log: Flushable) -> None:
        log.log.flush()
        log.flushed()


class AttackedCluster:
    def __init__(self, node_count: int, seed: int = 1, **properties: str) -> None:
        """`properties` are Kafka's settings, with underscores instead of dots."""
        self._properties = {name.replace("_", "."): value for name, value in properties.items()}
        self.clock = FakeClock()
        self.timers = FakeTimers(self.clock)
        self.rng = Random(seed)
        self.network = _Network(self.timers)
        self.routers: dict[int, Router] = {}
        self.faults: list[Exception] = []
        addresses = [NodeAddress(node, CLIENT_PORT + node, CONTROLLER_PORT + node) for node in range(1, node_count + 1)]
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
        self.network.routers.update(self.routers)
        return node

    def _world(self) -> World:
        return World(
            clock=self.clock,
            timers=self.timers,
            files=MemoryFiles(),
            rng=Random(self.rng.random()),
            flusher=_PromptFlusher(self.timers),
            peers=self.network,
            run_in_thread=at_once,
            disk_space=lambda: (0, 0),
            on_fault=self.faults.append,
            boot_id="the only boot",
        )

    # --- time -----------------------------------------------------------------------------------------------------

    def until(self, holds: Callable[[], object], what: str, patience_ms: int = PATIENCE_MS) -> None:
        for _ in range(0, patience_ms, 5):
            if holds():
                return
            self.timers.advance(5)
        raise AssertionError(f"not within {patience_ms} ms: {what}")

    # --- the quorum -----------------------------------------------------------------------------------------------

    def leader(self) -> Assembly | None:
        """Return the node that a majority, itself included, follows in the latest epoch."""
        drivers = [node.driver for node in self.nodes.values()]
        epoch = max(driver.leader_epoch for driver in drivers)
        leaders = [node for node in self.nodes.values() if node.driver.is_leader and node.driver.leader_epoch == epoch]
        if not leaders:
            return None
        leader_id = leaders[0].settings.node_id
        following = [each for each in drivers if (each.leader_id, each.leader_epoch) == (leader_id, epoch)]
        return leaders[0] if len(following) * 2 > len(drivers) else None

    def wait_for_leader(self) -> Assembly:
        self.until(lambda: self.leader() is not None, "the quorum has a leader")
        leader = self.leader()
        assert leader is not None
        return leader

    @property
    def quorum_state(self) -> tuple[int, int, int]:
        """Leader id, epoch and high watermark of the metadata log."""
        leader = self.wait_for_leader()
        return leader.settings.node_id, leader.driver.leader_epoch, leader.driver.high_watermark

    def cut_off(self, node: int) -> None:
        """Stop other nodes from fetching from this node; its clients still reach it."""
        del self.network.routers[CLIENT_PORT + node]

    def heal(self) -> None:
        self.network.routers.update(self.routers)

    # --- a hostile client -----------------------------------------------------------------------------------------

    def deliver(
        self, node: int, frame: bytes | bytearray, sent: SentRequest, *, to_controller: bool = True
    ) -> SentRequest:
        port = (CONTROLLER_PORT if to_controller else CLIENT_PORT) + node
        return deliver(self.routers[port], frame, sent, "CONTROLLER" if to_controller else "PLAINTEXT")

    def send(
        self, request: Message, api: ApiKey, version: int, node: int = 0, *, to_controller: bool = True
    ) -> SentRequest:
        """Send a request to a node (0: the quorum's leader) and do not wait for the response."""
        frame = request_frame(api, version, 7, "attacker", request)
        node = node or self.wait_for_leader().settings.node_id
        return self.deliver(node, frame, SentRequest(api, version, size=len(frame)), to_controller=to_controller)

    def ask(self, request: Message, api: ApiKey, version: int, node: int = 0, *, to_controller: bool = True) -> Any:
        """Send a request and return the response, or `ConnectionClosed`."""
        sent = self.send(request, api, version, node, to_controller=to_controller)
        self.until(lambda: not sent.is_waiting, f"{api.name} v{version} is answered")
        return sent.outcome

    # --- a well-behaved client ------------------------------------------------------------------------------------

    def create(self, name: str, partitions: int = 1) -> None:
        request = CreateTopicsRequest([CreatableTopic(name, partitions, -1)], timeout_ms=5_000)
        created = self.ask(request, ApiKey.CREATE_TOPICS, 7, node=1, to_controller=False).topics[0]
        assert created.error_code == ErrorCode.NONE, created.error_message
        self.until(lambda: self._is_led(name), f"every partition of {name} has a leader")

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
        partition = node.broker_side.partitions.find(name, index)
        return partition is not None and partition.is_leader

    def write(self, name: str, value: bytes = b"v") -> int:
        """Produce with acks=all to the leader of partition 0; return the offset."""
        sent = self.begin_write(name, value)
        self.until(lambda: not sent.is_waiting, f"the write to {name} is acknowledged")
        written = sent.outcome.responses[0].partition_responses[0]
        assert written.error_code == ErrorCode.NONE, ErrorCode(written.error_code).name
        return int(written.base_offset)

    def begin_write(self, name: str, value: bytes = b"v") -> SentRequest:
        image = self.wait_for_leader().current.image
        leader = image.topics[name].partitions[0].leader
        batch = build_batch([Record(NEXT_OFFSET, self.clock.now_ms(), None, value)])
        data = [TopicProduceData(name=name, partition_data=[PartitionProduceData(0, bytes(batch))])]
        request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=data)
        return self.send(request, ApiKey.PRODUCE, 11, leader, to_controller=False)

    def check_health(self) -> None:
        """Check that all brokers are unfenced and that a new topic can be created and written to."""
        self.until(self._all_live, "all brokers are unfenced")
        name = f"healthy-{self.rng.randrange(1 << 60)}"
        self.create(name)
        assert [self.write(name), self.write(name)] == [0, 1]
        assert not self.faults

    def _all_live(self) -> bool:
        live = {broker.id for broker in self.wait_for_leader().current.image.live_brokers()}
        return live >= set(self.nodes)
