"""Listings: plain tables for pipes, JSON and YAML for programs."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from click.testing import CliRunner

from moldau.cli.output import Bytes, Styled, Table, has_colours, plain_lines, show, to_yaml

TABLE = Table(("NAME", "RECORDS", "ISR"), [("orders", 5, [1, 2]), ("x", None, [])], "topics")


def test_a_plain_table_is_padded_numbers_to_the_right() -> None:
    assert list(plain_lines(TABLE)) == [
        "topics",
        "NAME    RECORDS  ISR",
        "orders        5  1,2",
        "x             -",
    ]


def test_a_name_adds_no_line_and_no_escape_code_to_a_table() -> None:
    """Any client may choose the id of a group."""
    table = Table(("GROUP", "MEMBERS"), [("a\nb  7", 0), ("\x1b[2Jgone\x9b\u2028", 1), (["x\ry"], 2)])
    assert list(plain_lines(table)) == [
        "GROUP                  MEMBERS",
        r"a\nb  7                      0",
        r"\x1b[2Jgone\x9b\u2028        1",
        r"x\ry                         2",
    ]


@pytest.mark.parametrize("output_format", ["json", "yaml"])
def test_json_and_yaml_keep_names_with_control_characters(
    output_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """YAML takes U+2028 and U+0085 for the end of a line, and a terminal U+009B for an escape code."""
    yaml = pytest.importorskip("yaml")
    row = ("a\u2028b\x85c\x9b2J\x7f\n ü",)
    show(output_format, Table(("GROUP",), [row]))
    printed = capsys.readouterr().out
    assert yaml.safe_load(printed) == [{"group": row[0]}]
    assert "\\u009b2J" in printed


def test_an_empty_table_prints_its_message() -> None:
    assert list(plain_lines(Table(("NAME",), [], empty="no topics"))) == ["no topics"]


def test_json_is_the_rows_as_records(capsys: pytest.CaptureFixture[str]) -> None:
    show("json", TABLE)
    assert json.loads(capsys.readouterr().out) == [
        {"name": "orders", "records": 5, "isr": [1, 2]},
        {"name": "x", "records": None, "isr": []},
    ]


def test_sizes_are_numbers_in_json_and_have_units_in_tables(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = [Bytes(size) for size in (0, 1023, 1024, 5 << 20, 3 << 50)]
    assert [str(size) for size in sizes] == ["0 B", "1023 B", "1.0 KiB", "5.0 MiB", "3072.0 TiB"]
    show("json", Table(("SIZE",), [(sizes[2],)]))
    assert json.loads(capsys.readouterr().out) == [{"size": 1024}]


def test_a_pipe_gets_no_escape_codes(capsys: pytest.CaptureFixture[str]) -> None:
    show("table", TABLE)
    assert "\x1b" not in capsys.readouterr().out


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("no_color", "is_coloured"), [("", True), ("1", False)])
def test_a_terminal_gets_styles_unless_no_color_is_set(
    monkeypatch: pytest.MonkeyPatch, no_color: str, is_coloured: bool
) -> None:
    screen = _Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    for name, value in {"NO_COLOR": no_color, "TERM": "xterm-256color", "COLUMNS": "40"}.items():
        monkeypatch.setenv(name, value)
    title = "a title that is longer than its table"
    show("table", Table(("NAME",), [(Styled("up", "bold green"),)], title))
    assert has_colours() is is_coloured
    assert ("\x1b[1;32mup" in screen.getvalue()) is is_coloured
    assert title in screen.getvalue()  # not folded at the table's width


def test_a_pipe_and_a_program_get_no_styles(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(("NAME",), [(Styled("up", "bold green"),)])
    show("table", table)
    show("json", table)
    assert capsys.readouterr().out == 'NAME\nup\n[\n  {\n    "name": "up"\n  }\n]\n'


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ([], "[]"),
        ({}, "{}"),
        ({"a": 1, "b": None, "c": True, "d": 1.5}, "a: 1\nb: null\nc: true\nd: 1.5"),
        # Texts that YAML would read as another type are quoted.
        (["word", "yes", "Null", "1", "", "- x", "a: b", "#", "ö\n"],
         '- word\n- "yes"\n- "Null"\n- "1"\n- ""\n- "- x"\n- "a: b"\n- "#"\n- "ö\\n"'),
        ({"a-b.c": {"x": [1, {"k": [], "z": "w"}]}, "no": "2026-11-15T08:00:00Z"},
         'a-b.c:\n  x:\n    - 1\n    - k: []\n      z: w\n"no": "2026-11-15T08:00:00Z"'),
    ],
)  # fmt: skip
def test_yaml_output(data: Any, text: str) -> None:
    assert to_yaml(data) == text


def test_the_format_option_selects_yaml() -> None:
    assert CliRunner().invoke(_listing(), ["--format", "yaml"]).stdout == (
        "- name: orders\n  records: 5\n  isr:\n    - 1\n    - 2\n- name: x\n  records: null\n  isr: []\n"
    )


def _listing() -> Any:
    import click

    from moldau.cli.output import format_option

    @click.command()
    @format_option
    def listing(output_format: str) -> None:
        show(output_format, TABLE)

    return listing
