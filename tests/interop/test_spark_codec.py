"""The Spark connector's encoder and decoder against librdkafka: random records, every compression, transactions.

Raw bytes go over a plain channel, so that only encoder and decoder are tested. Records are drawn from a seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest
from clients import Confluent, Message, confluent_consumer
from confluent_kafka import OFFSET_BEGINNING, Producer, TopicPartition
from harness.patience import PATIENCE_S

from moldau.client.channel import Channel
from moldau.client.fetching.batches import Aborted
from moldau.spark.records.decode import FetchedRecords, decode, next_offset
from moldau.spark.records.encode import EncodeColumns, batch_limits, encode_batches
from moldau.wire.apis import ApiKey
from moldau.wire.compression import Compression
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

CreateTopic = Callable[..., str]
ANY_TIME = {"message.timestamp.before.max.ms": "9223372036854775807", "retention.ms": "-1"}
"""Old timestamps are accepted, and such records are not removed during the test."""
HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", HEADERS),
    ]
)
NOW_MS = 1_760_000_000_000
CODECS = pytest.mark.parametrize("codec", list(Compression), ids=lambda codec: codec.name.lower())


def random_messages(seed: int, count: int) -> list[Message]:
    chance = random.Random(seed)

    def some_bytes(size_max: int) -> bytes | None:
        return None if chance.random() < 0.2 else chance.randbytes(chance.randrange(size_max))

    return [
        Message(
            some_bytes(40),
            some_bytes(chance.choice([10, 100, 100, 9_000])),
            tuple((f"header {number}", some_bytes(12)) for number in range(chance.choice([0, 0, 1, 4]))),
            NOW_MS + chance.randrange(-100_000, 100_000),
        )
        for _ in range(count)
    ]


class Partition:
    """Partition 0 of a topic, read over one connection."""

    def __init__(self, channel: Channel, topic: str) -> None:
        self.channel, self.topic = channel, topic
        asked = MetadataRequest([MetadataRequestTopic(name=topic)])
        self.id = bytes(channel.ask(ApiKey.METADATA, asked, MetadataResponse).topics[0].topic_id)

    def read(self, end: int, is_committed: bool = False) -> list[tuple[int, Message]]:
        """Return all rows up to an offset, with their offsets."""
        rows: list[tuple[int, Message]] = []
        position = 0
        while position < end:
            wanted = FetchPartition(0, fetch_offset=position, partition_max_bytes=200_000)
            request = FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=1 << 20,
                isolation_level=int(is_committed),
                topics=[FetchTopic(self.id, self.topic, [wanted])],
            )
            data = self.channel.ask(ApiKey.FETCH, request, FetchResponse).responses[0].partitions[0]
            assert data.error_code == 0
            records = memoryview(data.records or b"")
            aborted = [Aborted(one.first_offset, one.producer_id) for one in data.aborted_transactions or ()]
            for batch in decode(FetchedRecords(self.topic, 0, records, position, end, aborted), SCHEMA):
                rows += _messages(batch)
            position = next_offset(records, position)
        return rows

    def write(self, batches: list[bytearray]) -> None:
        for batch in batches:
            topic = TopicProduceData(self.id, self.topic, [PartitionProduceData(0, batch)])
            request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])
            answer = self.channel.ask(ApiKey.PRODUCE, request, ProduceResponse)
            assert answer.responses[0].partition_responses[0].error_code == 0


def _messages(batch: pa.RecordBatch) -> Iterator[tuple[int, Message]]:
    milliseconds = batch["timestamp"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist()
    for row, timestamp in zip(batch.drop_columns(["timestamp"]).to_pylist(), milliseconds, strict=True):
        headers = tuple((header["key"], header["value"]) for header in row["headers"])
        yield row["offset"], Message(row["key"], row["value"], headers, timestamp)


@contextmanager
def partition(bootstrap: str, topic: str) -> Iterator[Partition]:
    host, _, port = bootstrap.rpartition(":")
    with Channel(host, int(port)) as channel:
        yield Partition(channel, topic)


@CODECS
def test_records_written_by_librdkafka_are_decoded(
    bootstrap: str, create_topic: CreateTopic, codec: Compression
) -> None:
    topic = create_topic(config=ANY_TIME)
    messages = random_messages(codec, 1500)
    Confluent().produce(bootstrap, topic, messages, codec.name.lower())
    with partition(bootstrap, topic) as log:
        assert log.read(len(messages)) == list(enumerate(messages))


@CODECS
def test_encoded_records_are_read_by_librdkafka(bootstrap: str, create_topic: CreateTopic, codec: Compression) -> None:
    topic = create_topic(config=ANY_TIME)
    messages = random_messages(10 + codec, 1500)
    headers = [[{"key": key, "value": value} for key, value in message.headers] for message in messages]
    columns = EncodeColumns(
        pa.array([message.key for message in messages], pa.binary()),
        pa.array([message.value for message in messages], pa.binary()),
        np.array([message.timestamp for message in messages], np.int64),
        pa.array(headers, HEADERS),
    )
    limits = batch_limits(columns, 100_000)
    with partition(bootstrap, topic) as log:
        log.write(encode_batches(columns, limits, [None] * len(limits), codec))
    assert Confluent().consume(bootstrap, topic, len(messages)) == messages


def test_interleaved_transactions_are_decoded_as_by_librdkafka(bootstrap: str, create_topic: CreateTopic) -> None:
    """The result must equal that of librdkafka's read_committed consumer."""
    topic = create_topic(config=ANY_TIME)
    chance = random.Random(1)
    producers = [Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-{n}"}) for n in range(3)]
    for producer in producers:
        producer.init_transactions()
        producer.begin_transaction()
    for message in random_messages(2, 60):
        producer = chance.choice(producers)
        producer.produce(topic, message.value, message.key, 0, timestamp=message.timestamp or 0)
        producer.flush()
        if chance.random() < 0.4:
            (producer.abort_transaction if chance.random() < 0.5 else producer.commit_transaction)()
            producer.begin_transaction()
    for producer in producers:
        producer.produce(topic, b"last", partition=0)
        producer.commit_transaction()
    everything = seen_by_librdkafka(bootstrap, topic, "read_uncommitted")
    committed = seen_by_librdkafka(bootstrap, topic, "read_committed")
    assert 3 < len(committed) < len(everything)
    with partition(bootstrap, topic) as log:
        end = everything[-1][0] + 1
        assert log.read(end, is_committed=True) == committed
        assert log.read(end) == everything


def seen_by_librdkafka(bootstrap: str, topic: str, isolation: str) -> list[tuple[int, Message]]:
    consumer = confluent_consumer(bootstrap, isolation_level=isolation, enable_partition_eof=True)
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        found: list[tuple[int, Message]] = []
        while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
            found.append((message.offset(), Message(message.key(), message.value(), (), message.timestamp()[1])))
    finally:
        consumer.close()
    return found
