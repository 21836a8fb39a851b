"""How consumers read: waiting at the end, reading while others write, seeking, and listing offsets.

Waiting is judged by the order of events (a fetch with a very long wait ends because records were written), never by
time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from batches import now_ms
from clients import CLIENTS, Message, confluent_consumer, confluent_producer, poll_messages, run_kcat
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, TopicPartition
from harness.patience import PATIENCE_S, Patience

CreateTopic = Callable[..., str]
NEVER_MS = min(int(2000 * PATIENCE_S), 300_000)
"""A max_wait longer than a test waits for a record, or librdkafka's maximum."""


def write(bootstrap: str, name: str, values: list[bytes], partition: int = 0) -> None:
    producer = confluent_producer(bootstrap)
    for value in values:
        producer.produce(name, value, partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def test_a_waiting_confluent_consumer_is_woken_by_a_write(bootstrap: str, create_topic: CreateTopic) -> None:
    name = create_topic()
    consumer = confluent_consumer(bootstrap, fetch_wait_max_ms=NEVER_MS)
    consumer.assign([TopicPartition(name, 0, 0)])
    for value in (b"first", b"second", b"third"):
        assert consumer.poll(0.2) is None
        write(bootstrap, name, [value])
        assert poll_messages(consumer, 1)[0].value() == value
    consumer.close()


def test_a_waiting_aiokafka_consumer_is_woken_by_a_write(bootstrap: str, create_topic: CreateTopic) -> None:
    name = create_topic()

    async def run() -> bytes:
        partition = AioTopicPartition(name, 0)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, fetch_max_wait_ms=NEVER_MS, request_timeout_ms=2 * NEVER_MS
        )
        async with consumer, AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            consumer.assign([partition])
            await consumer.seek_to_end(partition)
            waiting = asyncio.create_task(consumer.getone())
            done, _ = await asyncio.wait([waiting], timeout=0.3)
            assert not done
            await producer.send_and_wait(name, b"woken", partition=0)
            return bytes((await asyncio.wait_for(waiting, PATIENCE_S)).value)

    assert asyncio.run(run()) == b"woken"


def test_a_wait_on_many_partitions_ends_when_one_is_written(bootstrap: str, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=4)
    consumer = confluent_consumer(bootstrap, fetch_wait_max_ms=NEVER_MS)
    consumer.assign([TopicPartition(name, n, OFFSET_BEGINNING) for n in range(4)])
    await_fetch_of_all(bootstrap, consumer, name, 4)
    assert consumer.poll(0.3) is None
    for partition in (3, 0, 2):
        write(bootstrap, name, [b"%d" % partition], partition)
        assert poll_messages(consumer, 1)[0].partition() == partition
    consumer.close()


def await_fetch_of_all(bootstrap: str, consumer: Consumer, name: str, partitions: int) -> None:
    """Write to all partitions and read that, until the consumer fetches from all: librdkafka adds a partition only when
    its current fetch ends."""
    unread, written, read = set(range(partitions)), 0, 0
    patience = Patience(lambda: f"the consumer reads from {unread} too")
    while unread:
        patience.check()
        for partition in range(partitions):
            write(bootstrap, name, [b"first"], partition)
            written += 1
        found = consumer.consume(written - read, timeout=1)
        read += len(found)
        unread -= {message.partition() for message in found}
    poll_messages(consumer, written - read)


def test_reading_while_writing(bootstrap: str, create_topic: CreateTopic) -> None:
    name, count = create_topic(), 2000
    values = [b"%05d" % n for n in range(count)]
    consumer = confluent_consumer(bootstrap)
    consumer.assign([TopicPartition(name, 0, 0)])
    writer = threading.Thread(target=write, args=(bootstrap, name, values))
    writer.start()
    found = poll_messages(consumer, count)
    writer.join()
    consumer.close()
    assert [message.value() for message in found] == values
    assert [message.offset() for message in found] == list(range(count))


