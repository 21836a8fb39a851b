"""The producer of one user before brokers in memory, in virtual time: leaders move, answers are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from harness.idempotent_log import INVALID
from harness.model_brokers import Fault, ModelCluster, Refusal
from harness.virtual_loop import run_virtual, settle

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.gateway.kafka.brokers import Brokers
from moldau.gateway.kafka.producer import Producer
from moldau.gateway.kafka.room import Room
from moldau.gateway.ports import Appended, NewRecord, Place
from moldau.wire.apis import ApiKey


class Bench:
    def __init__(self, room: int = 1 << 20, **partitions: int) -> None:
        self.cluster = ModelCluster(**partitions)
        self.brokers: Brokers = self.cluster.brokers()
        self.room = Room(room)
        self.producer = Producer(self.brokers, self.room)

    def values(self, partition: int = 0, topic: str = "a") -> list[bytes | None]:
        return [record.value for record in self.cluster.logs[TopicPartition(topic, partition)].records]

    def count(self, api: ApiKey) -> int:
        return sum(each is api for _, each in self.cluster.requests)

    async def append(self, *values: bytes, partition: int = 0) -> Appended:
        return await self.producer.append("a", [NewRecord(value, partition=partition) for value in values])

    def start(self, *values: bytes, partition: int = 0) -> asyncio.Task[Appended]:
        return asyncio.create_task(self.append(*values, partition=partition))


def on_bench(test: Callable[[Bench], Coroutine[Any, Any, None]], room: int = 1 << 20, **partitions: int) -> None:
    async def main() -> None:
        bench = Bench(room, **(partitions or {"a": 3}))
        await test(bench)
        await settle()
        assert bench.room.bytes_taken == 0
        assert not bench.producer.is_busy

    run_virtual(main)


def codes(appended: Appended) -> list[ErrorCode | Place]:
    return [each.code if isinstance(each, KafkaError) else each for each in appended]


def test_records_are_appended_where_keys_and_partitions_say() -> None:
    async def test(bench: Bench) -> None:
        records = [NewRecord(b"1", b"abc"), NewRecord(b"2", partition=2), NewRecord(b"3", b"abc")]
        places = await bench.producer.append("a", records)
        by_key = (479470107 & 0x7FFFFFFF) % 3
        assert codes(places) == [Place(by_key, 0), Place(2, int(by_key == 2)), Place(by_key, 1 + int(by_key == 2))]
        assert await bench.producer.append("a", []) == []
        assert await bench.producer.append_values("a", []) == []

    on_bench(test)


def test_calls_share_batches_while_one_is_under_way() -> None:
    async def test(bench: Bench) -> None:
        appended = await asyncio.gather(*(bench.append(b"%d" % number) for number in range(50)))
        assert [places[0] for places in appended] == [Place(0, number) for number in range(50)]
        assert bench.values() == [b"%d" % number for number in range(50)]
        assert bench.count(ApiKey.PRODUCE) == 1

    on_bench(test)


def test_one_request_has_the_batches_of_all_partitions_of_a_leader() -> None:
    async def test(bench: Bench) -> None:
        await asyncio.gather(*(bench.append(b"x", partition=number) for number in range(9)))
        bench.cluster.requests.clear()
        await asyncio.gather(*(bench.append(b"x", partition=number) for number in range(9)))
        assert sorted(bench.cluster.requests) == [(node, ApiKey.PRODUCE) for node in (1, 2, 3)]

    on_bench(test, a=9)


def test_values_without_keys_are_spread_and_those_at_the_same_time_share_a_batch() -> None:
    async def test(bench: Bench) -> None:
        used = set()
        for _ in range(6):
            both = await asyncio.gather(*(bench.producer.append_values("a", [b"x", b"y"]) for _ in range(2)))
            partitions = {place.partition for places in both for place in places if isinstance(place, Place)}
            assert len(partitions) == 1
            used |= partitions
        assert used == {0, 1, 2}

    on_bench(test)


def test_values_without_keys_go_round_a_broker_that_does_not_answer() -> None:
    async def test(bench: Bench) -> None:
        await bench.append(b"0")
        bench.cluster.faults.append(Fault.FROZEN)
        stuck = bench.start(b"stuck")
        await settle()
        for _ in range(6):
            (place,) = await bench.producer.append_values("a", [b"x"])
            assert isinstance(place, Place)
            assert place.partition != 0
        assert not stuck.done()
        assert await stuck == [Place(0, 1)]

    on_bench(test)


@pytest.mark.parametrize("fault", [each for each in Fault if each is not Fault.NONE])
def test_records_are_there_once_whatever_happens_to_a_request(fault: Fault) -> None:
    async def test(bench: Bench) -> None:
        await bench.append(b"0")
        bench.cluster.faults.append(fault)
        first, second = bench.start(b"1"), bench.start(b"2")
        assert (await first, await second) == ([Place(0, 1)], [Place(0, 2)])
        await asyncio.sleep(10)
        assert bench.values() == [b"0", b"1", b"2"]

    on_bench(test)


@pytest.mark.parametrize("is_appended", [False, True])
def test_records_follow_the_leader(is_appended: bool) -> None:
    async def test(bench: Bench) -> None:
        await bench.append(b"0")
        refusal = Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, is_appended)
        bench.cluster.refusals["a", 0].append(refusal)
        sending = bench.start(b"1")
        await settle()
        await asyncio.sleep(0.003)
        bench.cluster.move("a", 0, 2)
        assert await sending == [Place(0, 1)]
        assert bench.values() == [b"0", b"1"]
        assert bench.cluster.requests[-1] == (2, ApiKey.PRODUCE)

    on_bench(test)


def test_metadata_that_is_old_is_asked_for_again() -> None:
    async def test(bench: Bench) -> None:
        bench.cluster.move("a", 0, 2)
        bench.cluster.shown[TopicPartition("a", 0)] = 1
        sending = bench.start(b"1")
        await asyncio.sleep(5)
        assert not sending.done()
        bench.cluster.shown.clear()
        assert await sending == [Place(0, 0)]

    on_bench(test)


def test_no_leader_for_too_long_is_said() -> None:
    async def test(bench: Bench) -> None:
        bench.cluster.shown[TopicPartition("a", 0)] = -1
        (error,) = await bench.append(b"1")
        assert str(error) == "not appended: a-0 has no leader"
        assert codes(await bench.append(b"2", partition=1)) == [Place(1, 0)]
        bench.cluster.shown.clear()
        assert codes(await bench.append(b"3")) == [Place(0, 0)]

    on_bench(test)


def test_no_broker_for_too_long_is_said_and_later_records_are_appended() -> None:
    async def test(bench: Bench) -> None:
        await bench.append(b"0")
        bench.cluster.down = {1, 2, 3}
        (error,) = await bench.append(b"1")
        assert isinstance(error, KafkaError)
        assert error.code is ErrorCode.REQUEST_TIMED_OUT
        bench.cluster.down.clear()
        assert codes(await bench.append(b"2")) == [Place(0, 1)]
        assert bench.values() == [b"0", b"2"]

    on_bench(test)


def test_the_leader_dies_and_another_one_leads() -> None:
    async def test(bench: Bench) -> None:
        await bench.append(b"0")
        bench.cluster.down.add(1)
        sending = bench.start(b"1")
        await asyncio.sleep(3)
        bench.cluster.move("a", 0, 3)
        assert await sending == [Place(0, 1)]

    on_bench(test)


def test_a_topic_that_does_not_exist_or_may_not_be_seen_is_said_to_the_caller() -> None:
    async def test(bench: Bench) -> None:
        with pytest.raises(KafkaError, match="there is no topic b"):
            await bench.producer.append_values("b", [b"1"])
        bench.cluster.topic_errors["a"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(KafkaError, match="no right to see the topic a"):
            await bench.append(b"1")

    on_bench(test)


def test_a_topic_that_is_deleted_fails_what_waits_for_it() -> None:
    async def test(bench: Bench) -> None:
        await bench.append(b"0")
        bench.cluster.delete_topic("a")
        assert codes(await bench.append(b"1")) == [ErrorCode.REQUEST_TIMED_OUT]
        bench.cluster.create_topic("a", 1)
        assert codes(await bench.append(b"2")) == [Place(0, 0)]

    on_bench(test)


def test_a_broker_that_does_not_know_a_new_topic_yet_is_asked_again() -> None:
    async def test(bench: Bench) -> None:
        sending = bench.start(b"1")
        await asyncio.sleep(0.005)
        bench.brokers.forget("a")  # as after an answer of a leader that does not know it yet either
        bench.cluster.topic_errors["a"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        bench.cluster.refusals["a", 0].append(Refusal(ErrorCode.UNKNOWN_TOPIC_ID))
        await asyncio.sleep(0.3)
        bench.cluster.topic_errors.clear()
        assert await sending == [Place(0, 0)]

    on_bench(test)


def test_without_the_right_to_write_nothing_is_appended() -> None:
    async def test(bench: Bench) -> None:
        bench.cluster.refusals["a", 0].append(Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        both = await asyncio.gather(bench.append(b"1"), bench.append(b"2", partition=1))
        assert [codes(each) for each in both] == [[ErrorCode.TOPIC_AUTHORIZATION_FAILED], [Place(1, 0)]]
        assert codes(await bench.append(b"3")) == [Place(0, 0)]

    on_bench(test)


def test_without_a_producer_id_nothing_is_appended() -> None:
    async def test(bench: Bench) -> None:
        bench.cluster.producer_id_errors.append(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        (error,) = await bench.append(b"1")
        assert isinstance(error, KafkaError)
        assert error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert str(error) == "no right to write to any topic"
        bench.cluster.producer_id_errors += [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3
        assert codes(await bench.append(b"2")) == [Place(0, 0)]

    on_bench(test)


def test_only_the_records_that_a_broker_does_not_take_are_refused() -> None:
    async def test(bench: Bench) -> None:
        await bench.append(b"0")
        bench.cluster.logs[TopicPartition("a", 0)].batch_bytes_max = 600
        appended = await asyncio.gather(
            bench.append(b"1", bytes(600), b"3"), bench.append(INVALID), bench.append(b"5"), bench.append(b"6")
        )
        assert [codes(each) for each in appended] == [
            [Place(0, 1), ErrorCode.MESSAGE_TOO_LARGE, Place(0, 2)],
            [ErrorCode.INVALID_RECORD],
            [Place(0, 3)],
            [Place(0, 4)],
        ]

    on_bench(test)


def test_a_producer_that_the_leader_has_forgotten_becomes_another_one() -> None:
    async def test(bench: Bench) -> None:
        await bench.append(b"0")
        bench.cluster.logs[TopicPartition("a", 0)].forget_producers()
        assert await bench.append(b"1") == [Place(0, 1)]
        bench.cluster.logs[TopicPartition("a", 0)].fence(2)
        assert await bench.append(b"2") == [Place(0, 2)]
        assert bench.count(ApiKey.INIT_PRODUCER_ID) == 3

    on_bench(test)


def test_a_broker_that_slows_clients_down_is_waited_for() -> None:
    async def test(bench: Bench) -> None:
        bench.cluster.throttle_ms = 4_000
        appended = [await bench.append(b"%d" % number) for number in range(5)]
        assert appended == [[Place(0, number)] for number in range(5)]
        assert bench.count(ApiKey.PRODUCE) == 5

    on_bench(test)


def test_partitions_that_a_topic_has_got_since_are_found() -> None:
    async def test(bench: Bench) -> None:
        await bench.append(b"0")
        appended = await bench.append(b"1", partition=4)
        assert codes(appended) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        bench.cluster.create_topic("a", 5)
        assert await bench.append(b"2", partition=4) == [Place(4, 0)]

    on_bench(test)


def test_a_device_waits_while_too_much_is_under_way() -> None:
    async def test(bench: Bench) -> None:
        await bench.append(b"0")
        bench.cluster.faults.append(Fault.FROZEN)
        large = bench.start(bytes(900))
        await settle()
        waiting = bench.start(bytes(500), partition=1)
        await asyncio.sleep(5)
        assert not waiting.done()
        await large
        assert await waiting == [Place(1, 0)]

    on_bench(test, room=1_000)


def test_who_goes_away_while_its_records_are_under_way_frees_its_room_when_it_is_known_what_became_of_them() -> None:
    async def test(bench: Bench) -> None:
        await bench.append(b"0")
        bench.cluster.faults.append(Fault.FROZEN)
        gone = bench.start(bytes(900))
        await asyncio.sleep(1)
        gone.cancel()
        await settle()
        assert bench.room.bytes_taken > 900
        assert await bench.append(bytes(500)) == [Place(0, 2)]

    on_bench(test, room=1_000)


def test_who_goes_away_while_it_waits_for_room_is_not_appended() -> None:
    async def test(bench: Bench) -> None:
        await bench.append(b"0")
        bench.cluster.faults.append(Fault.FROZEN)
        large, gone = bench.start(bytes(900)), bench.start(b"gone" * 50)
        await settle()
        gone.cancel()
        await large
        await bench.append(b"1")
        assert bench.values() == [b"0", bytes(900), b"1"]

    on_bench(test, room=1_000)


# --- the end ----------------------------------------------------------------------------------------------------


def close(bench: Bench) -> None:
    bench.producer.close()
    bench.brokers.close()


@pytest.mark.parametrize("seconds", [0, 0.001, 0.003, 0.005, 0.007, 0.009, 1.0])
@pytest.mark.parametrize("fault", [Fault.NONE, Fault.FROZEN, Fault.LOST_BEFORE])
def test_everybody_is_answered_when_the_gateway_stops(seconds: float, fault: Fault) -> None:
    async def test(bench: Bench) -> None:
        bench.cluster.faulty = set(ApiKey)
        bench.cluster.choose_fault = lambda api: fault
        tasks = [bench.start(bytes(300), partition=number % 3) for number in range(9)]
        await settle()
        await asyncio.sleep(seconds)
        close(bench)
        began = asyncio.get_running_loop().time()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            error = outcome[0] if isinstance(outcome, list) else outcome
            assert isinstance(error, Place | KafkaError)
            is_there = [bytes(300) in bench.values(number) for number in range(3)]
            if isinstance(error, Place):
                assert is_there[error.partition]
        assert asyncio.get_running_loop().time() == began
        await asyncio.sleep(60)

    on_bench(test, room=2_000)


def test_nothing_is_appended_after_the_end() -> None:
    async def test(bench: Bench) -> None:
        await bench.append(b"0")
        close(bench)
        with pytest.raises(KafkaError, match="the gateway stops"):
            await bench.append(b"1")

    on_bench(test)


def test_records_whose_answer_is_awaited_at_the_end_may_be_there() -> None:
    async def test(bench: Bench) -> None:
        await bench.append(b"0")
        sending, waiting = bench.start(b"1"), bench.start(b"x", partition=1)
        await settle()
        await asyncio.sleep(0.003)
        later = bench.start(b"2")
        await settle()
        close(bench)
        ((sent,), (later_error,)) = (await sending, await later)
        assert "may have been appended: the gateway stops" in str(sent)
        assert str(later_error) == "the gateway stops"
        await waiting
        assert bench.values() == [b"0", b"1"]

    on_bench(test)
