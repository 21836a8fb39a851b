"""The connector options of topic sources and sinks, and the columns that a source reads. No Spark session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from moldau.pipelines.planning.sources import (
    Mode,
    Range,
    connector_options,
    format_options,
    needed_metadata,
    sink_options,
    topic_options,
)
from moldau.pipelines.spec import ConsoleSink, Pipeline, Place, PythonStep, SqlStep, TopicSink, TopicSource, Watermark

PLACE = Place(file="p.yaml", line=1, column=1)
SOURCE = TopicSource(name="events", place=PLACE, topics=("a", "b"), schema="id string", dead_letter="a.dead")


def pipeline(sql: str = "select id from events", source: TopicSource = SOURCE, **sink: str) -> Pipeline:
    step = SqlStep(name="step", place=PLACE, sql=sql, sql_place=PLACE)
    return Pipeline(
        name="p",
        file=Path("/p.yaml"),
        bootstrap="broker:9092",
        kafka={"security.protocol": "PLAINTEXT"},
        sources={"events": source},
        steps=(step,),
        sinks=(TopicSink(name="out", place=PLACE, view="step", topic="out", **sink),),  # type: ignore[arg-type]
    )


CLUSTER = {"kafka.bootstrap.servers": "broker:9092", "kafka.security.protocol": "PLAINTEXT"}
READ = CLUSTER | {"kafka.isolation.level": "read_committed"}


def test_a_stream_starts_at_the_start_of_the_source() -> None:
    source = replace(SOURCE, max_per_trigger=10, headers=True)
    assert topic_options(pipeline(), source, Mode.CONTINUOUS, Range()) == READ | {
        "subscribe": "a,b",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": "10",
        "startingOffsets": "earliest",
    }


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOON_MS = str(int(NOON.timestamp()) * 1000)


@pytest.mark.parametrize(
    ("over", "options"),
    [
        (Range(), {"startingOffsets": "earliest"}),
        (
            Range(start=NOON, end=NOON),
            {
                "startingTimestamp": NOON_MS,
                "startingOffsetsByTimestampStrategy": "latest",
                "endingTimestamp": NOON_MS,
            },
        ),
        (
            Range(start={"a": {0: 5, 1: -2}}, end={"a": {0: 9, 1: -1}}),
            {"startingOffsets": '{"a": {"0": 5, "1": -2}}', "endingOffsets": '{"a": {"0": 9, "1": -1}}'},
        ),
        (Range(end="latest"), {"startingOffsets": "earliest", "endingOffsets": "latest"}),
    ],
)
def test_a_batch_reads_a_range(over: Range, options: Mapping[str, str]) -> None:
    # A batch has no triggers, and from the latest offset on it would be empty: both options have no effect.
    source = replace(SOURCE, pattern="x.*", topics=(), max_per_trigger=10, start="latest")
    actual = topic_options(pipeline(), source, Mode.BATCH, over)
    assert actual == READ | {"subscribePattern": "x.*"} | options


def test_options_go_to_the_connector_or_to_the_format() -> None:
    options = {"kafka.client.id": "me", "FailOnDataLoss": "false", "allowSingleQuotes": "true", "timestampFormat": "x"}
    assert connector_options(pipeline(), options) == CLUSTER | {"kafka.client.id": "me", "FailOnDataLoss": "false"}
    assert format_options(options) == {"allowSingleQuotes": "true", "timestampFormat": "x"}


def test_options_of_the_source_override_those_of_the_pipeline() -> None:
    options = connector_options(pipeline(), {"kafka.bootstrap.servers": "other:9092"})
    assert options["kafka.bootstrap.servers"] == "other:9092"


def test_read_committed_is_the_default_isolation_level() -> None:
    options = topic_options(pipeline(), SOURCE, Mode.CONTINUOUS, Range())
    assert options["kafka.isolation.level"] == "read_committed"
    source = replace(SOURCE, options={"kafka.isolation.level": "read_uncommitted"})
    options = topic_options(pipeline(), source, Mode.CONTINUOUS, Range())
    assert options["kafka.isolation.level"] == "read_uncommitted"
    everywhere = replace(pipeline(), kafka={"isolation.level": "read_uncommitted"})
    options = topic_options(everywhere, SOURCE, Mode.CONTINUOUS, Range())
    assert options["kafka.isolation.level"] == "read_uncommitted"


def test_transactional_ids_begin_with_pipeline_and_sink() -> None:
    assert sink_options(pipeline(), "out", {}) == CLUSTER | {"transactionalIdPrefix": "p.out"}
    mine = {"transactionalIdPrefix": "mine", "deliveryGuarantee": "at-least-once"}
    assert sink_options(pipeline(), "out", mine) == CLUSTER | mine
    of_spark = replace(pipeline(), connector="kafka")
    assert sink_options(of_spark, "out", {}) == CLUSTER, "Spark's own connector has no transactions"


def test_options_may_assign_partitions_instead_of_topics() -> None:
    source = replace(SOURCE, options={"assign": '{"a":[0]}'})
    assert "subscribe" not in topic_options(pipeline(), source, Mode.CONTINUOUS, Range())


ALL = ("_key", "_topic", "_partition", "_offset", "_timestamp")


@pytest.mark.parametrize(
    ("sql", "sink", "columns"),
    [
        ("select id, count(*) from events", {}, ()),
        ("select id, _Offset from events", {}, ("_offset",)),
        ("select id from events", {"key": "_key", "partition": "_partition"}, ("_key", "_partition")),
        ("select e.* from events e", {}, ALL),
        ("select id from events", {"value": "to_json(struct(*))"}, ALL),
    ],
)
def test_only_metadata_columns_named_in_the_pipeline_are_read(
    sql: str, sink: dict[str, str], columns: tuple[str, ...]
) -> None:
    assert needed_metadata(pipeline(sql, **sink), SOURCE) == columns


def test_watermarks_whole_rows_and_python_steps_need_metadata_columns() -> None:
    source = replace(SOURCE, watermark=Watermark(column="_timestamp", delay="1 second"), deduplicate=("_key",))
    assert needed_metadata(pipeline(source=source), source) == ("_key", "_timestamp")
    console = ConsoleSink(name="c", place=PLACE, view="events")
    assert needed_metadata(replace(pipeline(), sinks=(console,)), SOURCE) == ALL
    python = PythonStep(name="s", place=PLACE, module="m", function="f", inputs=("events",))
    with_headers = replace(SOURCE, headers=True)
    assert needed_metadata(replace(pipeline(), steps=(python,)), with_headers) == (*ALL, "_headers")
