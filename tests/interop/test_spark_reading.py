"""Reading with the connector, without a JVM: records of real clients to Arrow rows, batches and streams."""

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
from harness.patience import PATIENCE_S, wait_until
from spark_connector import NOW_MS, CreateTopic, StreamRun, read

from moldau.base.errors import KafkaError
from moldau.client.cluster import Offsets
from moldau.spark import watching
from moldau.spark.fetching import DataLoss
from moldau.spark.watching import Watch

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


class Waits:
    """Records for each wait of an idle stream whether a response ended it. `before_wait` is called before a wait, which
    then does not end by its timeout."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.results: list[bool] = []
        self.before_wait: Callable[[], None] | None = None
        self._real_wait = Watch.wait
        # The broker must not end a waiting Fetch before the test does.
        monkeypatch.setattr(watching, "PARKED", watching.PARKED._replace(wait_ms=int(1000 * PATIENCE_S)))
        monkeypatch.setattr(Watch, "wait", lambda watch, ends, seconds: self._wait(watch, ends, seconds))

    def _wait(self, watch: Watch, ends: Offsets, seconds: float) -> bool:
        assert seconds > 0
        if self.before_wait is not None:
            self.before_wait()
            seconds = PATIENCE_S
        self.results.append(self._real_wait(watch, ends, seconds))
        return self.results[-1]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    return Waits(monkeypatch)


class TestRecords:
    @pytest.mark.parametrize("codec", CODECS)
    def test_rows_equal_the_records_of_a_client(self, bootstrap: str, create_topic: CreateTopic, codec: str) -> None:
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

    def test_log_append_time_is_read(self, bootstrap: str, create_topic: CreateTopic) -> None:
        topic = create_topic(1, {"message.timestamp.type": "LogAppendTime"})
        before = time.time_ns() // 1000
        produce(bootstrap, topic, [{"value": b"x", "timestamp": NOW_MS}])
        table = read(bootstrap, subscribe=topic)
        assert table["timestampType"].to_pylist() == [1]
        assert before - 5_000_000 <= table["timestamp"].cast(pa.int64()).to_pylist()[0] <= before + 60_000_000

    def test_aborted_transactions_are_read_uncommitted_only(self, bootstrap: str, create_topic: CreateTopic) -> None:
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
        assert committed["offset"].to_pylist() == [0, 4, 8], "transaction markers take offsets and are not rows"


class TestRanges:
    def test_a_range_of_offsets_is_read(self, bootstrap: str, create_topic: CreateTopic) -> None:
        topic = create_topic(2)
        produce(bootstrap, topic, numbered(100) + numbered(50, 1000, partition=1))
        starts, ends = f'{{"{topic}": {{"0": 10, "1": -2}}}}', f'{{"{topic}": {{"0": 20, "1": -1}}}}'
        table = read(bootstrap, subscribe=topic, startingOffsets=starts, endingOffsets=ends)
        assert values(table) == [*range(10, 20), *range(1000, 1050)]

    def test_a_range_of_timestamps_is_read(self, bootstrap: str, create_topic: CreateTopic) -> None:
        topic = create_topic(1)
        start = NOW_MS
        produce(bootstrap, topic, [{"value": b"%d" % n, "timestamp": start + n, "partition": 0} for n in range(100)])
        table = read(bootstrap, subscribe=topic, startingTimestamp=str(start + 30), endingTimestamp=str(start + 40))
        assert values(table) == list(range(30, 40))

    def test_a_starting_timestamp_after_the_last_record(self, bootstrap: str, create_topic: CreateTopic) -> None:
        topic = create_topic(1)
        produce(bootstrap, topic, [{"value": b"1", "timestamp": NOW_MS}])
        with pytest.raises(ValueError, match="startingOffsetsByTimestampStrategy=latest"):
            read(bootstrap, subscribe=topic, startingTimestamp=str(NOW_MS + 5000))
        options = {"startingTimestamp": str(NOW_MS + 5000), "startingOffsetsByTimestampStrategy": "latest"}
        assert read(bootstrap, subscribe=topic, **options).num_rows == 0

    def test_a_pattern_and_an_assignment_are_read(self, bootstrap: str, create_topic: CreateTopic) -> None:
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

    def test_many_small_fetches_read_every_record(self, bootstrap: str, create_topic: CreateTopic) -> None:
        topic = create_topic(5)
        records = [one for partition in range(5) for one in numbered(400, partition * 400, partition)]
        produce(bootstrap, topic, records, **{"batch.num.messages": 40})
        small = {"kafka.max.partition.fetch.bytes": "1000", "kafka.fetch.max.bytes": "3000"}
        assert values(read(bootstrap, subscribe=topic, **small)) == list(range(2000))

    def test_an_empty_topic_has_no_rows(self, bootstrap: str, create_topic: CreateTopic) -> None:
        assert read(bootstrap, subscribe=create_topic(3)).num_rows == 0

    @pytest.mark.parametrize(
        ("offsets", "error"),
        [
            ('{"%s": {"0": 1}}', "lacks %s-1"),
            ('{"%s": {"0": 1, "1": 1, "2": 1}}', "names %s-2, which is not subscribed"),
        ],
    )
    def test_offsets_that_do_not_match_the_partitions_are_refused(
        self, bootstrap: str, create_topic: CreateTopic, offsets: str, error: str
    ) -> None:
        topic = create_topic(2)
        with pytest.raises(ValueError, match=error % topic):
            read(bootstrap, subscribe=topic, startingOffsets=offsets % topic)

    def test_a_missing_topic_is_reported(self, bootstrap: str, topic: Callable[[], str]) -> None:
        name = topic()
        with pytest.raises(KafkaError, match=f"There is no topic {name}"):
            read(bootstrap, subscribe=name)

    def test_an_unreachable_broker_is_reported(self) -> None:
        with pytest.raises(ConnectionError, match=r"No broker answers: 127\.0\.0\.1:1"):
            read("127.0.0.1:1", subscribe="t", **{"fetchOffset.numRetries": "0"})


class TestStreams:
    def test_a_stream_continues_after_its_last_batch(self, bootstrap: str, create_topic: CreateTopic) -> None:
        topic = create_topic(1)
        produce(bootstrap, topic, numbered(10))
        with stream(bootstrap, subscribe=topic, startingOffsets="earliest") as run:
            assert values(run.batch()) == list(range(10))
            assert run.batch().num_rows == 0
            produce(bootstrap, topic, numbered(5, 10))
            assert values(run.batch()) == list(range(10, 15))
            assert run.reader.reportLatestOffset() == {topic: {"0": 15}}

    def test_a_stream_without_a_start_reads_only_later_records(self, bootstrap: str, create_topic: CreateTopic) -> None:
        topic = create_topic(1)
        produce(bootstrap, topic, numbered(10))
        with stream(bootstrap, subscribe=topic) as run:
            produce(bootstrap, topic, numbered(2, 10))
            assert values(run.batch()) == [10, 11]

    def test_an_idle_stream_waits_and_wakes_for_a_new_record(
        self, bootstrap: str, create_topic: CreateTopic, waits: Waits
    ) -> None:
        topic = create_topic(1)
        with stream(bootstrap, subscribe=topic) as run:
            run.batch()
            waits.results.clear()
            assert run.end() == run.at
            assert waits.results == [False], "it waited once, and no record came"
            waits.before_wait = lambda: produce(bootstrap, topic, numbered(1))
            assert run.end() != run.at
            assert waits.results[1:] == [True], "the new record ended the wait"

    def test_a_batch_has_at_most_max_offsets_per_trigger(self, bootstrap: str, create_topic: CreateTopic) -> None:
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

    def test_a_batch_waits_for_min_offsets_per_trigger(self, bootstrap: str, create_topic: CreateTopic) -> None:
        topic = create_topic(1)
        options = {"minOffsetsPerTrigger": "10", "startingOffsets": "earliest"}
        with stream(bootstrap, subscribe=topic, maxTriggerDelay="1h", **options) as run:
            produce(bootstrap, topic, numbered(9))
            assert run.batch().num_rows == 0
            produce(bootstrap, topic, numbered(1, 9))
            assert run.batch().num_rows == 10
        with stream(bootstrap, subscribe=topic, maxTriggerDelay="1ms", **options) as run:
            assert run.batch().num_rows == 10

    def test_partitions_added_later_are_read(
        self, bootstrap: str, create_topic: CreateTopic, admin: AdminClient
    ) -> None:
        topic = create_topic(1)
        produce(bootstrap, topic, numbered(3))
        with stream(bootstrap, subscribe=topic, startingOffsets="latest") as run:
            assert run.batch().num_rows == 0
            admin.create_partitions([NewPartitions(topic, 3)])[topic].result(PATIENCE_S)
            produce(bootstrap, topic, numbered(4, 10, partition=2))
            found: list[int] = []
            wait_until(lambda: found.extend(values(run.batch())) or found, "records of the new partition")
            assert found == [10, 11, 12, 13]
            assert run.at == {topic: {"0": 3, "1": 0, "2": 4}}


class TestDataLoss:
    def trimmed(self, bootstrap: str, create_topic: CreateTopic, admin: AdminClient) -> str:
        """A topic from which retention removed the first ten records."""
        topic = create_topic(1)
        produce(bootstrap, topic, numbered(20))
        (deleted,) = admin.delete_records([ConfluentPartition(topic, 0, 10)]).values()
        assert deleted.result(PATIENCE_S).low_watermark == 10
        return topic

    def test_data_loss_is_an_error_with_the_missing_offsets(
        self, bootstrap: str, create_topic: CreateTopic, admin: AdminClient
    ) -> None:
        topic = self.trimmed(bootstrap, create_topic, admin)
        starts = f'{{"{topic}": {{"0": 3}}}}'
        with pytest.raises(
            DataLoss, match=f"{topic}-0: offsets 3 to 9 are deleted, the log starts at 10.*failOnDataLoss"
        ):
            read(bootstrap, subscribe=topic, startingOffsets=starts)

    def test_data_loss_is_skipped_without_fail_on_data_loss(
        self, bootstrap: str, create_topic: CreateTopic, admin: AdminClient
    ) -> None:
        topic = self.trimmed(bootstrap, create_topic, admin)
        starts = f'{{"{topic}": {{"0": 3}}}}'
        with pytest.warns(UserWarning, match="offsets 3 to 9 are deleted"):
            table = read(bootstrap, subscribe=topic, startingOffsets=starts, failOnDataLoss="false")
        assert values(table) == list(range(10, 20))

    def test_a_recreated_topic_is_data_loss(
        self, bootstrap: str, create_topic: CreateTopic, admin: AdminClient
    ) -> None:
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
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                run.batch()
            assert "the stream was already at 20" in str(caught[0].message)
            produce(bootstrap, topic, numbered(3, 102))
            assert values(run.batch()) == [102, 103, 104], "the records after the loss was detected"

    def test_a_recreated_topic_is_waited_for(
        self, bootstrap: str, create_topic: CreateTopic, admin: AdminClient, waits: Waits
    ) -> None:
        topic = create_topic(1)
        with stream(bootstrap, subscribe=topic, failOnDataLoss="false") as run:
            assert run.end() == run.at
            admin.delete_topics([topic])[topic].result(PATIENCE_S)
            create_topic(1, name=topic)
            run.end()  # the waiting request is refused: this topic has another id
            waits.results.clear()
            for _ in range(3):
                assert run.end() == run.at
            assert waits.results == [False] * 3, "it waits again, instead of being refused again and again"

    def test_an_ending_offset_beyond_the_log_is_data_loss(self, bootstrap: str, create_topic: CreateTopic) -> None:
        topic = create_topic(1)
        produce(bootstrap, topic, numbered(5))
        ends = f'{{"{topic}": {{"0": 9}}}}'
        with pytest.raises(DataLoss, match=r"no record from offset 5 on \(expected up to 9\) within 1 s"):
            read(bootstrap, subscribe=topic, endingOffsets=ends, **{"kafkaConsumer.pollTimeoutMs": "1000"})
