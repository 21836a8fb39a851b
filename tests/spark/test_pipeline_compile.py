"""Pipelines planned on a real Spark: how records split into rows and bad records, and what is refused before a run.

Static frames, or streams that never start, replace the topics. A Spark job takes long, so each checks many cases.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from random import Random
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from harness.depth import deep, few
from json_cases import DDL, cases

from moldau.pipelines.planning.checking import check, empty_stream
from moldau.pipelines.planning.compiling import Compiled, Mode, compile_pipeline, try_compile, write_batch
from moldau.pipelines.planning.csv_rejection_reasons import csv_rejection
from moldau.pipelines.planning.flows import ConsoleTarget, TableTarget, UpsertTarget
from moldau.pipelines.planning.rejection_reasons import json_rejection
from moldau.pipelines.problems import InvalidPipeline, Problem
from moldau.pipelines.reading.loading import load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from moldau.pipelines.spec import Pipeline, TopicSource

RECORDS = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"


def pipeline(folder: Path, text: str, **files: str) -> Pipeline:
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(dedent(content))
    file = folder / "pipeline.yaml"
    file.write_text("name: tested\nbootstrap: localhost:1\n" + dedent(text))
    return load(file)


def compiled(spark: SparkSession, of: Pipeline, **values: list[bytes | None]) -> Compiled:
    """As a batch, with these values as the records of the topics of each source."""

    def records(session: SparkSession, source: TopicSource) -> DataFrame:
        given = values[source.name]
        rows = pa.table(
            {
                "key": pa.array([f"k{offset}".encode() for offset in range(len(given))], pa.binary()),
                "value": pa.array(given, pa.binary()),
                "offset": pa.array(range(len(given)), pa.int64()),
            }
        )
        return session.createDataFrame(rows).selectExpr(
            "key", "value", "'in' as topic", "1 as partition", "offset", "timestamp_seconds(offset) as timestamp"
        )

    return compile_pipeline(of, spark, Mode.BATCH, records=records)


def flow_rows(of: Compiled, name: str) -> list[Row]:
    (flow,) = [flow for flow in of.flows if flow.name == name]
    return flow.frame.collect()


def reasons(rows: list[Row]) -> dict[int, str]:
    """Of dead letters, by offset."""
    headers = [{pair.key: bytes(pair.value).decode() for pair in row.headers} for row in rows]
    return {int(each["moldau.offset"]): each["moldau.error"] for each in headers}


def source(schema: str, format_: str = "json", more: str = "") -> str:
    return f"""
        sources:
          events:
            topic: in
            format: {format_}
            {schema}
            {more}
        steps:
          - name: rows
            sql: select * from events
        sinks:
          - {{name: out, from: rows, topic: out, key: _key}}
    """


def test_every_json_record_is_a_row_or_a_dead_letter(spark: SparkSession, tmp_path: Path) -> None:
    """Hundreds of hostile texts: Spark's verdict, by two separate plans, is that of a plain reading in Python."""
    values: list[bytes | None] = [*cases(seed=1, count=deep(600)), None]
    made = compiled(spark, pipeline(tmp_path, source(f"schema: '{DDL}'")), events=values)
    good = {row._offset: row for row in made.views["rows"].drop("ts", "day").collect()}
    bad = reasons(flow_rows(made, "events.dead-letters"))
    assert sorted([*good, *bad]) == list(range(len(values)))
    schema = spark.createDataFrame([], DDL).schema
    assert bad.pop(len(values) - 1) == "the value is null (a tombstone), and id is NOT NULL"
    expected = {at: json_rejection(value, schema, {}) for at, value in enumerate(values) if value is not None}
    assert {at: values[at] for at in set(bad) ^ {at for at, why in expected.items() if why}} == {}
    assert bad == {at: why for at, why in expected.items() if why}
    assert len(values) / 8 < len(good) < len(values) * 0.8
    for at, row in good.items():
        _assert_same(row, dict(json.loads(values[at] or b"")))


def _assert_same(row: Row, read: Mapping[str, Any]) -> None:
    for name in ("qty", "price", "ok", "big", "tags", "sizes", "tiny", "small"):
        assert row[name] == read.get(name), name
    if isinstance(read["id"], str) and "\\ud8" not in json.dumps(read["id"]):
        assert row.id == read["id"]
    assert (row.who is None) == (read.get("who") is None)


def test_every_csv_record_is_a_row_or_a_dead_letter(spark: SparkSession, tmp_path: Path) -> None:
    lines = [b"a,1,1.5", b'"a, b",2,', b'"two\nlines",3,', b"a,1", b"a,1,2,3", b"a,x,1", b",1,1", b"", b" ", None,
             b"a,1,1\nb,2,2", b"a,1,1\n", b"\xff,1,1", b"a,1,1e400", b"a,3000000000,1", b"a,,",
             b'"' + b"x" * 100_000 + b'\n",4,', b"x" * 100_000 + b",4,1\n", b"C:\\,x,1",
             "a\u2028b,x,1".encode()]  # fmt: skip
    of = pipeline(tmp_path, source("schema: id string not null, qty int, price double", "csv"))
    made = compiled(spark, of, events=lines)
    good = {row._offset: (row.id, row.qty, row.price) for row in made.views["rows"].collect()}
    bad = reasons(flow_rows(made, "events.dead-letters"))
    assert sorted([*good, *bad]) == list(range(len(lines)))
    assert good == {
        0: ("a", 1, 1.5), 1: ("a, b", 2, None), 2: ("two\nlines", 3, None), 11: ("a", 1, 1.0),
        15: ("a", None, None), 16: ("x" * 100_000 + "\n", 4, None), 17: ("x" * 100_000, 4, 1.0),
    }  # fmt: skip
    assert bad == {
        3: "2 fields, and the schema has 3",
        4: "4 fields, and the schema has 3",
        5: 'field qty: "x" is not an int',
        6: "field id is missing",
        7: "the value is empty",
        8: "the value is empty",
        9: "the value is null (a tombstone), and id is NOT NULL",
        10: "2 lines; a record is one line of CSV",
        12: "not UTF-8: byte 0xff at position 0",
        13: 'field price: "1e400" is out of range for double',
        14: 'field qty: "3000000000" is out of range for int',
        18: 'field qty: "x" is not an int',
        19: 'field qty: "x" is not an int',
    }


