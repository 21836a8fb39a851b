"""Every character of a YAML text maps to its place in the file, in all styles of YAML."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from marked_yaml import WHOLE_PIPELINE, load_text, marked

from moldau.pipelines.problems import LINE_END
from moldau.pipelines.reading.yaml_tree import MappingNode, ScalarNode, read_yaml
from moldau.pipelines.spec import TextMap

WORDS = st.lists(
    st.sampled_from(["select", "a,", "'it''s'", "#no", "x:y", "日本", "-", "(b", "\\n", '"q"']), max_size=4
)
LINES = st.lists(
    st.tuples(st.integers(0, 3), WORDS).map(lambda line: " " * line[0] + "  ".join(line[1]) if line[1] else ""),
    max_size=6,
)


def text_at_k(yaml: str) -> ScalarNode:
    root = read_yaml("f", yaml.encode())
    value = root.values["k"]
    assert isinstance(value, ScalarNode)
    return value


def assert_places(text_map: TextMap, source: str) -> None:
    """Check that each non-blank character is at its place in the file, and that places are in order."""
    lines = LINE_END.split(source)
    before = (0, 0)
    for offset, char in enumerate(text_map.text):
        place = text_map.at(offset)
        if not char.isspace():
            assert lines[place.line - 1][place.column - 1] == char, (offset, char, place)
            assert (place.line, place.column) > before
        before = (place.line, place.column)


@given(lines=LINES, indent=st.integers(1, 5), header=st.sampled_from(["|", "|-", "|+", ">", ">-", ">+", "| # note"]))
def test_block_texts(lines: list[str], indent: int, header: str) -> None:
    explicit = header[0] + str(indent) + header[1:]
    body = "".join(" " * indent + line + "\n" for line in lines)
    source = f"a: 1\nk: {explicit}\n{body}b: 2\n"
    assert_places(text_at_k(source).map, source)


@given(lines=LINES.filter(lambda lines: bool(lines) and lines[0].strip() == lines[0] != ""), crlf=st.booleans())
def test_literal_texts_with_detected_indentation(lines: list[str], crlf: bool) -> None:
    source = "k: |\n" + "".join(f"      {line}\n" for line in lines)
    source = source.replace("\n", "\r\n") if crlf else source
    value = text_at_k(source)
    assert_places(value.map, source)
    for number, line in enumerate(lines, 1):
        for column in range(1, len(line) + 1):
            place = value.map.at_line(number, column)
            assert (place.line, place.column) == (number + 1, column + 6)


@given(
    words=st.lists(st.sampled_from(["one", "two", "\n", "\n\n", "日本"]), max_size=8), quote=st.sampled_from(["", "'"])
)
def test_texts_over_several_lines(words: list[str], quote: str) -> None:
    inside = "x " + " ".join(words).replace("\n", "\n   ").strip() + " y"
    source = f"a: 1\nk: {quote}{inside}{quote}\n"
    assert_places(text_at_k(source).map, source)


@given(text=st.text(max_size=40))
def test_double_quoted_texts_with_escapes(text: str) -> None:
    """JSON strings are YAML strings (except surrogate pairs): the place of an escape is that of its backslash."""
    text = "".join(char for char in text if ord(char) < 0x10000 and not 0xD800 <= ord(char) < 0xE000)
    for ascii_only in (True, False):
        written = json.dumps(text, ensure_ascii=ascii_only)
        if not ascii_only and not all(char.isprintable() or char == "\t" for char in written):
            continue
        source = f"k: {written}"
        value = text_at_k(source)
        assert value.text == text
        column = 5
        for offset, char in enumerate(text):
            assert value.map.at(offset).column == column
            column += len(json.dumps(char, ensure_ascii=ascii_only)) - 2


def test_escaped_line_breaks() -> None:
    source = 'k: "one \\\n     two\\tthree"\n'
    value = text_at_k(source)
    assert value.text == "one two\tthree"
    assert (value.map.at(4).line, value.map.at(4).column) == (2, 6)
    assert (value.map.at(8).line, value.map.at(8).column) == (2, 11)


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\u2028"])
def test_empty_lines_after_an_escaped_line_break(line_break: str) -> None:
    """The escaped line break is dropped, each further one is a line feed."""
    source = f'k: "one\\{line_break}  {line_break}\t{line_break}     two"{line_break}'
    value = text_at_k(source)
    kept = line_break if line_break == "\u2028" else "\n"
    assert value.text == f"one{kept}{kept}two"
    assert_places(value.map, source)


@given(parts=st.lists(st.sampled_from(["a", "bc", " ", "\t", "\n ", "\\\n ", "\r\n ", "\\\r\n "]), max_size=12))
def test_blanks_and_line_breaks_in_double_quotes(parts: list[str]) -> None:
    source = 'k: "x' + "".join(parts) + 'y"\n'
    assert_places(text_at_k(source).map, source)


def test_long_runs_of_blanks_are_read_once() -> None:
    blanks = " " * 250_000
    value = text_at_k(f'k: "a{blanks}b"\n')
    assert value.text == f"a{blanks}b"
    assert value.map.at(len(value.text) - 1).column == 5 + len(value.text) - 1


@pytest.mark.parametrize(
    "sql",
    [
        "sql: select a from «b»",
        "sql: 'select ''x'' from «b»'",
        'sql: "select \\"x\\",\\n 1 from «b»"',
        "sql: |\n      select a,\n        c\n\n      from «b»",
        "sql: >-\n      select a,\n      c\n\n      from «b»",
        "sql: select a,\n      c\n\n      from «b»",
        "sql: |2\n        select a\n      from «b»",
        "sql: |\n      select ${long}, '${env:HOME}'\n      from ${long}, «b»",
        "sql: >\n      select $${x}, ${long}\n      from «b»",
        'sql: "select \\t ${long} \\\n      from «b»"',
    ],
)
def test_a_word_of_sql_is_found_in_every_yaml_style(sql: str, tmp_path: Path) -> None:
    text, places = marked(
        WHOLE_PIPELINE.replace("sinks:", f"steps:\n  - name: s\n    {sql}\nsinks:") + "vars: {long: longer than it}\n"
    )
    pipeline = load_text(tmp_path, text)
    written = pipeline.texts["steps.0.sql"].text
    offset = written.rindex("b")
    line, column = written.count("\n", 0, offset) + 1, offset - (written.rfind("\n", 0, offset) + 1) + 1
    place = pipeline.place_in("steps.0.sql", line, column)
    assert (place.line, place.column) == places[0]


def test_all_characters_of_a_variable_have_one_place(tmp_path: Path) -> None:
    text, places = marked(WHOLE_PIPELINE.replace("topic: big", "topic: big-«${r}»-x") + "vars: {r: europe}\n")
    where = load_text(tmp_path, text).texts["sinks.0.topic"]
    assert where.text == "big-europe-x"
    value_places = {(where.at(offset).line, where.at(offset).column) for offset in range(4, 10)}
    assert value_places == {places[0]}
    assert where.at(10).column == places[0][1] + len("${r}")


def test_a_position_after_the_end_is_the_end() -> None:
    where = text_at_k("k: |\n  ab\n  cd").map
    assert (where.at_line(9, 9).line, where.at_line(9, 9).column) == (3, 5)
    assert where.at(99) == where.at(5)


def test_an_empty_text_has_a_place() -> None:
    assert text_at_k("k: ''").map.at(0).line == 1
    assert text_at_k("k: |\n").map.at(0).line == 1


def test_values_from_an_alias_have_the_place_of_their_definition() -> None:
    root = read_yaml("f", b"a: &x {p: 1, q: 2}\nb:\n  q: 3\n  <<: *x\n")
    b = root.values["b"]
    assert isinstance(b, MappingNode)
    assert {name: (place.line, place.column) for name, place in b.keys.items()} == {"q": (3, 3), "p": (1, 8)}
    q = b.values["q"]
    assert isinstance(q, ScalarNode)
    assert q.text == "3"
