"""Finds the columns in DDL such as `id string not null, tags array<int>`: their names, and where each begins.

This needs no Spark, which checks the DDL later. A text that is not plainly a list of columns has none here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`|[^'"`<>(),]+|.""", re.DOTALL)
_COLUMN: Final = re.compile(r"\s*(`(?:[^`]|``)*`|\w+)\s*(?::|\s)\s*\w", re.ASCII)


class DdlColumn(NamedTuple):
    name: str
    offset: int
    """The index of the name's first character in the DDL."""


def ddl_columns(ddl: str) -> list[DdlColumn]:
    """Return the columns in the order of the DDL; none if it is not plainly a list of columns."""
    columns = []
    for start, text in _parts(ddl):
        match = _COLUMN.match(text)
        if match is None:
            return []
        name = match[1]
        is_quoted = name.startswith("`")
        columns.append(DdlColumn(name[1:-1].replace("``", "`") if is_quoted else name, start + match.start(1)))
    return columns


def _parts(ddl: str) -> Iterator[tuple[int, str]]:
    """Yield the parts between the commas that are in no brackets and no quotes, each with its offset."""
    depth, start = 0, 0
    for token in _TOKEN.finditer(ddl):
        if token[0] in "<(":
            depth += 1
        elif token[0] in ">)":
            depth -= 1
        elif token[0] == "," and depth == 0:
            yield start, ddl[start : token.start()]
            start = token.end()
    yield start, ddl[start:]
