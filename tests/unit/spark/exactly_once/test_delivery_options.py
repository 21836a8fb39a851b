"""Which writes are exactly once, and where they stage."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from moldau.spark.options import ExactlyOnce, write_options
from moldau.spark.sink import TRANSACTION_TIMEOUT_MS_MAX, timeout_for

HERE = {"kafka.bootstrap.servers": "localhost:9092"}


def exactly_once(given: dict[str, str], is_stream: bool = True) -> ExactlyOnce | None:
    return write_options(HERE | given, is_stream).exactly_once


def test_streams_are_exactly_once_by_default_and_batches_on_request() -> None:
    assert exactly_once({}) is not None
    assert exactly_once({"deliveryGuarantee": "at-least-once"}) is None
    assert exactly_once({}, is_stream=False) is None
    assert exactly_once({"deliveryGuarantee": "Exactly-Once"}, is_stream=False) is not None


def test_a_batch_is_identified_by_query_id_and_batch_id() -> None:
    named = exactly_once({"queryId": "q", "batchId": "7"}, is_stream=False)
    assert named is not None
    assert named.batch == ("q", 7)


@pytest.mark.parametrize("given", [{"kafka.acks": "1"}, {"kafka.enable.idempotence": "false"}])
def test_a_producer_that_may_duplicate_records_is_at_least_once(given: dict[str, str]) -> None:
    assert exactly_once(given) is None
    with pytest.raises(ValueError, match=r"exactly-once needs kafka\.acks=all"):
        exactly_once(given | {"deliveryGuarantee": "exactly-once"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"deliveryGuarantee": "once"}, "deliveryGuarantee is exactly-once or at-least-once, not once"),
        ({"queryId": "q"}, "queryId and batchId go together"),
        ({"queryId": "q", "batchId": "x"}, "batchId is a whole number of at least 0, such as 3, not x"),
        ({"stagingInlineBytes": "1k"}, "stagingInlineBytes"),
        ({"kafka.transaction.timeout.ms": "0"}, "timeout.ms is a whole number above 0, such as 1000, not 0"),
    ],
)
def test_invalid_delivery_options_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        exactly_once(given)


@pytest.mark.parametrize(
    ("given", "directory"),
    [
        ({"checkpointLocation": "/state/q"}, "/state/q/moldau-staging"),
        ({"checkpointLocation": "file:///state/q"}, "/state/q/moldau-staging"),
        ({"checkpointLocation": "state/q"}, f"{Path.cwd()}/state/q/moldau-staging"),
        ({"checkpointLocation": "hdfs://host/q"}, f"{tempfile.gettempdir()}/moldau-staging"),
        ({}, f"{tempfile.gettempdir()}/moldau-staging"),
        ({"checkpointLocation": "/state/q", "stagingLocation": "/shared"}, "/shared"),
    ],
)
def test_records_are_staged_in_the_checkpoint_if_it_is_a_local_directory(given: dict[str, str], directory: str) -> None:
    chosen = exactly_once(given)
    assert chosen is not None
    assert Path(chosen.staging) == Path(directory)


def test_the_transaction_timeout_grows_with_the_bytes_up_to_the_maximum() -> None:
    assert timeout_for(0) == 60_000
    assert timeout_for(200_000_000) == 160_000
    assert timeout_for(1 << 40) == TRANSACTION_TIMEOUT_MS_MAX
