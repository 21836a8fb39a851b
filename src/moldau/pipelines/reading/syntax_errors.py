"""Turns PyYAML's errors into problems: clearer messages for common mistakes, PyYAML's own message for the rest."""

from __future__ import annotations

import re
from typing import Final

import yaml

from moldau.pipelines.problems import LINE_END, Problem
from moldau.pipelines.reading.indentation import Culprit, find_culprit
from moldau.pipelines.reading.text_maps import Source
from moldau.pipelines.spec import Place

_WORD: Final = re.compile(r"[\w.-]+")
_GLUED: Final = re.compile(r"[\w.-]+:\S")


def syntax_problem(source: Source, error: yaml.MarkedYAMLError) -> Problem:
    message = error.problem or error.context or "not YAML"
    unclosed = error.context_mark if "end of stream" in message else None
    place = _place(source, unclosed or error.problem_mark or error.context_mark)
    if "'\\t'" in message:
        return _tab_problem(source, place)
    key = _place(source, error.context_mark) if error.context == "while scanning a simple key" else None
    culprit = find_culprit(source.text, {place.line, (key or place).line})
    if culprit is not None:
        at = Place(file=place.file, line=culprit.line, column=culprit.indentation + 1)
        return _indentation_problem(culprit, at) if culprit.fitting else _keyless_problem(source, at)
    if key is not None:
        return _keyless_problem(source, key)
    if message == "mapping values are not allowed here":
        return _second_colon(source, place)
    context = f"{error.context}: " if error.context and error.context is not message else ""
    return Problem(f"not YAML: {context}{message}", place)


def _place(source: Source, mark: yaml.Mark | None) -> Place:
    return source.place(mark.index if mark else 0)


def _tab_problem(source: Source, place: Place) -> Problem:
    is_indentation = not _line(source, place)[: place.column - 1].strip()
    why = "YAML is indented with spaces" if is_indentation else "write a space instead"
    return Problem(f"a tab cannot stand here: {why}", place)


def _indentation_problem(culprit: Culprit, place: Place) -> Problem:
    spaces = f"{culprit.indentation} space{'' if culprit.indentation == 1 else 's'}"
    fitting = " or ".join(map(str, culprit.fitting))
    return Problem(f"this line is indented by {spaces}; the lines of the same block by {fitting}", place)


def _keyless_problem(source: Source, place: Place) -> Problem:
    lacks = "space behind its ':'" if _GLUED.match(_line(source, place), place.column - 1) else "':'"
    return Problem(f"this line has no {lacks}, but stands among lines of the form  key: value", place)


def _second_colon(source: Source, place: Place) -> Problem:
    """Suggest quotes only where the ':' can be part of a text, not where a line begins with a key."""
    if _WORD.fullmatch(_line(source, place)[: place.column - 1].strip()):
        return Problem("a key cannot stand here", place)
    hint = "put a text that holds ': ' into quotes, or after | on lines of its own"
    return Problem("a second ':' in one value", place, hint)


def _line(source: Source, place: Place) -> str:
    return LINE_END.split(source.text)[place.line - 1]
