"""Compares the output of a pipeline with the expected one: which lines are missing and which are unexpected. Pure.

The order does not matter, the number does (each line as often as it is expected). Only the parts of a record that the
expected line has are compared: without a key, any key matches. JSON values are compared by content, not as text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Difference:
    """The differences of one sink. If both are empty, the output is as expected."""

    sink: str
    missing: tuple[Any, ...] = ()
    unexpected: tuple[Any, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected)


def compare_records(
    sink: str, expected: Sequence[Mapping[str, Any]], actual: Sequence[Mapping[str, Any]]
) -> Difference:
    """Compare records as envelopes; `actual` ones have key, value, headers, timestamp, partition and topic as texts.

    Unexpected records are returned with the same parts as the expected ones, and JSON as JSON, so that the difference
    is easy to see.
    """
    difference = _compare(sink, expected, actual, _matches)
    parts = {part for line in expected for part in line} or {"key", "value"}
    unexpected = tuple(_select(record, parts) for record in difference.unexpected)
    return Difference(sink, difference.missing, unexpected)


def _select(record: Mapping[str, Any], parts: Collection[str]) -> dict[str, Any]:
    return {
        part: json_or_text(value) if part in ("key", "value") else value
        for part, value in record.items()
        if part in parts
    }


def json_or_text(text: str | None) -> Any:
    """Return a key or value as in an expected file: parsed if it is a JSON object or list, else the text."""
    try:
        content = json.loads(text or "")
    except ValueError:
        return text
    return content if isinstance(content, dict | list) else text


def compare_rows(sink: str, expected: Sequence[Any], actual: Sequence[Any]) -> Difference:
    """Compare rows of a table as objects. A null column and a missing column are the same."""
    return _compare(sink, expected, actual, lambda line, row: alike(_without_nulls(line), _without_nulls(row)))


def _compare(sink: str, expected: Sequence[Any], actual: Sequence[Any], fits: Callable[[Any, Any], bool]) -> Difference:
    """Match the lines with the most parts first, so that a line that fits anything does not take what another needs."""
    unmatched = list(actual)
    missing = []
    for line in sorted(expected, key=_specificity, reverse=True):
        match = next((index for index, candidate in enumerate(unmatched) if fits(line, candidate)), None)
        if match is None:
            missing.append(line)
        else:
            del unmatched[match]
    return Difference(sink, tuple(missing), tuple(unmatched))


def _specificity(line: Any) -> int:
    return len(line) if isinstance(line, Mapping) else 0


def _matches(expected: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    for part, value in expected.items():
        if part == "headers":
            if any(record["headers"].get(name) != text for name, text in (value or {}).items()):
                return False
        elif part in ("key", "value"):
            if not _text_matches(value, record[part]):
                return False
        elif value != record[part]:
            return False
    return True


def _text_matches(expected: Any, text: str | None) -> bool:
    """Return whether a key or value is as expected: the same text, or JSON of the same content."""
    if expected is None or text is None or expected == text:
        return expected is text or expected == text
    try:
        return alike(json.loads(expected) if isinstance(expected, str) else expected, json.loads(text))
    except ValueError:
        return False


def alike(first: Any, second: Any) -> bool:
    """Return whether both have the same content. Numbers that differ only by rounding of floats are the same."""
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, int | float) and isinstance(second, int | float):
        return first == second or math.isclose(first, second, rel_tol=1e-9)
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(alike(value, second[key]) for key, value in first.items())
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(alike, first, second))
    return bool(first == second)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value]
    return value


def difference_lines(difference: Difference, shown_max: int = 20) -> list[str]:
    """Return lines for a terminal: "-" is expected but missing, "+" is unexpected. At most `shown_max` of each."""
    lines = [f"{difference.sink}:"]
    for sign, differing in (("-", difference.missing), ("+", difference.unexpected)):
        lines += [f"  {sign} {json.dumps(line, ensure_ascii=False)}" for line in differing[:shown_max]]
        if len(differing) > shown_max:
            lines.append(f"  {sign} … and {len(differing) - shown_max} more")
    return lines
