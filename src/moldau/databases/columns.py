"""The columns of rows and of tables, and which value fits which column without silent loss.

`sql_type` of a dialect says what a missing column becomes; `fits` whether an existing one may take the values. It is
strict where a database would change a value without an error: it rounds a decimal, ignores a time zone, or loses
digits. Where a database refuses what does not fit (a number out of range, a text that is too long), it may decide.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa
import pyarrow.types as kinds

Family = Literal["boolean", "integer", "float", "decimal", "text", "bytes", "date", "time zone", "no zone", "json"]
_DECIMAL: Final = re.compile(r"(?:numeric|decimal|dec)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the rows."""

    name: str
    type: pa.DataType
    is_json: bool = False
    """Its texts are JSON, made from a value with parts."""

    @property
    def family(self) -> Family | None:
        """None for a type that no database can store."""
        if self.is_json:
            return "json"
        return next((family for family, is_kind in _FAMILIES if is_kind(self.type)), None)


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table as the database describes it."""

    name: str
    type: str
    is_required: bool = False
    """It is NOT NULL."""
    has_default: bool = False
    """It has a value if a row gives none: a default, or because it is generated."""
    joins: str | None = None
    """The type or collation by which it takes different texts for the same; None if it takes only equal ones."""
    ignores_last_spaces: bool = False
    """It takes texts for the same that differ only in spaces at the end."""


_FAMILIES: Final[Sequence[tuple[Family, Callable[[pa.DataType], bool]]]] = (
    ("boolean", kinds.is_boolean),
    ("integer", kinds.is_signed_integer),
    ("float", kinds.is_floating),
    ("decimal", kinds.is_decimal),
    ("text", lambda each: kinds.is_string(each) or kinds.is_large_string(each)),
    ("bytes", lambda each: kinds.is_binary(each) or kinds.is_large_binary(each)),
    ("date", kinds.is_date32),
    ("time zone", lambda each: kinds.is_timestamp(each) and each.tz is not None),
    ("no zone", lambda each: kinds.is_timestamp(each) and each.tz is None),
)


def columns_of(schema: pa.Schema, json_columns: Sequence[str] = ()) -> tuple[Column, ...]:
    return tuple(Column(field.name, field.type, field.name in json_columns) for field in schema)


def keeps_decimals(column: Column, sql_type: str) -> bool:
    """Return whether a decimal type has as many digits after the point: a database rounds the others silently."""
    found = _DECIMAL.search(sql_type.lower())
    return found is None or int(found[2] or 0) >= column.type.scale
