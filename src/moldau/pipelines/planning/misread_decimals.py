r"""Keeps JSON texts from Spark's parser whose decimals it would misread.

The parser writes out all zeros of 1e999999999, for hours, and reads the text "1,5" as 15. Only values of decimal
columns matter, but they may be in arrays, maps and duplicate names, and their texts may have escapes ("1\u002c5"): only
a parser knows them all. So the few records with such a number or text anywhere are parsed twice. The first time, a text
that is no number takes the place of each, and only the decimal columns are read: if that fails, the record is bad.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructField, StructType

_BLANKS: Final = r"[ \t\r\n]*+"
_DIGIT: Final = r"(?:\\?\p{Nd}|\\u[0-9a-fA-F]{4})"
_EXPONENT: Final = rf"(?:\\?[eE]|\\u00[46]5)(?:\\?[+-]|\\u002[bBdD])?+{_DIGIT}{{4}}"
_MISREAD: Final = rf"(?:\\?,|\\u002[cC]|{_EXPONENT})"
_NUMBER_CHAR: Final = r"(?:\\?[-+.,eE\p{Nd}]|\\u[0-9a-fA-F]{4})"
_CONTENT: Final = f"(?:(?!{_MISREAD}){_NUMBER_CHAR})*+{_MISREAD}{_NUMBER_CHAR}*+"
_TEXT: Final = f"""(?:"{_CONTENT}"|'{_CONTENT}')(?!{_BLANKS}:)"""
_NUMBER: Final = r"-?[0-9][0-9.]*+[eE][+-]?[0-9]{4}[0-9]*+"
_EITHER: Final = f"(?:{_TEXT}|{_NUMBER})"
_TOKEN: Final = (
    r"""(?:"(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+'|[-0-9][-+.0-9eE]*+"""
    r"""|/\*(?:[^*]++|\*(?!/))*+\*/|//[^\r\n]*+|[^"'/0-9-])"""
)
MISREAD_DECIMALS_PATTERN: Final = rf"[:,\[]{_BLANKS}{_EITHER}"
"""Finds the texts that may have such a value, and some without: ':"1,5"' may also be inside of a text."""
REPLACED_PATTERN: Final = rf"(?s)\G((?:(?!{_EITHER}){_TOKEN})*+){_EITHER}"
"""Each match is one such value after other tokens. The patterns are Java's; `*+` and `++` need no stack, unlike `*`."""
REPLACEMENT: Final = '$1"x"'


def may_be_misread(text: Column, are_comments_allowed: bool) -> Column:
    """Return a condition for texts that must be parsed twice."""
    # A comment may be between a value and what is before it.
    return text.isNotNull() if are_comments_allowed else text.rlike(MISREAD_DECIMALS_PATTERN)


def without_misread(text: Column) -> Column:
    """Return the JSON text with a text that is no number for each value that may be misread."""
    return F.regexp_replace(text, REPLACED_PATTERN, REPLACEMENT)


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
