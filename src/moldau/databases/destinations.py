"""What a sink says about its table, and what follows for the columns of the table. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import pyarrow as pa

from moldau.databases.columns import Column, TableColumn, columns_of
from moldau.databases.dialects import DIALECTS, Dialect
from moldau.databases.errors import DatabaseRefused
from moldau.databases.sql import DELETED, MARK, NAME_LENGTH_MAX, VALID_FROM, VALID_TO, Merge, TableName
from moldau.databases.urls import DatabaseUrl

Mode = Literal["append", "upsert", "history"]
_UTC: Final = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    url: DatabaseUrl
    table: TableName
    mode: Mode = "append"
    keys: tuple[str, ...] = ()
    delete_column: str | None = None
    """The boolean column of the rows that is true where a row deletes its key. It is not stored."""
    order_by: str | None = None
    """In upsert: a row is ignored if the table's row has a larger value in this column. In history: when a version
    begins."""
    json_columns: tuple[str, ...] = ()
    add_columns: bool = False

    @property
    def shown(self) -> str:
        return f"{self.url.shown}, table {self.table}"

    @property
    def dialect(self) -> Dialect:
        return DIALECTS[self.url.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the columns of the rows are stored."""

    columns: tuple[Column, ...]
    """Those of the table that a write fills, with the names in the rows."""
    keys: tuple[str, ...]
    """Those that identify a row of the table, of the names in the rows."""
    order_by: str | None
    delete_column: str | None
    is_history: bool

    @property
    def marks(self) -> bool:
        """Whether some rows delete instead of being stored. A history stores deletions, as versions."""
        return self.delete_column is not None and not self.is_history

    def part(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the columns to send: those of the table, and MARK last if `marks`."""
        arrays = []
        for column in self.columns:
            source: str | None = column.name
            if self.is_history and source == VALID_FROM:
                source = self.order_by
            elif self.is_history and source == DELETED:
                source = self.delete_column
            array = rows.column(source)
            arrays.append(array.cast(_UTC) if column.family == "time zone" else array)
        if self.is_history and self.delete_column is not None:
            arrays[-1] = arrays[-1].fill_null(False)
        names = [column.name for column in self.columns]
        if self.marks:
            arrays.append(rows.column(self.delete_column).fill_null(False))
            names.append(MARK)
        return pa.RecordBatch.from_arrays(arrays, names)


def layout_of(destination: Destination, schema: pa.Schema) -> Layout:
    """Raises DatabaseRefused for rows that cannot be stored in this way."""
    columns = columns_of(schema, destination.json_columns)
    if problem := columns_problem(destination, columns):
        raise DatabaseRefused(f"{destination.shown}: {problem}")
    stored = [column for column in columns if column.name != destination.delete_column]
    keys, is_history = destination.keys, destination.mode == "history"
    if is_history:
        begins = next(column for column in columns if column.name == destination.order_by)
        stored.append(replace(begins, name=VALID_FROM))
        keys = (*keys, VALID_FROM)
        if destination.delete_column is not None:
            stored.append(Column(DELETED, pa.bool_()))
    return Layout(
        columns=tuple(stored), keys=keys if destination.mode != "append" else (), order_by=destination.order_by,
        delete_column=destination.delete_column, is_history=is_history,
    )  # fmt: skip


def columns_problem(destination: Destination, columns: Sequence[Column]) -> str | None:
    """Return why rows with these columns cannot be stored; None if they can."""
    by_name = {column.name: column for column in columns}
    folded = [name.casefold() for name in by_name]
    if doubled := [name for name in by_name if folded.count(name.casefold()) > 1]:
        return f"columns {' and '.join(doubled)} differ only in case"
    for column in columns:
        if column.family is None:
            return f"column {column.name} is {column.type}, for which databases have no type: cast it in SQL"
        if len(column.name.encode()) > NAME_LENGTH_MAX:
            return f"the name of column {column.name} has more than {NAME_LENGTH_MAX} bytes"
    if destination.mode == "append":
        return None
    if not destination.keys:
        return f"mode {destination.mode} needs keys, the columns that identify a row"
    roles = [(key, "a key") for key in destination.keys]
    if destination.order_by is not None:
        roles.append((destination.order_by, "order_by"))
    for name, role in roles:
        if name not in by_name or name == destination.delete_column:
            return f"the rows have no column {name}, which is to be {role}"
        if by_name[name].family == "json":
            return f"column {name} has several parts, and {role} must be a single value"
    if destination.order_by is not None and by_name[destination.order_by].family not in destination.dialect.can_order:
        family = by_name[destination.order_by].family
        return f"{destination.url.kind} cannot order by {destination.order_by}, as it stores {family} values as text"
    return _history_problem(destination, folded) if destination.mode == "history" else None


def _history_problem(destination: Destination, folded: Sequence[str]) -> str | None:
    if destination.order_by is None:
        return "mode history needs options: {order_by: column}, which says when each version of a row began"
    own = (VALID_FROM, VALID_TO, *([DELETED] if destination.delete_column else []))
    taken = [name for name in own if name in folded]
    return f"mode history itself makes column {taken[0]}: rename that of the rows" if taken else None


# --- the table as it is -----------------------------------------------------------------------------------------------


def new_table(layout: Layout, dialect: Dialect) -> list[tuple[str, str]]:
    """Return the columns of a table that is created, with their types."""
    columns = [(column.name, dialect.sql_type(column, column.name in layout.keys)) for column in layout.columns]
    if layout.is_history:
        begins = next(column for column in layout.columns if column.name == VALID_FROM)
        columns.append((VALID_TO, dialect.sql_type(begins, is_key=True)))
    return columns


def matching(column: str, existing: Sequence[TableColumn]) -> TableColumn | None:
    """Return the table's column of this name, or else the only one that differs in case."""
    exact = [each for each in existing if each.name == column]
    similar = [each for each in existing if each.name.casefold() == column.casefold()]
    found = exact or (similar if len(similar) == 1 else [])
    return found[0] if found else None


def missing_columns(layout: Layout, existing: Sequence[TableColumn]) -> list[Column]:
    return [column for column in layout.columns if matching(column.name, existing) is None]


def table_problem(
    destination: Destination, layout: Layout, existing: Sequence[TableColumn], unique: Sequence[frozenset[str]]
) -> str | None:
    """Return why the rows do not fit an existing table; None if they do, perhaps with new columns."""
    missing = missing_columns(layout, existing)
    if missing and not destination.add_columns:
        names = ", ".join(f"{column.name} {destination.dialect.sql_type(column)}" for column in missing)
        return f"the table has no column {names}: add it, leave it out in SQL, or set options: {{add_columns: true}}"
    if any(column.name in layout.keys for column in missing):
        return (
            f"the table has no column {next(each.name for each in missing if each.name in layout.keys)}, which is a key"
        )
    for column in layout.columns:
        found = matching(column.name, existing)
        if found is not None and not destination.dialect.fits(column, found.type):
            wanted = destination.dialect.sql_type(column)
            return f"column {found.name} is {found.type}, which cannot hold the view's {wanted} unchanged: cast it"
    filled = {found.name for column in layout.columns if (found := matching(column.name, existing))}
    if layout.is_history and matching(VALID_TO, existing) is None:
        return f"the table has no column {VALID_TO}, so it is not a history"
    for each in existing:
        if each.is_required and not each.has_default and each.name not in filled:
            return f"column {each.name} is NOT NULL and has no default, and the view has no such column"
    if layout.keys:
        keys = frozenset(found.name for key in layout.keys if (found := matching(key, existing)))
        for key in layout.keys:
            found = matching(key, existing)
            if found is not None and found.joins is not None:
                return (
                    f"column {found.name}, a key, is {found.joins}, which takes different texts for the same, so rows"
                    " would be lost: give it a type and collation that compare all characters"
                )
        if keys not in unique:
            return f"the table has no primary key or unique index on exactly {', '.join(sorted(keys))}, the keys"
        others = [each for each in unique if each != keys and each <= filled]
        if destination.url.kind == "mysql" and others:
            names = ", ".join(sorted(others[0]))
            return f"the table has another unique index, on {names}: MySQL would update the rows that it finds by that"
    return None


def merge_of(destination: Destination, layout: Layout, existing: Sequence[TableColumn]) -> Merge:
    """Return the merge with the names of the table."""
    names = {column.name: _found(column.name, existing) for column in layout.columns}
    by_name = {column.name: column for column in layout.columns}
    order_by = VALID_FROM if layout.is_history else layout.order_by
    return Merge(
        table=destination.table,
        columns=tuple(names[column.name] for column in layout.columns),
        keys=tuple(names[key] for key in layout.keys),
        order_by=None if layout.is_history or order_by is None else names[order_by],
        collation=destination.dialect.comparison(by_name[order_by]) if order_by else "",
        deletes=layout.marks,
    )


def _found(name: str, existing: Sequence[TableColumn]) -> str:
    found = matching(name, existing)
    assert found is not None, "the table is checked before"
    return found.name