LONG_SEPARATOR = """options: {sep: '||', escape: '"'}"""


def test_a_csv_record_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    """Random texts: what is a row has all of the text, and a final line break does not matter.

    `make test` tries the default syntax and one with a long separator and another escape, `make deep` also another
    quote and comments.
    """
    random, schema = Random(1), spark.createDataFrame([], "id string, more string").schema
    syntaxes = {"": ',"\\', "options: {quote: \"'\"}": ",'\"", LONG_SEPARATOR: '|"\\',
                "options: {sep: '\\t', comment: '#'}": '\t#"'}  # fmt: skip
    for more in few(["", LONG_SEPARATOR], of=syntaxes):
        characters = syntaxes[more]
        separator = "||" if "|" in characters else characters[0]
        pieces = ["a", "b", "\n", "\r", "\uffff", separator, *characters]
        texts = {"".join(random.choices(pieces, k=random.randrange(1, 12))).rstrip("\r\n") for _ in range(deep(200))}
        texts |= {f'5" pipe{separator}a\n6" pipe{separator}b', f'5" pipe\n6" pipe{separator}b', f'5" pipe{separator}b'}
        values = [text + end for text in sorted(texts) for end in ("", "\n", "\r\n")]
        of = pipeline(tmp_path, source("schema: 'id string, more string'", "csv", more))
        made = compiled(spark, of, events=[value.encode() for value in values])
        good = {row._offset: (row.id or "", row.more or "") for row in made.views["rows"].collect()}
        bad = reasons(flow_rows(made, "events.dead-letters"))
        assert sorted([*good, *bad]) == list(range(len(values)))
        assert len(good) > len(values) / 50
        for at in range(0, len(values), 3):
            assert good.get(at) == good.get(at + 1) == good.get(at + 2), values[at]
            fields = good.get(at)
            if fields is not None:
                letters = [letter for letter in values[at] if letter in "ab\n\r"]
                assert [letter for letter in "".join(fields) if letter in "ab\n\r"] == letters, values[at]
                reason = csv_rejection(values[at].encode(), schema, of.sources["events"].options)
                assert "lines" not in (reason or ""), values[at]


