"""Three brokers replicate while processes die, power fails, leaders change and messages are lost, at random.

Records below a high watermark are the same on all replicas and never change, acknowledged records are never lost, and
repeated batches are written once. At the end, without faults, all logs become equal.
"""

from __future__ import annotations

from random import Random

import pytest
from harness.depth import deep
from harness.replica_world import TOPIC, Node, ReplicaWorld

from moldau.base.errors import ErrorCode
from moldau.base.ids import ZERO_UUID
from moldau.base.promise import Promise
from moldau.log.walk import walk_batches
from moldau.replica.partition import Partition
from moldau.server.handler import Caller
from moldau.testing.files import MemoryFiles
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from moldau.wire.records import NEXT_OFFSET, Record, build_batch, decode_records

SEEDS = deep(10, quick=5)
STEPS = 50
CALLER = Caller("PLAINTEXT", "test:1", "test", 9)
PRODUCERS = 4


def values(partition: Partition, start: int = 0, up_to: int = 1 << 60) -> dict[int, bytes]:
    """Return the records of a log by offset."""
    records: dict[int, bytes] = {}
    for segment in partition.log.segments:
        for header, batch in walk_batches(segment.file, 0, segment.size):
            if start <= header.base_offset < up_to:
                records |= {record.offset: bytes(record.value or b"") for record in decode_records(batch, header)}
    return records


class Producer:
    """Writes one record at a time to the broker it believes to be the leader, until it is acknowledged."""

    def __init__(self, world: ReplicaWorld, rng: Random, producer_id: int) -> None:
        self._world = world
        self._rng = rng
        self._id = producer_id
        self._sequence = 0
        self.acknowledged: dict[int, bytes] = {}
        self._answer: Promise[ProduceResponse] | None = None

    @property
    def value(self) -> bytes:
        return b"%d of producer %d" % (self._sequence, self._id)

    def produce_next(self) -> None:
        if self._answer is not None and not self._answer.done:
            return
        leader = self._world.controller.partitions[0].leader
        node = self._world.nodes.get(leader if self._rng.random() < 0.8 else self._rng.randint(1, 3))
        if node is None:
            return
        record = Record(NEXT_OFFSET, self._world.clock.now_ms(), None, self.value)
        batch = build_batch([record], producer_id=self._id, producer_epoch=0, base_sequence=self._sequence)
        data = [TopicProduceData(ZERO_UUID, TOPIC, [PartitionProduceData(0, memoryview(batch))])]
        answer = node.produce.answer(ProduceRequest(acks=-1, timeout_ms=300, topic_data=data), CALLER)
        assert answer is not None
        if not isinstance(answer, Promise):
            self._take(answer, self._is_leader(node))
            return
        parked: Promise[ProduceResponse] = Promise()
        self._answer = parked
        answer.then(lambda response: None if parked.done else parked.complete(response))
        # A broker that dies does not answer.
        self._world.timers.after_ms(400, lambda: None if parked.done else parked.complete(ProduceResponse()))
        parked.then(self._take)

    def _is_leader(self, node: Node) -> bool:
        """Whether the node is the current leader; an old one may lack records of its successor and report that."""
        partition = node.partitions.find(TOPIC, 0)
        state = self._world.controller.partitions[0]
        return partition is not None and (partition.state.leader_epoch, state.leader) == (state.leader_epoch, node.id)

    def _take(self, response: ProduceResponse, is_of_leader: bool = False) -> None:
        if not response.responses:
            return
        done = response.responses[0].partition_responses[0]
        is_out_of_order = done.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert not (is_out_of_order and is_of_leader), "an acknowledged record was lost"
        if not done.error_code:
            self.acknowledged[done.base_offset] = self.value
            self._sequence += 1


