"""Which records a search wants: key, header, field, text, expression. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from moldau.console.failures import bad_request
from moldau.console.records.expression import ORDERS, compile_expression, equals, member, ordered
from moldau.console.records.shown import FoundRecord, json_of, text_of

PARAMETERS: Final = ("key", "header", "field", "text", "where", "tombstones")
TEXT_LENGTH_MAX: Final = 1000
_FIELD: Final = re.compile(r"^([^=<>!~]+?)\s*(!=|<=|>=|=|<|>|~)\s*(.*)$", re.DOTALL)
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(\d{1,9})\]")
_ORDERS: Final = dict(zip(("<", "<=", ">", ">="), ORDERS.values(), strict=True))

Test = Callable[["Fields"], bool]


class Fields:
    """The parts of a record as filters see them, each decoded once and only if it is asked for."""

    def __init__(self, found: FoundRecord) -> None:
        self.found = found

    @cached_property
    def key(self) -> str | None:
        return _text(self.found.record.key)

    @cached_property
    def text(self) -> str | None:
        return _text(self.found.record.value)

    @cached_property
    def value(self) -> Any:
        """JSON if it is, else text."""
        if self.text is None:
            return None
        content = json_of(self.text)
        return self.text if content is None and self.text.strip() != "null" else content

    @cached_property
    def header_pairs(self) -> list[tuple[str, str | None]]:
        return [(name, _text(value)) for name, value in self.found.record.headers]

    @cached_property
    def headers(self) -> dict[str, str | None]:
        """Of several headers of one name the last, as `lastHeader` of Java's clients."""
        return dict(self.header_pairs)

    def __getitem__(self, name: str) -> Any:
        match name:
            case "partition":
                return self.found.partition
            case "offset":
                return self.found.record.offset
            case "timestamp":
                return self.found.record.timestamp
            case "size":
                return self.found.size_bytes
        return getattr(self, name)


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    text = text_of(data)
    return data.hex() if text is None else text


@dataclass(frozen=True)
class Choice:
    tests: tuple[Test, ...]

    def wants(self, found: FoundRecord) -> bool:
        if not self.tests:
            return True
        fields = Fields(found)
        return all(test(fields) for test in self.tests)


def choice_of(parameters: Mapping[str, str | None]) -> Choice:
    """Read the filters of a search; each may be missing, empty or None."""
    given = {name: text for name in PARAMETERS if (text := parameters.get(name))}
    for name, text in given.items():
        if len(text) > TEXT_LENGTH_MAX:
            raise bad_request(f"{name}: more than {TEXT_LENGTH_MAX} characters")
    makers = {
        "key": _key_test,
        "header": _header_test,
        "field": _field_test,
        "text": _text_test,
        "where": _where_test,
        "tombstones": _tombstone_test,
    }
    return Choice(tuple(makers[name](text) for name, text in given.items()))


def _key_test(text: str) -> Test:
    if text.startswith("="):
        exact = text[1:]
        return lambda fields: fields.key == exact
    return lambda fields: fields.key is not None and text in fields.key


def _header_test(text: str) -> Test:
    name, colon, part = text.partition(":")
    if not colon:
        return lambda fields: name in fields.headers
    return lambda fields: any(each == name and part in (value or "") for each, value in fields.header_pairs)


def _text_test(text: str) -> Test:
    lowered = text.lower()

    def has_text(fields: Fields) -> bool:
        parts = (fields.key, fields.text, *(value for _, value in fields.header_pairs))
        return any(part is not None and lowered in part.lower() for part in parts)

    return has_text


def _where_test(text: str) -> Test:
    evaluate = compile_expression(text)
    return lambda fields: bool(evaluate(fields))  # type: ignore[arg-type]


def _tombstone_test(text: str) -> Test:
    if text not in ("only", "without"):
        raise bad_request("tombstones: expected only or without")
    return lambda fields: (fields.found.record.value is None) == (text == "only")


def _field_test(text: str) -> Test:
    parts = _FIELD.match(text.strip())
    if parts is None:
        raise bad_request("field: write PATH=VALUE, such as amount>100 or customer.city=Praha")
    path, sign, wanted_text = path_of(parts[1]), parts[2], parts[3].strip()
    wanted = json_of(wanted_text)
    candidates = [wanted_text] if wanted is None and wanted_text != "null" else [wanted, wanted_text]

    def matches(fields: Fields) -> bool:
        value = fields.value
        for step in path:
            value = member(value, step)
        match sign:
            case "=":
                return any(equals(value, each) for each in candidates)
            case "!=":
                return not any(equals(value, each) for each in candidates)
            case "~":
                return isinstance(value, str) and wanted_text in value
        return any(ordered(_ORDERS[sign], value, each) for each in candidates)

    return matches


def path_of(text: str) -> list[str | int]:
    """Split `items[0].id` into its steps."""
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None:
            raise bad_request(f"field: {text[:100]!r} is not a path; write customer.city or items[0].id")
        steps.append(int(step[2]) if step[2] is not None else step[1])
        position = step.end()
    return steps
