"""Explains in one line why a record is bad. Only records that Spark's parsers refused come here.

Spark decides (formats.py); this module parses a refused value again, slowly and precisely, to describe what is wrong.
If it finds nothing wrong, the reason is GENERAL. This is plain Python that runs in Spark's Python workers.
"""

from __future__ import annotations

import base64
import binascii
import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

GENERAL: Final = "the value does not fit the schema"
EMPTY: Final = "the value is empty"
SHOWN_MAX: Final = 40
"""How many characters of a bad value a reason quotes."""
INT_BITS: Final[Mapping[type[DataType], int]] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
FLOAT_MAX: Final = 3.4028235677973366e38
"""The smallest number that does not round to a single-precision number."""
TIMESTAMP_SECONDS_MIN: Final = -62_135_596_800
"""The start of the year 1, in seconds since 1970."""
TIMESTAMP_SECONDS_END: Final = 253_402_300_800
"""The start of the year 10000, in seconds since 1970; a timestamp must be before it."""
LONG_EXPONENT: Final = "[eE][+-]?[0-9]{4}"
_BLANK: Final = r"[ \t\r\n]"
_DATE: Final = re.compile(r"\s*[+-]?\d{4,7}(-\d{1,2}(-\d{1,2}([T ].*)?)?)?\s*", re.DOTALL)
_CLOCK: Final = r"\d{1,2}:\d{1,2}(:\d{1,2}(\.\d*)?)?\s*(Z|[A-Za-z_/]+|([A-Z]{2,3})?[+-]\d{1,2}(:?\d{1,2}){0,2})?"
_TIME: Final = re.compile(rf"\s*([+-]?\d{{4,7}}(-\d{{1,2}}(-\d{{1,2}}([T ]({_CLOCK})?)?)?)?|T?{_CLOCK})\s*")


class Pairs(list[tuple[str, Any]]):
    """A JSON object with duplicate names, because Spark converts every occurrence of a name."""


def utf8_rejection(value: bytes) -> str | None:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"not UTF-8: byte 0x{value[error.start]:02x} at position {error.start}"
    return None


# --- JSON -----------------------------------------------------------------------------------------------------------


def json_rejection(value: bytes, schema: StructType) -> str | None:
    """Return why a JSON text is not a row of the schema, or None if nothing is found."""
    if not value:
        return EMPTY
    if reason := utf8_rejection(value):
        return reason
    try:
        content = json.loads(
            value.decode(), object_pairs_hook=Pairs, parse_float=_float_text, parse_constant=_refuse_constant
        )
    except json.JSONDecodeError as error:
        message = error.msg[:1].lower() + error.msg[1:].removesuffix(" at")
        return f"not JSON: {message} at character {error.pos}"
    except RecursionError:
        return "not JSON: nested too deeply"
    except ValueError as error:
        return f"not JSON: {error}"
    if not isinstance(content, Pairs):
        return f"not a JSON object but {_kind(content)}"
    misread = misread_decimals(schema)
    first = next(_object_misfits(content, schema, ""), None)
    if first is None and misread is not None and re.search(misread, value.decode()):
        return "a number in it has an exponent of more than three digits"
    return first


def misread_decimals(schema: StructType) -> str | None:
    """Return a pattern for texts that Spark's JSON parser must not see; None for schemas without decimals.

    The parser would write out all zeros of 1e999999999 (for hours), and read the text "1,5" as 15. The pattern finds
    bare numbers everywhere, but texts only as values of decimal fields, because "12e34567" may be an id. It has the
    same meaning in Java and in Python.
    """
    names = decimal_names(schema)
    if not names:
        return None
    bare = rf"(?:[:,\[]|{_BLANK})-?[0-9][0-9.]*{LONG_EXPONENT}"
    return f'{bare}|{decimal_texts(names)}[^"]*(?:{LONG_EXPONENT}|,)'


def decimal_texts(names: Sequence[str]) -> str:
    """Return a pattern for the beginning of a text value of a field with one of these names."""
    fields = "|".join(re.escape(name) for name in names)
    return rf'"(?:{fields})"{_BLANK}*:{_BLANK}*"'


def decimal_names(schema: StructType) -> list[str]:
    """Return the names of all fields, at any depth, that have decimals."""
    return sorted(set(_decimal_names(schema, "")))


