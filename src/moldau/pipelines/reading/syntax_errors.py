"""Turns PyYAML's errors into problems: clearer messages for common mistakes, PyYAML's own message for the rest."""

from __future__ import annotations

import re
from typing import Final

import yaml

from moldau.pipelines.problems import LINE_END, Problem
from moldau.pipelines.reading.indentation import WrongLine, find_wrong_line
from moldau.pipelines.reading.text_maps import FileText
from moldau.pipelines.spec import Place

_WORD: Final = re.compile(r"[\w.-]+")
_GLUED: Final = re.compile(r"[\w.-]+:\S")


def syntax_problem(file_text: FileText, error: yaml.MarkedYAMLError) -> Problem:
    message = error.problem or error.context or "not YAML"
    unclosed = error.context_mark if "end of stream" in message else None
    place = _place(file_text, unclosed or error.problem_mark or error.context_mark)
    if "'\\t'" in message:
        return _tab_problem(file_text, place)
    key = _place(file_text, error.context_mark) if error.context == "while scanning a simple key" else None
    wrong_line = find_wrong_line(file_text.text, {place.line, (key or place).line})
    if wrong_line is not None:
        at = Place(file=place.file, line=wrong_line.line, column=wrong_line.indentation + 1)
        return _indentation_problem(wrong_line, at) if wrong_line.fitting else _missing_colon_problem(file_text, at)
    if key is not None:
        return _missing_colon_problem(file_text, key)
    if (error.context or "").startswith("while parsing a flow") and error.context_mark is not None:
        bracket = _place(file_text, error.context_mark)
        if _place(file_text, error.problem_mark).line > bracket.line:
            return _unclosed_problem(file_text, bracket)
    if message == "mapping values are not allowed here":
        return _second_colon_problem(file_text, place)
    context = f"{error.context}: " if error.context and error.context is not message else ""
    return Problem(f"not YAML: {context}{message}", place)


def _place(file_text: FileText, mark: yaml.Mark | None) -> Place:
    return file_text.place(mark.index if mark else 0)


def _tab_problem(file_text: FileText, place: Place) -> Problem:
    is_indentation = not _line(file_text, place)[: place.column - 1].strip()
    why = "YAML is indented with spaces" if is_indentation else "write a space instead"
    return Problem(f"a tab is not allowed here: {why}", place)


def _indentation_problem(wrong_line: WrongLine, place: Place) -> Problem:
    spaces = f"{wrong_line.indentation} space{'' if wrong_line.indentation == 1 else 's'}"
    fitting = " or ".join(map(str, wrong_line.fitting))
    return Problem(f"this line is indented by {spaces}; the lines of the same block by {fitting}", place)


def _missing_colon_problem(file_text: FileText, place: Place) -> Problem:
    lacks = "space after its ':'" if _GLUED.match(_line(file_text, place), place.column - 1) else "':'"
    return Problem(f"this line has no {lacks}, but the lines around it have the form  key: value", place)


def _unclosed_problem(file_text: FileText, place: Place) -> Problem:
    bracket = _line(file_text, place)[place.column - 1]
    closing = {"{": "}", "[": "]"}.get(bracket, bracket)
    return Problem(f"the '{bracket}' of line {place.line} is not closed", place, f"a '{closing}' or a ',' is missing")


def _second_colon_problem(file_text: FileText, place: Place) -> Problem:
    """Suggest quotes only where the ':' can be part of a text, not where a line begins with a key."""
    if _WORD.fullmatch(_line(file_text, place)[: place.column - 1].strip()):
        return Problem("a key is not allowed here", place)
    hint = "put a text that holds ': ' into quotes, or after | on lines of its own"
    return Problem("a second ':' in one value", place, hint)


def _line(file_text: FileText, place: Place) -> str:
    return LINE_END.split(file_text.text)[place.line - 1]
