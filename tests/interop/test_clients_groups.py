"""Consumer groups of three client libraries: sharing, taking over, resuming, patterns, static members.

Sessions and heartbeats are as short as a broker allows. With `group.protocol=consumer` the broker sets the heartbeat
interval, five seconds; scenarios that take several of these run beside the other tests, and are checked last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import kafka
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from clients import confluent_consumer, poll_messages, write_values
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from group_members import Group
from group_readers import FLAVOURS, Reader, await_rest, await_shares, await_values, close_all, until
from harness.patience import PATIENCE_S

CreateTopic = Callable[..., str]
Open = Callable[..., Reader]
CLASSIC = [name for name in FLAVOURS if name != "confluent-consumer"]
LIBRARIES = ["confluent-range", "kafka-python", "aiokafka"]


@contextmanager
def opening(bootstrap: str) -> Iterator[Open]:
    """Open members of one new group, or of groups named after it, in the given flavour; close all at the end."""
    opened: list[Reader] = []
    with Group(bootstrap) as group:
        group.assign_at_once()

        def open_one(flavour: str, topics: Sequence[str] | str, group_suffix: str = "", **config: Any) -> Reader:
            opened.append(FLAVOURS[flavour].open(bootstrap, group.id + group_suffix, topics, **config))
            return opened[-1]

        try:
            yield open_one
        finally:
            close_all(opened)


@pytest.fixture
def open_reader(bootstrap: str) -> Iterator[Open]:
    with opening(bootstrap) as open_one:
        yield open_one


def numbers(start: int, count: int) -> list[bytes]:
    return [b"%05d" % number for number in range(start, start + count)]


def two_members_take_over_from_a_third(bootstrap: str, open_reader: Open, flavour: str, name: str) -> None:
    """Check that every record is read once, also when one member closes: the others continue where it stopped."""
    readers = [open_reader(flavour, [name]) for _ in range(3)]
    await_shares(readers, [2, 2, 2])
    write_values(bootstrap, name, numbers(0, 300), 6)
    assert await_values(readers, 300) == numbers(0, 300)
    assert [len(reader.found) for reader in readers] == [100, 100, 100]
    readers[0].close()
    await_shares(readers[1:], [3, 3])
    write_values(bootstrap, name, numbers(300, 300), 6)
    assert await_values(readers, 600) == numbers(0, 600)


def a_pattern_subscription_includes_later_topics(
    bootstrap: str, open_reader: Open, flavour: str, first: str, admin: AdminClient
) -> None:
    write_values(bootstrap, first, [b"1"], 1)
    reader = open_reader(flavour, f"{first}(-second)?$")
    assert await_values([reader], 1) == [b"1"]
    second = f"{first}-second"
    for created in admin.create_topics([NewTopic(second, 2, 1), NewTopic(f"{second}-other", 1, 1)]).values():
        created.result(PATIENCE_S)
    write_values(bootstrap, second, [b"2", b"3"], 2)
    assert await_values([reader], 3) == [b"1", b"2", b"3"]
    everything = {(first, 0), (second, 0), (second, 1)}
    until(lambda: reader.assigned == everything, "the reader has all partitions", [reader])


def a_group_moves_to_the_consumer_protocol(bootstrap: str, open_reader: Open, flavour: str, name: str) -> None:
    old = open_reader("confluent-cooperative", [name])
    await_shares([old], [4])
    new = open_reader(flavour, [name])
    await_shares([old, new], [2, 2])
    write_values(bootstrap, name, numbers(0, 40), 4)
    assert await_values([old, new], 40) == numbers(0, 40)
    old.close()
    await_shares([new], [4])
    write_values(bootstrap, name, numbers(40, 40), 4)
    assert await_values([old, new], 80) == numbers(0, 80)


@pytest.fixture(scope="module", autouse=True)
def long_runs(bootstrap: str, admin: AdminClient, create_topic: CreateTopic) -> Iterator[dict[str, Future[None]]]:
    """Long runs by name, started before the first test."""

    def run(scenario: Callable[..., None], *arguments: Any) -> None:
        with opening(bootstrap) as open_one:
            scenario(bootstrap, open_one, "confluent-consumer", *arguments)

    with ThreadPoolExecutor() as pool:
        yield {
            "share": pool.submit(run, two_members_take_over_from_a_third, create_topic(partitions=6)),
            "pattern": pool.submit(run, a_pattern_subscription_includes_later_topics, create_topic(), admin),
            "move": pool.submit(run, a_group_moves_to_the_consumer_protocol, create_topic(partitions=4)),
        }


@pytest.mark.parametrize("flavour", CLASSIC)
def test_two_members_take_over_from_a_third(
    bootstrap: str, create_topic: CreateTopic, open_reader: Open, flavour: str
) -> None:
    two_members_take_over_from_a_third(bootstrap, open_reader, flavour, create_topic(partitions=6))


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_new_consumer_resumes_where_the_last_one_closed(
    bootstrap: str, create_topic: CreateTopic, open_reader: Open, flavour: str
) -> None:
    name = create_topic(partitions=2)
    for start in (0, 50, 100):
        write_values(bootstrap, name, numbers(start, 50), 2)
        reader = open_reader(flavour, [name])
        assert await_values([reader], 50) == numbers(start, 50)
        reader.close()
        assert len(reader.found) == 50


@pytest.mark.parametrize("flavour", LIBRARIES)
def test_an_idle_member_takes_over_partitions(
    bootstrap: str, create_topic: CreateTopic, open_reader: Open, flavour: str
) -> None:
    name = create_topic(partitions=2)
    readers = [open_reader(flavour, [name]) for _ in range(3)]
    await_shares(readers, [1, 1, 0])
    write_values(bootstrap, name, numbers(0, 20), 2)
    assert await_values(readers, 20) == numbers(0, 20)
    idle = next(reader for reader in readers if not reader.assigned)
    assert idle.found == []
    leaving = next(reader for reader in readers if reader.assigned)
    leaving.close()
    readers.remove(leaving)
    await_shares(readers, [1, 1])
    write_values(bootstrap, name, numbers(20, 20), 2)
    assert await_values([*readers, leaving], 40) == numbers(0, 40)
    assert len(idle.found) == 10


@pytest.mark.parametrize("flavour", LIBRARIES)
def test_a_pattern_subscription_includes_later_topics(
    bootstrap: str, create_topic: CreateTopic, admin: AdminClient, open_reader: Open, flavour: str
) -> None:
    a_pattern_subscription_includes_later_topics(bootstrap, open_reader, flavour, create_topic(), admin)


def instance(flavour: str, name: str) -> dict[str, str]:
    return {"group.instance.id" if flavour.startswith("confluent") else "group_instance_id": name}


@pytest.mark.parametrize("flavour", ["confluent-range", "confluent-cooperative", "kafka-python"])
def test_a_static_member_restart_does_not_rebalance_the_others(
    bootstrap: str, create_topic: CreateTopic, open_reader: Open, flavour: str
) -> None:
    name = create_topic(partitions=4)
    stays = open_reader(flavour, [name], **instance(flavour, "stays"))
    restarts = open_reader(flavour, [name], **instance(flavour, "restarts"))
    await_shares([stays, restarts], [2, 2])
    await_rest([stays, restarts])
    before, assignments_before = restarts.assigned, stays.assignments
    restarts.close()
    again = open_reader(flavour, [name], **instance(flavour, "restarts"))
    until(lambda: again.assigned == before, "the restarted member has its partitions back", [stays, again])
    write_values(bootstrap, name, numbers(0, 40), 4)
    assert await_values([stays, again], 40) == numbers(0, 40)
    assert stays.assignments == assignments_before


def test_every_group_reads_all_records(bootstrap: str, create_topic: CreateTopic, open_reader: Open) -> None:
    name = create_topic(partitions=3)
    write_values(bootstrap, name, numbers(0, 90), 3)
    readers = [open_reader(flavour, [name], group_suffix=f"-{flavour}") for flavour in FLAVOURS]
    for reader in readers:
        assert await_values([reader], 90) == numbers(0, 90)


def test_libraries_share_a_group(bootstrap: str, create_topic: CreateTopic, open_reader: Open) -> None:
    """They agree on round robin, which all three support."""
    name = create_topic(partitions=6)
    readers = [open_reader(flavour, [name]) for flavour in ("confluent-roundrobin", "kafka-python", "aiokafka")]
    await_shares(readers, [2, 2, 2])
    write_values(bootstrap, name, numbers(0, 60), 6)
    assert await_values(readers, 60) == numbers(0, 60)


# ---- explicit commits


def commit_with_confluent(bootstrap: str, group: str, name: str, offset: int, note: str) -> list[int]:
    consumer = confluent_consumer(bootstrap, group_id=group, auto_offset_reset="earliest")
    partition = TopicPartition(name, 0, offset, metadata=note)
    consumer.assign([TopicPartition(name, 0)])
    resumed = poll_messages(consumer, 1)[0].offset()
    consumer.commit(offsets=[partition], asynchronous=False)
    (found,) = consumer.committed([TopicPartition(name, 0)], timeout=PATIENCE_S)
    consumer.seek(TopicPartition(name, 0, 2))
    sought = poll_messages(consumer, 1)[0].offset()
    consumer.close()
    assert found.metadata == note
    return [resumed, found.offset, sought]


def commit_with_kafka_python(bootstrap: str, group: str, name: str, offset: int, note: str) -> list[int]:
    partition = kafka.TopicPartition(name, 0)
    settings = {"bootstrap_servers": bootstrap, "group_id": group, "enable_auto_commit": False}
    consumer = kafka.KafkaConsumer(**settings, auto_offset_reset="earliest", consumer_timeout_ms=int(1000 * PATIENCE_S))
    consumer.assign([partition])
    resumed = next(consumer).offset
    consumer.commit({partition: kafka.OffsetAndMetadata(offset, note, -1)})
    found = consumer.committed(partition, metadata=True)
    consumer.seek(partition, 2)
    sought = next(consumer).offset
    consumer.close()
    assert found.metadata == note
    return [resumed, found.offset, sought]


def commit_with_aiokafka(bootstrap: str, group: str, name: str, offset: int, note: str) -> list[int]:
    async def run() -> list[int]:
        partition = AioTopicPartition(name, 0)
        settings = {"bootstrap_servers": bootstrap, "group_id": group, "enable_auto_commit": False}
        async with AIOKafkaConsumer(**settings, auto_offset_reset="earliest") as consumer:
            consumer.assign([partition])
            resumed = (await asyncio.wait_for(consumer.getone(), PATIENCE_S)).offset
            await consumer.commit({partition: (offset, note)})
            found = await consumer.committed(partition)
            consumer.seek(partition, 2)
            sought = (await asyncio.wait_for(consumer.getone(), PATIENCE_S)).offset
        return [resumed, found, sought]

    return asyncio.run(run())


def test_one_library_resumes_from_the_commits_of_another(bootstrap: str, create_topic: CreateTopic) -> None:
    name = create_topic()
    write_values(bootstrap, name, numbers(0, 20), 1)
    with Group(bootstrap) as group:
        assert commit_with_confluent(bootstrap, group.id, name, 5, "by confluent") == [0, 5, 2]
        assert commit_with_kafka_python(bootstrap, group.id, name, 9, "by kafka-python") == [5, 9, 2]
        assert commit_with_aiokafka(bootstrap, group.id, name, 13, "by aiokafka") == [9, 13, 2]
        assert commit_with_confluent(bootstrap, group.id, name, 17, "") == [13, 17, 2]
        assert group.committed(name) == 17


# ---- the scenarios with the consumer protocol


@pytest.mark.parametrize("long_run", ["share", "pattern", "move"])
def test_consumer_protocol_groups(long_runs: dict[str, Future[None]], long_run: str) -> None:
    """Like the tests above; a group also moves to the consumer protocol while it reads."""
    long_runs[long_run].result(PATIENCE_S)
