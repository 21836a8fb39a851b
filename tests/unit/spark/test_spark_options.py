"""The connector's options: names and meanings as in Spark's Kafka connector, and the errors for invalid ones."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.base.errors import UnusableProperty
from moldau.base.ids import TopicPartition
from moldau.client.cluster import EARLIEST, LATEST
from moldau.spark.option_values import duration_ms
from moldau.spark.options import Place, ReadOptions, WriteOptions, check_options, read_options, write_options
from moldau.wire.compression import Compression

HERE = {"kafka.bootstrap.servers": "localhost:9092"}


def batch(**given: str) -> ReadOptions:
    return read_options({**HERE, "subscribe": "t", **given}, is_stream=False)


def stream(**given: str) -> ReadOptions:
    return read_options({**HERE, "subscribe": "t", **given}, is_stream=True)


def sink(given: dict[str, str] | None = None) -> WriteOptions:
    return write_options({**HERE, "topic": "t", **(given or {})})


class TestDefaults:
    def test_a_batch_reads_from_earliest_to_latest(self) -> None:
        assert (batch().start, batch().end) == (Place(everywhere=EARLIEST), Place(everywhere=LATEST))

    def test_a_stream_starts_at_latest(self) -> None:
        assert stream().start == Place(everywhere=LATEST)

    def test_data_loss_is_an_error_and_uncommitted_records_are_read(self) -> None:
        assert batch().fail_on_data_loss
        assert not batch().read_committed

    def test_a_sink_uses_acks_all_and_is_idempotent(self) -> None:
        assert (sink().acks, sink().is_idempotent, sink().compression) == (-1, True, Compression.NONE)


class TestPlaces:
    def test_precedence_of_timestamp_over_timestamps_by_partition_over_offsets(self) -> None:
        each = '{"t": {"0": 5}}'
        given = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": each, "startingTimestamp": "17"}
        assert batch(**given).start == Place(timestamp=17)
        del given["startingTimestamp"]
        assert batch(**given).start == Place(timestamps={TopicPartition("t", 0): 5})

    def test_offsets_by_partition(self) -> None:
        assert batch(endingOffsets='{"t": {"0": 5}}').end == Place(offsets={TopicPartition("t", 0): 5})

    def test_option_names_are_case_insensitive(self) -> None:
        assert batch(STARTINGOFFSETS="Earliest", FailOnDataLoss="FALSE").fail_on_data_loss is False


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribePattern": "t.*"}, "given: subscribe and subscribePattern"),
        ({"startingOffsets": "latest"}, "startingOffsets cannot be latest in a batch query"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "startingOffsets cannot be latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
        ({"startingOffsets": "soon"}, "startingOffsets is earliest, latest or offsets as JSON such as .*, not soon$"),
        ({"startingOffsets": "begin"}, "not begin; did you mean earliest"),
        ({"startingOffsets": "earlist"}, "not earlist; did you mean earliest"),
        ({"endingOffsets": "end"}, "endingOffsets is earliest, latest or .*, not end; did you mean latest"),
        ({"startingOffsets": '{"t": 5'}, 'startingOffsets: {"t": 5 is not JSON such as {"orders"'),
        ({"startingOffsetsByTimestamp": "5"}, "startingOffsetsByTimestamp: 5 is not of the form"),
        ({"startingTimestamp": "-5"}, "startingTimestamp is a time in milliseconds since 1970, such as .*, not -5"),
        ({"startingTimestamp": str(2**63)}, "startingTimestamp is a time in milliseconds .*, not 9223372036"),
        ({"kafka.fetch.max.bytes": str(2**31)}, "kafka.fetch.max.bytes is a whole number from 1 to 2147483647, not 21"),
        ({"maxOffsetsPerTrigger": str(2**63)}, "maxOffsetsPerTrigger is a whole number above 0, .*, not 9223372036"),
        ({"startingTimestamp": "2026-01-01"}, "not 2026-01-01; did you mean 1767225600000"),
        ({"startingTimestamp": "2026-01-01T01:00+01:00"}, "did you mean 1767225600000"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss is true or false, not maybe$"),
        ({"includeHeaders": "yes"}, "includeHeaders is true or false, not yes; did you mean true"),
        ({"minPartitions": "0"}, "minPartitions is a whole number above 0, such as 1000, not 0"),
        ({"maxOffsetsPerTrigger": "10k"}, "maxOffsetsPerTrigger is a whole number above 0, such as 1000, not 10k"),
        ({"fetchOffset.numRetries": ""}, "fetchOffset.numRetries is a whole number of at least 0, such as 3, not ''"),
        ({"fetchOffset.numRetries": "-1"}, "is a whole number of at least 0, such as 3, not -1"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is a duration such as 500ms, 30s, 15m or 1h, not soon"),
        ({"maxOffsetPerTrigger": "5"}, "no option maxOffsetPerTrigger; did you mean maxOffsetsPerTrigger"),
        ({"bootstrap.servers": "here"}, "no option bootstrap.servers; did you mean kafka.bootstrap.servers"),
        ({"rowsPerSecond": "5"}, "no option rowsPerSecond; it has assign, .*, subscribe, "),
        ({"kafka.isolation.level": "none"}, "kafka.isolation.level is read_uncommitted or read_committed"),
        ({"kafka.isolation.level": "commited"}, "not commited; did you mean read_committed"),
        ({"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers is missing: .*, such as localhost:9092"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "is error or latest, not guess"),
    ],
)
def test_invalid_source_options_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        batch(**given)


@pytest.mark.parametrize(
    ("subscription", "message"),
    [
        ({}, "subscribe=orders; given: none"),
        ({"topic": "t"}, "given: topic=t, which is for writing"),
        ({"subscribe": " , "}, "subscribe is a topic, or several as orders,payments, not  , "),
        ({"subscribePattern": "("}, r"subscribePattern is a regular expression such as orders-\.\*, not \(: missing"),
        ({"assign": "t"}, 'assign: t is not of the form {"orders": '),
    ],
)
def test_invalid_subscriptions_are_refused(subscription: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_options({**HERE, **subscription}, is_stream=False)


def test_a_stream_refuses_an_ending_timestamp() -> None:
    with pytest.raises(ValueError, match="endingTimestamp is for batch queries"):
        stream(endingTimestamp="5")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kafka.acks": "2"}, "kafka.acks is all, -1, 0 or 1"),
        ({"kafka.acks": "1", "kafka.enable.idempotence": "true"}, "needs kafka.acks=all"),
        ({"kafka.compression.type": "brotli"}, "kafka.compression.type is none, gzip, snappy, lz4 or zstd, not brotli"),
        ({"kafka.compression.type": "gz"}, "not gz; did you mean gzip"),
        ({"kafka.compression.type": "zstd", "kafka.compression.zstd.level": "high"}, "is a whole number such as 3"),
        (
            {"kafka.compression.type": "gzip", "kafka.compression.gzip.level": "10"},
            "is a whole number from 1 to 9, not 10",
        ),
        (
            {"kafka.compression.type": "lz4", "kafka.compression.lz4.level": "-1"},
            "is a whole number from 1 to 17, not -1",
        ),
        ({"kafka.compression.type": "zstd", "kafka.compression.zstd.level": "23"}, "number from -131072 to 22, not 23"),
        ({"kafka.delivery.timeout.ms": "soon"}, "kafka.delivery.timeout.ms is a whole number above 0, .*, not soon"),
        ({"kafka.request.timeout.ms": str(2**31)}, "kafka.request.timeout.ms is a whole number from 1 to 2147483647"),
        ({"queryId": "q", "batchId": str(2**63)}, "batchId is a whole number of at least 0, such as 3, not 92233720"),
        ({"deliveryGuarantee": "exactly once"}, "not exactly once; did you mean exactly-once"),
        ({"queryId": "q"}, "queryId and batchId go together"),
        ({"tpic": "t"}, "did you mean topic"),
    ],
)
def test_invalid_sink_options_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sink(given)


def test_an_unsupported_sasl_mechanism_is_refused() -> None:
    sasl: dict[str, Any] = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "GSSAPI"}
    with pytest.raises(UnusableProperty, match="expected one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"):
        batch(**sasl)


@pytest.mark.parametrize(
    ("text", "ms"), [("15m", 900_000), ("30 s", 30_000), ("500ms", 500), ("7", 7), ("2H", 7_200_000)]
)
def test_durations_are_parsed(text: str, ms: int) -> None:
    assert duration_ms("maxTriggerDelay", text) == ms


def test_repr_shows_no_password() -> None:
    secret = {"kafka.sasl.password": "pl4nted", "kafka.ssl.keystore.key": "pl4nted"}
    read, written = batch(**secret), sink({**secret, "deliveryGuarantee": "exactly-once"})
    assert read.properties["sasl.password"] == written.properties["sasl.password"] == "pl4nted"
    assert "pl4nted" not in repr(read) + repr(written)


def test_a_misspelt_bootstrap_property_is_named_in_the_error() -> None:
    with pytest.raises(ValueError, match=r"servers is missing \(given is kafka.bootstrap.server\)"):
        read_options({"kafka.bootstrap.server": "localhost:9092", "subscribe": "t"}, is_stream=False)


class TestCheckOptions:
    """At load() and start() it is not yet known whether the options are those of a batch, a stream or a sink."""

    def test_options_that_are_invalid_for_every_use_are_refused(self) -> None:
        for given in ({"subscribe": "t", "startingOffsets": "begin"}, {"topic": "t", "kafka.acks": "2"}):
            with pytest.raises(ValueError, match=r"is .*, not"):
                check_options({**HERE, **given})

    def test_options_that_are_valid_for_a_batch_or_a_stream_are_accepted(self) -> None:
        check_options({**HERE, "subscribe": "t", "startingOffsets": "latest"})
        check_options({**HERE, "subscribe": "t", "endingOffsets": "latest"})
        check_options({**HERE, "subscribe": "t", "startingOffsets": "latest", "endingOffsets": "latest"})

    def test_options_without_a_subscription_are_accepted(self) -> None:
        check_options(HERE)


def test_gzip_level_minus_1_is_accepted() -> None:
    assert sink({"kafka.compression.type": "gzip", "kafka.compression.gzip.level": "-1"}).compression_level == -1