def test_no_csv_value_fails_the_query(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's parser throws for too many fields and for one that is too long, in any mode."""
    values = [b"a" + b"\n" * 20_481 + b"b", b"," * 20_481, b"\n" * 200_000 + b"b", b"," * 100_001,
              b'"' + b",\r\n" * 30_000 + b'",1', b"a,1"]  # fmt: skip
    of = pipeline(tmp_path, source("schema: 'id string, amount decimal(6,2)'", "csv", "options: {quote: '\"'}"))
    made = compiled(spark, of, events=values)
    assert [row._offset for row in made.views["rows"].collect()] == [4, 5]
    assert reasons(flow_rows(made, "events.dead-letters")) == {
        0: "20482 lines; a record is one line of CSV",
        1: "20482 fields, and the schema has 2",
        2: "200000 separators and line breaks; the option maxColumns allows 100000",
        3: "100001 separators and line breaks; the option maxColumns allows 100000",
    }
    of = pipeline(tmp_path, source("schema: id string", "csv", "options: {sep: '\\t'}"))
    made = compiled(spark, of, events=[b"\t" * 100_001, b"a"])
    assert [row._offset for row in made.views["rows"].collect()] == [1]
    options = "options: {maxColumns: 100001, maxCharsPerColumn: 10}"
    of = pipeline(tmp_path, source("schema: 'id string, more string'", "csv", options))
    lines = [b'1,"a\n\n\n\n\nb"', b"1," + b"a" * 10, b"1," + b"a" * 11, b'"' + b"a\n" * 6 + b'",1', b"," * 100_001]
    made = compiled(spark, of, events=lines)
    assert [row._offset for row in made.views["rows"].collect()] == [0, 1]
    assert reasons(flow_rows(made, "events.dead-letters")) == {
        2: "field more has 11 characters; the option maxCharsPerColumn allows 10",
        3: "field id has 12 characters; the option maxCharsPerColumn allows 10",
        4: "100002 fields, and the schema has 2",
    }


def test_an_unclosed_quote_does_not_include_the_next_line(spark: SparkSession, tmp_path: Path) -> None:
    values = [b'1,"12-inch pipe\n2,hose', b'1,"12-inch pipe\n2', b'a\nb,"c', b'1,"12-inch pipe', b'1,"12-inch\npipe"',
              b'"say ""hi""\nthere",2', b'"say ""hi"", there",2']  # fmt: skip
    of = pipeline(tmp_path, source("schema: 'id string, more string'", "csv"))
    made = compiled(spark, of, events=values)
    assert [row._offset for row in made.views["rows"].collect()] == [3, 4]
    doubled = 'a doubled quote inside of quotes; set the option escape to "'
    bad = reasons(flow_rows(made, "events.dead-letters"))
    assert {at: why for at, why in bad.items() if at > 3} == {5: doubled, 6: doubled}
    of = pipeline(tmp_path, source("schema: 'id string, more string'", "csv", """options: {escape: '"'}"""))
    made = compiled(spark, of, events=values)
    assert [(row._offset, row.id) for row in made.views["rows"].collect()] == [
        (3, "1"), (4, "1"), (5, 'say "hi"\nthere'), (6, 'say "hi", there')
    ]  # fmt: skip


def test_a_csv_comment_is_a_dead_letter(spark: SparkSession, tmp_path: Path) -> None:
    of = pipeline(tmp_path, source("schema: id string", "csv", "options: {comment: '#'}"))
    made = compiled(spark, of, events=[b"#abc", b"#a\nb", b"#", b"a#", b"a"])
    assert [row._offset for row in made.views["rows"].collect()] == [3, 4]
    comment = "a comment; each record is to be a row"
    assert reasons(flow_rows(made, "events.dead-letters")) == {0: comment, 1: comment, 2: comment}


def test_json_and_csv_with_options(spark: SparkSession, tmp_path: Path) -> None:
    more = "options: {allowSingleQuotes: true, allowComments: true, dateFormat: d.M.yyyy}"
    values = [b"{'amount':'1.5','day':'31.1.2026'}", b"{'amount':/*\"*/'1,5'}", b"{'amount':'1e999999999'}", b"{", b""]
    of = pipeline(tmp_path, source("schema: 'amount decimal(6,2), day date'", more=more))
    made = compiled(spark, of, events=values)
    assert [(row._offset, row.amount) for row in made.views["rows"].collect()] == [(0, Decimal("1.50"))]
    general = "the value does not fit the schema"
    expected = {1: general, 2: general, 3: general, 4: "the value is empty"}
    assert reasons(flow_rows(made, "events.dead-letters")) == expected
    more = "options: {allowComments: True, allowNonNumericNumbers: 'TRUE'}"
    of = pipeline(tmp_path, source("schema: 'n double'", more=more))
    made = compiled(spark, of, events=[b'{"n":1} // one', b'{"n":Infinity}', b'{"n":1} // one\n,2'])
    assert [(row._offset, row.n) for row in made.views["rows"].collect()] == [(0, 1.0), (1, float("inf"))]
    of = pipeline(tmp_path, source("schema: 'amount decimal(6,2)'", more="options: {locale: de-DE}"))
    made = compiled(spark, of, events=[b'{"amount":"1,5"}', b'{"amount":"1E999999999"}', b'{"amount":1e999999999}'])
    assert [(row._offset, row.amount) for row in made.views["rows"].collect()] == [(0, Decimal("1.50"))]
    lines = [b'a,1.5,"2"', b'"1,5",1.5,1e3', b'a,"1,5",2', b"7e12345,1.5,2", b"a,1.5,1e999999999", b"a,x,2", b""]
    of = pipeline(tmp_path, source("schema: 'id string, amount decimal(6,2), other decimal(6,2)'", "csv"))
    made = compiled(spark, of, events=lines)
    assert [row._offset for row in made.views["rows"].collect()] == [0, 1, 3]
    assert reasons(flow_rows(made, "events.dead-letters")).keys() == {2, 4, 5, 6}
    of = pipeline(tmp_path, source("schema: 'amount decimal(6,2)'", "csv", "options: {locale: de-DE, sep: ;}"))
    made = compiled(spark, of, events=[b"1,5", b"1E999999999"])
    assert [(row._offset, row.amount) for row in made.views["rows"].collect()] == [(0, Decimal("1.50"))]
    of = pipeline(tmp_path, source("schema: 'price double, amount decimal(6,2), qty int'", "csv"))
    made = compiled(
        spark, of, events=[b" 1.5 ,1,2", b"1.5,1, 2", b"1.5, 1,2", b"1.5,1,2_0", b"1.5,1_0,2", b"1_0.5,1,2"]
    )
    assert [row._offset for row in made.views["rows"].collect()] == [0]
    assert reasons(flow_rows(made, "events.dead-letters")) == {
        1: 'field qty: " 2" is not an int',
        2: 'field amount: " 1" is not a decimal(6,2)',
        3: 'field qty: "2_0" is not an int',
        4: 'field amount: "1_0" is not a decimal(6,2)',
        5: 'field price: "1_0.5" is not a double',
    }
    more = """options: {sep: '||', escape: '"'}"""
    of = pipeline(tmp_path, source("schema: id string not null, qty int", "csv", more))
    made = compiled(spark, of, events=[b'"a""||b"||1', b'"a""||b"||x', b"a|1", b'"a\\"||2'])
    assert [(row.id, row.qty) for row in made.views["rows"].collect()] == [('a"||b', 1), ("a\\", 2)]
    expected = {1: 'field qty: "x" is not an int', 2: "1 field, and the schema has 2"}
    assert reasons(flow_rows(made, "events.dead-letters")) == expected


AVSC = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}


def _avro(row: dict[str, Any]) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(AVSC), row)
    return written.getvalue()


def test_avro_records_are_read_and_written(spark: SparkSession, tmp_path: Path) -> None:
    rows = [{"id": f"é{n}", "at": n * 1000, "price": Decimal(n), "tags": ["x"] * n} for n in range(5)]
    values = [_avro(row) for row in rows]
    hostile = [b"", values[3][:-1], values[3] + b"!", b"\xff" * 12, None]
    text = source("schema_file: event.avsc", "avro", "tombstone: row")
    text = text.replace("key: _key", "format: avro, schema_file: event.avsc")
    made = compiled(spark, pipeline(tmp_path, text, event__avsc=json.dumps(AVSC)), events=[*values, *hostile])
    good = {row._offset: (row.id, row.price, row.tags) for row in made.views["rows"].collect()}
    assert good == {n: (row["id"], row["price"], row["tags"]) for n, row in enumerate(rows)} | {9: (None, None, None)}
    assert set(reasons(flow_rows(made, "events.dead-letters"))) == {5, 6, 7, 8}
    (out,) = [flow for flow in made.flows if flow.name == "out"]
    written = out.frame.sparkSession.sql("select * from rows where id is not null")
    assert [bytes(row.value) for row in out.frame.limit(5).collect()] == values
    assert written.count() == 5


