"""A reader that goes on whatever becomes of a topic's records, in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from harness.gateway_accounts import MemoryCluster, MemoryPartition
from harness.virtual_loop import run_virtual

from moldau.base.errors import ErrorCode, KafkaError
from moldau.gateway.ports import NewRecord
from moldau.gateway.steady_reader import PARTITIONS_CHECK_S, SteadyReader, within


def add(cluster: MemoryCluster, value: bytes, partition: int = 0) -> None:
    topic = cluster.topics["telemetry"]
    topic.append(NewRecord(value, partition=partition), 0)
    topic.wake()


def read(cluster: MemoryCluster, *, is_whole: bool = True) -> SteadyReader:
    return SteadyReader(cluster.account("anna", ""), "telemetry", {0: 0}, is_whole=is_whole)


async def value_of_next(reader: SteadyReader) -> bytes | None:
    (record,) = await reader.next()
    return record.value


def test_it_goes_on_behind_records_that_were_deleted() -> None:
    async def run() -> None:
        cluster = MemoryCluster(telemetry=1)
        for number in range(5):
            add(cluster, b"%d" % number)
        cluster.delete_before("telemetry", 0, 4)
        reader = read(cluster)
        assert await value_of_next(reader) == b"4"
        assert reader.positions == {0: 5}
        reader.close()
        assert cluster.followings == 0

    run_virtual(run)


def test_partitions_that_are_added_belong_to_it_soon_and_nothing_is_read_twice() -> None:
    async def run() -> None:
        cluster = MemoryCluster(telemetry=1)
        add(cluster, b"first")
        reader = read(cluster)
        assert await value_of_next(reader) == b"first"
        cluster.topics["telemetry"].partitions.append(MemoryPartition())
        add(cluster, b"of the new partition", 1)
        begun = asyncio.get_running_loop().time()
        assert await value_of_next(reader) == b"of the new partition"
        assert asyncio.get_running_loop().time() - begun <= PARTITIONS_CHECK_S
        assert reader.positions == {0: 1, 1: 1}
        assert cluster.followings == 1

    run_virtual(run)


def test_a_reader_of_some_partitions_stays_with_them() -> None:
    async def run() -> None:
        cluster = MemoryCluster(telemetry=1)
        reader = read(cluster, is_whole=False)
        cluster.topics["telemetry"].partitions.append(MemoryPartition())
        add(cluster, b"of the new partition", 1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.next(), 3 * PARTITIONS_CHECK_S)

    run_virtual(run)


def test_an_error_that_stays_is_told() -> None:
    async def run() -> None:
        cluster = MemoryCluster(telemetry=1)
        cluster.break_followings("telemetry", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(KafkaError):
            await read(cluster).next()

    run_virtual(run)


def test_positions_are_kept_within_what_is_there() -> None:
    assert within({0: 1, 1: 9, 2: 5, 3: 7}, {0: (2, 8), 1: (2, 8), 2: (2, 8)}) == {0: 2, 1: 8, 2: 5}
