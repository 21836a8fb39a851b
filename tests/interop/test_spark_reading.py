"""The connector's reading, without a JVM: real records by real clients in, Arrow rows out, streams batch by batch."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from patience import PATIENCE_S
from spark_connector import NOW_MS, CreateTopic, StreamRun, read

from moldau.base.errors import KafkaError
from moldau.spark.fetching import DataLoss

pytest.importorskip("pyspark")
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def produce(bootstrap: str, topic: str, records: list[dict[str, Any]], **config: Any) -> None:
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0, **config})
    for record in records:
        producer.produce(topic, on_delivery=lambda error, _: failed.append(error) if error else None, **record)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    assert not failed


def numbered(count: int, first: int = 0, partition: int = 0) -> list[dict[str, Any]]:
    return [{"value": b"%d" % number, "partition": partition} for number in range(first, first + count)]


def values(table: pa.Table) -> list[int]:
    return [int(value) for value in table["value"].to_pylist()]


@contextmanager
def stream(bootstrap: str, **options: str) -> Iterator[StreamRun]:
    with closing(StreamRun(bootstrap, **options)) as run:
        yield run


class TestRecords:
    @pytest.mark.parametrize("codec", CODECS)
    def test_what_a_client_wrote_is_what_comes(self, bootstrap: str, create_topic: CreateTopic, codec: str) -> None:
        topic = create_topic(3)
        sent = []
        for number in range(1500):
            key = None if number % 7 == 0 else b"key-%d" % (number % 50)
            value = None if number % 11 == 0 else b"v" * (number % 300)
            headers = [("h", b"%d" % number), ("empty", None), ("h", b"again")] if number % 5 == 0 else []
            sent.append(
                {
                    "key": key,
                    "value": value,
                    "headers": headers,
                    "partition": number % 3,
                    "timestamp": NOW_MS + number,
                }
            )
        produce(bootstrap, topic, sent, **{"compression.type": codec})
        table = read(bootstrap, subscribe=topic, includeHeaders="true")
        assert table["topic"].unique().to_pylist() == [topic]
        for partition in range(3):
            rows = table.filter(pa.compute.equal(table["partition"], partition))
            wanted = [one for one in sent if one["partition"] == partition]
            assert rows["key"].to_pylist() == [one["key"] for one in wanted]
            assert rows["value"].to_pylist() == [one["value"] for one in wanted]
            assert rows["offset"].to_pylist() == list(range(len(wanted)))
            stamps = rows["timestamp"].cast(pa.int64()).to_pylist()
            assert stamps == [one["timestamp"] * 1000 for one in wanted]
            assert [[(h["key"], h["value"]) for h in each] for each in rows["headers"].to_pylist()] == [
                one["headers"] for one in wanted
            ]
        assert set(table["timestampType"].to_pylist()) == {0}

    def test_log_append_time(self, bootstrap: str, create_topic: CreateTopic) -> None:
        topic = create_topic(1, {"message.timestamp.type": "LogAppendTime"})
        before = time.time_ns() // 1000
        produce(bootstrap, topic, [{"value": b"x", "timestamp": NOW_MS}])
        table = read(bootstrap, subscribe=topic)
        assert table["timestampType"].to_pylist() == [1]
        assert before - 5_000_000 <= table["timestamp"].cast(pa.int64()).to_pylist()[0] <= before + 60_000_000

    def test_transactions(self, bootstrap: str, create_topic: CreateTopic) -> None:
        topic = create_topic(1)
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "log_level": 0})
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            producer.produce(topic, b"%d" % number)
            producer.flush()
            (producer.abort_transaction if number % 2 else producer.commit_transaction)()
        assert values(read(bootstrap, subscribe=topic)) == [0, 1, 2, 3, 4, 5]
        committed = read(bootstrap, subscribe=topic, **{"kafka.isolation.level": "read_committed"})
        assert values(committed) == [0, 2, 4]
        assert committed["offset"].to_pylist() == [0, 4, 8], "markers take offsets and are no rows"


class TestRanges:
    def test_by_offset(self, bootstrap: str, create_topic: CreateTopic) -> None:
        topic = create_topic(2)
        produce(bootstrap, topic, numbered(100) + numbered(50, 1000, partition=1))
        starts, ends = f'{{"{topic}": {{"0": 10, "1": -2}}}}', f'{{"{topic}": {{"0": 20, "1": -1}}}}'
        table = read(bootstrap, subscribe=topic, startingOffsets=starts, endingOffsets=ends)
        assert values(table) == [*range(10, 20), *range(1000, 1050)]

    def test_by_time(self, bootstrap: str, create_topic: CreateTopic) -> None:
        topic = create_topic(1)
        start = NOW_MS
        produce(bootstrap, topic, [{"value": b"%d" % n, "timestamp": start + n, "partition": 0} for n in range(100)])
        table = read(bootstrap, subscribe=topic, startingTimestamp=str(start + 30), endingTimestamp=str(start + 40))
        assert values(table) == list(range(30, 40))

    def test_a_time_after_the_last_record(self, bootstrap: str, create_topic: CreateTopic) -> None:
        topic = create_topic(1)
        produce(bootstrap, topic, [{"value": b"1", "timestamp": NOW_MS}])
        with pytest.raises(ValueError, match="startingOffsetsByTimestampStrategy=latest"):
            read(bootstrap, subscribe=topic, startingTimestamp=str(NOW_MS + 5000))
        options = {"startingTimestamp": str(NOW_MS + 5000), "startingOffsetsByTimestampStrategy": "latest"}
        assert read(bootstrap, subscribe=topic, **options).num_rows == 0

    def test_a_pattern_and_an_assignment(self, bootstrap: str, create_topic: CreateTopic) -> None:
        one = create_topic(2)
        two = create_topic(1, name=one + "-more")
        produce(bootstrap, one, numbered(5) + numbered(5, 10, partition=1))
        produce(bootstrap, two, numbered(3, 100))
        assert values(read(bootstrap, subscribePattern=f"{one}.*")) == [*range(5), *range(10, 15), *range(100, 103)]
        assert values(read(bootstrap, assign=f'{{"{one}": [1]}}')) == list(range(10, 15))

    def test_a_pattern_leaves_internal_topics_out(self, bootstrap: str) -> None:
        assert read(bootstrap, subscribePattern="__.*").num_rows == 0

    def test_many_tasks_read_every_record_once(self, bootstrap: str, create_topic: CreateTopic) -> None:
        topic = create_topic(1)
        produce(bootstrap, topic, numbered(5000), **{"compression.type": "lz4", "batch.num.messages": 300})
        assert sorted(values(read(bootstrap, subscribe=topic, minPartitions="9"))) == list(range(5000))
        assert sorted(values(read(bootstrap, subscribe=topic, maxRecordsPerPartition="700"))) == list(range(5000))

    def test_many_small_fetches(self, bootstrap: str, create_topic: CreateTopic) -> None:
        topic = create_topic(5)
        records = [one for partition in range(5) for one in numbered(400, partition * 400, partition)]
        produce(bootstrap, topic, records, **{"batch.num.messages": 40})
        small = {"kafka.max.partition.fetch.bytes": "1000", "kafka.fetch.max.bytes": "3000"}
        assert values(read(bootstrap, subscribe=topic, **small)) == list(range(2000))

    def test_an_empty_topic(self, bootstrap: str, create_topic: CreateTopic) -> None:
        assert read(bootstrap, subscribe=create_topic(3)).num_rows == 0

    @pytest.mark.parametrize(
        ("offsets", "said"),
        [
            ('{"%s": {"0": 1}}', "lacks %s-1"),
            ('{"%s": {"0": 1, "1": 1, "2": 1}}', "names %s-2, which is not subscribed"),
        ],
    )
    def test_offsets_that_do_not_fit(self, bootstrap: str, create_topic: CreateTopic, offsets: str, said: str) -> None:
        topic = create_topic(2)
        with pytest.raises(ValueError, match=said % topic):
            read(bootstrap, subscribe=topic, startingOffsets=offsets % topic)

    def test_a_missing_topic_is_told(self, bootstrap: str, topic: Callable[[], str]) -> None:
        name = topic()
        with pytest.raises(KafkaError, match=f"There is no topic {name}"):
            read(bootstrap, subscribe=name)

    def test_no_broker(self) -> None:
        with pytest.raises(ConnectionError, match=r"No broker answers: 127\.0\.0\.1:1"):
            read("127.0.0.1:1", subscribe="t", **{"fetchOffset.numRetries": "0"})


class TestStreams:
    def test_it_goes_on_where_it_was(self, bootstrap: str, create_topic: CreateTopic) -> None:
        topic = create_topic(1)
        produce(bootstrap, topic, numbered(10))
        with stream(bootstrap, subscribe=topic, startingOffsets="earliest") as run:
            assert values(run.batch()) == list(range(10))
            assert run.batch().num_rows == 0
            produce(bootstrap, topic, numbered(5, 10))
            assert values(run.batch()) == list(range(10, 15))
            assert run.reader.reportLatestOffset() == {topic: {"0": 15}}

    def test_without_a_start_only_what_comes_later(self, bootstrap: str, create_topic: CreateTopic) -> None:
        topic = create_topic(1)
        produce(bootstrap, topic, numbered(10))
        with stream(bootstrap, subscribe=topic) as run:
            produce(bootstrap, topic, numbered(2, 10))
            assert values(run.batch()) == [10, 11]

    def test_an_idle_stream_wakes_when_something_comes(self, bootstrap: str, create_topic: CreateTopic) -> None:
        topic = create_topic(1)
        with stream(bootstrap, subscribe=topic) as run:
            run.batch()
            before = time.monotonic()
            assert run.end() == run.at
            assert time.monotonic() - before > 0.2, "it waited for news instead of being asked again and again"
            produce(bootstrap, topic, numbered(1))
            assert run.end() != run.at

    def test_a_limit(self, bootstrap: str, create_topic: CreateTopic) -> None:
        topic = create_topic(2)
        produce(bootstrap, topic, numbered(900) + numbered(100, 900, partition=1))
        with stream(bootstrap, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="100") as run:
            first = run.batch()
            assert run.at == {topic: {"0": 90, "1": 10}}
            assert first.num_rows == 100
            rest = list(run.batches())
            assert len(rest) == 9
            assert sorted(values(pa.concat_tables([first, *rest]))) == list(range(1000))

    def test_available_now_ends_where_the_log_ended(self, bootstrap: str, create_topic: CreateTopic) -> None:
        topic = create_topic(1)
        produce(bootstrap, topic, numbered(10))
        with stream(bootstrap, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="4") as run:
            seen = []
            for table in run.batches():
                seen += values(table)
                produce(bootstrap, topic, numbered(1, 1000))
            assert seen == list(range(10))

    def test_too_little_waits(self, bootstrap: str, create_topic: CreateTopic) -> None:
        topic = create_topic(1)
        options = {"minOffsetsPerTrigger": "10", "startingOffsets": "earliest"}
        with stream(bootstrap, subscribe=topic, maxTriggerDelay="1h", **options) as run:
            produce(bootstrap, topic, numbered(9))
            assert run.batch().num_rows == 0
            produce(bootstrap, topic, numbered(1, 9))
            assert run.batch().num_rows == 10
        with stream(bootstrap, subscribe=topic, maxTriggerDelay="1ms", **options) as run:
            assert run.batch().num_rows == 10

    def test_partitions_that_come_later(self, bootstrap: str, create_topic: CreateTopic, admin: AdminClient) -> None:
        topic = create_topic(1)
        produce(bootstrap, topic, numbered(3))
        with stream(bootstrap, subscribe=topic, startingOffsets="latest") as run:
            assert run.batch().num_rows == 0
            admin.create_partitions([NewPartitions(topic, 3)])[topic].result(PATIENCE_S)
            produce(bootstrap, topic, numbered(4, 10, partition=2))
            while not (table := run.batch()).num_rows:
                pass
            assert values(table) == [10, 11, 12, 13]
            assert run.at == {topic: {"0": 3, "1": 0, "2": 4}}


class TestLoss:
    def trimmed(self, bootstrap: str, create_topic: CreateTopic, admin: AdminClient) -> str:
        """A topic from which retention removed the first ten records."""
        topic = create_topic(1)
        produce(bootstrap, topic, numbered(20))
        (deleted,) = admin.delete_records([ConfluentPartition(topic, 0, 10)]).values()
        assert deleted.result(PATIENCE_S).low_watermark == 10
        return topic

    def test_is_an_error_that_says_what_is_gone(
        self, bootstrap: str, create_topic: CreateTopic, admin: AdminClient
    ) -> None:
        topic = self.trimmed(bootstrap, create_topic, admin)
        starts = f'{{"{topic}": {{"0": 3}}}}'
        with pytest.raises(DataLoss, match=f"{topic}-0: offsets 3 to 9 are gone, the log starts at 10.*failOnDataLoss"):
            read(bootstrap, subscribe=topic, startingOffsets=starts)

    def test_or_is_stepped_over(self, bootstrap: str, create_topic: CreateTopic, admin: AdminClient) -> None:
        topic = self.trimmed(bootstrap, create_topic, admin)
        starts = f'{{"{topic}": {{"0": 3}}}}'
        with pytest.warns(UserWarning, match="offsets 3 to 9 are gone"):
            table = read(bootstrap, subscribe=topic, startingOffsets=starts, failOnDataLoss="false")
        assert values(table) == list(range(10, 20))

    def test_a_topic_made_anew(self, bootstrap: str, create_topic: CreateTopic, admin: AdminClient) -> None:
        topic = create_topic(1)
        produce(bootstrap, topic, numbered(20))
        with stream(bootstrap, subscribe=topic, startingOffsets="earliest") as run:
            run.batch()
            admin.delete_topics([topic])[topic].result(PATIENCE_S)
            create_topic(1, name=topic)
            produce(bootstrap, topic, numbered(2, 100))
            with pytest.raises(DataLoss, match=f"{topic}-0: the log ends at 2, but the stream was already at 20"):
                run.batch()
        with stream(bootstrap, subscribe=topic, startingOffsets="earliest", failOnDataLoss="false") as run:
            run.at = {topic: {"0": 20}}
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                run.batch()
            assert "the stream was already at 20" in str(told[0].message)
            produce(bootstrap, topic, numbered(3, 102))
            assert values(run.batch()) == [102, 103, 104], "what came since the loss was seen"

    def test_a_topic_made_anew_is_waited_for_as_before(
        self, bootstrap: str, create_topic: CreateTopic, admin: AdminClient
    ) -> None:
        topic = create_topic(1)
        with stream(bootstrap, subscribe=topic, failOnDataLoss="false") as run:
            assert run.end() == run.at
            admin.delete_topics([topic])[topic].result(PATIENCE_S)
            create_topic(1, name=topic)
            run.end()  # the waiting request is refused: this topic has another id
            before = time.monotonic()
            for _ in range(3):
                assert run.end() == run.at
            assert time.monotonic() - before > 0.8, "it waits again, instead of being refused again and again"

    def test_more_was_promised_than_there_is(self, bootstrap: str, create_topic: CreateTopic) -> None:
        topic = create_topic(1)
        produce(bootstrap, topic, numbered(5))
        ends = f'{{"{topic}": {{"0": 9}}}}'
        with pytest.raises(DataLoss, match=r"no record from offset 5 on \(expected up to 9\) within 1 s"):
            read(bootstrap, subscribe=topic, endingOffsets=ends, **{"kafkaConsumer.pollTimeoutMs": "1000"})