STATIONS = """
    sources:
      stations: {file: 'stations*.csv', schema: 'STATION string, district string, docks int'OPTIONS}
    sinks:
      - {from: stations, console: true}
"""


def stations(spark: SparkSession, folder: Path, options: str = "", **files: str) -> list[tuple[Any, ...]]:
    of = pipeline(folder, STATIONS.replace("OPTIONS", options), **files)
    frame = compile_pipeline(of, spark, Mode.BATCH).views["stations"]
    assert frame.columns == ["STATION", "district", "docks"]
    return sorted(tuple(row) for row in frame.collect())


def test_columns_of_csv_files_are_matched_by_name(spark: SparkSession, tmp_path: Path) -> None:
    """Spark alone would match them by position and ignore the header."""
    right = ",docks,name,station, District\n0,12,Old Square,s1,centre\n1,x,Mill,s2,north\n"
    rows = [("s1", "centre", 12), ("s2", "north", None)]
    assert stations(spark, tmp_path, stations__csv=right) == rows
    with pytest.raises(InvalidPipeline) as refused:
        stations(spark, tmp_path, stations__csv=right.replace("docks", "dock"))
    (problem,) = refused.value.problems
    assert "there is no column docks in the header" in problem.message
    assert problem.place is not None
    line = (tmp_path / "pipeline.yaml").read_text().splitlines()[problem.place.line - 1]
    assert line[problem.place.column - 1 :].startswith("docks int"), "the caret is under the column"
    by_position = "Station ID,Part,n\ns1,centre,12\n"
    with pytest.raises(InvalidPipeline) as refused:
        stations(spark, tmp_path, stations__csv=by_position)
    (problem,) = refused.value.problems
    missing = f"there is no column STATION in the header of {tmp_path}/stations*.csv, did you mean 'Station ID'?"
    assert problem.message == f"source stations: {missing}"
    assert problem.hint is not None
    assert problem.hint.startswith("the header has: Station ID, Part, n; `options: {enforceSchema: true}` takes")
    options = ", options: {enforceSchema: true}"
    assert stations(spark, tmp_path, options, stations__csv=by_position) == rows[:1]
    without = ", options: {header: false}"
    assert stations(spark, tmp_path, without, stations__csv="s1,centre,12\n") == rows[:1]
    assert stations(spark, tmp_path, stations__csv="") == []


def test_csv_files_with_different_headers_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    first, second = "docks,station,district\n1,s1,a\n", "station,docks,district\ns2,2,b\n"
    same = second.replace("station,docks", "docks,station").replace("s2,2", "2,s2")
    assert stations(spark, tmp_path, stations1__csv=first, stations2__csv=same) == [("s1", "a", 1), ("s2", "b", 2)]
    with pytest.raises(Exception, match=r"stations2\.csv"):
        stations(spark, tmp_path, stations1__csv=first, stations2__csv=second)


def test_the_formats_text_and_raw(spark: SparkSession, tmp_path: Path) -> None:
    values = [b"a", b"", b"\xff", None]
    text = source("", "text").replace("key: _key", "format: text")
    made = compiled(spark, pipeline(tmp_path, text), events=values)
    assert reasons(flow_rows(made, "events.dead-letters")) == {2: "not UTF-8: byte 0xff at position 0"}
    assert [row.value for row in flow_rows(made, "out")] == ["a", "", None]
    raw = source("", "raw").replace("key: _key", "format: raw, key: _key")
    made = compiled(spark, pipeline(tmp_path, raw), events=values)
    assert [flow.name for flow in made.flows] == ["out"]
    rows = flow_rows(made, "out")
    assert [row.value and bytes(row.value) for row in rows] == values
    assert bytes(rows[0].key) == b"k0"


def test_dead_letter_fail_names_the_bad_record(spark: SparkSession, tmp_path: Path) -> None:
    of = pipeline(tmp_path, source("schema: id string not null", more="dead_letter: fail\n            tombstone: drop"))
    made = compiled(spark, of, events=[b'{"id":"a"}', None, b'{"idd":"c"}'])
    assert [flow.name for flow in made.flows] == ["out"]
    with pytest.raises(Exception, match="bad record in topic in, partition 1, offset 2: field id is missing") as failed:
        flow_rows(made, "out")
    assert "source events of pipeline tested" in str(failed.value)


def test_dead_letter_drop_drops_bad_records(spark: SparkSession, tmp_path: Path) -> None:
    of = pipeline(tmp_path, source("schema: id string", more="dead_letter: drop"))  # without NOT NULL
    made = compiled(spark, of, events=[b'{"id":"a"}', b"x", None])
    assert [row.value for row in flow_rows(made, "out")] == ['{"id":"a"}', "{}"]


SHAPES = """
    sources:
      events: {topic: in, schema: 'id string, n int, at timestamp'}
      local_times: {topic: local, schema: 'at timestamp_ntz'}
    sinks:
      - name: shaped
        from: events
        topic: out
        key: named_struct('id', id)
        headers: {n: n, none: "cast(null as string)"}
        partition: pmod(n, 3)
      - {name: routed, from: events, route: "concat('to.', n)", value: n, key: n}
      - {name: lines, from: events, topic: out, format: csv}
      - {name: local, from: local_times, topic: out, key: "array(at)"}
      - {name: local_lines, from: local_times, topic: out, format: csv}
      - {name: lost, from: events, route: id}
      - {name: below, from: events, topic: out, partition: n}
"""


