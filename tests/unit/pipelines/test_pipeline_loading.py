"""Valid pipeline files are read completely, with defaults filled in."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from marked_yaml import WHOLE_PIPELINE, load_text, write

from moldau.pipelines.problems import InvalidPipeline
from moldau.pipelines.reading.loading import load
from moldau.pipelines.reading.times import parse_duration, parse_time
from moldau.pipelines.spec import (
    ConsoleSink,
    FileSource,
    PythonStep,
    SqlStep,
    TableSink,
    TableSource,
    TopicSink,
    TopicSource,
    Watermark,
)

EVERYTHING = """\
name: bookstore
bootstrap: localhost:9092,[::1]:9093
kafka: {security.protocol: PLAINTEXT, retries: 3}
spark: {spark.sql.shuffle.partitions: 2}
trigger: 1 second
vars: {lake: ./lake, n: 3}
connector: moldau
sources:
  events:
    topic: bookstore.events
    format: json
    schema: event_id string not null, type string, ts timestamp
    start: 2026-01-31T08:00:00+01:00
    headers: true
    watermark: {column: ts, delay: 10 seconds}
    deduplicate: [event_id]
    dead_letter: bookstore.dead
    max_per_trigger: 100000
    options: {mode: x, flag: true}
  many: {topics: [a, b], format: raw, start: {a: {0: 12, "1": latest}}}
  some: {pattern: "eu-.*", format: text, start: latest, dead_letter: drop}
  packed: {topic: p, format: avro, schema_file: event.avsc, framing: confluent, start: {0: 5, 1: earliest}}
  users: {file: data/users.csv, schema_file: users.ddl}
  arrivals: {file: data, format: json, schema: a int, watch: true, watermark: {column: a, delay: 1h}}
  rates: {table: "${lake}/rates", format: delta}
steps:
  - name: enriched
    sql: |
      select * from events
    watermark: {column: ts, delay: 90s}
    deduplicate: event_id
  - name: suspicious
    python: detect:suspicious
    inputs: [enriched, users]
    args: {threshold: 5, max_id: 9223372036854775807, ratio: 0.5, words: [a, "1", true, ~], deep: {x: 1}}
