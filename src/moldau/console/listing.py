"""Lists by the page: filter, sort and cut rows on the server. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, TypeVar

from moldau.web.failures import bad_request

SIZE_DEFAULT: Final = 50
SIZE_MAX: Final = 500
PAGE_MAX: Final = 10_000_000
LIST_PARAMETERS: Final = ("page", "size", "sort", "filter")

T = TypeVar("T")


def cell_of(row: Any, column: str) -> Any:
    return row[column]


@dataclass(frozen=True, slots=True)
class ListQuery:
    page: int
    size: int
    sort: str
    filter: str

    @property
    def column(self) -> str:
        return self.sort.removeprefix("-")

    @property
    def is_descending(self) -> bool:
        return self.sort.startswith("-")


def list_query(parameters: Mapping[str, str], columns: Sequence[str], default: str) -> ListQuery:
    """Read the parameters of a list that can be sorted by these columns."""
    query = ListQuery(
        page=whole_number(parameters, "page", 1, 1, PAGE_MAX),
        size=whole_number(parameters, "size", SIZE_DEFAULT, 1, SIZE_MAX),
        sort=parameters.get("sort") or default,
        filter=parameters.get("filter", "").strip().lower(),
    )
    if query.column not in columns:
        raise bad_request(f"sort: {query.column!r} is not a column; sort by one of {', '.join(columns)}")
    return query


def whole_number(parameters: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = parameters.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or not least <= int(text) <= most:
        raise bad_request(f"{name}: {text[:40]!r} is not a whole number from {least} to {most}")
    return int(text)


def page_of(
    rows: Sequence[T],
    query: ListQuery,
    name: str,
    cell: Callable[[T, str], Any] = cell_of,
    is_sorted_by_name: bool = False,
    filtered: Sequence[str] = (),
) -> dict[str, Any]:
    """Return one page of the rows whose `name`, or one of the `filtered` columns, contains the filter. `cell` returns
    what a row has in a column; rows that are costly to make are made for one page only, by the caller."""
    columns = filtered or (name,)
    matching: Sequence[T] = rows
    if query.filter:
        matching = [row for row in rows if any(query.filter in str(cell(row, each)).lower() for each in columns)]
    if not is_sorted_by_name:
        matching = sorted(matching, key=lambda row: cell(row, name))
    ordered = _sorted(matching, query, cell) if not is_sorted_by_name or query.sort != name else matching
    begin = (query.page - 1) * query.size
    return {
        "rows": ordered[begin : begin + query.size],
        "page": query.page,
        "size": query.size,
        "pages": -(-len(ordered) // query.size),
        "total": len(rows),
        "matching": len(ordered),
        "sort": query.sort,
    }


def _sorted(rows: Sequence[T], query: ListQuery, cell: Callable[[T, str], Any]) -> list[T]:
    """Sort rows that are in the order of their names by a column. What is unknown comes last in both directions."""
    column = query.column
    pairs = [(cell(row, column), row) for row in rows]
    known = [pair for pair in pairs if pair[0] is not None]
    known.sort(key=itemgetter(0), reverse=query.is_descending)
    return [row for _, row in known] + [row for value, row in pairs if value is None]