def test_rows_become_records(spark: SparkSession, tmp_path: Path) -> None:
    values = [b'{"id":"a","n":7,"at":"2026-01-31T08:00:00.123456+01:00"}', b'{"id":"b c","n":-1}']
    local_times = [b'{"at":"2026-01-31T08:00:00.123456"}']
    made = compiled(spark, pipeline(tmp_path, SHAPES), events=values, local_times=local_times)
    first, second = flow_rows(made, "shaped")
    assert first.key == '{"id":"a"}'
    assert first.value == '{"id":"a","n":7,"at":"2026-01-31T07:00:00.123456Z"}'
    assert [(pair.key, pair.value and bytes(pair.value)) for pair in first.headers] == [("n", b"7"), ("none", None)]
    assert (first.partition, second.partition) == (1, 2)
    assert flow_rows(made, "lines")[0].value == "a,7,2026-01-31T07:00:00.123456Z"
    (local,) = flow_rows(made, "local")
    assert (local.key, local.value) == ('["2026-01-31T08:00:00.123456"]', '{"at":"2026-01-31T08:00:00.123456"}')
    assert flow_rows(made, "local_lines")[0].value == "2026-01-31T08:00:00.123456"
    routed = flow_rows(made, "routed")
    assert [(row.key, row.value, row.topic) for row in routed] == [("7", "7", "to.7"), ("-1", "-1", "to.-1")]
    with pytest.raises(Exception, match="sink lost: route id gave 'b c', which is not a legal topic name"):
        flow_rows(made, "lost")
    with pytest.raises(Exception, match="sink below: partition n gave -1; a partition must be 0 or more"):
        flow_rows(made, "below")


LOOPS = """
    sources:
      events: {topic: in, schema: id string}
      audits: {pattern: audit-.*, schema: id string}
      python: {pattern: "(?P<kind>log)-x", schema: id string}
      commented: {pattern: "(?x)bill-.* # all", schema: id string}
      elsewhere: {topic: far, schema: id string, options: {kafka.bootstrap.servers: "other:9092"}}
    steps:
      - {name: allowed, sql: "select * from events where id not in ('in', 'audit-a')"}
      - {name: own, sql: select * from events where id = 'in'}
      - {name: matched, sql: select * from events where id = 'audit-a'}
    sinks:SINKS
"""


def test_a_route_to_a_topic_that_the_pipeline_reads_fails_the_query(spark: SparkSession, tmp_path: Path) -> None:
    """A pattern that only Python knows, or that cannot be checked as a whole, is not checked. A topic of another
    cluster is another topic."""
    text = LOOPS.replace(
        "SINKS",
        """
      - {name: routed, from: allowed, route: id}
      - {name: to-topic, from: own, route: id}
      - {name: to-pattern, from: matched, route: id}
    """,
    )
    topics = ["inn", "my-audit-a", "log-x", "bill-a", "far"]
    values = [f'{{"id":"{topic}"}}'.encode() for topic in [*topics, "in", "audit-a"]]
    made = compiled(spark, pipeline(tmp_path, text), events=values, audits=[], python=[], commented=[], elsewhere=[])
    assert [row.topic for row in flow_rows(made, "routed")] == topics
    for name, topic in (("to-topic", "in"), ("to-pattern", "audit-a")):
        reason = f"sink {name}: route id gave '{topic}', which the pipeline reads: it would feed itself"
        with pytest.raises(Exception, match=reason):
            flow_rows(made, name)


ROUTES = {
    "'in'": "events",
    "if(id = 'a', 'out', 'audit-a')": "audits",
    "case id when 'a' then 'out' when 'b' then coalesce(id, 'in') end": "events",
    "case id when 'in' then 'out' else if(id = 'in', id, concat(id, 'in')) end": None,
    "'far'": None,
}
"""Sinks' routes, and the source that reads what they write."""


def test_a_route_that_names_a_topic_that_the_pipeline_reads_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    sinks = [f'      - {{name: sink-{at}, from: events, route: "{route}"}}' for at, route in enumerate(ROUTES)]
    of = pipeline(tmp_path, LOOPS.replace("SINKS", "\n" + "\n".join(sinks)))
    expected = []
    for at, source_name in enumerate(ROUTES.values()):
        if source_name is not None:
            topic = "in" if source_name == "events" else "audit-a"
            reason = f"writes to '{topic}', which source '{source_name}' reads: the pipeline would feed itself"
            expected.append((f"sink sink-{at}: it {reason}", of.place_of(f"sinks.{at}.route")))
    problems = [problem for problem in check(of, spark) if problem.severity == "error"]
    assert [(problem.message, problem.place) for problem in problems] == expected


def test_a_python_step_and_the_modules_beside_it_reach_the_workers(spark: SparkSession, tmp_path: Path) -> None:
    of = pipeline(
        tmp_path,
        """
        sources:
          events: {topic: in, schema: id string}
        steps:
          - {name: loud, python: "detect:loud", inputs: [events], args: {mark: "!"}}
        sinks:
          - {name: out, from: loud, topic: out}
        """,
        detect__py="""
            from moldau_test_beside import upper
            def loud(events, *, mark):
                return events.select(upper("id", mark).alias("id"))
        """,
        moldau_test_beside__py="""
            import pyarrow as pa
            from pyspark.sql import functions as F
            def shout(texts: pa.Array, mark: str) -> pa.Array:
                return pa.array([text.upper() + mark for text in texts.to_pylist()], pa.string())
            def upper(column, mark):
                def udf(texts: pa.Array) -> pa.Array:
                    return shout(texts, mark)
                return F.arrow_udf(udf, "string")(column)
        """,
    )
    made = compiled(spark, of, events=[b'{"id":"a"}'])
    assert [row.value for row in flow_rows(made, "out")] == ['{"id":"A!"}']