def test_several_writers_and_one_reader(bootstrap: str, create_topic: CreateTopic) -> None:
    name = create_topic()
    writers = [
        threading.Thread(target=write, args=(bootstrap, name, [b"%d-%03d" % (who, n) for n in range(100)]))
        for who in range(4)
    ]
    for writer in writers:
        writer.start()
    found = [message.value or b"" for message in CLIENTS["aiokafka"].consume(bootstrap, name, 400)]
    for writer in writers:
        writer.join()
    for who in range(4):
        assert [value for value in found if value.startswith(b"%d-" % who)] == [
            b"%d-%03d" % (who, n) for n in range(100)
        ]


def test_kcat_reads_to_the_end(bootstrap: str, create_topic: CreateTopic, kcat: str) -> None:
    name = create_topic(partitions=2)
    write(bootstrap, name, [b"a", b"b", b"c"], 0)
    write(bootstrap, name, [b"d"], 1)
    shown = run_kcat(bootstrap, ["-C", "-t", name, "-o", "beginning", "-e", "-q", "-f", "%p:%o:%s\n"])
    assert sorted(shown.split()) == [b"0:0:a", b"0:1:b", b"0:2:c", b"1:0:d"]
    tail = run_kcat(bootstrap, ["-C", "-t", name, "-p", "0", "-o", "-2", "-e", "-q", "-f", "%o\n"])
    assert tail.split() == [b"1", b"2"]


def test_kcat_lists_the_topic(bootstrap: str, create_topic: CreateTopic, kcat: str) -> None:
    name = create_topic(partitions=3)
    shown = run_kcat(bootstrap, ["-L", "-t", name]).decode()
    assert f'topic "{name}" with 3 partitions' in shown


def test_seek_to_any_offset(bootstrap: str, create_topic: CreateTopic) -> None:
    name = create_topic()
    write(bootstrap, name, [b"%d" % n for n in range(100)])
    consumer = confluent_consumer(bootstrap)
    consumer.assign([TopicPartition(name, 0, 50)])
    assert poll_messages(consumer, 1)[0].offset() == 50
    for offset in (99, 0, 73, 1):
        consumer.seek(TopicPartition(name, 0, offset))
        assert poll_messages(consumer, 1)[0].value() == b"%d" % offset
    consumer.close()


def test_seek_inside_a_compressed_batch(bootstrap: str, create_topic: CreateTopic) -> None:
    """The broker sends the whole batch; every client must start at the offset it asked for."""
    name = create_topic()
    CLIENTS["kafka-python"].produce(bootstrap, name, [Message(None, b"%d" % n) for n in range(30)], "gzip")
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=int(1000 * PATIENCE_S))
    partition = kafka.TopicPartition(name, 0)
    consumer.assign([partition])
    consumer.seek(partition, 17)
    assert next(consumer).offset == 17
    consumer.close()
    shown = run_kcat(bootstrap, ["-C", "-t", name, "-p", "0", "-o", "17", "-c", "1", "-q", "-f", "%o:%s"])
    assert shown == b"17:17"


def test_pause_and_resume(bootstrap: str, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=2)
    write(bootstrap, name, [b"a"], 0)
    write(bootstrap, name, [b"b"], 1)
    consumer = confluent_consumer(bootstrap)
    consumer.assign([TopicPartition(name, n, 0) for n in range(2)])
    consumer.pause([TopicPartition(name, 0)])
    assert poll_messages(consumer, 1)[0].partition() == 1
    assert consumer.poll(0.3) is None
    consumer.resume([TopicPartition(name, 0)])
    assert poll_messages(consumer, 1)[0].partition() == 0
    consumer.close()


def test_beginning_and_end_offsets(bootstrap: str, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=2)
    write(bootstrap, name, [b"v"] * 7, 1)
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap)
    first, second = kafka.TopicPartition(name, 0), kafka.TopicPartition(name, 1)
    assert consumer.beginning_offsets([first, second]) == {first: 0, second: 0}
    assert consumer.end_offsets([first, second]) == {first: 0, second: 7}
    consumer.close()
    librdkafka = confluent_consumer(bootstrap)
    assert librdkafka.get_watermark_offsets(TopicPartition(name, 1), timeout=PATIENCE_S) == (0, 7)
    librdkafka.close()


