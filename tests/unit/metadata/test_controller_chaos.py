"""Random actions of brokers, operators and leaders, in random order: each leader has every acknowledged record.

A simple model runs beside the image: how many records each replica has on its disk. A failing run names its seed;
`Chaos(seed).run()` repeats it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from harness.controlled_cluster import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS, ControlledCluster

from moldau.base.steps import finish
from moldau.metadata.apply import Changes, apply
from moldau.metadata.controller.elections import decide_balance
from moldau.metadata.image import MetadataImage, PartitionState
from moldau.metadata.records import decode_record, encode_record
from moldau.metadata.snapshot import changes_between, image_records

BROKERS = range(1, 6)
STEPS = 150
SEEDS = 40

PartitionKey = tuple[str, int]


class Chaos:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.cluster = ControlledCluster(BROKERS)
        self.alive = set(BROKERS)
        """Processes that run and are connected, whether or not the controller knows that."""
        self.incarnations = Counter(dict.fromkeys(BROKERS, 1))
        self.stopping: set[int] = set()
        self.acked: Counter[PartitionKey] = Counter()
        self.record_counts: Counter[tuple[PartitionKey, int]] = Counter()
        self.targets: dict[PartitionKey, tuple[int, ...]] = {}
        self.seen: Counter[str] = Counter()
        for name in ("a", "b"):
            replicas = [self.rng.sample(BROKERS, self.rng.randint(1, 3)) for _ in range(3)]
            size = len(replicas[0])
            self.cluster.create(name, *[self.rng.sample(BROKERS, size) for _ in replicas])

    def run(self) -> Chaos:
        actions: list[tuple[Callable[[], None], int]] = [
            (self.time_passes, 30),
            (self.produce, 30),
            (self.crash, 4),
            (self.start, 8),
            (self.stop, 3),
            (self.shrink, 8),
            (self.catch_up, 14),
            (self.reassign, 5),
            (self.cancel, 2),
            (self.elect, 4),
            (self.take_over, 1),
            (self.unregister, 1),
        ]
        for _ in range(STEPS):
            before = self.cluster.image
            action = self.rng.choices([each for each, _ in actions], [weight for _, weight in actions])[0]
            action()
            self.check(before, action.__name__)
        self.check_snapshot()
        return self

    # --- actions ------------------------------------------------------------------------------------------------

    def time_passes(self) -> None:
        for _ in range(self.rng.choice([1, 1, 2, SESSION_TIMEOUT_MS // HEARTBEAT_INTERVAL_MS + 1])):
            self.cluster.now_ms += HEARTBEAT_INTERVAL_MS
            for broker_id in sorted(self.alive):
                self.beat(broker_id)
            fenced = self.cluster.fence_stale()
            assert not self.alive.intersection(fenced), f"{fenced} were fenced although they sent heartbeats"
            self.seen["fenced"] += len(fenced)

    def beat(self, broker_id: int) -> None:
        response = self.cluster.beat(broker_id, want_shut_down=broker_id in self.stopping)
        if response.should_shut_down:
            self.alive.discard(broker_id)
            self.stopping.discard(broker_id)
            self.seen["controlled shutdown"] += 1

    def produce(self) -> None:
        """Acknowledge a record only if all in-sync replicas have it, as with acks=all."""
        for place, state in self.places():
            if state.leader in self.alive and self.alive.issuperset(state.isr):
                self.acked[place] += 1
                for replica in state.isr:
                    self.record_counts[place, replica] = self.acked[place]

    def crash(self) -> None:
        if self.alive:
            broker_id = self.rng.choice(sorted(self.alive))
            self.alive.discard(broker_id)
            self.stopping.discard(broker_id)
            if self.rng.random() < 0.5:
                self.cluster.sessions.connection_lost(broker_id, self.cluster.now_ms)

    def start(self) -> None:
        """Start another process, which has lost what was not on its disk yet, unless it was the only one in sync."""
        down = sorted(set(BROKERS) - self.alive)
        if not down:
            return
        broker_id = self.rng.choice(down)
        self.incarnations[broker_id] += 1
        if self.cluster.register(broker_id, self.incarnations[broker_id]).error_code:
            self.seen["registration refused"] += 1
            return
        self.alive.add(broker_id)
        for place, state in self.places():
            if state.isr != (broker_id,):
                self.record_counts[place, broker_id] = max(
                    self.record_counts[place, broker_id] - self.rng.randint(0, 2), 0
                )

    def stop(self) -> None:
        if self.alive:
            self.stopping.add(self.rng.choice(sorted(self.alive)))

    def shrink(self) -> None:
        place, state = self.any_led()
        if place and len(state.isr) > 1:
            remaining = [each for each in state.isr if each == state.leader or self.rng.random() < 0.5]
            self.alter(place, remaining)

    def catch_up(self) -> None:
        """Let a follower fetch everything, and its leader propose it for the ISR."""
        place, state = self.any_led()
        behind = [each for each in state.replicas if each in self.alive and each not in state.isr] if place else []
        if behind:
            broker_id = self.rng.choice(behind)
            self.record_counts[place, broker_id] = self.record_counts[place, state.leader]
            self.seen["caught up"] += self.alter(place, [*state.isr, broker_id]) == 0

    def alter(self, place: PartitionKey, isr: list[int]) -> int:
        stale = self.rng.random() < 0.1
        state = self.cluster.state(*place)
        before = self.cluster.image
        epoch = state.partition_epoch - 1 if stale else state.partition_epoch
        code = self.cluster.alter(place[0], isr, place[1], partition_epoch=epoch).error_code
        assert not (stale and (code == 0 or self.cluster.image is not before)), "a stale proposal is refused"
        return code

    def reassign(self) -> None:
        place, _ = self.rng.choice(self.places())
        target = tuple(self.rng.sample(BROKERS, self.rng.randint(1, 4)))
        if self.cluster.reassign(place[0], target, place[1]) == 0:
            self.targets[place] = target
            self.seen["reassigned"] += 1

    def cancel(self) -> None:
        place, state = self.rng.choice(self.places())
        if self.cluster.reassign(place[0], None, place[1]) == 0:
            assert state.is_reassigning
            self.targets.pop(place)
            self.seen["cancelled"] += 1

    def elect(self) -> None:
        if self.rng.random() < 0.5:
            self.cluster.do(finish(decide_balance(self.cluster.image)))
        else:
            self.cluster.elect(0, "a", 0, 1, 2)

    def take_over(self) -> None:
        self.cluster.take_over()

    def unregister(self) -> None:
        dead = [each for each in self.cluster.image.brokers if each not in self.alive]
        if dead:
            self.cluster.unregister(self.rng.choice(sorted(dead)))
            self.seen["unregistered"] += 1

    # --- invariants ---------------------------------------------------------------------------------------------

    def places(self, image: MetadataImage | None = None) -> list[tuple[PartitionKey, PartitionState]]:
        topics = (image or self.cluster.image).topics
        return [((name, index), state) for name in "ab" for index, state in enumerate(topics[name].partitions)]

    def any_led(self) -> tuple[PartitionKey, PartitionState] | tuple[None, None]:
        led = [(place, state) for place, state in self.places() if state.leader in self.alive]
        return self.rng.choice(led) if led else (None, None)

    def check(self, before: MetadataImage, action: str) -> None:
        brokers = self.cluster.image.brokers
        for (place, state), (_, old) in zip(self.places(), self.places(before), strict=True):
            where = f"{place} after {action}: {state}"
            assert state.isr, where
            assert set(state.isr) <= set(state.replicas), where
            assert len(set(state.isr)) == len(state.isr), where
            assert len(set(state.replicas)) == len(state.replicas) == len(state.directories), where
            assert not set(state.adding_replicas) & set(state.removing_replicas), where
            assert {*state.adding_replicas, *state.removing_replicas} <= set(state.replicas), where
            may_lead = [each for each in state.isr if each in brokers and brokers[each].is_active]
            assert state.leader in may_lead or (state.leader == -1 and not may_lead), where
            assert state.leader == -1 or self.record_counts[place, state.leader] == self.acked[place], where
            self.check_epochs(state, old, where)
            self.check_target(place, state, where)

    def check_epochs(self, state: PartitionState, old: PartitionState, where: str) -> None:
        assert state.leader_epoch >= old.leader_epoch, where
        assert state.partition_epoch - old.partition_epoch >= state.leader_epoch - old.leader_epoch, where
        assert state == old or state.partition_epoch > old.partition_epoch, where
        assert state.leader == old.leader or state.leader_epoch > old.leader_epoch, where
        self.seen["elections"] += state.leader != old.leader

    def check_target(self, place: PartitionKey, state: PartitionState, where: str) -> None:
        target = self.targets.get(place)
        if target is not None and not state.is_reassigning:
            assert state.replicas == target, where
            self.targets.pop(place)
            self.seen["reassignments done"] += 1
        if target is not None and state.is_reassigning:
            assert tuple(each for each in state.replicas if each not in state.removing_replicas) == target, where

    def check_snapshot(self) -> None:
        image = self.cluster.image
        records = [decode_record(encode_record(record)) for record in image_records(image)]
        again, changes = apply(MetadataImage(), records, image.offset, image.epoch)
        assert again == image
        expected = changes_between(MetadataImage(), image)
        assert (changes.topics, changes.brokers, changes.configs) == (
            expected.topics,
            expected.brokers,
            expected.configs,
        )
        assert changes_between(image, again) == Changes()


def test_each_leader_has_every_acknowledged_record() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        try:
            seen += Chaos(seed).run().seen
        except AssertionError as wrong:
            raise AssertionError(f"seed {seed}: {wrong}") from wrong
    rare = {what: seen[what] for what in REQUIRED_EVENTS if seen[what] < 20}
    assert not rare, f"these events happened too rarely: {rare} of {seen}"


REQUIRED_EVENTS = (
    "fenced",
    "controlled shutdown",
    "registration refused",
    "caught up",
    "reassigned",
    "cancelled",
    "unregistered",
    "elections",
    "reassignments done",
)
