"""Spark's error texts, and the short message that is extracted from them."""

from __future__ import annotations

import pytest

from moldau.spark.errors.sentences import (
    REAL_TIME,
    function_error,
    in_short,
    no_real_time_mode,
    unknown_format,
    worker_error,
)

PLANNING = """\
[PYTHON_DATA_SOURCE_ERROR] Failed to generate Python data source read partitions: \
moldau.base.errors.KafkaError: There is no topic nope at localhost:9092
 SQLSTATE: 38000"""
STREAMING = """\
[STREAM_FAILED] Query [id = 549ad4f3, runId = ec603cbb] terminated with exception: \
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform initialOffset: \
moldau.client.cluster.Unreachable: No broker answers: localhost:1: [Errno 111] Connection refused
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 549ad4f3, runId = ec603cbb]
Logical Plan:
WriteToMicroBatchDataSource noop-table
"""
CREATING = "[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: ValueError: What: is wrong?\n"
TASK = "An exception was thrown from the Python worker:\nmoldau.spark.fetching.DataLoss: t-0: offsets 1 to 9 are gone"
FUNCTION = """\
An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "job.py", line 3, in parse
ZeroDivisionError: division by zero
 SQLSTATE: 38000"""
COLUMN = """\
[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `idd` cannot be resolved. Did you mean one of the following? \
[`id`]. SQLSTATE: 42703; line 1 pos 7;
'Project ['idd]
+- Range (0, 3, step=1)
"""


@pytest.mark.parametrize(
    ("text", "name", "sentence"),
    [
        (PLANNING, "KafkaError", "There is no topic nope at localhost:9092"),
        (STREAMING, "Unreachable", "No broker answers: localhost:1: [Errno 111] Connection refused"),
        (CREATING, "ValueError", "What: is wrong?"),
        (TASK, "DataLoss", "t-0: offsets 1 to 9 are gone"),
    ],
)
def test_the_error_of_a_data_source_is_extracted(text: str, name: str, sentence: str) -> None:
    assert worker_error(text) == (name, sentence)


@pytest.mark.parametrize("text", [FUNCTION, COLUMN, "", "Failed to do anything: Error: no"])
def test_other_errors_are_not_those_of_a_data_source(text: str) -> None:
    assert worker_error(text) is None


ALLOWLIST = """\
[STREAMING_REAL_TIME_MODE.OPERATOR_OR_SINK_NOT_IN_ALLOWLIST] Streaming real-time mode has the following limitation: \
The sink(s): org.apache.spark.sql.execution.{} is not in the sink allowlist for Real-Time Mode. To bypass this \
check, set spark.sql.streaming.realTimeMode.allowlistCheck to false. SQLSTATE: 0A000"""
INPUT_STREAM = """\
[STREAM_FAILED] Query [id = 549ad4f3, runId = ec603cbb] terminated with exception: \
[STREAMING_REAL_TIME_MODE.INPUT_STREAM_NOT_SUPPORTED] Streaming real-time mode has the following limitation: The input \
stream org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStreamWithTriggerAvailableNow is not \
supported in Real-time Mode. SQLSTATE: 0A000 SQLSTATE: XXKST
=== Streaming Query ===
"""


@pytest.mark.parametrize(
    ("text", "is_ours"),
    [
        (ALLOWLIST.format("datasources.v2.python.PythonTable"), True),
        (ALLOWLIST.format("streaming.sources.ForeachBatchSink"), False),
        (INPUT_STREAM, True),
        ("Sink moldau does not support async progress tracking", True),
        ("Sink moldau-lake does not support async progress tracking", True),
        ("Sink ForeachBatchSink does not support async progress tracking", False),
        (STREAMING, False),
    ],
)
def test_real_time_mode_is_said_to_be_missing_instead_of_a_setting_that_does_not_help(text: str, is_ours: bool) -> None:
    assert no_real_time_mode(text) == (REAL_TIME if is_ours else None)


def test_a_data_source_error_with_a_traceback_keeps_it() -> None:
    broken = PLANNING.replace("moldau.base", 'Traceback (most recent call last):\n  File "x.py", line 3\nmoldau.base')
    assert worker_error(broken) is None
    assert (function_error(broken) or "").splitlines()[-1].endswith("There is no topic nope at localhost:9092")


def test_the_traceback_of_a_users_function_is_extracted() -> None:
    traceback = function_error(FUNCTION)
    assert traceback is not None
    assert traceback.splitlines()[0] == "Traceback (most recent call last):"
    assert traceback.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert function_error(COLUMN) is None


def test_other_errors_are_shortened() -> None:
    short = "A column with name `idd` cannot be resolved. Did you mean one of the following? [`id`]."
    assert in_short(COLUMN) == short
    assert in_short(f"[STREAM_FAILED] Query [id = 1] terminated with exception: {COLUMN}") == short
    assert in_short("[DIVIDE_BY_ZERO] Division by zero.\n== SQL (line 1) ==\nselect 1/0") == "Division by zero."
    assert len(in_short("x" * 5000)) == 400


class TestUnknownFormats:
    def message(self, name: str) -> str:
        text = f"[DATA_SOURCE_NOT_FOUND] Failed to find the data source: {name}. Make sure the provider name is correct"
        sentence = unknown_format(f"org.apache.spark.SparkClassNotFoundException: {text}\n\tat org.apache.spark…")
        assert sentence is not None
        return sentence

    def test_delta_and_iceberg_point_to_moldau_lake(self) -> None:
        assert self.message("delta") == (
            'There is no format delta in this session: format("moldau-lake") with option("format", "delta") reads and'
            " writes Delta tables (docs/tables.md)"
        )
        assert 'option("format", "iceberg")' in self.message("ICEBERG")

    def test_kafka_points_to_moldau(self) -> None:
        text = "[KAFKA_DATA_SOURCE_NOT_ENABLED] Failed to find data source: kafka. Please deploy the application"
        assert 'There is no format kafka in this session: format("moldau") takes' in (unknown_format(text) or "")

    def test_a_misspelt_format_gets_a_suggestion(self) -> None:
        assert self.message("moldua").endswith("; did you mean moldau?")
        assert self.message("com.example.x").endswith(", rate, socket")

    def test_other_errors_are_not_about_formats(self) -> None:
        assert unknown_format(COLUMN) is None
