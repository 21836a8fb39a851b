"""Several brokers that replicate to each other, in memory and in virtual time, and a controller that the test drives.

The brokers consist of the real partitions, fetchers and handlers behind a real router, and exchange encoded messages.
The controller is a simple one: it keeps one topic, answers AlterPartition as Kafka's does, and elects leaders when a
test calls it. With a `Random`, delays and losses are random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from harness.raised_faults import own_work
from moldau.base.cluster_settings import ReplicaFetchSettings
from moldau.base.counters import Counters
from moldau.base.errors import ErrorCode, KafkaError, StorageFault
from moldau.base.persistent_map import PersistentMap
from moldau.base.promise import Promise
from moldau.base.topic_configs import topic_config_texts
from moldau.log.config import LogConfig
from moldau.log.store import LogStore
from moldau.metadata.apply import Changes
from moldau.metadata.broker_configs import broker_layers
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import BrokerImage, Endpoint, MetadataImage, PartitionState, TopicImage
from moldau.metadata.records import ConfigResource
from moldau.replica.flushing import Flushable
from moldau.replica.follower_log import FollowerLog
from moldau.replica.partition import Partition
from moldau.replica.partitions import Partitions
from moldau.replica.replication import Replication
from moldau.replica.sessions import SessionCache
from moldau.replica.throttle import Throttles
from moldau.replica.verification import Verifications
from moldau.replica.waiting import ParkedFetches
from moldau.runtime.broker.broker_client import BrokerClient
from moldau.runtime.coordinators.transaction_gate import Patience, TransactionGate
from moldau.runtime.coordinators.transaction_verifier import TransactionVerifier
from moldau.runtime.replication.fetchers import ReplicaFetchers
from moldau.runtime.replication.isr_changes import IsrChanges
from moldau.security.acls.access import UNRESTRICTED
from moldau.server.handlers.delete_records import DeleteRecords
from moldau.server.handlers.fetch import Fetch
from moldau.server.handlers.list_offsets import ListOffsets
from moldau.server.handlers.produce import Produce
from moldau.server.router import Router
from moldau.testing.clock import FakeClock, FakeTimers
from moldau.testing.files import MemoryFiles
from moldau.testing.ports import at_once
from moldau.wire.apis import ApiKey, response_class
from moldau.wire.codec import Outgoing
from moldau.wire.frames import read_response, request_frame
from moldau.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)
from moldau.wire.messages.fetch import FetchResponse
from moldau.wire.schema import Message

LISTENER = "PLAINTEXT"
TOPIC = "a"
TOPIC_ID = b"the id of topic!"
Call = Callable[[], None]


class ToyController:
    """Keeps the partitions of one topic, and the brokers. Each change is published as an image to every broker."""

    def __init__(self, world: ReplicaWorld, configs: Mapping[str, str]) -> None:
        self.world = world
        self.partitions: list[PartitionState] = []
        self.brokers: dict[int, BrokerImage] = {}
        self.configs = dict(configs)
        self.is_reachable = True
        self.elects_new_isr_members = False
        """Whether it often elects the replica that just joined the ISR, the most likely one to lack records."""
        self.offset = 0

    def image(self) -> MetadataImage:
        topics = [TopicImage(TOPIC, TOPIC_ID, tuple(self.partitions))] if self.partitions else []
        return MetadataImage(
            self.offset,
            1,
            topics=PersistentMap({topic.name: topic for topic in topics}),
            topic_names=PersistentMap({topic.id: topic.name for topic in topics}),
            brokers=PersistentMap(self.brokers),
            configs=PersistentMap({(int(ConfigResource.TOPIC), TOPIC): self.configs}),
        )

    def publish(self, *broker_ids: int) -> None:
        self.offset += 1
        changes = Changes(
            topics={TOPIC: set(range(len(self.partitions)))} if self.partitions else {}, brokers=set(broker_ids)
        )
        changes.configs.add((ConfigResource.TOPIC, TOPIC))
        image = self.image()
        for node in self.world.nodes.values():
            node.expect(image, changes)

    def register(self, broker_id: int, rack: str | None = None) -> int:
        self.offset += 1
        endpoints = (Endpoint(LISTENER, f"host{broker_id}", 9092, 0),)
        previous = self.brokers.get(broker_id)
        rack = previous.rack if previous is not None and rack is None else rack
        self.brokers[broker_id] = BrokerImage(broker_id, self.offset, bytes(16), endpoints, rack, fenced=False)
        return self.offset

    def change(self, index: int, **fields: Any) -> None:
        """Change a partition's state; a new leader starts a new leader epoch."""
        state = self.partitions[index]
        if "leader" in fields:
            fields["leader_epoch"] = state.leader_epoch + 1
        self.partitions[index] = replace(state, partition_epoch=state.partition_epoch + 1, **fields)

    def fence(self, broker_id: int) -> None:
        self.brokers[broker_id] = replace(self.brokers[broker_id], fenced=True)
        for index in range(len(self.partitions)):
            self.leave_isr(index, broker_id)
        self.publish(broker_id)

    def leave_isr(self, index: int, broker_id: int) -> None:
        """Remove a broker from the ISR, unless it is the last member, which must stay electable."""
        state = self.partitions[index]
        isr = tuple(each for each in state.isr if each != broker_id) or state.isr
        if isr != state.isr:
            self.change(index, isr=isr)
        if state.leader == broker_id:
            self.elect(index)

    def elect(self, index: int) -> None:
        state = self.partitions[index]
        able = [each for each in state.replicas if each in state.isr and not self.brokers[each].fenced]
        first = 0 if self.world.rng is None or not able else self.world.rng.randrange(len(able))
        self.change(index, leader=able[first] if able else -1)

    def ask(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        broker = self.brokers[request.broker_id]
        if broker.epoch != request.broker_epoch:
            return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        topics = [
            ResponseTopicData(topic.topic_id, [self._alter(request.broker_id, each) for each in topic.partitions])
            for topic in request.topics
        ]
        self.publish()
        return AlterPartitionResponse(topics=topics)

    def _alter(self, broker_id: int, request: RequestPartitionData) -> ResponsePartitionData:
        index = request.partition_index
        state = self.partitions[index]
        code = ErrorCode.NONE
        if state.leader != broker_id or request.leader_epoch != state.leader_epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif request.partition_epoch != state.partition_epoch:
            code = ErrorCode.INVALID_UPDATE_VERSION
        elif not all(self._may_be_in_sync(each.broker_id, each.broker_epoch) for each in request.new_isr_with_epochs):
            code = ErrorCode.INELIGIBLE_REPLICA
        if code:
            return ResponsePartitionData(index, code)
        has_grown = len(request.new_isr_with_epochs) > len(state.isr)
        self.change(index, isr=tuple(each.broker_id for each in request.new_isr_with_epochs))
        state = self.partitions[index]
        if self.elects_new_isr_members and has_grown and self.world.rng is not None and self.world.rng.random() < 0.5:
            self.change(index, leader=state.isr[-1])
        return ResponsePartitionData(
            index, 0, state.leader, state.leader_epoch, state.isr, partition_epoch=state.partition_epoch
        )

    def _may_be_in_sync(self, broker_id: int, broker_epoch: int) -> bool:
        broker = self.brokers[broker_id]
        return not broker.fenced and broker_epoch in (-1, broker.epoch)


class SlowFlusher:
    """A disk whose flushes take time; logs that ask meanwhile are flushed next."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._requested: dict[Flushable, None] = {}
        self._is_busy = False

    def request(self, log: Flushable) -> None:
        self._requested[log] = None
        if not self._is_busy:
            self._begin()

    def _begin(self) -> None:
        logs, self._requested = self._requested, {}
        works = [(each, work) for each in logs if not each.log.fault and (work := each.log.begin_flush())]

        def end() -> None:
            self._is_busy = False
            for each, work in works:
                work.sync()
                each.log.finish_flush(work)
                each.flushed()
            if self._requested:
                self._begin()

        if works:
            self._is_busy = True
            self._node.after_ms(self._node.world.disk_ms(), end)


class Node:
    """One broker. When it is killed, its pending timers and messages are dropped."""

    def __init__(self, world: ReplicaWorld, node_id: int, files: MemoryFiles) -> None:
        self.world = world
        self.id = node_id
        self.files = files
        self.is_alive = True
        self.rng = Random(node_id)
        self.clock = world.clock
        self.reports: list[str] = []
        self.epoch = -1
        self.current = CurrentImage()
        self._images: list[tuple[MetadataImage, Changes]] = []
        self.store = LogStore(files, "data")
        self.store.load(lambda _: LogConfig(), self.clock.now_ms())
        self._build()

    def _note_fault(self, what: str, fault: StorageFault) -> None:
        self.reports.append(f"{what}: {fault}")

    def _build(self) -> None:
        isr_changes = IsrChanges(self.id, lambda: self.epoch, self._ask_controller, own_work(self))
        self.replication = Replication(self.clock, isr_changes, self.world.lag_time_max_ms)
        self.throttles = Throttles(self.id, {}, self.clock)
        self.partitions = Partitions(
            self.id, self.store, SlowFlusher(self), self._effective, self.rng, self._note_fault, self.replication
        )
        self.fetchers = ReplicaFetchers(
            self.id,
            self.partitions,
            FollowerLog(self.store, self.reports.append),
            self,
            LISTENER,
            lambda: self.epoch,
            ReplicaFetchSettings(timeout_ms=1_000, **self.world.fetch_settings),
            self.clock,
            own_work(self),
            self.throttles.follower,
        )
        self.current.add_listener(lambda image, changes: self.partitions.on_image(image, changes, self.clock.now_ms()))
        self.current.add_listener(self.throttles.on_image)
        self.current.add_listener(self.fetchers.on_image)
        isr_changes.look_for_laggards(self.partitions, self.world.lag_time_max_ms // 2)
        parked: ParkedFetches[FetchResponse] = ParkedFetches(self)
        self.sessions = SessionCache(100, 120_000, self.rng)
        self.fetch = Fetch(
            self.current, self.partitions, self.sessions, parked, self.clock, 1 << 24,
            node_id=self.id, replication=self.replication, throttled=self.throttles.leader, rack_aware_reads=True,
        )  # fmt: skip
        brokers = BrokerClient(self.id, self.current, self, LISTENER, "transactions", self._no_transactions)
        verifier = TransactionVerifier(lambda _: self.id, brokers, self)
        gate = TransactionGate(Verifications(), verifier, self.clock, self, Patience(20, 100), lambda: True)
        self.produce = Produce(self.current, self.partitions, gate, self.clock, self, Counters(), at_once)
        self.list_offsets = ListOffsets(self.partitions, self, at_once)
        self.delete_records = DeleteRecords(self.partitions, self)
        self.router = Router()
        self.router.serve([self.fetch, self.produce, self.list_offsets, self.delete_records])

    def _no_transactions(self, api: ApiKey, request: Message) -> Message:
        raise AssertionError("these tests write no transactions")

    def _effective(self, image: MetadataImage, overrides: Mapping[str, str]) -> Mapping[str, str]:
        return topic_config_texts(overrides, broker_layers(image, self.id, {}))

    def partition(self, index: int = 0) -> Partition:
        return self.partitions.get(TOPIC, index)

    # --- the ports: Timers, Peers, Peer -----------------------------------------------------------------------

    def soon(self, call: Call) -> None:
        self.world.timers.soon(lambda: call() if self.is_alive else None)

    def after_ms(self, delay_ms: int, call: Call) -> Any:
        return self.world.timers.after_ms(delay_ms, lambda: call() if self.is_alive else None)

    def to(self, host: str, port: int, purpose: str) -> ToyPeer:
        return ToyPeer(self, int(host.removeprefix("host")))

    def _ask_controller(self, api: ApiKey, request: Message) -> Promise[Any]:
        answer: Promise[Any] = Promise()
        assert isinstance(request, AlterPartitionRequest)

        def arrive() -> None:
            controller = self.world.controller
            reply = controller.ask(request) if controller.is_reachable else KafkaError(ErrorCode.NETWORK_EXCEPTION)
            arrives = controller.is_reachable and not self.world.loses()
            outcome = reply if arrives else KafkaError(ErrorCode.NETWORK_EXCEPTION)
            self.after_ms(self.world.network_ms(), lambda: answer.complete(outcome))

        self.world.timers.after_ms(self.world.network_ms(), arrive)
        return answer

    # --- metadata ---------------------------------------------------------------------------------------------

    def expect(self, image: MetadataImage, changes: Changes) -> None:
        """Deliver the image some time later, and always after the previous one."""
        self._images.append((image, changes))
        self.after_ms(self.world.metadata_ms(), self._learn)

    def _learn(self) -> None:
        if self._images:
            self.current.publish(*self._images.pop(0))


class ToyPeer:
    """A connection to a broker: carries bytes both ways, or fails if either end is dead or cut off."""

    def __init__(self, node: Node, target_id: int) -> None:
        self._node = node
        self._target_id = target_id

    def close(self) -> None:
        """There is nothing to close."""

    def ask(self, api: ApiKey, request: Message, timeout_ms: int, version: int | None = None) -> Promise[Any]:
        world, node = self._node.world, self._node
        answer: Promise[Any] = Promise()
        target = world.nodes.get(self._target_id)

        def fail() -> None:
            if not answer.done:
                answer.complete(KafkaError(ErrorCode.NETWORK_EXCEPTION))

        node.after_ms(timeout_ms, fail)
        if target is None or world.is_cut(node.id, self._target_id) or world.loses():
            node.after_ms(world.network_ms(), fail)
            return answer
        version = target.router.served()[api][1]
        frame = memoryview(request_frame(api, version, 1, "replica", request))[4:]

        def give(body: Message) -> None:
            if not answer.done and not world.is_cut(node.id, self._target_id):
                answer.complete(body)

        def send_back(reply: Outgoing) -> None:
            if not target.is_alive or world.loses():
                node.after_ms(world.network_ms(), fail)
                return
            body = read_response(response_class(api), memoryview(_flat(reply))[4:], api, version)[1]
            node.after_ms(world.network_ms(), lambda: give(body))

        def arrive() -> None:
            if not target.is_alive:
                node.after_ms(world.network_ms(), fail)
                return
            reply = target.router.answer(LISTENER, "peer:1", UNRESTRICTED, frame)
            assert reply is not None
            if isinstance(reply, Promise):
                reply.then(send_back)
            else:
                send_back(reply)

        world.timers.after_ms(world.network_ms(), arrive)
        return answer


def _flat(reply: Outgoing) -> bytes:
    out, position = bytearray(), 0
    for place, records in reply.slices:
        out += reply[position:place] + records.read()
        position = place
    return bytes(out + reply[position:])


class ReplicaWorld:
    """Without an `rng` the network takes 1 ms, disk and metadata take no time, and no message is lost."""

    def __init__(
        self,
        nodes: int = 3,
        partitions: int = 1,
        rng: Random | None = None,
        *,
        racks: Mapping[int, str] | None = None,
        fetch_settings: Mapping[str, int] | None = None,
        lag_time_max_ms: int = 2_000,
        **configs: str,
    ) -> None:
        self.lag_time_max_ms = lag_time_max_ms
        self.rng = rng
        self.clock = FakeClock()
        self.timers = FakeTimers(self.clock)
        self.fetch_settings = dict(fetch_settings or {})
        self.loss = 0.0
        self.cuts: set[frozenset[int]] = set()
        self.nodes: dict[int, Node] = {}
        self.controller = ToyController(self, {key.replace("_", "."): value for key, value in configs.items()})
        everyone = tuple(range(1, nodes + 1))
        for node_id in everyone:
            self.start(node_id, rack=(racks or {}).get(node_id))
        for index in range(partitions):
            replicas = everyone[index % nodes :] + everyone[: index % nodes]
            self.controller.partitions.append(PartitionState(replicas, replicas, replicas[0], 0, 0))
        self.controller.publish(*everyone)

    def network_ms(self) -> int:
        return 1 if self.rng is None else self.rng.choice([1, 1, 2, 3, 20])

    def disk_ms(self) -> int:
        return 0 if self.rng is None else self.rng.choice([0, 1, 5, 30, 100])

    def metadata_ms(self) -> int:
        return 0 if self.rng is None else self.rng.choice([0, 0, 1, 5, 40, 200])

    def loses(self) -> bool:
        return self.rng is not None and self.rng.random() < self.loss

    def is_cut(self, one: int, other: int) -> bool:
        return frozenset({one, other}) in self.cuts

    def run(self, ms: int) -> None:
        self.timers.advance(ms)

    def start(self, node_id: int, files: MemoryFiles | None = None, rack: str | None = None) -> Node:
        node = self.nodes[node_id] = Node(self, node_id, files or MemoryFiles())
        node.epoch = self.controller.register(node_id, rack)
        return node

    def kill(self, node_id: int, rng: Random | None = None) -> MemoryFiles:
        """Kill the process, or with an `rng` the power of its machine; return the files that are left."""
        node = self.nodes.pop(node_id)
        node.is_alive = False
        return node.files.restart() if rng is None else node.files.crash(rng)
