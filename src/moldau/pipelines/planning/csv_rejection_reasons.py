"""Explains in one line why a line of CSV is bad, as rejection_reasons.py does for JSON.

The csv module cannot read all that Spark reads: it takes one character as the separator, escapes outside of quotes too,
and limits the length of a field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final

from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    NumericType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from moldau.pipelines.planning.csv_lines import LINE_END, columns_max, field_length_max, separator_of
from moldau.pipelines.planning.rejection_reasons import (
    EMPTY,
    FORMAT_OPTIONS,
    INT_BITS,
    NEUTRAL_OPTIONS,
    Checks,
    fits_decimal,
    in_bits,
    is_finite,
    is_not,
    out_of_range,
    quote,
    scalar_checks,
    utf8_rejection,
)

KNOWN_OPTIONS: Final = (
    NEUTRAL_OPTIONS
    | frozenset(FORMAT_OPTIONS)
    | {"sep", "delimiter", "quote", "escape", "nullvalue", "comment", "maxcolumns", "maxcharspercolumn"}
)
"""With any other option no reason is given, because it may change what Spark reads."""
_LINE_BREAK: Final = re.compile(r"\r\n|\r|\n")


def csv_rejection(value: bytes, schema: StructType, options: Mapping[str, str]) -> str | None:
    """Return why a line of CSV is not a row of the schema, or None if nothing is found."""
    if not value.strip():
        return EMPTY
    if reason := utf8_rejection(value):
        return reason
    text, lower = value.decode(), {name.lower(): option for name, option in options.items()}
    if reason := _not_parsed(text, lower):
        return reason
    syntax = _syntax(lower)
    lines = None if syntax is None else syntax.split(text)
    if syntax is None or lines is None:
        return None
    if len(lines) > 1:
        return f"{len(lines)} lines; a record is one line of CSV"
    if len(lines[0]) != len(schema.fields):
        return f"{_with_noun(len(lines[0]), 'field')}, and the schema has {len(schema.fields)}"
    return _mismatch_of_fields(lines[0], schema, lower) or syntax.doubled_quote(lines[0])


def _not_parsed(text: str, options: Mapping[str, str]) -> str | None:
    """Return why Spark's parser does not get the text, or makes nothing of it."""
    if LINE_END in text:
        return "the character U+FFFF, which Spark cannot read"
    if (comment := options.get("comment")) and text.startswith(comment):
        return "a comment; each record is to be a row"
    limit = columns_max(options)
    if len(text) > limit:
        separators = len(re.findall(rf"{re.escape(separator_of(options))}|{_LINE_BREAK.pattern}", text))
        if separators > limit:
            return f"{separators} separators and line breaks; the option maxColumns allows {limit}"
    return None


def _mismatch_of_fields(texts: Sequence[str], schema: StructType, options: Mapping[str, str]) -> str | None:
    null, checks, length_max = options.get("nullvalue", ""), scalar_checks(options), field_length_max(options)
    for text, field in zip(texts, schema.fields, strict=True):
        if length_max is not None and len(text) > length_max:
            return f"field {field.name} has {len(text)} characters; the option maxCharsPerColumn allows {length_max}"
        if text == null:
            if not field.nullable:
                return f"field {field.name} is missing"
        elif (reason := _mismatch(text, field.dataType, checks)) is not None:
            return f"field {field.name}: {quote(text)} {reason}"
    return None


def _syntax(options: Mapping[str, str]) -> _Syntax | None:
    """Return how Spark splits a line by these options; None if it is not known."""
    separator = options.get("sep", options.get("delimiter", ","))
    separator = "\t" if separator == r"\t" else separator
    quote_char, escape = options.get("quote", '"'), options.get("escape", "\\")
    if not options.keys() <= KNOWN_OPTIONS or not separator or "\\" in separator:
        return None
    if len(quote_char) > 1 or len(escape) > 1:
        return None
    return _Syntax(separator, quote_char, "" if escape == quote_char else escape)


@dataclass(frozen=True, slots=True)
class _Syntax:
    separator: str
    quote: str
    """Empty if there are no quotes."""
    escape: str
    """Inside of quotes, this before a quote stands for the quote, as a doubled quote does. Empty if only the latter."""

    def split(self, text: str) -> list[list[str]] | None:
        """Return the fields of each line; None if a quote is not closed at the end of its field."""
        unquoted = re.compile(rf"(?:(?!{re.escape(self.separator)})[^\r\n])*+")
        quoted = self._quoted() if self.quote else None
        lines: list[list[str]] = [[]]
        position = 0
        while True:
            if quoted is not None and text.startswith(self.quote, position):
                field = quoted.match(text, position)
                if field is None:
                    return None
                lines[-1].append(field[1])
            else:
                field = unquoted.match(text, position)
                assert field is not None, "it matches the empty text"
                lines[-1].append(field[0])
            position = field.end()
            if text.startswith(self.separator, position):
                position += len(self.separator)
                continue
            if (line_break := _LINE_BREAK.match(text, position)) is not None:
                position = line_break.end()
            if position == len(text):
                return lines
            lines.append([])

    def doubled_quote(self, fields: Sequence[str]) -> str | None:
        """Return the reason if a field has a doubled quote at which Spark would end it."""
        if not self.quote or not self.escape:
            return None
        pattern = re.compile(rf"{re.escape(self.quote * 2)}(?:{re.escape(self.separator)}|[\r\n])")
        if not any(pattern.search(field) for field in fields):
            return None
        return f"a doubled quote inside of quotes; set the option escape to {self.quote}"

    def _quoted(self) -> re.Pattern[str]:
        separator, quote_char, escape = re.escape(self.separator), re.escape(self.quote), re.escape(self.escape)
        escaped = rf"{escape}.|" if escape else ""
        content = rf"(?:{escaped}{quote_char}{quote_char}|[^{quote_char}{escape}])*+"
        return re.compile(rf"{quote_char}({content}){quote_char}(?={separator}|[\r\n]|\Z)", re.DOTALL)


def _mismatch(text: str, data_type: DataType, checks: Checks) -> str | None:
    """Return why Spark does not read the text as this type, or None if it does."""
    if isinstance(data_type, NumericType) and _is_number_only_in_python(text, data_type):
        return is_not(data_type)
    try:
        if type(data_type) in INT_BITS:
            return None if in_bits(int(text), INT_BITS[type(data_type)]) else out_of_range(data_type)
        if isinstance(data_type, (FloatType, DoubleType)):
            return None if is_finite(text, data_type) else out_of_range(data_type)
        if isinstance(data_type, DecimalType):
            return None if fits_decimal(Decimal(text), data_type) else out_of_range(data_type)
    except (ValueError, InvalidOperation):
        return is_not(data_type)
    if isinstance(data_type, BooleanType):
        return None if text.lower() in ("true", "false") else is_not(data_type)
    if isinstance(data_type, (DateType, TimestampType, TimestampNTZType)):
        check = checks.get(type(data_type))
        return None if check is None else check(text, data_type)
    return None


def _is_number_only_in_python(text: str, data_type: NumericType) -> bool:
    """Python reads 1_000, which Java does not, and ignores blanks around numbers, which Java does only for floats and
    doubles."""
    return "_" in text or (not isinstance(data_type, (FloatType, DoubleType)) and text != text.strip())


def _with_noun(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