def test_a_batch_is_written_to_a_table_once(spark: SparkSession, tmp_path: Path) -> None:
    of = pipeline(
        tmp_path,
        """
        sources:
          events: {topic: in, schema: 'id string, op string, n int'}
        sinks:
          - {name: all, from: events, table: lake/all, format: delta, partition_by: [op]}
          - name: current
            from: events
            table: lake/current
            format: delta
            mode: upsert
            keys: [id]
            delete_when: op = 'd'
            options: {order_by: n}
        """,
    )
    values = [b'{"id":"a","op":"i","n":1}', b'{"id":"b","op":"i","n":2}', b'{"id":"a","op":"d","n":3}']
    made = compiled(spark, of, events=[*values])
    for run in ("one", "one"):
        for flow in made.flows:
            if flow.kind == "table":
                write_batch(flow, run, tmp_path)
    read: Callable[[str], DataFrame] = lambda name: (  # noqa: E731
        spark.read.format("moldau-lake").option("path", f"{tmp_path}/lake/{name}").option("format", "delta").load()
    )
    assert read("all").count() == 3
    assert [(row.id, row.n) for row in read("current").collect()] == [("b", 2)]


def test_a_table_whose_package_is_missing_is_refused_before_the_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = pipeline(
        tmp_path,
        """
        sources:
          events: {topic: in, schema: id string}
        sinks:
          - {name: all, from: events, table: lake/all, format: delta}
        """,
    )
    monkeypatch.setattr("moldau.spark.lake.tables.find_spec", lambda package: None)
    with pytest.raises(InvalidPipeline, match="sink all: a Delta table needs the package deltalake: pip install"):
        compiled(spark, of, events=[])


def test_a_pipeline_does_not_see_the_sources_of_another(spark: SparkSession, tmp_path: Path) -> None:
    compiled(spark, pipeline(tmp_path, source("schema: id string")), events=[])
    other = pipeline(
        tmp_path,
        """
        sources:
          others: {topic: in, schema: id string}
        steps:
          - {name: s, sql: select id from events}
        sinks:
          - {from: s, topic: out}
        """,
    )
    with pytest.raises(InvalidPipeline, match="there is no source or step `events` before this one"):
        compiled(spark, other, others=[])


# --- checking -------------------------------------------------------------------------------------------------------

VALID = """
    sources:
      events:
        topic: in
        schema: id string not null, n int, at timestamp
        watermark: {column: at, delay: 10 seconds}
        deduplicate: [id]
      users: {file: users.csv, schema: 'id string, country string'}
    steps:
      - name: enriched
        sql: |
          select e.*, u.country
          from events e left join users u using (id)
      - name: counts
        sql: >-
          select window(at, '1 minute') w, country, count(*) n
          from enriched
          group by 1, 2
    sinks:
      - {name: out, from: counts, topic: out, key: country}
      - {name: lake, from: enriched, table: lake, format: parquet, partition_by: [country]}
      - {name: seen, from: counts, table: seen, format: delta, mode: upsert, keys: [country]}
      - {name: shown, trigger: 5 seconds, from: enriched, console: true}
"""
USERS = "id,country\na,cz\n"


def test_a_valid_pipeline_has_no_problems(spark: SparkSession, tmp_path: Path) -> None:
    assert check(pipeline(tmp_path, VALID, users__csv=USERS), spark) == []


JOINS_OF = """
    sources:
      orders: {topic: orders, schema: 'id string, at timestamp', watermark: {column: at, delay: 10 seconds}}
      payments: {topic: payments, schema: 'id string, at timestamp', watermark: {column: at, delay: 10 seconds}}
      refunds: {topic: refunds, schema: 'id string, at timestamp'}
"""
WITHIN = "p.at between o.at and o.at + interval 1 hour"
JOINS = [
    (f"payments p on o.id = p.id and {WITHIN}", None, ""),
    (f"payments p on o.id = p.id where {WITHIN}", None, ""),
    ("payments p on o.id = p.id and o.at = p.at", None, ""),
    ("payments p on o.id = p.id", "warning", "no condition on their times says how long a row can find a match"),
    ("payments p on o.id = p.id and p.at > o.at", "warning", "no condition on their times"),
    (f"refunds p on o.id = p.id and {WITHIN}", "warning", "refunds has no watermark"),
    (f"payments p on {WITHIN}", "error", "Spark cannot join streams without an equality"),
]
"""What the orders are joined with, and the severity and reason of the problem."""


def test_a_join_of_streams_that_keeps_rows_for_ever_is_a_warning(spark: SparkSession, tmp_path: Path) -> None:
    steps, sinks = ["    steps:"], ["    sinks:"]
    for at, (join, _, _) in enumerate(JOINS):
        steps.append(f'      - {{name: paid{at}, sql: "select o.* from orders o join {join}"}}')
        steps.append(f"      - {{name: large{at}, sql: select id from paid{at}}}")
        sinks.append(f"      - {{name: out{at}, from: large{at}, topic: out}}")
    joined = pipeline(tmp_path, JOINS_OF + "\n".join([*steps, *sinks]))
    problems = {problem.place: problem for problem in check(joined, spark)}
    for at, (join, severity, reason) in enumerate(JOINS):
        problem = problems.pop(joined.place_of(f"steps.{2 * at}.sql"), None)
        assert (problem.severity if problem else None) == severity, join
        assert problem is None or reason in problem.message
    assert problems == {}


