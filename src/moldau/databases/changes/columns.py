"""Columns of a table: their types for Spark, and Arrow arrays of the texts in which PostgreSQL sends values.

| PostgreSQL | Spark |
|---|---|
| boolean, smallint, integer, bigint, real, double precision | boolean, smallint, int, bigint, float, double |
| numeric(p, s) with p ≤ 38 | decimal(p,s); without precision string, as it holds more digits than any decimal |
| date, timestamp, timestamptz, bytea | date, timestamp_ntz, timestamp, binary |
| everything else: text, uuid, json, enums, arrays, intervals … | string, as PostgreSQL writes it |

Infinite dates and times become the first and last of the years 1 to 9999. What else the type cannot hold (NaN in a
decimal, a year before 1) is ChangesRefused and names the column: `schema` can make it a string.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from moldau.databases.changes.errors import ChangesRefused

Texts = Sequence[bytes | None]
_DECIMAL: Final = re.compile(r"decimal\((\d{1,2}),\s*(\d{1,2})\)")
_TYPES: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
"""Arrow's types by Spark's names, without decimals."""
_OF_OIDS: Final[Mapping[int, str]] = {
    16: "boolean", 17: "binary", 20: "bigint", 21: "smallint", 23: "int", 26: "bigint", 700: "float", 701: "double",
    1082: "date", 1114: "timestamp_ntz", 1184: "timestamp",
}  # fmt: skip
_NUMERIC: Final = 1700
_DECIMAL_DIGITS_MAX: Final = 38
_FIRST_DAY, _LAST_DAY = b"0001-01-01", b"9999-12-31"
_INFINITE: Final[Mapping[str, tuple[bytes, bytes]]] = {
    "date": (_FIRST_DAY, _LAST_DAY),
    "timestamp_ntz": (_FIRST_DAY + b" 00:00:00", _LAST_DAY + b" 23:59:59.999999"),
    "timestamp": (_FIRST_DAY + b" 00:00:00+00", _LAST_DAY + b" 23:59:59.999999+00"),
}
_TRUE: Final = (b"t", b"true", b"1")
_FALSE: Final = (b"f", b"false", b"0")
SHOWN_MAX: Final = 40


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str
    """Spark's name of the type."""
    type_oid: int = 0
    """PostgreSQL's id of the type in the table; 0 if it is not known."""
    is_key: bool = False


def spark_type(type_oid: int, modifier: int) -> str:
    """Return Spark's type of a column of PostgreSQL. `modifier` is its typmod: precision and scale of a numeric."""
    if type_oid == _NUMERIC and modifier >= 4:
        precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
        if precision <= _DECIMAL_DIGITS_MAX and scale <= precision:
            return f"decimal({precision},{scale})"
    return _OF_OIDS.get(type_oid, "string")


def arrow_type(name: str) -> pa.DataType:
    """Return Arrow's type for Spark's. Raises ValueError for one that a column of a database cannot have."""
    if decimal := _DECIMAL.fullmatch(name):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if name not in _TYPES:
        raise ValueError(
            f"a column of a database cannot be read as {name}: use one of {', '.join(_TYPES)}, decimal(p,s)"
        )
    return _TYPES[name]


def array(column: Column, texts: Texts) -> pa.Array:
    """Return the values as an Arrow array. Raises ChangesRefused for one that the type cannot hold."""
    convert = _converter(column.type)
    try:
        return convert(texts)
    except (pa.ArrowInvalid, ValueError):
        raise ChangesRefused(_first_wrong(column, texts, convert)) from None


def _converter(name: str) -> Callable[[Texts], pa.Array]:
    if name == "binary":
        return lambda texts: pa.array([None if text is None else _bytea(text) for text in texts], pa.binary())
    if name == "boolean":
        return lambda texts: pa.array([None if text is None else _boolean(text) for text in texts], pa.bool_())
    wanted = arrow_type(name)
    if name in _INFINITE:
        first, last = _INFINITE[name]
        infinite: Mapping[bytes | None, bytes] = {b"infinity": last, b"-infinity": first}

        def times(texts: Texts) -> pa.Array:
            try:
                return _cast(texts, wanted)
            except pa.ArrowInvalid:
                return _cast([infinite.get(text, text) for text in texts], wanted)

        return times
    return lambda texts: _cast(texts, wanted)


def _cast(texts: Texts, wanted: pa.DataType) -> pa.Array:
    strings = pa.array(texts, pa.binary()).cast(pa.string())
    return strings if wanted == pa.string() else pc.cast(strings, wanted)


def _bytea(text: bytes) -> bytes:
    if not text.startswith(b"\\x"):
        raise ValueError("not in hexadecimal")
    return bytes.fromhex(text[2:].decode())


def _boolean(text: bytes) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError("not a boolean")


def _first_wrong(column: Column, texts: Texts, convert: Callable[[Texts], Any]) -> str:
    for text in texts:
        try:
            convert([text])
        except (pa.ArrowInvalid, ValueError):
            assert text is not None, "null is a value of every type"
            shown = text[:SHOWN_MAX].decode(errors="backslashreplace")
            more = "…" if len(text) > SHOWN_MAX else ""
            hint = "not valid UTF-8" if column.type == "string" else f"not a {column.type} of Spark"
            return (
                f"column {column.name}: {shown!r}{more} is {hint}; give the source a `schema` in which the column is"
                f" {'binary' if column.type == 'string' else 'a string'}"
            )
    return f"column {column.name}: its values cannot be read as {column.type}"


def columns_to_json(columns: Sequence[Column]) -> list[list[Any]]:
    return [[column.name, column.type, column.type_oid, column.is_key] for column in columns]


def columns_from_json(content: Sequence[Sequence[Any]]) -> tuple[Column, ...]:
    """Raises ValueError."""
    try:
        return tuple(Column(str(name), str(type_), int(oid), bool(key)) for name, type_, oid, key in content)
    except TypeError as error:
        raise ValueError("not a list of columns") from error