def _decimal_names(data_type: DataType, name: str) -> Iterator[str]:
    if isinstance(data_type, StructType):
        for field in data_type.fields:
            yield from _decimal_names(field.dataType, field.name)
    elif isinstance(data_type, (ArrayType, MapType)):
        yield from _decimal_names(
            data_type.elementType if isinstance(data_type, ArrayType) else data_type.valueType, name
        )
    elif isinstance(data_type, DecimalType):
        yield name


class _FloatText(str):
    """A number with a point or an exponent, as text: int columns refuse it, and decimals need all its digits."""


def _float_text(text: str) -> _FloatText:
    return _FloatText(text)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _object_misfits(pairs: Pairs, schema: StructType, path: str) -> Iterator[str]:
    types = {field.name: field.dataType for field in schema.fields}
    for name, value in pairs:
        if name in types and value is not None:
            yield from _json_misfits(value, types[name], _join_path(path, name))
    last = dict(pairs)
    for field in schema.fields:
        if not field.nullable and last.get(field.name) is None:
            yield f"field {_join_path(path, field.name)} is {'null' if field.name in last else 'missing'}"


def _json_misfits(value: Any, data_type: DataType, path: str) -> Iterator[str]:
    """Yield the reasons why a value does not fit its type, if any; `value` is not None."""
    if isinstance(data_type, StructType) and isinstance(value, Pairs):
        yield from _object_misfits(value, data_type, path)
    elif isinstance(data_type, ArrayType) and type(value) is list:
        for index, element in enumerate(value):
            if element is not None:
                yield from _json_misfits(element, data_type.elementType, f"{path}[{index}]")
    elif isinstance(data_type, MapType) and isinstance(value, Pairs):
        for name, each in value:
            if each is not None:
                yield from _json_misfits(each, data_type.valueType, f"{path}[{json.dumps(name, ensure_ascii=False)}]")
    elif (reason := _json_scalar_misfit(value, data_type)) is not None:
        yield f"field {path}: {_quote(value)} {reason}"


def _json_scalar_misfit(value: Any, data_type: DataType) -> str | None:
    if isinstance(data_type, (StructType, ArrayType, MapType)):
        return _is_not(data_type)
    check = _JSON_CHECKS.get(type(data_type))
    return None if check is None else check(value, data_type)


def _integer(value: Any, data_type: DataType) -> str | None:
    if type(value) is not int:
        return _is_not(data_type)
    return None if _in_bits(value, INT_BITS[type(data_type)]) else _out_of_range(data_type)


def _in_bits(number: int, bits: int) -> bool:
    return -(1 << (bits - 1)) <= number < 1 << (bits - 1)


def _floating(value: Any, data_type: DataType) -> str | None:
    if type(value) is not int and not isinstance(value, _FloatText):
        return _is_not(data_type)
    return None if _is_finite(str(value), data_type) else _out_of_range(data_type)


def _is_finite(text: str, data_type: DataType) -> bool:
    limit = FLOAT_MAX if isinstance(data_type, FloatType) else float("inf")
    return abs(float(text)) < limit


def _boolean(value: Any, data_type: DataType) -> str | None:
    return None if isinstance(value, bool) else _is_not(data_type)


def _decimal(value: Any, data_type: DataType) -> str | None:
    assert isinstance(data_type, DecimalType)
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return _is_not(data_type)
    try:
        number = Decimal(value if isinstance(value, int) else str(value))
    except InvalidOperation:
        return _is_not(data_type)
    return None if _fits_decimal(number, data_type) else _out_of_range(data_type)


def _fits_decimal(number: Decimal, data_type: DecimalType) -> bool:
    if not number.is_finite() or number.adjusted() >= data_type.precision - data_type.scale:
        return False
    rounded = number.quantize(Decimal(1).scaleb(-data_type.scale), ROUND_HALF_UP)
    return rounded.is_zero() or rounded.adjusted() < data_type.precision - data_type.scale


def _timestamp(value: Any, data_type: DataType) -> str | None:
    if type(value) is int and isinstance(data_type, TimestampType):
        if TIMESTAMP_SECONDS_MIN <= value < TIMESTAMP_SECONDS_END:
            return None
        return "is not in the years 1 to 9999 (a number is read as seconds since 1970)"
    return None if _is_text(value) and _TIME.fullmatch(value) else _is_not(data_type)