class Chaos:
    def __init__(self, seed: int, is_durable: bool) -> None:
        self.rng = Random(seed)
        configs = {"flush_messages": "1"} if is_durable else {}
        least = str(self.rng.choice([1, 2]))
        self.world = ReplicaWorld(3, 1, self.rng, lag_time_max_ms=150, min_insync_replicas=least, **configs)
        self.world.controller.elects_new_isr_members = True
        self.producers = [Producer(self.world, self.rng, number) for number in range(PRODUCERS)]
        self.is_durable = is_durable
        self.disks: dict[int, tuple[MemoryFiles, bool]] = {}
        self.committed: dict[int, bytes] = {}
        self.seen: dict[Partition, int] = {}
        self.actions = {
            self.work: 8,
            self.kill: 3,
            self.black_out: 2,
            self.start: 6,
            self.move: 4,
            self.cut: 4,
            self.heal: 4,
            self.lose: 3,
        }

    def step(self) -> None:
        self.rng.choices(list(self.actions), list(self.actions.values()))[0]()
        for _ in range(self.rng.randint(1, 10)):
            for producer in self.producers:
                producer.produce_next()
            self.world.run(self.rng.choice([1, 3, 10, 40]))
            self.check()

    def work(self) -> None:
        """Inject no fault."""

    def kill(self) -> None:
        if self.world.nodes:
            self.end(self.rng.choice(list(self.world.nodes)), self.is_durable and self.rng.random() < 0.7)

    def black_out(self) -> None:
        for node_id in list(self.world.nodes):
            self.end(node_id, self.is_durable)

    def end(self, node_id: int, loses_power: bool) -> None:
        self.disks[node_id] = (self.world.kill(node_id, self.rng if loses_power else None), loses_power)
        self.world.timers.after_ms(self.rng.choice([0, 50, 500]), lambda: self.fence(node_id))

    def fence(self, node_id: int) -> None:
        if node_id not in self.world.nodes and not self.world.controller.brokers[node_id].fenced:
            self.world.controller.fence(node_id)

    def start(self) -> None:
        """Start a broker again, without leadership; after a power failure it leaves the ISR unless it is the last."""
        if not self.disks:
            return
        node_id = self.rng.choice(list(self.disks))
        files, lost_power = self.disks.pop(node_id)
        self.world.start(node_id, files)
        controller = self.world.controller
        if lost_power:
            controller.leave_isr(0, node_id)
        if controller.partitions[0].leader in (node_id, -1):
            controller.elect(0)
        controller.publish(node_id)

    def move(self) -> None:
        """Elect another in-sync replica without a reason."""
        state = self.world.controller.partitions[0]
        able = [each for each in state.isr if not self.world.controller.brokers[each].fenced]
        if able:
            self.world.controller.change(0, leader=self.rng.choice(able))
            self.world.controller.publish()

    def cut(self) -> None:
        self.world.cuts.add(frozenset(self.rng.sample([1, 2, 3], 2)))

    def lose(self) -> None:
        self.world.loss = self.rng.choice([0, 0.05, 0.3])
        self.world.controller.is_reachable = self.rng.random() < 0.7

    def heal(self) -> None:
        self.world.cuts.clear()
        self.world.loss = 0
        self.world.controller.is_reachable = True

    def check(self) -> None:
        """Check that records below any high watermark are the same on all replicas and never change."""
        for node in self.world.nodes.values():
            partition = node.partitions.find(TOPIC, 0)
            assert not node.reports, node.reports
            if partition is None:
                continue
            assert partition.high_watermark <= partition.log.end_offset
            checked_up_to = self.seen.get(partition, 0)
            if partition.high_watermark > checked_up_to:
                self.seen[partition] = partition.high_watermark
                self.compare(node.id, values(partition, checked_up_to, partition.high_watermark))
        for offset, value in self.acknowledged():
            assert self.committed.get(offset) == value, f"acknowledged at {offset}, never committed"

    def acknowledged(self) -> list[tuple[int, bytes]]:
        return [each for producer in self.producers for each in producer.acknowledged.items()]

    def compare(self, node_id: int, records: dict[int, bytes]) -> None:
        for offset, value in records.items():
            assert self.committed.setdefault(offset, value) == value, f"broker {node_id}, offset {offset}"

    def settle(self) -> None:
        self.heal()
        self.world.controller.elects_new_isr_members = False
        while self.disks:
            self.start()
        enough = len(self.acknowledged()) + 10
        for _ in range(300):
            for producer in self.producers:
                producer.produce_next()
            self.world.run(20)
            if len(self.acknowledged()) > enough and len(self.world.controller.partitions[0].isr) == 3:
                break
        assert len(self.acknowledged()) > enough, "a healthy cluster must accept writes"
        self.world.run(2_000)
        self.check()

    def check_replicas_are_equal(self) -> None:
        logs = [values(node.partition()) for node in self.world.nodes.values()]
        self.compare(0, logs[0])
        assert logs[0] == logs[1] == logs[2]
        assert sorted(self.world.controller.partitions[0].isr) == [1, 2, 3]
        for offset, value in self.acknowledged():
            assert logs[0][offset] == value
        for number in range(PRODUCERS):
            written_values = [value for value in logs[0].values() if value.endswith(b"producer %d" % number)]
            expected = [b"%d of producer %d" % (sequence, number) for sequence in range(len(written_values))]
            assert written_values == expected, "each record must be there once and in order"
        ends = len(logs[0])
        epochs = {node.partition().log.epochs.entries for node in self.world.nodes.values()}
        written = {tuple(entry for entry in each if entry.start_offset < ends) for each in epochs}
        assert len(written) == 1, "all replicas must have the same leader epochs"


def run_chaos(seed: int, is_durable: bool) -> Chaos:
    chaos = Chaos(seed, is_durable)
    for _ in range(STEPS):
        chaos.step()
    chaos.settle()
    chaos.check_replicas_are_equal()
    return chaos


@pytest.mark.parametrize("is_durable", [True, False], ids=["power failures", "process crashes only"])
def test_nothing_acknowledged_is_lost_and_all_replicas_agree(is_durable: bool) -> None:
    written = 0
    for seed in range(SEEDS):
        try:
            written += len(run_chaos(seed, is_durable).acknowledged())
        except AssertionError as failed:
            failed.add_note(f"seed {seed}")
            raise
    assert written > SEEDS * 20, "too few writes succeeded for the test to prove anything"
