"""The connector's options: Spark's names and meanings, and what is said about wrong ones."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.base.errors import UnusableProperty
from moldau.base.ids import TopicPartition
from moldau.client.cluster import EARLIEST, LATEST
from moldau.spark.options import Place, ReadOptions, WriteOptions, duration_ms, read_options, write_options
from moldau.wire.compression import Compression

HERE = {"kafka.bootstrap.servers": "localhost:9092"}


def batch(**given: str) -> ReadOptions:
    return read_options({**HERE, "subscribe": "t", **given}, is_stream=False)


def stream(**given: str) -> ReadOptions:
    return read_options({**HERE, "subscribe": "t", **given}, is_stream=True)


def sink(given: dict[str, str] | None = None) -> WriteOptions:
    return write_options({**HERE, "topic": "t", **(given or {})})


class TestDefaults:
    def test_a_batch_reads_all_there_is(self) -> None:
        assert (batch().start, batch().end) == (Place(everywhere=EARLIEST), Place(everywhere=LATEST))

    def test_a_stream_begins_at_the_end(self) -> None:
        assert stream().start == Place(everywhere=LATEST)

    def test_loss_is_an_error_and_uncommitted_is_read(self) -> None:
        assert batch().fail_on_data_loss
        assert not batch().read_committed

    def test_a_sink_waits_for_all_and_is_idempotent(self) -> None:
        assert (sink().acks, sink().is_idempotent, sink().compression) == (-1, True, Compression.NONE)


class TestPlaces:
    def test_a_time_goes_before_a_time_for_each_and_that_before_offsets(self) -> None:
        each = '{"t": {"0": 5}}'
        given = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": each, "startingTimestamp": "17"}
        assert batch(**given).start == Place(timestamp=17)
        del given["startingTimestamp"]
        assert batch(**given).start == Place(timestamps={TopicPartition("t", 0): 5})

    def test_offsets_by_partition(self) -> None:
        assert batch(endingOffsets='{"t": {"0": 5}}').end == Place(offsets={TopicPartition("t", 0): 5})

    def test_names_of_options_have_no_case(self) -> None:
        assert batch(STARTINGOFFSETS="Earliest", FailOnDataLoss="FALSE").fail_on_data_loss is False


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"subscribePattern": "t.*"}, "given: subscribe and subscribePattern"),
        ({"startingOffsets": "latest"}, "startingOffsets cannot be latest in a batch query"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "startingOffsets cannot be latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
        ({"startingOffsets": "soon"}, "startingOffsets: soon is no JSON"),
        ({"startingTimestamp": "-5"}, "startingTimestamp: '-5' is not a whole number"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss: true or false, not maybe"),
        ({"minPartitions": "0"}, "minPartitions: must be more than 0"),
        ({"maxOffsetPerTrigger": "5"}, "no option maxoffsetpertrigger; did you mean maxOffsetsPerTrigger"),
        ({"rowsPerSecond": "5"}, "no option rowspersecond"),
        ({"kafka.isolation.level": "none"}, "kafka.isolation.level is read_uncommitted or read_committed"),
        ({"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers is missing"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "is error or latest, not guess"),
    ],
)
def test_wrong_options_of_a_source(given: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        batch(**given)


@pytest.mark.parametrize(
    ("subscription", "said"),
    [
        ({}, "given: none"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribePattern": "("}, "is no regular expression"),
        ({"assign": "t"}, "assign: t is not of the form"),
    ],
)
def test_wrong_subscriptions(subscription: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_options({**HERE, **subscription}, is_stream=False)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(ValueError, match="endingTimestamp is for batch queries"):
        stream(endingTimestamp="5")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kafka.acks": "2"}, "kafka.acks is all, -1, 0 or 1"),
        ({"kafka.acks": "1", "kafka.enable.idempotence": "true"}, "needs kafka.acks=all"),
        ({"kafka.compression.type": "brotli"}, "kafka.compression.type is none, gzip"),
        ({"kafka.delivery.timeout.ms": "soon"}, r"kafka.delivery.timeout.ms: 'soon' is not a whole number"),
        ({"tpic": "t"}, "did you mean topic"),
    ],
)
def test_wrong_options_of_a_sink(given: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        sink(given)


def test_security_that_cannot_be_obeyed_is_refused_before_anything_runs() -> None:
    sasl: dict[str, Any] = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "GSSAPI"}
    with pytest.raises(UnusableProperty, match="PLAIN only"):
        batch(**sasl)


@pytest.mark.parametrize(
    ("text", "ms"), [("15m", 900_000), ("30 s", 30_000), ("500ms", 500), ("7", 7), ("2H", 7_200_000)]
)
def test_durations(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


def test_no_duration() -> None:
    with pytest.raises(ValueError, match="not a duration"):
        duration_ms("a while")