def test_a_consumer_started_at_the_end_reads_only_new_records(bootstrap: str, create_topic: CreateTopic) -> None:
    name = create_topic()
    write(bootstrap, name, [b"old"] * 5)
    consumer = confluent_consumer(bootstrap, enable_partition_eof=True)
    consumer.assign([TopicPartition(name, 0, OFFSET_END)])
    at_end: Any = consumer.poll(PATIENCE_S)
    assert at_end.error().code() == KafkaError._PARTITION_EOF
    write(bootstrap, name, [b"new"])
    found = poll_messages(consumer, 1)[0]
    assert (found.offset(), found.value()) == (5, b"new")
    consumer.close()


@pytest.mark.parametrize("reset", ["earliest", "latest", "error"])
def test_an_offset_out_of_range_is_reset_as_configured(bootstrap: str, create_topic: CreateTopic, reset: str) -> None:
    name = create_topic()
    write(bootstrap, name, [b"a", b"b"])
    consumer = confluent_consumer(bootstrap, auto_offset_reset=reset, enable_partition_eof=True)
    consumer.assign([TopicPartition(name, 0, 1000)])
    seen: Any = consumer.poll(PATIENCE_S)
    assert seen is not None
    if reset == "earliest":
        assert seen.offset() == 0
    elif reset == "latest":
        assert seen.error().code() == KafkaError._PARTITION_EOF
        assert seen.offset() == 2
    else:
        assert seen.error().code() == KafkaError._AUTO_OFFSET_RESET
    consumer.close()


def test_offsets_for_times(bootstrap: str, create_topic: CreateTopic) -> None:
    name, start = create_topic(), now_ms() - 100_000
    stamps = [start, start + 10, start + 20, start + 15, start + 30]
    for stamp in stamps:
        CLIENTS["confluent"].produce(bootstrap, name, [Message(None, b"v", (), stamp)])
    expected = {start - 1: 0, start: 0, start + 1: 1, start + 11: 2, start + 21: 4, start + 30: 4}
    partition = kafka.TopicPartition(name, 0)
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap)
    for target, offset in expected.items():
        found = consumer.offsets_for_times({partition: target})[partition]
        assert (found.offset, found.timestamp) == (offset, stamps[offset])
    assert consumer.offsets_for_times({partition: start + 31})[partition] is None
    consumer.close()
    librdkafka = confluent_consumer(bootstrap)
    for target, offset in [*expected.items(), (start + 31, OFFSET_END)]:
        assert librdkafka.offsets_for_times([TopicPartition(name, 0, target)], timeout=PATIENCE_S)[0].offset == offset
    librdkafka.close()


def test_kcat_queries_by_time(bootstrap: str, create_topic: CreateTopic, kcat: str) -> None:
    name, start = create_topic(), now_ms() - 100_000
    CLIENTS["aiokafka"].produce(bootstrap, name, [Message(None, b"v", (), start + n * 10) for n in range(5)])
    shown = run_kcat(bootstrap, ["-Q", "-t", f"{name}:0:{start + 25}"])
    assert shown.split() == f"{name} [0] offset 3".encode().split()


def test_time_lookup_inside_a_batch(bootstrap: str, create_topic: CreateTopic) -> None:
    """All records are in one compressed batch: the result is a record, not the batch's first offset."""
    name, start = create_topic(), now_ms() - 100_000
    CLIENTS["kafka-python"].produce(bootstrap, name, [Message(None, b"v", (), start + n) for n in range(20)], "gzip")
    librdkafka = confluent_consumer(bootstrap)
    assert librdkafka.offsets_for_times([TopicPartition(name, 0, start + 13)], timeout=PATIENCE_S)[0].offset == 13
    librdkafka.close()
