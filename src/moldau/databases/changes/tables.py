"""Which columns the stream of a table has: those of the table now, and those that it had before.

A column that was dropped stays, with nulls, as its changes may still be in the log and SQL may mention it. A column
that the log has and the stream lacks fails the query as TableChanged; its next plan has the column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from moldau.databases.changes.address import Address
from moldau.databases.changes.columns import Column, spark_type
from moldau.databases.changes.errors import ChangesRefused, TableChanged
from moldau.databases.changes.pgoutput import Relation
from moldau.databases.changes.postgresql import Table, connect, read_table
from moldau.databases.changes.rows import CHANGE_COLUMNS
from moldau.databases.changes.slot_files import known_columns, remember_columns


def parse_table(text: str) -> tuple[str, str]:
    """Return schema and name of a table that is written as `orders` or `shop.orders`. Raises ValueError."""
    schema, dot, name = text.rpartition(".")
    if not name or (dot and not schema) or "\0" in text:
        raise ValueError(f"{text!r} is not a table: write orders or shop.orders")
    return schema or "public", name


def stream_columns(table: Table, known: Sequence[Column] = (), more: Iterable[Column] = ()) -> tuple[Column, ...]:
    """Return the known columns with their present types, then new ones, then `more` that nobody has."""
    now = {column.name: column for column in table.columns}
    columns = {column.name: now.get(column.name, replace(column, is_key=False)) for column in known}
    for column in (*table.columns, *more):
        columns.setdefault(column.name, column)
    return tuple(columns.values())


def declared_columns(table: Table | None, declared: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns that the user declared, with the key of the table. Raises ChangesRefused for one that it
    lacks."""
    if table is None:
        return tuple(declared)
    now = {column.name: column for column in table.columns}
    if missing := [column.name for column in declared if column.name not in now]:
        raise ChangesRefused(f"table {table.shown} has no column {missing[0]}; it has {', '.join(now)}")
    chosen = {column.name for column in declared}
    if left_out := [column.name for column in table.columns if column.is_key and column.name not in chosen]:
        raise ChangesRefused(f"table {table.shown}: the schema lacks {left_out[0]}, which is part of the key")
    return tuple(
        replace(column, type_oid=now[column.name].type_oid, is_key=now[column.name].is_key) for column in declared
    )


def check_declared(table: Table, declared: Sequence[Column]) -> None:
    """Raise ChangesRefused if the table lacks a column that the user declared, or has another key: else there would be
    nulls for ever, or records under keys of which the log says nothing."""
    now = {column.name for column in table.columns}
    if missing := [column.name for column in declared if column.name not in now]:
        raise ChangesRefused(f"table {table.shown} has no column {missing[0]}; it has {', '.join(sorted(now))}")
    key, own = ([column.name for column in columns if column.is_key] for columns in (declared, table.columns))
    if set(key) != set(own) and table.identity != "f":
        raise ChangesRefused(f"table {table.shown} has the key {', '.join(own)}, but `key` is {', '.join(key)}")


def look_up_columns(
    address: Address, table: tuple[str, str], source: Path | None, declared: Sequence[Column] = ()
) -> tuple[Column, ...]:
    """Return the columns of the stream, from the database. `source` is the directory that knows its earlier columns."""
    with closing(connect(address)) as connection:
        found = read_table(connection, address, *table)
    if declared:
        return declared_columns(found, declared)
    columns = stream_columns(found, () if source is None else known_columns(source))
    if taken := [column.name for column in columns if column.name in (*CHANGE_COLUMNS, "_key")]:
        raise ChangesRefused(
            f"table {found.shown} has a column {taken[0]}, a name that the stream uses: leave it out with `schema`"
        )
    if source is not None:
        remember_columns(source, columns)
    return columns


def is_read(
    address: Address,
    table: tuple[str, str],
    relation: Relation,
    columns: Sequence[Column] | None = None,
    source: Path | None = None,
) -> bool:
    """Return whether the relation is the table of the stream. Raises ChangesRefused if the table has another name now.
    With `columns`, raise TableChanged if the stream should have others."""
    if (relation.schema, relation.name) != table:
        with closing(connect(address)) as connection:
            if read_table(connection, address, *table).oid != relation.id:
                return False
        return True  # renamed, and renamed again
    if columns is not None and source is not None:
        _check_columns(relation, columns, address, source)
    return True


def _check_columns(relation: Relation, columns: Sequence[Column], address: Address, source: Path) -> None:
    now = {column.name: column for column in columns}
    unknown = [column for column in relation.columns if column.name not in now]
    retyped = [
        column for column in relation.columns if column.name in now and now[column.name].type_oid != column.type_oid
    ]
    if not unknown and not retyped:
        return
    with closing(connect(address)) as connection:
        found = read_table(connection, address, relation.schema, relation.name)
    more = [Column(column.name, spark_type(column.type_oid, -1), column.type_oid) for column in unknown]
    wanted = stream_columns(found, known_columns(source) or columns, more)
    if [(column.name, column.type) for column in wanted] == [(column.name, column.type) for column in columns]:
        return  # the log is from before a change of type: its texts are read as the present type
    remember_columns(source, wanted)
    names = [column.name for column in unknown] or [column.name for column in retyped]
    what = "a new column" if unknown else "another type of column"
    raise TableChanged(f"table {found.shown} has {what} {names[0]}: the query is planned again, with it")