def test_column_names_are_case_insensitive(spark: SparkSession, tmp_path: Path) -> None:
    """The target gets the names of the view: a lake table is particular about them."""
    text = VALID.replace("partition_by: [country]", "partition_by: [Country]")
    text = text.replace("keys: [country]", "keys: [COUNTRY], partition_by: [Country], options: {Order_By: N}")
    text = text.replace("console: true", "console: true, options: {NUMROWS: 7}")
    flows, problems = try_compile(pipeline(tmp_path, text, users__csv=USERS), spark, records=empty_stream)
    assert problems == []
    targets = {flow.name: flow.target for flow in flows.flows}
    lake, seen, shown = targets["lake"], targets["seen"], targets["shown"]
    assert isinstance(lake, TableTarget)
    assert isinstance(seen, UpsertTarget)
    assert isinstance(shown, ConsoleTarget)
    assert (lake.partition_by, seen.partition_by) == (("country",), ("country",))
    assert (seen.keys, seen.order_by, shown.rows) == (("country",), "n", 7)


def test_validation_does_not_check_the_login(spark: SparkSession, tmp_path: Path) -> None:
    """Passwords and certificates need not exist; options of Spark's own connector are not checked."""
    login = "kafka: {security.protocol: SASL_SSL, ssl.truststore.location: /nowhere, sasl.mechanism: SCRAM-SHA-512}\n"
    text = VALID.replace("key: country", "options: {delegationToken: true, kafka.acks: all}")
    assert check(pipeline(tmp_path, login + dedent(text), users__csv=USERS), spark) == []
    text = VALID.replace("key: country", "options: {kafka.acks: al}")
    assert check(pipeline(tmp_path, "connector: kafka\n" + dedent(text), users__csv=USERS), spark) == []


def _assert_at(of: Pipeline, problem: Problem, line: str, word: str) -> None:
    place = problem.place
    assert place is not None, problem
    shown = of.file.read_text().splitlines()[place.line - 1]
    assert line in shown, problem
    assert shown[place.column - 1 :].startswith(word), problem
    assert "\n" not in problem.message


@pytest.mark.parametrize(
    ("before", "after", "word", "expected"),
    [
        ("n int", "n intt", "intt", "source events: there is no type INTT, did you mean 'int'?"),
        ("id string, country string", "id string, country strin", "strin'", "source users: there is no type STRIN,"),
        ("n int, at", "n int, ID int, id int, at", "id int, at", "source events: column id is there twice"),
        ("column: at,", "column: id,", "id,", "The event time `id` has the invalid type"),
        ("deduplicate: [id]", "deduplicate: [idd]", "idd]", "there is no column idd, did you mean 'id'?"),
    ],
)
def test_a_problem_of_a_source_is_reported_at_its_line_and_column(
    spark: SparkSession, tmp_path: Path, before: str, after: str, word: str, expected: str
) -> None:
    text = VALID.replace(before, after, 1)
    assert text != VALID
    wrong = pipeline(tmp_path, text, users__csv=USERS)
    (problem,) = check(wrong, spark)
    assert expected in problem.message
    _assert_at(wrong, problem, "", word)


WRONG_STEPS = [
    (("select e.*, u.county", "from events e left join users u using (id)"), "u.county",
     "there is no column `u`.`county`; did you mean one of `u`.`country`"),
    (("select e.*, u.country", "from evnts e left join users u using (id)"), "evnts",
     "there is no source or step `evnts` before this one, did you mean"),
    (("select e.*", "from COUNTS e"), "COUNTS", "it reads step counts, which comes after it; move"),
    (("create view v as", "select id from events"), "create", "a step is a query (SELECT …)"),
    (("select country, countt(*)", "from enriched"), "countt", "there is no function `countt`, did you mean 'count'?"),
    (("select country, summ(1) n", "from enriched"), "summ", "there is no function `summ`, did you mean 'sum'?"),
    (("select country, count(*) n", "from enriched", "grup by 1"), "by 1", "syntax error at or near 'by'"),
]  # fmt: skip
"""The lines of their SQL, the word that is wrong, and the problem."""
WRONG_SINKS = [
    ("from: counts, topic: o, key: lowr(country)", "lowr", "key: there is no function `lowr`, did you mean 'low"),
    ("from: counts, topic: o, key: county", "county}", "key: there is no column `county`; did you mean"),
    ("from: counts, route: n", "n}", "route n is bigint, and must be a string"),
    ("from: counts, topic: o, partition: country", "country}", "partition country is string, and must be a whole"),
    ("from: counts, topic: o, headers: {c: countr}", "countr}", "headers.c: there is no column `countr`"),
    ("from: counts, topic: o, format: text", "{name", "format text needs rows with one column, of type"),
    ("from: enriched, table: t, format: parquet, partition_by: [contry]", "contry]",
     "there is no column contry, did you mean 'country'?"),
    ("from: counts, table: a%41b, format: delta, mode: upsert, keys: [country]", "a%41b",
     "a Delta table cannot be in a directory with '%41' in its path"),
    ("from: counts, table: t1, format: delta, mode: upsert, keys: [c]", "c]}",
     "there is no column c; there are w, country, n"),
    ("from: counts, table: t2, format: delta, mode: upsert, keys: [country], delete_when: n", "n}",
     "delete_when n is bigint, and must be a condition"),
    ("from: counts, table: t3, format: delta, mode: upsert, keys: [w]", "w]}",
     "column w is struct<start:timestamp,end:timestamp>, and a"),
    ("from: counts, table: t4, format: delta, mode: upsert, keys: [country], options: {order_by: w}", "w}",
     "column w is struct<start:timestamp,end:timestamp>, and order_by must be"),
    ("from: counts, topic: o, options: {kafka.acks: al}", "options: {kafka", "kafka.acks is all, -1"),
    ("from: counts, topic: o, options: {deliveryGuarantee: exactly-once, kafka.acks: 1}", "options: {delivery",
     "deliveryGuarantee=exactly-once needs kafka.acks=all"),
    ("from: enriched, console: true, options: {rows: 99999999999}", "options: {rows",
     "rows must be a whole number up to 999999, not '99999999999'"),
    ("from: unbounded, topic: o", "{name", "Invalid streaming output mode: append."),
    ("from: users, console: true", "users", "nothing in users streams"),
    ("from: enriched, console: true, mode: complete", "complete}", ""),
]  # fmt: skip


