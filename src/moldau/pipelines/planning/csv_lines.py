"""Finds the values that are not one line of CSV. Spark's `from_csv` takes line breaks as part of a field, also those
outside of quotes, and all that follows a quote that is not closed.

Only Spark's parser knows which line breaks are in quotes. So a value with line breaks is parsed twice more: with a
separator in place of each (if it has more fields then, one of them was outside of quotes), and with one more field (if
it has no more fields then, a quote is not closed).

The parser throws for too many fields and for one that is too long, in any mode, which ends the query at that record for
good. So the options that limit it are kept from it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import ascii_letters
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

LINE_END: Final = "\uffff"
"""Ends a line for `from_csv`. The parser then takes the rest for the next record, and loses that one."""
COLUMNS_MAX: Final = 100_000
"""Limit of the separators and line breaks of a line, unless the option `maxColumns` is higher: each costs each parser
8 bytes."""
_BREAK: Final = r"\r\n|\r|\n"
_LIMITS: Final = ("maxcolumns", "maxcharspercolumn")
_NUMBER: Final = re.compile(r"\+?\d+")
_ESCAPED: Final = {r"\t": "\t", r"\r": "\r", r"\b": "\b", r"\f": "\f", r"\"": '"', r"\'": "'", r"\\": "\\"}


def parser_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with which the parser throws for no line that `parsable` returns.

    The options of all functions here are Spark's, with names in lower case.
    """
    # What is not a number is left to Spark, which says so.
    kept = {name: value for name, value in options.items() if name not in _LIMITS or _number(options, name) is None}
    # One more for the field that `is_one_line` adds.
    return {"maxcolumns": str(columns_max(options) + 1)} | kept


def columns_max(options: Mapping[str, str]) -> int:
    """Return how many separators and line breaks a line may have. The schema limits its fields further."""
    return max(_number(options, "maxcolumns") or 0, COLUMNS_MAX)


def field_length_max(options: Mapping[str, str]) -> int | None:
    """Return how many characters a field may have; None if any number."""
    return _number(options, "maxcharspercolumn")


def parsable(text: Column, options: Mapping[str, str]) -> Column:
    """Return the text without a line break at its end; null if the parser must not get it."""
    has_final_break = text.endswith("\n") | text.endswith("\r")
    line = F.when(has_final_break, F.regexp_replace(text, rf"(?:{_BREAK})\z", "")).otherwise(text)
    limit = columns_max(options)
    separators = F.regexp_count(text, F.lit(f"{re.escape(separator_of(options))}|{_BREAK}"))
    is_short = (F.octet_length(text) <= limit) | (separators <= limit)
    return F.when(~text.contains(LINE_END) & is_short, line)


def is_one_line(line: Column, fields: int, options: Mapping[str, str], corrupt: str) -> Column:
    """Return whether the line, which has so many fields, is no comment and has line breaks only in closed quotes.

    `corrupt` is the column for corrupt records that the options name.
    """
    has_break = line.contains("\n") | line.contains("\r")
    with_breaks, one_more = F.when(has_break, line), separator_of(options) + _plain_letter(options)

    def has_fields(text: Column, number: int) -> Column:
        columns = [*(f"field{each}" for each in range(number)), corrupt]
        schema = StructType([StructField(name, StringType()) for name in columns])
        return F.from_csv(text, schema.toDDL(), dict(options)).getField(corrupt).isNull()

    are_breaks_quoted = has_fields(F.regexp_replace(with_breaks, _BREAK, _literal(one_more)), fields)
    are_quotes_closed = has_fields(F.concat(with_breaks, F.lit(one_more)), fields + 1)
    is_one = F.when(has_break, are_breaks_quoted & are_quotes_closed).otherwise(line.isNotNull())
    return is_one & ~line.startswith(comment) if (comment := options.get("comment")) else is_one


def has_short_fields(line: Column, fields: int, options: Mapping[str, str]) -> Column | None:
    """Return whether no field is longer than the option `maxCharsPerColumn` allows; None without that option."""
    limit = field_length_max(options)
    if limit is None:
        return None
    schema = StructType([StructField(f"field{number}", StringType()) for number in range(fields)])
    # An array of one row: Spark parses the line once, not once for each column.
    rows = F.array(F.from_csv(line, schema.toDDL(), parser_options(options)))
    return ~F.exists(
        rows, lambda row: F.greatest(F.lit(0), *(F.length(row.getField(name)) for name in schema.names)) > limit
    )


def separator_of(options: Mapping[str, str]) -> str:
    """Return what separates fields, with Spark's escapes such as `\\t` resolved."""
    written = options.get("sep", options.get("delimiter", ","))
    return re.sub(r"\\.", lambda escape: _ESCAPED.get(escape[0], escape[0]), written)


def _plain_letter(options: Mapping[str, str]) -> str:
    """Return a letter that is in no option. Behind it a quote does not begin a quoted field."""
    return next((letter for letter in ascii_letters if not any(letter in value for value in options.values())), "x")


def _literal(replacement: str) -> str:
    return re.sub(r"([\\$])", r"\\\1", replacement)


def _number(options: Mapping[str, str], name: str) -> int | None:
    value = options.get(name, "")
    return int(value) if _NUMBER.fullmatch(value) else None
