"""Finds the values that are not one line of CSV. Spark's `from_csv` takes line breaks as part of a field, also those
outside of quotes.

Only Spark's parser knows which line breaks are in quotes. So a value with line breaks is parsed a second time, with a
separator in place of each: if it has more fields then, one of them was outside of quotes.
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
_BREAK: Final = r"\r\n|\r|\n"
_ESCAPED: Final = {r"\t": "\t", r"\r": "\r", r"\b": "\b", r"\f": "\f", r"\"": '"', r"\'": "'", r"\\": "\\"}


def parsable(text: Column) -> Column:
    """Return the text without a line break at its end; null if the parser must not get it."""
    has_final_break = text.endswith("\n") | text.endswith("\r")
    line = F.when(has_final_break, F.regexp_replace(text, rf"(?:{_BREAK})\z", "")).otherwise(text)
    return F.when(~text.contains(LINE_END), line)


def is_one_line(line: Column, fields: int, options: Mapping[str, str], corrupt: str) -> Column:
    """Return whether the line, which has so many fields, has its line breaks only in quotes.

    `options` are Spark's, with names in lower case; `corrupt` is the column for corrupt records that they name.
    """
    columns = [*(f"field{number}" for number in range(fields)), corrupt]
    schema = StructType([StructField(name, StringType()) for name in columns])
    separated = F.regexp_replace(line, _BREAK, _literal(_separator(options) + _plain_letter(options)))
    are_breaks_quoted = F.from_csv(separated, schema.toDDL(), dict(options)).getField(corrupt).isNull()
    if comment := options.get("comment"):
        are_breaks_quoted &= ~line.startswith(comment)
    return F.when(line.contains("\n") | line.contains("\r"), are_breaks_quoted).otherwise(line.isNotNull())


def _separator(options: Mapping[str, str]) -> str:
    """Return what separates fields, with Spark's escapes such as `\\t` resolved."""
    written = options.get("sep", options.get("delimiter", ","))
    return re.sub(r"\\.", lambda escape: _ESCAPED.get(escape[0], escape[0]), written)


def _plain_letter(options: Mapping[str, str]) -> str:
    """Return a letter that is in no option. Behind it a quote does not begin a quoted field."""
    return next((letter for letter in ascii_letters if not any(letter in value for value in options.values())), "x")


def _literal(replacement: str) -> str:
    return re.sub(r"([\\$])", r"\\\1", replacement)
