"""Explains in one line why a record is bad. Only records that Spark's parsers refused come here.

Spark decides (formats.py); this module parses a refused value again, slowly and precisely, to describe what is wrong.
If it finds nothing wrong, the reason is GENERAL. This is plain Python that runs in Spark's Python workers.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import cache
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
FLOAT_END: Final = 3.4028235677973366e38
"""The smallest number that does not round to a single-precision number."""
TIMESTAMP_SECONDS_MIN: Final = -62_135_596_800
"""The start of the year 1, in seconds since 1970."""
TIMESTAMP_SECONDS_END: Final = 253_402_300_800
"""The start of the year 10000, in seconds since 1970; a timestamp must be before it."""
NEUTRAL_OPTIONS: Final = frozenset({"mode", "columnnameofcorruptrecord", "timezone"})
"""Options of Spark's parsers, in lower case, that do not change which values fit."""
FORMAT_OPTIONS: Final[Mapping[str, type[DataType]]] = {
    "dateformat": DateType,
    "timestampformat": TimestampType,
    "timestampntzformat": TimestampNTZType,
}
"""Options that set the format of a type. Values of the type are then not checked here."""
_DECIMALS: Final = Context(prec=2 * 38)
"""Python's default of 28 digits is too few: Spark's decimals have up to 38, and rounding may add one."""
_LONG_EXPONENT: Final = re.compile(r"[eE][+-]?\d{4}")
_DATE: Final = re.compile(r"\s*[+-]?\d{4,7}(-\d{1,2}(-\d{1,2}([T ].*)?)?)?\s*", re.DOTALL)
_CLOCK: Final = r"\d{1,2}:\d{1,2}(:\d{1,2}(\.\d*)?)?\s*(Z|[A-Za-z_/]+|([A-Z]{2,3})?[+-]\d{1,2}(:?\d{1,2}){0,2})?"
_TIME: Final = re.compile(rf"\s*([+-]?\d{{4,7}}(-\d{{1,2}}(-\d{{1,2}}([T ]({_CLOCK})?)?)?)?|T?{_CLOCK})\s*")


log = logging.getLogger(__name__)
Checks = Mapping[type[DataType], Callable[[Any, DataType], str | None]]
"""For each type a function that says why a value does not fit."""


class Pairs(list[tuple[str, Any]]):
    """A JSON object with duplicate names, because Spark converts every occurrence of a name."""


def reason_or_general(reason_of: Callable[[bytes], str | None], value: bytes) -> str:
    """Return the reason for a bad value, or GENERAL. It never raises: a bad record must not end the query."""
    try:
        reason = reason_of(value) or GENERAL
        reason.encode()
    except Exception as error:
        _log_once(type(error).__name__)
        return GENERAL
    return reason


@cache
def _log_once(kind: str) -> None:
    """Log the error that is being handled, unless one of its kind was logged before."""
    log.exception("the reason for a bad record was not found because of %s", kind)


def tombstone_rejection(not_null: str | None) -> str:
    """Return why a null value is bad; `not_null` is a column that must have a value."""
    return "the value is null" if not_null is None else f"the value is null (a tombstone), and {not_null} is NOT NULL"


def utf8_rejection(value: bytes) -> str | None:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"not UTF-8: byte 0x{value[error.start]:02x} at position {error.start}"
    return None


# --- JSON -----------------------------------------------------------------------------------------------------------


def json_rejection(value: bytes, schema: StructType, options: Mapping[str, str]) -> str | None:
    """Return why a JSON text is not a row of the schema, or None if nothing is found."""
    if not value:
        return EMPTY
    if reason := utf8_rejection(value):
        return reason
    if not _is_strict_json(options):
        return None
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
    return next(_object_mismatches(content, schema, "", scalar_checks(options)), None)


def _is_strict_json(options: Mapping[str, str]) -> bool:
    """Whether Spark's parser reads JSON by these options as json.loads does."""
    set_options = {name.lower() for name, value in options.items() if value.lower() != "false"}
    return set_options <= NEUTRAL_OPTIONS | set(FORMAT_OPTIONS)


class _FloatText(str):
    """A number with a point or an exponent, as text: int columns refuse it, and decimals need all its digits."""


def _float_text(text: str) -> _FloatText:
    return _FloatText(text)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _object_mismatches(pairs: Pairs, schema: StructType, path: str, checks: Checks) -> Iterator[str]:
    types = {field.name: field.dataType for field in schema.fields}
    for name, value in pairs:
        if name in types and value is not None:
            yield from _json_mismatches(value, types[name], _join_path(path, name), checks)
    last = dict(pairs)
    for field in schema.fields:
        if not field.nullable and last.get(field.name) is None:
            yield f"field {_join_path(path, field.name)} is {'null' if field.name in last else 'missing'}"


