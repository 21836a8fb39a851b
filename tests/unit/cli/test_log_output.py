"""How log lines are written: levels, text and JSON, and that no client can forge one."""

from __future__ import annotations

import json
import logging

import pytest

from moldau.cli.log.output import JsonLines, LogOutput, TextLines, WrongLogChoice, choose

FORGED = "orders\n2026-01-01 00:00:00,000 ERROR all is lost\r\x1b[2J\x00\u2028end"


def record(message: str, *values: object, error: Exception | None = None) -> logging.LogRecord:
    trace = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord("moldau.server", logging.WARNING, __file__, 1, message, values, trace)


def raised(text: str) -> Exception:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


def test_the_default_is_info_as_text() -> None:
    assert choose(None, None, {}) == LogOutput("info", "text")


def test_options_win_over_the_environment() -> None:
    environ = {"MOLDAU_LOG_LEVEL": "ERROR", "MOLDAU_LOG_FORMAT": "json"}
    assert choose(None, None, environ) == LogOutput("error", "json")
    assert choose("debug", None, environ) == LogOutput("debug", "json")


def test_an_empty_variable_is_ignored() -> None:
    assert choose(None, None, {"MOLDAU_LOG_LEVEL": "", "MOLDAU_LOG_FORMAT": ""}) == LogOutput()


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        ({"MOLDAU_LOG_LEVEL": "loud"}, "MOLDAU_LOG_LEVEL 'loud': expected debug, info, warning or error"),
        ({"MOLDAU_LOG_FORMAT": "xml\n"}, "MOLDAU_LOG_FORMAT 'xml\\n': expected text or json"),
    ],
)
def test_the_error_for_a_wrong_level_or_format_is_one_line(environ: dict[str, str], line: str) -> None:
    with pytest.raises(WrongLogChoice) as wrong:
        choose(None, None, environ)
    assert str(wrong.value) == line


def test_a_child_process_gets_the_same_level_and_format() -> None:
    output = LogOutput("warning", "json")
    assert choose(None, None, output.variables()) == output


def test_text_keeps_a_message_on_its_line() -> None:
    line = TextLines().format(record("topic %s", FORGED))
    assert line.endswith(r" WARNING topic orders\n2026-01-01 00:00:00,000 ERROR all is lost\r\x1b[2J\x00\u2028end")
    assert len(line.splitlines()) == 1


def test_text_indents_every_line_of_a_stack_trace() -> None:
    first, *trace = TextLines().format(record("failed", error=raised(FORGED))).split("\n")
    assert first.endswith(" WARNING failed")
    assert all(line.startswith("  ") for line in trace)
    assert "\x1b" not in "".join(trace)
    assert "ValueError: orders" in trace[-2]


@pytest.mark.parametrize("text", [FORGED, "plain", '{"level": "error"}', "\ud800 half a pair", "ž"])
def test_json_is_one_object_a_line(text: str) -> None:
    line = JsonLines(7).format(record("topic %s", text, error=raised(text)))
    assert line.isascii()
    assert len(line.splitlines()) == 1
    fields = json.loads(line)
    assert fields["message"] == f"topic {text}"
    assert (fields["level"], fields["logger"], fields["node"]) == ("warning", "moldau.server", 7)
    assert fields["time"].endswith("Z")
    assert f"ValueError: {text}" in fields["exception"]


def test_json_without_a_node_or_an_exception() -> None:
    assert json.loads(JsonLines(None).format(record("hello"))).keys() == {"time", "level", "logger", "message"}
