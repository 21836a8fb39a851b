"""Random devices before a cluster in which everything goes wrong for a minute of virtual time: whatever a producer says
of a record is true, everybody is answered, and no room is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest
from harness.append_history import AppendCall, check
from harness.depth import deep
from harness.idempotent_log import INVALID
from harness.model_brokers import NOBODY, Fault, ModelCluster, Refusal
from harness.virtual_loop import run_virtual, settle

from moldau.base.errors import ErrorCode, KafkaError
from moldau.gateway.kafka.partition_queue import BACKOFF_S_MAX
from moldau.gateway.kafka.producer import PATIENCE_S, REQUEST_MS, Producer
from moldau.gateway.kafka.room import Room
from moldau.gateway.ports import Appended, NewRecord
from moldau.wire.apis import ApiKey

TOPICS = {"a": 3, "b": 1, "c": 5}
CHAOS_S = 60.0
ATTEMPTS_S = 8 * REQUEST_MS / 1_000
"""What metadata, a producer id and the last attempt may take after the patience has ended."""
DEFINITE = (
    Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER),
    Refusal(ErrorCode.NOT_ENOUGH_REPLICAS),
    Refusal(ErrorCode.KAFKA_STORAGE_ERROR),
    Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    Refusal(ErrorCode.UNKNOWN_TOPIC_ID),
    Refusal(ErrorCode.POLICY_VIOLATION),
)
APPENDED = (
    Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
    Refusal(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),
    Refusal(ErrorCode.REQUEST_TIMED_OUT, True),
    Refusal(ErrorCode.KAFKA_STORAGE_ERROR, True),
)
LOST = [fault for fault in Fault if fault is not Fault.NONE]


class Chaos:
    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.cluster = ModelCluster(**TOPICS)
        self.has_lost_answers = rng.random() < 0.7
        """If not, leaders forget producers: with both at a time, no producer can know what is there."""
        self.often = rng.choice([0.02, 0.1, 0.4])
        self.cluster.faulty = {ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID}
        self.cluster.choose_fault = self.choose_fault

    def choose_fault(self, api: ApiKey) -> Fault:
        if self.rng.random() > self.often:
            return Fault.NONE
        if api is not ApiKey.PRODUCE:
            return self.rng.choice([Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.FROZEN])
        return self.rng.choice(LOST) if self.has_lost_answers else Fault.LOST_BEFORE

    async def run(self) -> None:
        rng = self.rng
        actions: list[Callable[[], None]] = [
            self._refuse, self._refuse, self._move, self._move, self._hide, self._stop, self._limit, self._throttle,
            self._fail_metadata, self._fail_producer_ids, self._fence, self._show_what_is_true,
        ]  # fmt: skip
        if not self.has_lost_answers:
            actions += [self._forget] * 3
        end = asyncio.get_running_loop().time() + CHAOS_S
        while asyncio.get_running_loop().time() < end:
            rng.choice(actions)()
            await asyncio.sleep(rng.choice([0, 0.01, 0.1, 1, 5]))
        self.end()

    def end(self) -> None:
        self.often = 0.0
        self.cluster.refusals.clear()
        self.cluster.producer_id_errors.clear()
        self._show_what_is_true()

    def _refuse(self) -> None:
        refusals = DEFINITE + APPENDED if self.has_lost_answers else DEFINITE
        for partition in self.cluster.logs:
            if self.rng.random() < 0.3:
                self.cluster.refusals[partition].extend(self.rng.choices(refusals, k=self.rng.choice([1, 1, 3, 30])))

    def _move(self) -> None:
        partition = self.rng.choice(list(self.cluster.logs))
        if self.rng.random() < 0.5:
            self.cluster.shown[partition] = self.cluster.leaders[partition]  # who asks does not learn it yet
        self.cluster.leaders[partition] = self.rng.choice([1, 2, 3])

    def _hide(self) -> None:
        self.cluster.shown[self.rng.choice(list(self.cluster.logs))] = NOBODY

    def _stop(self) -> None:
        self.cluster.down = set(self.rng.sample([1, 2, 3], self.rng.choice([0, 1, 1, 2, 3])))

    def _limit(self) -> None:
        for log in self.cluster.logs.values():
            log.batch_bytes_max = self.rng.choice([200, 500, 3_000, 1 << 20])

    def _throttle(self) -> None:
        self.cluster.throttle_ms = self.rng.choice([0, 100, 3_000])

    def _fail_metadata(self) -> None:
        code = self.rng.choice([ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
        self.cluster.topic_errors[self.rng.choice(list(TOPICS))] = code

    def _fail_producer_ids(self) -> None:
        codes = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        self.cluster.producer_id_errors.append(self.rng.choice(codes))

    def _fence(self) -> None:
        log = self.rng.choice(list(self.cluster.logs.values()))
        if log.producers:
            log.fence(self.rng.choice(list(log.producers)))

    def _forget(self) -> None:
        self.rng.choice(list(self.cluster.logs.values())).forget_producers()

    def _show_what_is_true(self) -> None:
        self.cluster.shown.clear()
        self.cluster.topic_errors.clear()
        self.cluster.down.clear()
        self.cluster.throttle_ms = 0


class Devices:
    def __init__(self, rng: Random, chaos: Chaos) -> None:
        self.rng = rng
        self.shared = Room(20_000)
        self.room = Room(rng.choice([1_000, 20_000]), self.shared)
        self.brokers = chaos.cluster.brokers()
        self.producer = Producer(self.brokers, self.room)
        self.calls: list[AppendCall] = []
        self.longest_s = 0.0
        self._number = 0

    async def send(self, count: int) -> None:
        """One device: each call waits for the one before, or is abandoned."""
        previous: AppendCall | None = None
        for _ in range(count):
            call, task = self._start()
            call.follows = previous
            if self.rng.random() < 0.15:
                await asyncio.sleep(self.rng.choice([0, 0.001, 0.003, 0.01, 1]))
                task.cancel()
            began = asyncio.get_running_loop().time()
            await asyncio.wait([task])
            self.longest_s = max(self.longest_s, asyncio.get_running_loop().time() - began)
            previous = None if task.cancelled() else call
            if not task.cancelled():
                error = task.exception()
                assert error is None or isinstance(error, KafkaError), repr(error)
                call.outcome = task.result() if error is None else error
            await asyncio.sleep(self.rng.choice([0, 0, 0.01, 0.5, 3]))

    def _start(self) -> tuple[AppendCall, asyncio.Task[Appended]]:
        rng = self.rng
        topic = rng.choice(list(TOPICS))
        call = AppendCall(topic, [self._value() for _ in range(rng.choice([1, 1, 2, 10, 40]))])
        self.calls.append(call)
        if rng.random() < 0.4:
            return call, asyncio.create_task(self.producer.append_values(topic, call.values))
        records = [
            NewRecord(value, rng.choice([None, b"k", b"l"]), partition=rng.choice([None, 0, TOPICS[topic] - 1]))
            for value in call.values
        ]
        return call, asyncio.create_task(self.producer.append(topic, records))

    def _value(self) -> bytes:
        self._number += 1
        start = INVALID if self.rng.random() < 0.01 else b""
        return start + b"%d." % self._number + bytes(self.rng.choice([0, 10, 10, 200]))


@pytest.mark.parametrize("seed", range(deep(60, quick=30)))
def test_whatever_happens_what_is_said_of_a_record_is_true(seed: int) -> None:
    rng = Random(seed)

    async def main() -> None:
        chaos = Chaos(rng)
        devices = Devices(rng, chaos)
        await asyncio.gather(chaos.run(), *(devices.send(rng.choice([5, 15])) for _ in range(6)))
        chaos.end()
        await asyncio.sleep(2 * PATIENCE_S)  # abandoned calls end too
        assert devices.room.bytes_taken == devices.shared.bytes_taken == 0
        assert not devices.producer.is_busy
        assert devices.longest_s <= 2 * PATIENCE_S + ATTEMPTS_S + BACKOFF_S_MAX
        check(devices.calls, values_of(chaos.cluster))
        for partition, log in chaos.cluster.logs.items():  # nothing is left behind that would hinder later records
            log.batch_bytes_max = 1 << 20
            record = NewRecord(b"last", partition=partition.partition)
            await devices.producer.append(partition.topic, [record])  # it may still meet a leader that has moved
            (place,) = await devices.producer.append(partition.topic, [record])
            assert place == (partition.partition, len(log.records) - 1)

    run_virtual(main)


@pytest.mark.parametrize("seed", range(deep(20, quick=10)))
def test_everybody_is_answered_whenever_the_gateway_stops(seed: int) -> None:
    rng = Random(seed)

    async def main() -> None:
        chaos = Chaos(rng)
        devices = Devices(rng, chaos)
        running = [asyncio.create_task(chaos.run()), *(asyncio.create_task(devices.send(5)) for _ in range(6))]
        await asyncio.sleep(rng.uniform(0, 20))
        devices.producer.close()
        devices.brokers.close()
        began = asyncio.get_running_loop().time()
        await settle(300)
        assert devices.room.bytes_taken == devices.shared.bytes_taken == 0
        assert asyncio.get_running_loop().time() == began
        await asyncio.gather(*running)
        check(devices.calls, values_of(chaos.cluster))

    run_virtual(main)


def values_of(cluster: ModelCluster) -> dict[tuple[str, int], list[bytes | None]]:
    return {partition: [record.value for record in log.records] for partition, log in cluster.logs.items()}
