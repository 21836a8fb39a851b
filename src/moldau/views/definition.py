"""What a view is: the configs of its topic, checked and parsed once.

moldau.view.from      the source topic
moldau.view.where     which records it shows; all if it is not set
moldau.view.select    which fields their values have; the values as they are if it is not set
moldau.view.format    how values are read: json, or csv with the names of the columns: csv(id, amount)
moldau.view.key       keep, sha256 or null: what becomes of the records' keys
moldau.view.headers   keep or drop
moldau.view.on.error  skip or pass: what becomes of a record whose value cannot be read
moldau.view.source.id the id of the source topic; the controller sets it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from moldau.base.view_configs import (
    VIEW_FORMAT,
    VIEW_FROM,
    VIEW_HEADERS,
    VIEW_KEY,
    VIEW_ON_ERROR,
    VIEW_SELECT,
    VIEW_WHERE,
)
from moldau.views.expressions import Expression, Field, walk
from moldau.views.parser import BadExpression, Selected, parse_condition, parse_selection

T = TypeVar("T")
COLUMNS_MAX: Final = 1000
COLUMN_CHARACTERS_MAX: Final = 255
NAMED_COLUMNS_MAX: Final = 20
"""In a message."""


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """A view's content, without its name: two views that say the same have equal definitions."""

    where: Expression | None = None
    select: tuple[Selected, ...] | None = None
    csv_columns: tuple[str, ...] | None = None
    """The names of a CSV value's columns; None if values are JSON."""
    key: str = "keep"
    keeps_headers: bool = True
    passes_unreadable: bool = False

    @property
    def expressions(self) -> tuple[Expression, ...]:
        selected = () if self.select is None else tuple(each.expression for each in self.select)
        return selected if self.where is None else (self.where, *selected)

    @property
    def changes_records(self) -> bool:
        """Whether records are rewritten, and not only left out."""
        return self.select is not None or self.key != "keep" or not self.keeps_headers


def view_definition(configs: Mapping[str, str]) -> ViewDefinition:
    """Return what these configs of a topic say. Raise BadExpression, with the name of the config, if one is wrong."""
    where = _parsed(configs, VIEW_WHERE, parse_condition)
    select = _parsed(configs, VIEW_SELECT, parse_selection)
    definition = ViewDefinition(
        where,
        select,
        _csv_columns(configs.get(VIEW_FORMAT, "json")),
        _one_of(configs, VIEW_KEY, "keep", "sha256", "null"),
        _one_of(configs, VIEW_HEADERS, "keep", "drop") == "keep",
        _one_of(configs, VIEW_ON_ERROR, "skip", "pass") == "pass",
    )
    _check_columns(definition)
    return definition


def _parsed(configs: Mapping[str, str], name: str, parse: Callable[[str], T]) -> T | None:
    text = configs.get(name, "").strip()
    if not text:
        return None
    try:
        return parse(text)
    except BadExpression as wrong:
        raise BadExpression(f"{name}: {wrong}") from None


def _one_of(configs: Mapping[str, str], name: str, *allowed: str) -> str:
    value = configs.get(name, allowed[0])
    if value not in allowed:
        raise BadExpression(f"{name}: {' or '.join(allowed)}, not {value!r}")
    return value


def _csv_columns(text: str) -> tuple[str, ...] | None:
    text = text.strip()
    if text == "json":
        return None
    if not (text.startswith("csv(") and text.endswith(")")):
        raise BadExpression(f"{VIEW_FORMAT}: json or csv(name, name, …), not {text[:60]!r}")
    names = tuple(name.strip() for name in text[4:-1].split(","))
    if not all(names) or len(set(names)) < len(names) or len(names) > COLUMNS_MAX:
        raise BadExpression(f"{VIEW_FORMAT}: csv( ) takes 1 to {COLUMNS_MAX} different names of columns")
    if max(map(len, names)) > COLUMN_CHARACTERS_MAX:
        raise BadExpression(f"{VIEW_FORMAT}: the name of a column has at most {COLUMN_CHARACTERS_MAX} characters")
    return names


def _check_columns(definition: ViewDefinition) -> None:
    """A CSV value has only the named columns, so a misspelt one is found before the first record."""
    columns = definition.csv_columns
    if columns is None:
        return
    for expression in definition.expressions:
        for part in walk(expression):
            if isinstance(part, Field) and (len(part.path) > 1 or part.path[0] not in columns):
                name = ".".join(map(str, part.path))
                raise BadExpression(f"{VIEW_FORMAT} has no column {name}; it has {_short(columns)}")


def _short(columns: tuple[str, ...]) -> str:
    named = ", ".join(columns[:NAMED_COLUMNS_MAX])
    return named if len(columns) <= NAMED_COLUMNS_MAX else f"{named} and {len(columns) - NAMED_COLUMNS_MAX} more"


__all__ = ["VIEW_FROM", "ViewDefinition", "view_definition"]
