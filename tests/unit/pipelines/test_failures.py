"""`failure_of` makes one line of Spark's error text, and decides whether the query is restarted. The texts are Spark's
own, shortened."""

from __future__ import annotations

import pytest

from moldau.base.errors import ErrorCode
from moldau.client.cluster import RETRIABLE
from moldau.pipelines.running.failures import MESSAGE_LENGTH_MAX, Kind, failure_of

DELETED_TOPIC_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
}
"""The client retries them only for a moment: the topic may be new, but it may also be deleted."""
IN_THE_SOURCE = """StreamingQueryException: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming \
data source perform initialOffset: Traceback (most recent call last):
  File "python_streaming_source_runner.py", line 267, in main
  File "moldau/spark/cluster.py", line 138, in retry
    raise TimeoutError("not this one")
           ^^^^^^^^
{error}
 SQLSTATE: 38000
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.pythonStreamingDataSourceRuntimeError(QueryExecutionErrors.scala)
=== Streaming Query ===
Identifier: counts [id = 1, runId = 2]
"""
IN_A_TASK = """StreamingQueryException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most \
recent failure: Lost task 0.0 in stage 3.0 (TID 3) (localhost executor driver): {error}
\tat org.apache.spark.sql.catalyst.expressions.Cast.eval(Cast.scala)

Driver stacktrace:
"""


WITHOUT_A_TRACE = """StreamingQueryException: [STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: \
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform latestOffset: {error}
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
"""


@pytest.mark.parametrize("name", ["TimeoutError", "ConnectorTimeoutError", "ConnectorConnectionRefusedError"])
def test_network_errors_are_retriable_also_under_the_connectors_names(name: str) -> None:
    assert failure_of(f"{name}: 127.0.0.1:9092: no answer").kind is Kind.RETRIABLE


@pytest.mark.parametrize("code", sorted(RETRIABLE - DELETED_TOPIC_ERRORS))
def test_errors_that_the_client_retries_are_retriable(code: ErrorCode) -> None:
    text = IN_THE_SOURCE.format(error=f"moldau.base.errors.KafkaError: clicks-0: {code.name}")
    assert failure_of(text).kind is Kind.RETRIABLE


def test_the_line_of_the_users_own_code_is_named() -> None:
    text = IN_A_TASK.format(
        error="""Traceback (most recent call last):
  File "/venv/lib/python3.12/site-packages/pyspark/worker.py", line 3217, in main
  File "/pipelines/shop/rules.py", line 3, in outer
  File "/pipelines/shop/rules.py", line 6, in checked
    return 1 / spot
  File "/venv/lib/python3.12/site-packages/pandas/core/ops.py", line 20, in divide
ZeroDivisionError: float division by zero
"""
    )
    assert failure_of(text).message == "rules.py:6: ZeroDivisionError: float division by zero"


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            WITHOUT_A_TRACE.format(error="moldau.client.cluster.Unreachable: No broker answers: localhost:9092: no"),
            Kind.RETRIABLE,
            "No broker answers: localhost:9092: no",
        ),
        (
            WITHOUT_A_TRACE.format(error="moldau.base.errors.KafkaError: There is no topic clicks at localhost:9092"),
            Kind.LASTING,
            "There is no topic clicks at localhost:9092",
        ),
        (
            WITHOUT_A_TRACE.format(error="moldau.spark.errors.ConnectorError: startingOffsets lacks t-1"),
            Kind.LASTING,
            "ConnectorError: startingOffsets lacks t-1",
        ),
        (
            IN_THE_SOURCE.format(error="moldau.base.errors.KafkaError: There is no topic clicks at localhost:9092"),
            Kind.LASTING,
            "There is no topic clicks at localhost:9092",
        ),
        (
            IN_THE_SOURCE.format(error="moldau.client.cluster.Unreachable: No broker answers: localhost:9092: refused"),
            Kind.RETRIABLE,
            "No broker answers: localhost:9092: refused",
        ),
        (
            IN_THE_SOURCE.format(error="moldau.spark.fetching.DataLoss: clicks-0 begins at 70 now, 12 was wanted"),
            Kind.LASTING,
            "clicks-0 begins at 70 now, 12 was wanted",
        ),
        (
            IN_THE_SOURCE.format(error="ConnectionResetError: [Errno 104] Connection reset by peer"),
            Kind.RETRIABLE,
            "ConnectionResetError: [Errno 104] Connection reset by peer",
        ),
        (IN_THE_SOURCE.format(error="ZeroDivisionError: by zero"), Kind.UNKNOWN, "ZeroDivisionError: by zero"),
        (IN_THE_SOURCE.format(error="AssertionError"), Kind.UNKNOWN, "AssertionError"),
        (
            IN_A_TASK.format(error="org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] No. SQLSTATE: 22012"),
            Kind.LASTING,
            "SparkArithmeticException: No.",
        ),
        (IN_A_TASK.format(error="java.net.ConnectException: refused"), Kind.RETRIABLE, "ConnectException: refused"),
        (
            IN_A_TASK.format(error="org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"),
            Kind.RETRIABLE,
            "Python worker exited unexpectedly (crashed)",
        ),
        (
            "Py4JJavaError: An error occurred while calling o7.save.\n: org.apache.spark.SparkClassNotFoundException: "
            "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: moldau. SQLSTATE: 42K02\n\tat org.apache.spark",
            Kind.LASTING,
            "Failed to find the data source: moldau.",
        ),
        (
            IN_A_TASK.format(error="java.io.IOException: No space left on device"),
            Kind.UNKNOWN,
            "IOException: No space left on device",
        ),
        (
            IN_THE_SOURCE.format(error="moldau.base.errors.KafkaError: shop.out-1: CONCURRENT_TRANSACTIONS"),
            Kind.RETRIABLE,
            "shop.out-1: CONCURRENT_TRANSACTIONS",
        ),
        (
            IN_THE_SOURCE.format(error="moldau.base.errors.KafkaError: shop.out-1: INVALID_TRANSACTION_TIMEOUT"),
            Kind.LASTING,
            "shop.out-1: INVALID_TRANSACTION_TIMEOUT",
        ),
        (
            IN_THE_SOURCE.format(error="moldau.spark.lake.LakeError: a Delta table needs the package deltalake: pip …"),
            Kind.LASTING,
            "LakeError: a Delta table needs the package deltalake: pip …",
        ),
        ("ValueError: something else", Kind.UNKNOWN, "ValueError: something else"),
        ("", Kind.UNKNOWN, ""),
    ],
)  # fmt: skip
def test_the_kind_and_message_of_a_failure(text: str, kind: Kind, message: str) -> None:
    failure = failure_of(text)
    assert (failure.kind, failure.message) == (kind, message)


def test_a_long_message_is_cut() -> None:
    message = failure_of("ValueError: " + "x" * 5000).message
    assert len(message) == MESSAGE_LENGTH_MAX
    assert message.endswith("…")
