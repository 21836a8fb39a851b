"""Names of columns in Spark's SQL."""

from __future__ import annotations


def quoted_name(column: str) -> str:
    """Return the name of a column as an expression: a dot in it is not one of a path."""
    return f"`{column.replace('`', '``')}`"
