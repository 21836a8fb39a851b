"""The files of a pipeline's test cases, and the comparison of expected and actual records: when they are equal, and how
differences are shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from marked_yaml import WHOLE_PIPELINE, load_text

from moldau.pipelines.cases.comparing import alike, compare_records, compare_rows, difference_lines
from moldau.pipelines.cases.files import (
    FIRST_TIMESTAMP_MS,
    BadCase,
    Case,
    InputRecord,
    check_inputs,
    find_cases,
    read_expected,
    read_input,
    write_expected,
)
from moldau.pipelines.cases.result import CaseResult, update


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    folder = tmp_path / "tests" / "first"
    (folder / "input").mkdir(parents=True)
    (folder / "expected").mkdir()
    (folder / "input" / "events.jsonl").write_text("")
    (folder / "expected" / "events.dead-letters.jsonl").write_text("")
    (tmp_path / "tests" / "second" / "input").mkdir(parents=True)
    (tmp_path / "tests" / "test_something.py").write_text("")
    return tmp_path / "pipeline.yaml"


def test_cases_are_found(pipeline: Path) -> None:
    first, second = find_cases(pipeline)
    assert (first.name, set(first.inputs), set(first.expected)) == ("first", {"events"}, {"events.dead-letters"})
    assert (second.name, second.inputs, second.expected) == ("second", {}, {})
    assert [case.name for case in find_cases(pipeline, ["second"])] == ["second"]
    with pytest.raises(BadCase, match=r"no test case third .* there are first, second"):
        find_cases(pipeline, ["third"])
    with pytest.raises(BadCase, match="no test cases"):
        find_cases(pipeline.parent / "elsewhere" / "pipeline.yaml")


def test_backup_files_of_editors_are_ignored(pipeline: Path) -> None:
    folder = pipeline.parent / "tests" / "first"
    for name in (".events.jsonl.swp", "events.jsonl~", "#events.jsonl#", ".#events.jsonl"):
        (folder / "input" / name).touch()
        (folder / "expected" / name).touch()
    (first,) = find_cases(pipeline, ["first"])
    assert first.inputs == {"events": folder / "input" / "events.jsonl"}
    assert set(first.expected) == {"events.dead-letters"}


def test_two_input_files_for_one_source_are_refused(pipeline: Path) -> None:
    (pipeline.parent / "tests" / "first" / "input" / "events.csv").touch()
    first, second = find_cases(pipeline)
    with pytest.raises(BadCase, match=r"input: events.csv and events.jsonl are both for source events; keep one"):
        check_inputs(first)
    check_inputs(second)


def test_an_expected_file_of_a_missing_sink_is_refused_with_advice(tmp_path: Path) -> None:
    from moldau.pipelines.cases.case import check_expected, stage

    expected = tmp_path / "tests" / "first" / "expected" / "elsewhere.jsonl"
    case = Case("first", tmp_path / "tests" / "first", {}, {"elsewhere": expected})
    with pytest.raises(BadCase, match=r"elsewhere.jsonl: the pipeline has no sink elsewhere; .* rename the file"):
        check_expected(case, load_text(tmp_path, WHOLE_PIPELINE))
    stage(case, load_text(tmp_path, WHOLE_PIPELINE), tmp_path / "temporary")  # a preview needs no expected files


def test_a_failed_case_gives_no_advice_about_topics_of_its_own_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from moldau.pipelines.cases import case
    from moldau.pipelines.running.bad_records import fate_in_test
    from moldau.pipelines.running.launching import RunOptions

    class Launched(Exception):
        pass

    def launch(pipeline: object, directory: object, options: RunOptions, *_: object) -> None:
        assert options.fate is fate_in_test
        raise Launched

    monkeypatch.setattr(case, "launch", launch)
    monkeypatch.setattr(case, "_produce_input", lambda *_: None)
    with pytest.raises(Launched):
        case.run_case(Case("first", tmp_path), load_text(tmp_path, WHOLE_PIPELINE), None)  # type: ignore[arg-type]


def write_lines(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "events.jsonl"
    path.write_text(text, encoding="utf-8")
    return path


def records(tmp_path: Path, text: str, name: str = "events.jsonl") -> list[InputRecord]:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return read_input(tmp_path / name)


def test_all_forms_of_input_records_are_read(tmp_path: Path) -> None:
    parsed = records(
        tmp_path,
        '{"value": {"a": 1}, "key": "k", "headers": {"h": 1}, "timestamp": "2026-11-15T10:00:00Z", "partition": 2}\n'
        '{"value": "text", "timestamp": 12, "topic": "other"}\n'
        "\n"
        '{"value": null, "key": [1]}\n'
        '{"sensor": 3, "value": 4}\n'
        '"bare"\n',
    )
    assert parsed == [
        InputRecord(value=b'{"a": 1}', key=b"k", headers={"h": b"1"}, timestamp_ms=1_794_736_800_000, partition=2),
        InputRecord(value=b"text", timestamp_ms=12, topic="other"),
        InputRecord(value=None, key=b"[1]", timestamp_ms=12),
        InputRecord(value=b'{"sensor": 3, "value": 4}', timestamp_ms=12),
        InputRecord(value=b"bare", timestamp_ms=12),
    ]


def test_records_without_a_timestamp_have_the_same_one_in_every_run(tmp_path: Path) -> None:
    before = records(
        tmp_path, '1\n{"value": 2, "timestamp": "2026-11-15T10:00:00Z"}\n3\n{"value": 4, "timestamp": 12}\n'
    )
    assert [record.timestamp_ms for record in before] == [FIRST_TIMESTAMP_MS, *[1_794_736_800_000] * 2, 12]
    assert [record.timestamp_ms for record in records(tmp_path, "a\nb\n", "a.txt")] == [FIRST_TIMESTAMP_MS] * 2


def test_dead_letters_in_expected_files_have_all_their_headers(tmp_path: Path) -> None:
    record = {"key": None, "value": "bad", "headers": {"moldau.timestamp": "2026-01-01T00:00:00.000Z"}, "topic": "dead"}
    case = Case("first", tmp_path)
    result = CaseResult(case=case, seconds=0.0, outputs={"events.dead-letters": [record]})
    assert update(result, load_text(tmp_path, WHOLE_PIPELINE)) == ["events.dead-letters"]
    (line,) = read_expected(tmp_path / "expected" / "events.dead-letters.jsonl")
    assert line == {"value": "bad", "headers": record["headers"]}


def test_headers_may_be_a_list_as_consume_prints_them(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"value": 1, "headers": [{"key": "h", "value": "1"}, {"key": "i", "value": null}]}\n')
    assert read_input(path)[0].headers == {"h": b"1", "i": None}
    assert read_expected(path)[0]["headers"] == {"h": "1", "i": None}


@pytest.mark.parametrize(
    ("line", "misspelt"),
    [
        ('{"key": "k", "valeu": {"qty": 2}}', "valeu, did you mean value"),
        ('{"value": 1, "timestmp": 5}', "timestmp, did you mean timestamp"),
        ('{"value": 1, "Header": {}}', "Header, did you mean headers"),
        ('{"value": 20.5, "station": "s1", "time": 5}', None),
        ('{"value": 1, "values": [1]}', None),
        ('{"valeu": 1}', None),
        ('{"values": [1], "id": 7}', None),
    ],
)
def test_a_record_with_a_misspelt_key_is_not_read_as_a_value(tmp_path: Path, line: str, misspelt: str | None) -> None:
    """An object without any key of a record is a value, whatever its keys are."""
    if misspelt is None:
        (record,) = records(tmp_path, line)
        assert record.value == line.encode()
        return
    for read in (read_input, read_expected):
        with pytest.raises(BadCase, match=rf"events.jsonl:2: unknown key {misspelt}\?"):
            read(write_lines(tmp_path, f"\n{line}\n"))


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    assert records(tmp_path, '"a\u2028b\u0085c"\n') == [InputRecord(value="a\u2028b\u0085c".encode())]


def test_lines_of_csv_and_txt_files_are_values(tmp_path: Path) -> None:
    assert records(tmp_path, 'a,1\n{"x"\n', "events.csv") == [InputRecord(value=b"a,1"), InputRecord(value=b'{"x"')]


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("{\n", "a.jsonl", "a.jsonl:1: not valid JSON"),
        ('1\n{"value": 1, "timestamp": "noon"}', "a.jsonl", "a.jsonl:2: 'noon' is not a time"),
        ('{"value": 1, "partition": -1}', "a.jsonl", "-1 is not a partition"),
        ('{"value": 1, "partition": true}', "a.jsonl", "true is not a partition"),
        ('{"value": 1, "timestamp": true}', "a.jsonl", "true is not a time"),
        ('{"value": 1, "headers": [1]}', "a.jsonl", "headers are an object"),
        ('{"value": 1, "headers": "h"}', "a.jsonl", "headers are an object"),
        ('{"value": 1, "headers": [{"key": "h"}, {"key": "h"}]}', "a.jsonl", "two headers of one name"),
        ('{"value": 1, "timestamp": 253402300800000}', "a.jsonl", "253402300800000 is not in the years 1970 to 9999"),
        ('{"value": 1, "timestamp": "1969-12-31"}', "a.jsonl", "'1969-12-31' is not in the years 1970 to 9999"),
        ('{"value": 1, "partition": 2147483647}', "a.jsonl", "2147483647 is not a partition"),
        ('{"value": 1, "topic": "two words"}', "a.jsonl", "a.jsonl:1: not a topic's name: "),
        ('{"value": 1, "topic": 5}', "a.jsonl", "a.jsonl:1: not a topic's name: 5"),
        ("", "a.parquet", "records for a topic come from"),
    ],
)
def test_invalid_input_files_are_refused(tmp_path: Path, text: str, name: str, message: str) -> None:
    with pytest.raises(BadCase, match=message):
        records(tmp_path, text, name)


def record(value: str | None, key: str | None = None, **more: Any) -> dict[str, Any]:
    return {"topic": "t", "partition": 0, "timestamp": 5, "key": key, "value": value, "headers": {}} | more


def test_order_and_json_spelling_do_not_matter_but_the_number_of_records_does() -> None:
    actual = [record('{"a":1,"b":[1,2]}'), record('{"a":2}'), record('{"a":2}')]
    same = [{"value": {"a": 2}}, {"value": {"b": [1, 2], "a": 1.0}}, {"value": '{ "a": 2 }'}]
    assert not compare_records("s", same, actual)
    difference = compare_records("s", same[:2], actual)
    assert (difference.missing, difference.unexpected) == ((), ({"value": {"a": 2}},))
    assert compare_records("s", [*same, {"value": {"a": 2}}], actual).missing == ({"value": {"a": 2}},)


@pytest.mark.parametrize(
    ("expected", "fits"),
    [
        ({"value": "x"}, True),
        ({"value": "x", "key": "k"}, True),
        ({"value": "x", "key": "j"}, False),
        ({"value": "x", "key": None}, False),
        ({"value": "x", "headers": {"a": "1"}}, True),
        ({"value": "x", "headers": {"a": "2"}}, False),
        ({"value": "x", "headers": {"c": "1"}}, False),
        ({"value": "x", "topic": "t", "partition": 0}, True),
        ({"value": "x", "partition": 1}, False),
        ({"value": None}, False),
    ],
)
def test_only_parts_in_the_expected_line_are_compared(expected: dict[str, Any], fits: bool) -> None:
    difference = compare_records("s", [expected], [record("x", "k", headers={"a": "1", "b": "2"})])
    assert bool(difference) is not fits


def test_both_sides_of_a_difference_have_the_same_parts() -> None:
    expected = [{"key": "k", "value": {"n": 1}, "topic": "t"}]
    difference = compare_records("s", expected, [record('{"n": 2}', "k", headers={"a": "1"}), record("text", "7")])
    assert difference_lines(difference) == [
        "s:",
        '  - {"key": "k", "value": {"n": 1}, "topic": "t"}',
        '  + {"topic": "t", "key": "k", "value": {"n": 2}}',
        '  + {"topic": "t", "key": "7", "value": "text"}',
    ]


def test_a_tombstone_is_not_the_text_null() -> None:
    assert not compare_records("s", [{"value": None}], [record(None)])
    assert compare_records("s", [{"value": "null"}], [record(None)])


def test_the_most_specific_line_is_matched_first() -> None:
    actual = [record("x", "one"), record("x", "two")]
    assert not compare_records("s", [{"value": "x"}, {"value": "x", "key": "one"}], actual)


def test_null_columns_of_table_rows_are_the_same_as_missing_ones() -> None:
    assert not compare_rows("s", [{"a": 1, "b": None}, {"a": 2, "c": {"d": None}}], [{"a": 2, "c": {}}, {"a": 1}])
    assert compare_rows("s", [{"a": 1}], [{"a": True}])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(json_values)
def test_any_value_is_alike_after_a_json_round_trip(value: Any) -> None:
    assert alike(value, json.loads(json.dumps(value)))
    assert not alike(value, [value])


@given(st.lists(json_values, max_size=6))
def test_a_written_expected_file_matches_its_records(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any]
) -> None:
    folder = tmp_path_factory.mktemp("case")
    write_expected(folder, "sink", [{"value": value} for value in values])
    texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in reversed(values)]
    assert not compare_records("s", read_expected(folder / "expected" / "sink.jsonl"), [*map(record, texts)])


def test_a_difference_is_shown_line_by_line() -> None:
    difference = compare_rows("s", [{"a": number} for number in range(30)], [{"b": 1}])
    lines = difference_lines(difference, shown_max=2)
    assert lines == ["s:", '  - {"a": 0}', '  - {"a": 1}', "  - … and 28 more", '  + {"b": 1}']


@pytest.mark.parametrize(
    ("sink", "outputs"), [("routed", ["out-a"]), ("fixed", ["big"]), ("orders.dead-letters", ["orders.dead"])]
)
def test_input_topics_of_a_pattern_are_not_outputs_of_a_route(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sink: str, outputs: list[str]
) -> None:
    from moldau.pipelines.cases import case

    topics = ["in-a", "in-b", "orders.dead", "out-a", "big"]
    monkeypatch.setattr(case, "_records", lambda bootstrap, is_output: [name for name in topics if is_output(name)])
    text = WHOLE_PIPELINE.replace("topic: orders", "pattern: in-.*").replace(
        "topic: big", "topic: big\n    name: fixed"
    )
    pipeline = load_text(tmp_path, text + "  - {from: orders, name: routed, route: id}\n")
    no_spark: Any = None
    assert case._output(sink, pipeline, no_spark) == outputs


class SlowProducer:
    """A producer whose queue holds two records, and whose broker takes them when it is polled."""

    def __init__(self, settings: Any) -> None:
        self.queued = 0

    def produce(self, *record: object, **parts: object) -> None:
        if self.queued == 2:
            raise BufferError("Local: Queue full")
        self.queued += 1

    def poll(self, timeout_s: float) -> int:
        self.queued = 0
        return 0

    def flush(self, timeout_s: float) -> int:
        return self.queued


def test_a_case_may_have_more_records_than_the_producer_queue_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from moldau.client import confluent
    from moldau.pipelines.cases import case

    class NoCluster:
        def __init__(self, *_: object) -> None: ...
        def create_topic(self, *_: object) -> None: ...
        def close(self) -> None: ...

    monkeypatch.setattr(case, "Cluster", NoCluster)
    monkeypatch.setattr(confluent, "Producer", SlowProducer)
    path = write_lines(tmp_path, "1\n" * 6)
    pipeline = load_text(tmp_path, WHOLE_PIPELINE)
    with pytest.raises(BadCase, match="2 records are not written to the topics after 30 s"):
        case._produce_input(Case("first", tmp_path, {"orders": path}), pipeline)
