"""An idempotent producer that acts as librdkafka does when something goes wrong.

After an error of a batch, it waits until all requests of that partition were answered or have timed out, and sends
again from the first unacknowledged batch on. If a batch is out of order, it waits until no request is in flight
anywhere and raises its epoch: all sequences begin at 0 again. Then a record whose request had timed out may be stored
twice. So a broker must never refuse a batch as out of order for which the client is not to blame:
OUT_OF_ORDER_SEQUENCE_NUMBER is a violation here.

An impatient one gives a record up when it is not acknowledged in time, and raises its epoch too, because its sequence
now has a gap. That is its own decision: what was in flight then may be stored twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from cluster.client import NO_NODE, Leader
from cluster.ledger import Ledger
from cluster.producers import (
    ACKS_ALL,
    IN_FLIGHT_MAX,
    MOVED,
    TRY_AGAIN,
    Batch,
    Lane,
    Producer,
    produce_request,
    produced,
)
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.wire.apis import ApiKey
from moldau.wire.batch import BatchHeader
from moldau.wire.messages.produce import ProduceResponse

if TYPE_CHECKING:
    from cluster.world import ClusterWorld

WAITS_MS = (300, 1_500)
PATIENCE_MS = 200
"""How much longer than the broker it waits."""
GIVE_UP_MS = 6_000
BURST_MAX = 4
"""Batches that it writes at once, so that several are in flight."""
LANE_BATCHES_MAX = 30
"""Batches that wait for an acknowledgement, sent or not."""
Bases = dict[str, dict[int, int]]
"""The number of the first record of each lane in each producer epoch; CONTINUES if the producer did not raise its epoch
by its own decision: then no record may be stored again."""
CONTINUES = -1


@dataclass(slots=True, eq=False)
class BumpingLane(Lane):
    in_flight: dict[Batch, None] = field(default_factory=dict)
    node_id: int = NO_NODE
    """The leader to which they were sent."""
    epoch: int = -1
    base: int = 0
    """Number of the first record in this epoch: sequences are counted from it."""
    is_draining: bool = False
    """Whether nothing is sent until all requests were answered or have timed out."""
    is_known: bool = False
    """Whether a batch of this epoch was acknowledged. The first one goes alone: a broker without state of the producer
    accepts any sequence."""
    put_ms: dict[Batch, int] = field(default_factory=dict)


class BumpingProducer(Producer):
    lanes: dict[int, BumpingLane]  # type: ignore[assignment]

    def __init__(
        self, world: ClusterWorld, name: str, topic: str, rng: Random, gap_ms: int, is_impatient: bool, bases: Bases
    ) -> None:
        self._is_impatient = is_impatient
        self._bases = bases
        self._wait_ms = rng.choice(WAITS_MS)
        self._is_bumping = False
        self._is_own_decision = False
        """Whether it raised its epoch because it gave records up."""
        super().__init__(world, name, topic, rng, gap_ms)

    def new_lane(self, topic_id: Uuid, partition: int) -> BumpingLane:
        return BumpingLane(topic_id, partition)

    # --- writing --------------------------------------------------------------------------------------------------

    def _has_room(self, lane: Lane) -> bool:
        return len(lane.queue) < LANE_BATCHES_MAX

    def _put(self, lane: Lane) -> None:
        assert isinstance(lane, BumpingLane)
        for _ in range(self.rng.randint(1, BURST_MAX)):
            batch = self.new_batch(lane)
            lane.batches += 1
            lane.queue.append(batch)
            lane.put_ms[batch] = self.world.elapsed_ms
        self._pump(lane)

    def _pump(self, lane: BumpingLane) -> None:
        """Send what may be sent now."""
        if self._is_bumping or lane.is_draining or lane.is_waiting:
            return
        if self._is_impatient:
            self._give_up(lane)
        if lane.epoch != self.producer_epoch and lane.queue:
            self._begin_epoch(lane)
        for batch in list(lane.queue):
            if self._is_bumping or lane.is_draining or len(lane.in_flight) >= (IN_FLIGHT_MAX if lane.is_known else 1):
                return
            if batch not in lane.in_flight:
                self._send(lane, batch)

    def _begin_epoch(self, lane: BumpingLane) -> None:
        lane.epoch, lane.base, lane.is_known = self.producer_epoch, lane.queue[0].first, False
        is_own = not lane.epoch or self._is_own_decision
        self._bases.setdefault(f"{self.name}/{lane.partition}", {})[lane.epoch] = lane.base if is_own else CONTINUES

    def _send(self, lane: Lane, batch: Batch) -> None:
        assert isinstance(lane, BumpingLane)
        leader = self.leader_of(lane.partition)
        if leader is None or (lane.in_flight and lane.node_id != leader.node_id):
            # A new leader gets nothing before the requests to the old one have ended.
            if leader is None:
                self.refresh()
            self._drain(lane)
            return
        lane.node_id = leader.node_id
        lane.in_flight[batch] = None
        data = self.encoded(batch.values, batch.first - lane.base)
        self.ask(
            leader.node_id,
            ApiKey.PRODUCE,
            13,
            produce_request(ACKS_ALL, leader, lane.partition, data, self._wait_ms),
            lambda reply: self._answered(lane, batch, leader, reply),
            "write",
            self._wait_ms + PATIENCE_MS,
        )

    def _answered(self, lane: BumpingLane, batch: Batch, leader: Leader, reply: ProduceResponse | KafkaError) -> None:
        lane.in_flight.pop(batch)
        if lane is not self.lanes.get(lane.partition):
            return
        code, partition = produced(reply)
        if partition is not None and code is ErrorCode.NONE:
            self._acknowledged(lane, batch, partition.base_offset)
        elif not batch.is_acknowledged:
            self.trace_result(f"{lane.partition}@{batch.first} epoch {lane.epoch} on n{leader.node_id}", code)
            self._refused(lane, batch, leader, code)
        self._go_on(lane)

    def _acknowledged(self, lane: BumpingLane, batch: Batch, offset: int) -> None:
        """A broker accepts a batch only after the earlier ones: they are acknowledged too, whatever their answer."""
        self.world.trace(f"{self.name} {lane.partition}@{batch.first} at {offset}")
        self.world.audit.acknowledged(lane.topic_id, lane.partition, offset, batch.values)
        lane.is_known = True
        lane.failures = 0
        for each in [each for each in lane.queue if each.place <= batch.place]:
            each.is_acknowledged = True
            lane.queue.remove(each)
            del lane.put_ms[each]

    def _refused(self, lane: BumpingLane, batch: Batch, leader: Leader, code: ErrorCode) -> None:
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self.world.violated(
                f"{self.name}: {batch.values[0]!r} is out of order on n{leader.node_id}, unacknowledged since "
                f"{lane.queue[0].values[0]!r}"
            )
            self._bump(is_own_decision=False)
        elif code not in TRY_AGAIN:
            self.world.violated(f"{self.name}: {batch.values[0]!r} is refused with {code.name}")
        if code in MOVED:
            self.refresh()
        self._drain(lane)

    # --- sending again --------------------------------------------------------------------------------------------

    def _drain(self, lane: BumpingLane) -> None:
        lane.is_draining = True
        self._go_on(lane)

    def _go_on(self, lane: BumpingLane) -> None:
        """Send more, or again from the first unacknowledged batch on when nothing is in flight any more."""
        if self._is_bumping:
            self._bump_when_drained()
        elif not lane.is_draining:
            self._pump(lane)
        elif not lane.in_flight and not lane.is_waiting:
            lane.is_waiting = True
            self.retry(lambda: self._resend(lane), lane.failures)
            lane.failures += 1

    def _resend(self, lane: Lane) -> None:
        assert isinstance(lane, BumpingLane)
        lane.is_waiting = lane.is_draining = False
        if lane is self.lanes.get(lane.partition):
            self._pump(lane)

    # --- a new epoch ----------------------------------------------------------------------------------------------

    def _give_up(self, lane: BumpingLane) -> None:
        """Give up what is too old, if nothing is in flight: librdkafka looks only at what waits."""
        too_old = [batch for batch in lane.queue if self.world.elapsed_ms - lane.put_ms[batch] > GIVE_UP_MS]
        if too_old and not lane.in_flight:
            self.world.trace(f"{self.name} gives up {len(too_old)} batches of {lane.partition}")
            for batch in too_old:
                lane.queue.remove(batch)
                del lane.put_ms[batch]
            self._bump(is_own_decision=True)

    def _bump(self, *, is_own_decision: bool) -> None:
        self._is_own_decision = is_own_decision or (self._is_bumping and self._is_own_decision)
        self._is_bumping = True
        self._bump_when_drained()

    def _bump_when_drained(self) -> None:
        if any(lane.in_flight for lane in self.lanes.values()):
            return
        self._is_bumping = False
        self.producer_epoch += 1
        self.world.trace(f"{self.name} raises its epoch to {self.producer_epoch}")
        for lane in self.lanes.values():
            lane.is_draining = False
            self.later(1, self._pumping(lane))

    def _pumping(self, lane: BumpingLane) -> Callable[[], None]:
        return lambda: self._pump(lane)


class BumpingLedger(Ledger):
    """A ledger that knows the epochs of such producers: a log has each of them once, one after the other, and in each
    the records from its first one on, once and in order."""

    def __init__(self, name: str, complain: Callable[[str], None], bases: Bases) -> None:
        super().__init__(name, complain)
        self._bases = bases
        self._epochs: dict[str, tuple[int, int]] = {}
        """The latest epoch of each lane, and the number of its next record."""
        self._epoch = -1

    def _extend(self, header: BatchHeader, batch: memoryview) -> None:
        self._epoch = header.producer_epoch
        super()._extend(header, batch)

    def _judge(self, value: bytes) -> None:
        lane, _, number = ("", "", "") if self.is_internal else value.decode().rpartition("/")
        bases = self._bases.get(lane)
        if bases is None:
            super()._judge(value)
            return
        epoch, expected = self._epochs.get(lane, (-1, 0))
        if self._epoch != epoch:
            if self._epoch < epoch:
                self._complain(f"{self.name} has {value!r} of epoch {self._epoch} at {self.end}, after epoch {epoch}")
            expected = expected if bases[self._epoch] == CONTINUES else bases[self._epoch]
        if int(number) != expected:
            self._complain(
                f"{self.name} has {value!r} of epoch {self._epoch} at {self.end}, number {expected} should follow"
            )
        self._epochs[lane] = self._epoch, int(number) + 1