sinks:
  - name: counts
    from: enriched
    topic: bookstore.counts
    key: user_id
    value: to_json(struct(*))
    headers: {type: event_type}
    partition: hash(user_id) % 3
    mode: update
    partitions: ${n}
    trigger: 5 seconds
    options: {kafka.acks: all}
  - {from: enriched, route: "concat('bookstore.', type)"}
  - {from: suspicious, table: "${lake}/events", format: delta, partition_by: day, mode: upsert, keys: [id, x],
     delete_when: op = 'd'}
  - {from: enriched, console: true, mode: complete}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {
        "data/users.csv": "id\n1\n",
        "lake/rates/part": "",
        "event.avsc": '"string"',
        "users.ddl": "id string",
        "detect.py": "from elsewhere import suspicious\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_topic_sources(folder: Path) -> None:
    sources = load_text(folder, EVERYTHING).sources
    events = sources["events"]
    assert isinstance(events, TopicSource)
    assert events.topics == ("bookstore.events",)
    assert events.start == datetime(2026, 1, 31, 7, tzinfo=UTC)
    assert events.watermark == Watermark(column="ts", delay="10 seconds")
    assert (events.deduplicate, events.dead_letter, events.max_per_trigger) == (
        ("event_id",),
        "bookstore.dead",
        100_000,
    )
    assert (events.headers, dict(events.options)) == (True, {"mode": "x", "flag": "true"})
    many, some, packed = sources["many"], sources["some"], sources["packed"]
    assert isinstance(many, TopicSource)
    assert (many.start, many.dead_letter_topic) == ({"a": {0: 12, 1: -1}}, None)
    assert isinstance(some, TopicSource)
    assert (some.pattern, some.topics, some.start, some.dead_letter) == ("eu-.*", (), "latest", "drop")
    assert isinstance(packed, TopicSource)
    assert (packed.framing, packed.schema_file, packed.start) == (
        "confluent",
        folder / "event.avsc",
        {"p": {0: 5, 1: -2}},
    )
    assert packed.dead_letter == "p.dead"


def test_file_and_table_sources(folder: Path) -> None:
    sources = load_text(folder, EVERYTHING).sources
    users, arrivals, rates = sources["users"], sources["arrivals"], sources["rates"]
    assert isinstance(users, FileSource)
    assert (users.path, users.format, users.watch) == (str(folder / "data/users.csv"), "csv", False)
    assert users.schema_file == folder / "users.ddl"
    assert isinstance(arrivals, FileSource)
    assert arrivals.watermark == Watermark(column="a", delay="1 hour")
    assert isinstance(rates, TableSource)
    assert (rates.path, rates.format) == (str(folder / "lake/rates"), "delta")
    assert arrivals.watch


def test_steps(folder: Path) -> None:
    enriched, suspicious = load_text(folder, EVERYTHING).steps
    assert isinstance(enriched, SqlStep)
    assert (enriched.sql, enriched.deduplicate) == ("select * from events\n", ("event_id",))
    assert enriched.watermark == Watermark(column="ts", delay="90 seconds")
    assert (enriched.sql_place.line, enriched.sql_place.column) == (29, 7)
    assert isinstance(suspicious, PythonStep)
    assert (suspicious.module, suspicious.function, suspicious.inputs) == (
        "detect",
        "suspicious",
        ("enriched", "users"),
    )
    assert suspicious.args == {
        "threshold": 5,
        "max_id": 9223372036854775807,
        "ratio": 0.5,
        "words": ["a", "1", True, None],
        "deep": {"x": 1},
    }
    assert type(suspicious.args["max_id"]) is int


def test_sinks(folder: Path) -> None:
    counts, routed, table, console = load_text(folder, EVERYTHING).sinks
    assert isinstance(counts, TopicSink)
    assert (counts.key, counts.partition, counts.partitions) == ("user_id", "hash(user_id) % 3", 3)
    assert (counts.mode, counts.trigger, dict(counts.headers)) == ("update", "5 seconds", {"type": "event_type"})
    assert isinstance(routed, TopicSink)
    assert (routed.name, routed.topic, routed.route) == ("enriched-to-topics", None, "concat('bookstore.', type)")
    assert routed.trigger == "1 second"
    assert isinstance(table, TableSink)
    assert (table.name, table.path) == ("suspicious-to-events", str(folder / "lake/events"))
    assert (table.mode, table.keys, table.delete_when, table.partition_by) == (
        "upsert",
        ("id", "x"),
        "op = 'd'",
        ("day",),
    )
    assert isinstance(console, ConsoleSink)
    assert (console.name, console.mode) == ("enriched-to-console", "complete")


def test_places_of_keys_and_values(folder: Path) -> None:
    pipeline = load_text(folder, EVERYTHING)
    lines = EVERYTHING.splitlines()
    for path, word in {
        "name": "bookstore",
        "sources.events": "events",
        "sources.events.schema": "event_id string",
        "sources.events.deduplicate.0": "event_id]",
        "steps.0.sql": "select * from events",
        "steps.1.inputs.1": "users]",
        "sinks.0.key": "user_id",
        "sinks.0.headers.type": "event_type",
        "sinks.2.delete_when": "op = 'd'",
        "sinks.0.from": "enriched",
        "sinks.0.schema_file": "name: counts",
        "trigger.unheard.of": "1 second",
        "unheard.of": "name: bookstore",
    }.items():
        place = pipeline.place_of(path)
        assert place.file == str(folder / "pipeline.yaml")
        assert lines[place.line - 1][place.column - 1 :].startswith(word), path


def test_a_minimal_pipeline_has_defaults(tmp_path: Path) -> None:
    pipeline = load_text(tmp_path, WHOLE_PIPELINE)
    source = pipeline.sources["orders"]
    assert isinstance(source, TopicSource)
    assert (source.format, source.start, source.dead_letter, source.headers) == (
        "json",
        "earliest",
        "orders.dead",
        False,
    )
    (sink,) = pipeline.sinks
    assert (sink.name, sink.trigger, pipeline.trigger, pipeline.connector) == ("orders-to-big", None, None, "moldau")
    assert (pipeline.name, pipeline.file) == ("shop", tmp_path / "pipeline.yaml")


def test_settings_override_vars_and_the_bootstrap_overrides_that_of_the_file(tmp_path: Path) -> None:
    path = write(
        tmp_path, WHOLE_PIPELINE.replace("topic: big", "topic: ${t}") + "vars: {t: big, base: x, full: '${base}/y'}\n"
    )
    (sink,) = load(path, {"t": "huge"}, bootstrap="other:1").sinks
    assert isinstance(sink, TopicSink)
    assert sink.topic == "huge"
    assert load(path, bootstrap="other:1").bootstrap == "other:1"
    assert load(path).bootstrap == "localhost:9092"


def test_numbers_and_booleans_of_yaml_are_texts_where_a_text_is_expected(tmp_path: Path) -> None:
    text = WHOLE_PIPELINE.replace("topic: orders", "topic: 0012").replace(
        "topic: big", "topic: no\n    key: 1\n    value: true"
    )
    pipeline = load_text(tmp_path, text)
    (sink,) = pipeline.sinks
    assert isinstance(sink, TopicSink)
    assert (sink.topic, sink.key, sink.value) == ("no", "1", "true")
    source = pipeline.sources["orders"]
    assert isinstance(source, TopicSource)
    assert source.topics == ("0012",)


def test_yaml_anchors_and_merges(tmp_path: Path) -> None:
    text = WHOLE_PIPELINE.replace("  orders:\n", "  orders: &base\n").replace(
        "sinks:", "  late:\n    <<: *base\n    topic: late\n    start: latest\nsinks:"
    )
    late = load_text(tmp_path, text).sources["late"]
    assert isinstance(late, TopicSource)
    assert (late.topics, late.start) == (("late",), "latest")
    assert late.schema == "id string, amount double, ts timestamp"


def test_files_need_not_exist_without_check_files(tmp_path: Path) -> None:
    path = write(tmp_path, WHOLE_PIPELINE.replace("topic: orders\n", "file: gone/*.csv\n"))
    with pytest.raises(InvalidPipeline, match="no file matches"):
        load(path)
    assert load(path, check_files=False).sources["orders"].name == "orders"


def test_a_byte_order_mark_does_not_count_as_a_column(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + WHOLE_PIPELINE.encode())
    place = load(path).place_of("name")
    assert (place.line, place.column) == (1, 7)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("10 seconds", "10 seconds"),
        ("1 second", "1 second"),
        ("10s", "10 seconds"),
        ("500 ms", "500 milliseconds"),
        ("1 hour 30 minutes", "90 minutes"),
        ("interval 2 days", "2 days"),
        ("0 seconds", "0 seconds"),
        ("1h, 1m", "61 minutes"),
        ("5 Mins", "5 minutes"),
        ("7 days", "1 week"),
        ("", None),
        ("10", None),
        ("seconds", None),
        ("-1 second", None),
        ("1 fortnight", None),
        ("1.5 seconds", None),
        ("900 weeks", None),
        ("1 second x", None),
    ],
)
def test_durations_are_parsed(written: str, read: str | None) -> None:
    assert parse_duration(written) == read


def test_times_are_parsed() -> None:
    assert parse_time("2026-01-31") == datetime(2026, 1, 31, tzinfo=UTC)
    assert parse_time("2026-01-31T08:00:00Z") == datetime(2026, 1, 31, 8, tzinfo=UTC)
    assert parse_time("2026-01-31 08:00:00+02:00") == datetime(2026, 1, 31, 6, tzinfo=UTC)
    assert parse_time("yesterday") is None


@pytest.mark.parametrize(
    ("written", "trigger"),
    [
        ("real-time", "real-time 5 minutes"),
        ("realTime", "real-time 5 minutes"),
        ("{real-time: 90 s}", "real-time 90 seconds"),
    ],
)
def test_real_time_mode_goes_with_sparks_own_connector(tmp_path: Path, written: str, trigger: str) -> None:
    file = tmp_path / "pipeline.yaml"
    views = "sources: {a: {topic: a, format: raw}}\nsinks: [{from: a, topic: b}]\n"
    file.write_text(f"name: p\nconnector: kafka\ntrigger: {written}\n{views}")
    assert load(file).trigger == trigger