def test_each_problem_is_reported_at_its_line_and_column(spark: SparkSession, tmp_path: Path) -> None:
    steps, sinks = [], []
    for at, (lines, _, _) in enumerate(WRONG_STEPS):
        style = ("|", ">-")[at % 2]
        steps.append(
            "\n".join([f"      - name: step{at}", f"        sql: {style}", *(f"          {each}" for each in lines)])
        )
    for at, (line, _, _) in enumerate(WRONG_SINKS):
        sinks.append(f"      - {{name: sink{at}, {line}}}")
    steps.append("      - {name: unbounded, sql: 'select id, count(*) from plain group by id'}")
    text = VALID.replace("    steps:\n", "      plain: {topic: in, schema: id string}\n    steps:\n")
    text = text.replace("      - name: counts\n", "\n".join([*steps, "      - name: counts\n"]))
    wrong = pipeline(tmp_path, text + "\n".join(sinks), users__csv=USERS)
    problems = [problem for problem in check(wrong, spark) if problem.severity == "error"]
    expected = [(f"step step{at}", message, "", word) for at, (_, word, message) in enumerate(WRONG_STEPS)]
    for at, (line, word, message) in enumerate(WRONG_SINKS):
        expected.append((f"sink sink{at}", message, f"sink{at}, {line}", word))
    assert len(problems) == len(expected)
    for name, message, line, word in expected:
        (problem,) = [problem for problem in problems if problem.message.startswith(f"{name}: ")]
        assert message in problem.message
        _assert_at(wrong, problem, line, word)


def _with_deduplicated_step(sql: str, deduplicate: str) -> str:
    return f"""
        sources:
          events:
            topic: in
            schema: id string, at timestamp
            watermark: {{column: at, delay: 10 seconds}}
        steps:
          - name: rows
            sql: {sql}
            deduplicate: {deduplicate}
        sinks:
          - {{name: out, from: rows, console: true}}
    """


@pytest.mark.parametrize(
    ("sql", "deduplicate", "operator"),
    [
        ("select id, at from events", "[id]", "DeduplicateWithinWatermark [id"),
        ("select id, at as since from events", "[id]", "DeduplicateWithinWatermark [id"),
        ("select window(at, '1 minute') w, count(*) n from events group by 1", "[N, W]", "Deduplicate [n"),
    ],
)
def test_a_step_deduplicates_within_the_watermark_of_its_source(
    spark: SparkSession, tmp_path: Path, sql: str, deduplicate: str, operator: str
) -> None:
    made, problems = try_compile(
        pipeline(tmp_path, _with_deduplicated_step(sql, deduplicate)), spark, records=empty_stream
    )
    assert problems == []
    java: Any = made.views["rows"]._jdf
    assert operator in java.queryExecution().analyzed().toString()


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("select id from events", "none of its columns has a watermark"),
        ("select id, at + interval 1 hour as later from events", "none of its columns has a watermark"),
        ("select id, at, at as same from events", "at and same have a watermark each, and there can be only one"),
        ("select window(at, '1 minute') w, id from events group by 1, 2", "its watermark is that of the window w"),
    ],
)
def test_a_step_that_could_never_forget_a_row_cannot_deduplicate(
    spark: SparkSession, tmp_path: Path, sql: str, reason: str
) -> None:
    wrong = pipeline(tmp_path, _with_deduplicated_step(sql, "[id]"))
    (problem,) = check(wrong, spark)
    assert problem.message == f"step rows: 'deduplicate' cannot know when to forget a row: {reason}"
    assert problem.place == wrong.key_places["steps.0.deduplicate"]
    compiled(spark, wrong, events=[b'{"id": "a"}'])


def test_a_problem_lists_what_was_not_checked_because_of_it(spark: SparkSession, tmp_path: Path) -> None:
    text = VALID.replace("u.country\n", "u.county\n").replace("from enriched", "from ENRICHED")
    (problem,) = check(pipeline(tmp_path, text, users__csv=USERS), spark)
    assert (
        problem.hint
        == "not checked because they depend on this: step counts, sink out, sink lake, sink seen, sink shown"
    )
    text = VALID.replace("count(*)", "countt(*)").replace("- {name: seen", "# ")
    (problem,) = check(pipeline(tmp_path, text, users__csv=USERS), spark)
    assert problem.hint == "not checked because it depends on this: sink out"


def test_all_columns_that_a_source_lacks_are_reported_at_once(spark: SparkSession, tmp_path: Path) -> None:
    lacking = _with_deduplicated_step("select id, at from events", "[idd, nn]").replace(
        "deduplicate:", "watermark: {column: att, delay: 1 minute}\n            deduplicate:"
    )
    problems = check(pipeline(tmp_path, lacking), spark)
    assert [problem.message.partition(",")[0] for problem in problems] == [
        f"step rows: there is no column {name}" for name in ("att", "idd", "nn; there are id")
    ]
    assert [problem.hint for problem in problems] == ["not checked because it depends on this: sink out", None, None]


def test_a_java_exception_is_reported_as_a_problem(spark: SparkSession, tmp_path: Path) -> None:
    """PySpark has no class for some exceptions of Java, such as that for a file that is no Parquet."""
    text = VALID.replace("{file: users.csv, schema: 'id string, country string'}", "{file: users.parquet}")
    text = text.replace("key: country", "key: county")
    wrong = pipeline(tmp_path, text, users__parquet=USERS * 100)
    first, *_ = check(wrong, spark)
    assert first.message.startswith("source users: Encountered error while reading file")
    assert first.place is not None
