r"""Finds the records whose decimals Spark's parsers of JSON and CSV would misread, so that they do not get them.

The parsers write out all zeros of 1e999999999, for hours, and read the text "1,5" as 15. With the option `locale` other
than en-US a comma means what it means there, and is left to Spark.

Only values of decimal columns matter. In JSON they may be in arrays, maps and duplicate names, and their texts may have
escapes ("1\u002c5"): only a parser knows them all. So the few records with such a number or text anywhere are parsed
twice. The first time, a text that is no number takes the place of each, and only the decimal columns are read: if that
fails, the record is bad. Of CSV the first parse reads all columns as strings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StringType, StructField, StructType

_BLANKS: Final = r"[ \t\r\n]*+"
_DIGIT: Final = r"(?:\\?\p{Nd}|\\u[0-9a-fA-F]{4})"
_EXPONENT: Final = rf"(?:\\?[eE]|\\u00[46]5)(?:\\?[+-]|\\u002[bBdD])?+{_DIGIT}{{4}}"
_LONG_EXPONENT: Final = rf"(?:{_EXPONENT})"
_COMMA_OR_LONG_EXPONENT: Final = rf"(?:\\?,|\\u002[cC]|{_EXPONENT})"
_NUMBER_CHAR: Final = r"(?:\\?[-+.,eE\p{Nd}]|\\u[0-9a-fA-F]{4})"
_NUMBER: Final = r"-?[0-9][0-9.]*+[eE][+-]?[0-9]{4}[0-9]*+"
_TOKEN: Final = (
    r"""(?:"(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+'|[-0-9][-+.0-9eE]*+"""
    r"""|/\*(?:[^*]++|\*(?!/))*+\*/|//[^\r\n]*+|[^"'/0-9-])"""
)
REPLACEMENT: Final = '$1"x"'
_CSV_EXPONENT: Final = r"[eE][+-]?+\p{Nd}{4}"
_CSV_COMMA: Final = r"(?m)^(?![+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?$)[^\n]*,"
"""A comma in a line that is not 1,234,567.89."""


class Patterns(NamedTuple):
    """The patterns are Java's; `*+` and `++` need no stack, unlike `*`."""

    found: str
    """Finds the JSON texts that may have such a value, and some without: ':"1,5"' may also be inside of a text."""
    replaced: str
    """Each match is one such value after other tokens."""
    csv_field: str
    """Finds such a value in a field of CSV."""


def _patterns(misread: str, csv_field: str) -> Patterns:
    content = f"(?:(?!{misread}){_NUMBER_CHAR})*+{misread}{_NUMBER_CHAR}*+"
    text = f"""(?:"{content}"|'{content}')(?!{_BLANKS}:)"""
    suspect_value = f"(?:{text}|{_NUMBER})"
    return Patterns(
        rf"[:,\[]{_BLANKS}{suspect_value}",
        rf"(?s)\G((?:(?!{suspect_value}){_TOKEN})*+){suspect_value}",
        csv_field,
    )


PATTERNS: Final = _patterns(_COMMA_OR_LONG_EXPONENT, f"{_CSV_COMMA}|{_CSV_EXPONENT}")
PATTERNS_OF_OTHER_LOCALES: Final = _patterns(_LONG_EXPONENT, _CSV_EXPONENT)


def patterns_for(options: Mapping[str, str]) -> Patterns:
    """Return the patterns for Spark's options; their names are in lower case."""
    return PATTERNS if options.get("locale", "en-US").lower() == "en-us" else PATTERNS_OF_OTHER_LOCALES


def may_be_misread(text: Column, options: Mapping[str, str]) -> Column:
    """Return a condition for JSON texts that must be parsed twice."""
    # A comment may be between a value and what is before it.
    are_comments_allowed = options.get("allowcomments", "").lower() == "true"
    return text.isNotNull() if are_comments_allowed else text.rlike(patterns_for(options).found)


def without_misread(text: Column, options: Mapping[str, str]) -> Column:
    """Return the JSON text with a text that is no number for each value that may be misread."""
    return F.regexp_replace(text, patterns_for(options).replaced, REPLACEMENT)


def is_misread_csv(text: Column, schema: StructType, options: Mapping[str, str]) -> Column | None:
    """Return a condition for lines of CSV that have such a value in a decimal column; None without such columns."""
    decimals = [field.name for field in schema.fields if isinstance(field.dataType, DecimalType)]
    if not decimals:
        return None
    as_strings = StructType([StructField(name, StringType()) for name in schema.names])
    # An array of one row: Spark parses the line once, not once for each column.
    rows = F.array(F.from_csv(text, as_strings.toDDL(), dict(options)))
    pattern = patterns_for(options).csv_field
    is_misread = F.exists(
        rows, lambda row: F.concat_ws("\n", *(row.getField(name) for name in decimals)).rlike(pattern)
    )
    if {"sep", "delimiter", "quote"} & options.keys():
        return is_misread
    # With the usual separator, a field has a comma only in quotes.
    return text.rlike(f'"|{_CSV_EXPONENT}') & is_misread


def decimals_only(schema: StructType) -> StructType | None:
    """Return the schema with only its decimals, at any depth; None if it has none."""
    decimals = _decimals_only(schema)
    assert decimals is None or isinstance(decimals, StructType)
    return decimals


def _decimals_only(data_type: DataType) -> DataType | None:
    if isinstance(data_type, StructType):
        parts = [(field.name, _decimals_only(field.dataType)) for field in data_type.fields]
        fields = [StructField(name, part) for name, part in parts if part is not None]
        return StructType(fields) if fields else None
    if isinstance(data_type, ArrayType):
        element = _decimals_only(data_type.elementType)
        return None if element is None else ArrayType(element)
    if isinstance(data_type, MapType):
        value = _decimals_only(data_type.valueType)
        return None if value is None else MapType(data_type.keyType, value)
    return data_type if isinstance(data_type, DecimalType) else None
