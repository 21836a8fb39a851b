"""Which records a search wants: key, header, text, tombstones, and a condition. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from moldau.console.records.condition import Condition, Match
from moldau.console.records.shown import FoundRecord, text_of
from moldau.web.failures import bad_request

PARAMETERS: Final = ("key", "header", "field", "text", "where", "tombstones")
"""`field` is refused: links of earlier versions have it."""
TEXT_LENGTH_MAX: Final = 1000
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
    def header_pairs(self) -> list[tuple[str, str | None]]:
        return [(name, _text(value)) for name, value in self.found.record.headers]

    @cached_property
    def headers(self) -> dict[str, str | None]:
        """Of several headers of one name the last, as `lastHeader` of Java's clients."""
        return dict(self.header_pairs)


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    text = text_of(data)
    return data.hex() if text is None else text


@dataclass(frozen=True)
class Choice:
    tests: tuple[Test, ...]
    where: Condition | None = None
    """Is evaluated for all records of a fetch at once, by another process; the tests for one after the other."""

    @property
    def wants_all(self) -> bool:
        return not self.tests and self.where is None

    def wants(self, found: FoundRecord) -> bool:
        """Whether a record that matches the condition is wanted."""
        if not self.tests:
            return True
        fields = Fields(found)
        return all(test(fields) for test in self.tests)


def choice_of(parameters: Mapping[str, str | None], match: Match) -> Choice:
    """Read the filters of a search; each may be missing, empty or None. `match` evaluates a condition."""
    given = {name: text for name in PARAMETERS if (text := parameters.get(name))}
    if "field" in given:
        raise bad_request("field: write it as a condition, such as where=amount > 100 or where=customer.city = 'Praha'")
    where = given.pop("where", None)
    condition = None if where is None else Condition(where, match)
    for name, text in given.items():
        if len(text) > TEXT_LENGTH_MAX:
            raise bad_request(f"{name}: more than {TEXT_LENGTH_MAX} characters")
    makers = {"key": _key_test, "header": _header_test, "text": _text_test, "tombstones": _tombstone_test}
    return Choice(tuple(makers[name](text) for name, text in given.items()), condition)


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


def _tombstone_test(text: str) -> Test:
    if text not in ("only", "without"):
        raise bad_request("tombstones: expected only or without")
    return lambda fields: (fields.found.record.value is None) == (text == "only")
