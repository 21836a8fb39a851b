"""What came out of a pipeline beside what was expected: which lines are missing and which are too many. Pure.

Order does not count, numbers do (each line as often as it is expected). Of a record only what the expected line says is
compared: with no key in it, any key will do. Values that are JSON are compared by content, not by spelling.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Difference:
    """For one sink. Both empty: all is as expected."""

    sink: str
    missing: tuple[Any, ...] = ()
    unexpected: tuple[Any, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected)


def compare_records(
    sink: str, expected: Sequence[Mapping[str, Any]], actual: Sequence[Mapping[str, Any]]
) -> Difference:
    """Records as envelopes; `actual` have all of key, value, headers, timestamp, partition, topic, as texts.

    Those that are unexpected come back in the shape of the expected ones, so that what differs catches the eye: with
    the parts that these speak of, and JSON as JSON.
    """
    found = _compare(sink, expected, actual, _is_such_a_record)
    parts = {part for line in expected for part in line} or {"key", "value"}
    return Difference(sink, found.missing, tuple(_shaped(record, parts) for record in found.unexpected))


def _shaped(record: Mapping[str, Any], parts: Collection[str]) -> dict[str, Any]:
    return {
        part: parsed(value) if part in ("key", "value") else value for part, value in record.items() if part in parts
    }


def parsed(text: str | None) -> Any:
    """A key or value as an expected file says it: what it holds if it is an object or a list of JSON, else its text."""
    try:
        content = json.loads(text or "")
    except ValueError:
        return text
    return content if isinstance(content, dict | list) else text


def compare_rows(sink: str, expected: Sequence[Any], actual: Sequence[Any]) -> Difference:
    """Rows of a table as objects. A column that is null and one that is not there are the same."""
    return _compare(sink, expected, actual, lambda wanted, row: alike(_without_nulls(wanted), _without_nulls(row)))


def _compare(sink: str, expected: Sequence[Any], actual: Sequence[Any], fits: Callable[[Any, Any], bool]) -> Difference:
    """The pickiest lines choose first, so that one that takes anything does not take what another needs."""
    left = list(actual)
    missing = []
    for wanted in sorted(expected, key=_pickiness, reverse=True):
        at = next((index for index, line in enumerate(left) if fits(wanted, line)), None)
        if at is None:
            missing.append(wanted)
        else:
            del left[at]
    return Difference(sink, tuple(missing), tuple(left))


def _pickiness(line: Any) -> int:
    return len(line) if isinstance(line, Mapping) else 0


def _is_such_a_record(wanted: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    for part, value in wanted.items():
        if part == "headers":
            if any(record["headers"].get(name) != text for name, text in (value or {}).items()):
                return False
        elif part in ("key", "value"):
            if not _says(value, record[part]):
                return False
        elif value != record[part]:
            return False
    return True


def _says(wanted: Any, text: str | None) -> bool:
    """Whether the text of a key or value is what was expected: the same text, or JSON of the same content."""
    if wanted is None or text is None or wanted == text:
        return wanted is text or wanted == text
    try:
        return alike(json.loads(wanted) if isinstance(wanted, str) else wanted, json.loads(text))
    except ValueError:
        return False


def alike(one: Any, other: Any) -> bool:
    """The same content. Numbers that differ only by how floats are rounded are the same."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other or math.isclose(one, other, rel_tol=1e-9)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(alike(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    return bool(one == other)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value]
    return value


def told(difference: Difference, most: int = 20) -> list[str]:
    """For a person: "-" what was expected and did not come, "+" what came and was not expected."""
    lines = [f"{difference.sink}:"]
    for sign, found in (("-", difference.missing), ("+", difference.unexpected)):
        lines += [f"  {sign} {json.dumps(line, ensure_ascii=False)}" for line in found[:most]]
        if len(found) > most:
            lines.append(f"  {sign} … and {len(found) - most} more")
    return lines