def _json_mismatches(value: Any, data_type: DataType, path: str, checks: Checks) -> Iterator[str]:
    """Yield the reasons why a value does not fit its type, if any; `value` is not None."""
    if isinstance(data_type, StructType) and isinstance(value, Pairs):
        yield from _object_mismatches(value, data_type, path, checks)
    elif isinstance(data_type, ArrayType) and type(value) is list:
        for index, element in enumerate(value):
            if element is not None:
                yield from _json_mismatches(element, data_type.elementType, f"{path}[{index}]", checks)
    elif isinstance(data_type, MapType) and isinstance(value, Pairs):
        for name, each in value:
            if each is not None:
                yield from _json_mismatches(each, data_type.valueType, f"{path}[{quote(name)}]", checks)
    elif (reason := _json_scalar_mismatch(value, data_type, checks)) is not None:
        yield f"field {path}: {quote(value)} {reason}"


def _json_scalar_mismatch(value: Any, data_type: DataType, checks: Checks) -> str | None:
    if isinstance(data_type, (StructType, ArrayType, MapType)):
        return is_not(data_type)
    check = checks.get(type(data_type))
    return None if check is None else check(value, data_type)


def _integer(value: Any, data_type: DataType) -> str | None:
    if type(value) is not int:
        return is_not(data_type)
    return None if in_bits(value, INT_BITS[type(data_type)]) else out_of_range(data_type)


def in_bits(number: int, bits: int) -> bool:
    return -(1 << (bits - 1)) <= number < 1 << (bits - 1)


def _floating(value: Any, data_type: DataType) -> str | None:
    if type(value) is not int and not isinstance(value, _FloatText):
        return is_not(data_type)
    return None if is_finite(str(value), data_type) else out_of_range(data_type)


def is_finite(text: str, data_type: DataType) -> bool:
    """Whether the number, or NaN, is in the range of the type."""
    end = FLOAT_END if isinstance(data_type, FloatType) else float("inf")
    return not abs(float(text)) >= end


def _boolean(value: Any, data_type: DataType) -> str | None:
    return None if isinstance(value, bool) else is_not(data_type)


def _decimal(value: Any, data_type: DataType) -> str | None:
    assert isinstance(data_type, DecimalType)
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return is_not(data_type)
    try:
        number = Decimal(value if isinstance(value, int) else str(value))
    except InvalidOperation:
        return is_not(data_type)
    if not fits_decimal(number, data_type):
        return out_of_range(data_type)
    # Spark does not get to see these (misread_decimals.py).
    return "has an exponent of more than three digits" if _LONG_EXPONENT.search(str(value)) else None


def fits_decimal(number: Decimal, data_type: DecimalType) -> bool:
    if not number.is_finite() or number.adjusted() >= data_type.precision - data_type.scale:
        return False
    rounded = number.quantize(Decimal(1).scaleb(-data_type.scale), ROUND_HALF_UP, _DECIMALS)
    return rounded.is_zero() or rounded.adjusted() < data_type.precision - data_type.scale


def _timestamp(value: Any, data_type: DataType) -> str | None:
    if type(value) is int and isinstance(data_type, TimestampType):
        if TIMESTAMP_SECONDS_MIN <= value < TIMESTAMP_SECONDS_END:
            return None
        return "is not in the years 1 to 9999 (a number is read as seconds since 1970)"
    return None if _is_text(value) and _TIME.fullmatch(value) else is_not(data_type)


def _date(value: Any, data_type: DataType) -> str | None:
    return None if _is_text(value) and _DATE.fullmatch(value) else is_not(data_type)


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


_CHECKS: Final[Checks] = {
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


def scalar_checks(options: Mapping[str, str]) -> Checks:
    """Return the checks of all types but those whose format the options set."""
    formatted = {FORMAT_OPTIONS.get(name.lower()) for name in options}
    return {data_type: check for data_type, check in _CHECKS.items() if data_type not in formatted}


# --- texts ----------------------------------------------------------------------------------------------------------


def _join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def is_not(data_type: DataType) -> str:
    name = {StructType: "object", MapType: "object", ArrayType: "array"}.get(type(data_type), data_type.simpleString())
    return f"is not {'an' if name[0] in 'aeiou' else 'a'} {name}"


def out_of_range(data_type: DataType) -> str:
    return f"is out of range for {data_type.simpleString()}"


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, _FloatText)):
        return "a number"
    return "a string" if isinstance(value, str) else "an array"


def quote(value: Any) -> str:
    text = str(value) if isinstance(value, _FloatText) else json.dumps(_plain(value), ensure_ascii=False)
    shown = text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"
    return "".join(char if char.isprintable() else "�" for char in shown)


def _plain(value: Any) -> Any:
    """Return the value with nested values as "…": a reason shows only the first characters anyway."""
    if isinstance(value, Pairs):
        return {name: "…" if isinstance(each, (Pairs, list)) else each for name, each in value}
    if isinstance(value, list):
        return ["…" if isinstance(each, (Pairs, list)) else each for each in value]
    return value
