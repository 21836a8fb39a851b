"""A reader before brokers in memory, in virtual time: each record once and in order per partition, whoever leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any

import pytest
from harness.depth import deep
from harness.model_brokers import NOBODY, Fault, ModelCluster
from harness.virtual_loop import run_virtual, settle

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.gateway.kafka import reader as reader_module
from moldau.gateway.kafka.reader import Reader
from moldau.gateway.ports import FoundRecord
from moldau.wire.apis import ApiKey
from moldau.wire.records import build_value_batch


class Library:
    """A topic that grows, and whoever reads it."""

    def __init__(self, partitions: int = 3) -> None:
        self.cluster = ModelCluster(a=partitions)
        self.cluster.faulty = {ApiKey.FETCH}
        self.readers: list[Reader] = []
        self.written = 0

    def write(self, partition: int, count: int = 1) -> None:
        log = self.cluster.logs[TopicPartition("a", partition)]
        for _ in range(count):
            batch = build_value_batch([b"%d" % self.written, b"%d+" % self.written], 5, -1)
            self.cluster.write(TopicPartition("a", partition), bytes(batch))
            self.written += 1
        assert log.records

    def read(self, positions: Mapping[int, int] | None = None) -> Reader:
        start = dict.fromkeys(range(len(self.cluster.logs)), 0) if positions is None else positions
        reader = Reader(self.cluster.brokers(), "a", start, lambda closed: self.readers.remove(closed))
        self.readers.append(reader)
        return reader

    def ends(self) -> dict[int, int]:
        return {partition.partition: len(log.records) for partition, log in self.cluster.logs.items()}

    def check(self, found: list[FoundRecord], start: Mapping[int, int] | None = None) -> None:
        for partition, log in self.cluster.logs.items():
            begin = (start or {}).get(partition.partition, 0)
            seen = [(each.offset, each.value) for each in found if each.partition == partition.partition]
            assert seen == [(each.offset, each.value) for each in log.records[begin:]]


async def read_all(library: Library, reader: Reader) -> list[FoundRecord]:
    found: list[FoundRecord] = []
    while any(reader.positions[partition] < end for partition, end in library.ends().items()):
        found += await reader.next()
    return found


async def read_for_ever(reader: Reader) -> None:
    while True:
        await reader.next()


def in_library(test: Callable[[Library], Coroutine[Any, Any, None]], partitions: int = 3) -> None:
    async def main() -> None:
        library = Library(partitions)
        await test(library)
        for reader in list(library.readers):
            reader.close()
        assert not library.readers
        await settle()

    run_virtual(main)


def test_what_is_there_is_read_and_then_what_comes() -> None:
    async def test(library: Library) -> None:
        for partition in range(3):
            library.write(partition, 30)
        reader = library.read()
        found = await read_all(library, reader)
        waiting = asyncio.create_task(reader.next())
        await asyncio.sleep(100)
        assert not waiting.done()
        library.write(1)
        found += await waiting
        library.check(found)
        assert reader.positions == {0: 60, 1: 62, 2: 60}

    in_library(test)


def test_it_begins_in_the_middle_of_a_batch() -> None:
    async def test(library: Library) -> None:
        library.write(0, 3)
        library.write(1)
        reader = library.read({0: 3, 1: 0})
        found = await reader.next()
        while len(found) < 5:
            found = [*found, *await reader.next()]
        assert [(each.partition, each.offset, each.value) for each in sorted(found)] == [
            (0, 3, b"1+"), (0, 4, b"2"), (0, 5, b"2+"), (1, 0, b"3"), (1, 1, b"3+"),
        ]  # fmt: skip

    in_library(test)


@pytest.mark.parametrize("fault", [Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.FROZEN, Fault.SILENT, Fault.LATE])
def test_it_goes_on_after_a_request_without_an_answer(fault: Fault) -> None:
    async def test(library: Library) -> None:
        library.write(0, 3)
        library.cluster.faults.extend([fault] * 2)
        library.check(await read_all(library, library.read()))

    in_library(test, partitions=1)


def test_it_follows_the_leader() -> None:
    async def test(library: Library) -> None:
        library.write(0)
        reader = library.read()
        found = list(await reader.next())
        waiting = asyncio.create_task(reader.next())
        await settle()
        library.cluster.move("a", 0, 2)
        library.write(0)
        found += await waiting
        library.cluster.down.add(2)
        library.cluster.move("a", 0, 3)
        library.write(0)
        found += await reader.next()
        library.check(found)

    in_library(test)


def test_a_partition_without_a_leader_does_not_hold_up_the_others() -> None:
    async def test(library: Library) -> None:
        library.cluster.shown[TopicPartition("a", 0)] = NOBODY
        library.write(0)
        library.write(1)
        reader = library.read()
        assert [each.partition for each in await reader.next()] == [1, 1]
        waiting = asyncio.create_task(reader.next())
        await asyncio.sleep(30)
        library.cluster.shown.clear()
        assert [each.partition for each in await waiting] == [0, 0]

    in_library(test)


def test_partitions_that_grow_all_the_time_do_not_hold_up_the_others() -> None:
    async def test(library: Library) -> None:
        for partition in range(9):
            library.write(partition)
            library.cluster.move("a", partition, 1)
        library.cluster.fetch_bytes_max = 1
        reader = library.read()
        seen = set()
        for _ in range(9):
            for partition in (0, 1, 2):
                library.write(partition)
            seen |= {each.partition for each in await reader.next()}
        assert seen == set(range(9))

    in_library(test, partitions=9)


def test_the_topic_is_deleted() -> None:
    async def test(library: Library) -> None:
        reader = library.read()
        waiting = asyncio.create_task(reader.next())
        await settle()
        library.cluster.delete_topic("a")
        with pytest.raises(KafkaError) as raised:
            await waiting
        assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    in_library(test)


@pytest.mark.parametrize("position", [-1, 100])
def test_a_position_that_is_not_there_is_an_error_after_the_records_of_other_partitions(position: int) -> None:
    async def test(library: Library) -> None:
        library.write(1)
        reader = library.read({0: position, 1: 0})
        with pytest.raises(KafkaError) as raised:
            await read_for_ever(reader)
        assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert reader.positions == {0: position, 1: reader.positions[1]}

    in_library(test)


def test_who_may_not_read_is_told() -> None:
    async def test(library: Library) -> None:
        library.cluster.topic_errors["a"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(KafkaError, match="no right to see the topic a"):
            await library.read().next()

    in_library(test)


def test_whoever_reads_is_told_when_the_reader_is_closed() -> None:
    async def test(library: Library) -> None:
        reader = library.read()
        waiting = asyncio.create_task(reader.next())
        await asyncio.sleep(1)
        reader.close()
        reader.close()
        with pytest.raises(KafkaError, match="closed"):
            await waiting
        with pytest.raises(KafkaError, match="closed"):
            await reader.next()

    in_library(test)


@pytest.mark.parametrize("seed", range(deep(30, quick=15)))
def test_each_record_is_seen_once_and_in_order_whatever_happens(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(seed)

    async def to_thread(function: Callable[..., Any], *arguments: Any) -> Any:
        await asyncio.sleep(rng.choice([0, 0.001, 0.01]))
        return function(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", to_thread)
    monkeypatch.setattr(reader_module, "LOOP_BYTES_MAX", rng.choice([0, 200, 32_000]))

    async def test(library: Library) -> None:
        cluster, is_over = library.cluster, False
        cluster.faulty = {ApiKey.FETCH, ApiKey.METADATA}
        faults = [Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.FROZEN]
        cluster.choose_fault = lambda _: rng.choice(faults) if not is_over and rng.random() < 0.2 else Fault.NONE
        positions = {partition: rng.randrange(3) for partition in range(3)}
        for partition in range(3):
            library.write(partition, 2)
        reader, found = library.read(positions), list[FoundRecord]()

        async def write() -> None:
            for _ in range(60):
                library.write(rng.randrange(3), rng.choice([1, 3, 20]))
                cluster.leaders[rng.choice(list(cluster.logs))] = rng.choice([1, 2, 3])
                cluster.down = set(rng.sample([1, 2, 3], rng.choice([0, 0, 1, 2])))
                cluster.shown = {rng.choice(list(cluster.logs)): NOBODY} if rng.random() < 0.2 else {}
                await asyncio.sleep(rng.choice([0, 0.001, 0.01, 1, 3]))
            cluster.down.clear()
            cluster.shown.clear()

        async def read() -> None:
            while not is_over or dict(reader.positions) != library.ends():
                try:
                    found.extend(await asyncio.wait_for(reader.next(), rng.choice([0.0005, 0.003, 0.01, 1, 60])))
                except TimeoutError:
                    continue  # it goes on where it was

        reading = asyncio.create_task(read())
        await write()
        is_over = True
        library.write(0)
        await reading
        library.check(found, positions)

    in_library(test)