def _date(value: Any, data_type: DataType) -> str | None:
    return None if _is_text(value) and _DATE.fullmatch(value) else _is_not(data_type)


def _binary(value: Any, data_type: DataType) -> str | None:
    if not _is_text(value):
        return "is not base64"
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return "is not base64"
    return None


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, _FloatText)


_JSON_CHECKS: Final[Mapping[type[DataType], Callable[[Any, DataType], str | None]]] = {
    ByteType: _integer,
    ShortType: _integer,
    IntegerType: _integer,
    LongType: _integer,
    FloatType: _floating,
    DoubleType: _floating,
    BooleanType: _boolean,
    DecimalType: _decimal,
    TimestampType: _timestamp,
    TimestampNTZType: _timestamp,
    DateType: _date,
    BinaryType: _binary,
}

# --- CSV ------------------------------------------------------------------------------------------------------------


def csv_rejection(value: bytes, schema: StructType, options: Mapping[str, str]) -> str | None:
    """Return why a line of CSV is not a row of the schema, or None if nothing is found."""
    if not value.strip():
        return EMPTY
    if reason := utf8_rejection(value):
        return reason
    lower = {name.lower(): option for name, option in options.items()}
    try:
        rows = list(
            csv.reader(
                value.decode().splitlines(keepends=True),
                delimiter=lower.get("sep", lower.get("delimiter", ",")),
                quotechar=lower.get("quote", '"'),
                escapechar=lower.get("escape", "\\"),
            )
        )
    except (csv.Error, TypeError) as error:
        return f"not CSV: {error}"
    if len(rows) > 1:
        return f"{len(rows)} lines; a record is one line of CSV"
    if len(rows[0]) != len(schema.fields):
        return f"{_with_noun(len(rows[0]), 'field')}, and the schema has {len(schema.fields)}"
    null = lower.get("nullvalue", "")
    for text, field in zip(rows[0], schema.fields, strict=True):
        if text == null:
            if not field.nullable:
                return f"field {field.name} is missing"
        elif (reason := _csv_misfit(text, field.dataType)) is not None:
            return f"field {field.name}: {_quote(text)} {reason}"
    return None


def _csv_misfit(text: str, data_type: DataType) -> str | None:
    try:
        if type(data_type) in INT_BITS:
            return None if _in_bits(int(text), INT_BITS[type(data_type)]) else _out_of_range(data_type)
        if isinstance(data_type, (FloatType, DoubleType)):
            return None if _is_finite(text, data_type) else _out_of_range(data_type)
        if isinstance(data_type, DecimalType):
            return None if _fits_decimal(Decimal(text), data_type) else _out_of_range(data_type)
    except (ValueError, InvalidOperation):
        return _is_not(data_type)
    if isinstance(data_type, BooleanType):
        return None if text.lower() in ("true", "false") else _is_not(data_type)
    if isinstance(data_type, (DateType, TimestampType, TimestampNTZType)):
        return _JSON_CHECKS[type(data_type)](text, data_type)
    return None


# --- texts ----------------------------------------------------------------------------------------------------------


def _join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is_not(data_type: DataType) -> str:
    name = {StructType: "object", MapType: "object", ArrayType: "array"}.get(type(data_type), data_type.simpleString())
    return f"is not {'an' if name[0] in 'aeiou' else 'a'} {name}"


def _out_of_range(data_type: DataType) -> str:
    return f"is out of range for {data_type.simpleString()}"


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, _FloatText)):
        return "a number"
    return "a string" if isinstance(value, str) else "an array"


def _quote(value: Any) -> str:
    text = str(value) if isinstance(value, _FloatText) else json.dumps(_plain(value), ensure_ascii=False)
    text = "".join(char if char.isprintable() else "�" for char in text)
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"


def _plain(value: Any) -> Any:
    """Return the value with nested values as "…": a reason shows only the first characters anyway."""
    if isinstance(value, Pairs):
        return {name: "…" if isinstance(each, (Pairs, list)) else each for name, each in value}
    if isinstance(value, list):
        return ["…" if isinstance(each, (Pairs, list)) else each for each in value]
    return value


def _with_noun(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
