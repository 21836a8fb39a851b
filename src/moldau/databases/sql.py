"""The statements of a write as text. Pure: nothing is executed here.

`?` stands for a parameter in all of them; `format_style` replaces it for drivers that want %s. All dialects understand
names in double quotes; MySQL does because its sessions run with ANSI_QUOTES.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

BATCHES: Final = "moldau_batches"
STAGED: Final = "moldau_rows"
"""The temporary table that holds the rows of a batch before they are merged."""
MARK: Final = "moldau_deletes"
"""Its column that is true in rows that delete their key."""
VALID_FROM: Final = "valid_from"
VALID_TO: Final = "valid_to"
DELETED: Final = "deleted"
NAME_LENGTH_MAX: Final = 63
"""PostgreSQL cuts longer names silently."""
_ENDS_ELSEWHERE: Final = f't."{VALID_TO}" IS NULL AND n.moldau_next IS NOT NULL OR t."{VALID_TO}" <> n.moldau_next'
_NAME_OR_SIGN: Final = re.compile(r'"(?:[^"]|"")*"|\?|%')


@dataclass(frozen=True, slots=True)
class TableName:
    """A table, perhaps in a schema (in MySQL: a database)."""

    name: str
    schema: str | None = None

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name

    @property
    def sql(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}" if self.schema else quoted(self.name)

    def beside(self, name: str) -> TableName:
        return TableName(name, self.schema)


def table_name(written: str) -> TableName:
    """Raises ValueError with a sentence for the user."""
    schema, _, name = written.rpartition(".")
    if not name or (not schema and "." in written) or "." in schema or "\0" in written or name in (BATCHES, STAGED):
        raise ValueError(f"{written!r} is not a table: write its name, or schema.name")
    if len(name.encode()) > NAME_LENGTH_MAX:
        raise ValueError(f"the name of a table has at most {NAME_LENGTH_MAX} bytes, and {name!r} has more")
    return TableName(name, schema or None)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def names(columns: Sequence[str], of: str = "") -> str:
    return ", ".join(f"{of}{quoted(column)}" for column in columns)


def format_style(statement: str) -> str:
    """Return the statement for a driver whose parameters are %s. In quoted names only % is doubled."""

    def replace(found: re.Match[str]) -> str:
        return "%s" if found[0] == "?" else found[0].replace("%", "%%")

    return _NAME_OR_SIGN.sub(replace, statement)


# --- tables ---------------------------------------------------------------------------------------------------------


def create_table(
    table: TableName, columns: Sequence[tuple[str, str]], keys: Sequence[str], required: Sequence[str] = ()
) -> str:
    """`columns` are names and types. Keys are the primary key, and so are NOT NULL."""
    parts = [
        f"{quoted(name)} {sql_type}{' NOT NULL' if name in keys or name in required else ''}"
        for name, sql_type in columns
    ]
    if keys:
        parts.append(f"PRIMARY KEY ({names(keys)})")
    return f"CREATE TABLE IF NOT EXISTS {table.sql} ({', '.join(parts)})"


def create_staged(columns: Sequence[tuple[str, str]], create: str) -> str:
    return f"{create} {quoted(STAGED)} ({', '.join(f'{quoted(name)} {sql_type}' for name, sql_type in columns)})"


def add_column(table: TableName, name: str, sql_type: str) -> str:
    return f"ALTER TABLE {table.sql} ADD COLUMN {quoted(name)} {sql_type}"


def rename_table(table: TableName, name: str) -> str:
    return f"ALTER TABLE {table.sql} RENAME TO {quoted(name)}"


def insert(table: str, columns: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({names(columns)}) VALUES ({', '.join('?' for _ in columns)})"


# --- merging --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """How the staged rows, one for each key, change the table."""

    table: TableName
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    order_by: str | None = None
    """A row is ignored if the table's row with the same key has a larger value in this column."""
    collation: str = ""
    """Put behind `order_by` where the database would compare texts by a language's order."""
    deletes: bool = False

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(column for column in self.columns if column not in self.keys)

    def same_key(self, one: str, other: str) -> str:
        return " AND ".join(f"{one}.{quoted(key)} = {other}.{quoted(key)}" for key in self.keys)

    def is_newer(self, table: str, rows: str) -> str:
        """Return the condition under which a row replaces that of the table."""
        if self.order_by is None:
            return "TRUE"
        column = quoted(self.order_by)
        return f"({table}.{column} IS NULL OR {rows}.{column}{self.collation} >= {table}.{column}{self.collation})"


def delete_marked(merge: Merge) -> str:
    """Delete the keys of marked rows. The table is not named in a subquery twice: MySQL needs another statement."""
    keys = names(merge.keys)
    same, newer = merge.same_key("t", "s"), merge.is_newer("t", "s")
    rows = f"SELECT {names(merge.keys, 's.')} FROM {quoted(STAGED)} s JOIN {merge.table.sql} t ON {same}"
    return f"DELETE FROM {merge.table.sql} WHERE ({keys}) IN ({rows} WHERE s.{quoted(MARK)} AND {newer})"


def upsert(merge: Merge) -> str:
    """Insert the other rows, or update those that are there. WHERE also keeps SQLite from taking ON for a join."""
    columns, condition = names(merge.columns), f"NOT {quoted(MARK)}" if merge.deletes else "TRUE"
    statement = (
        f"INSERT INTO {merge.table.sql} AS t ({columns}) SELECT {columns} FROM {quoted(STAGED)} WHERE {condition}"
    )
    if not merge.values:
        return f"{statement} ON CONFLICT ({names(merge.keys)}) DO NOTHING"
    changes = ", ".join(f"{quoted(column)} = excluded.{quoted(column)}" for column in merge.values)
    newer = "" if merge.order_by is None else f" WHERE {merge.is_newer('t', 'excluded')}"
    return f"{statement} ON CONFLICT ({names(merge.keys)}) DO UPDATE SET {changes}{newer}"


def _versions(merge: Merge, keys: Sequence[str]) -> str:
    """Return the query for each version of the staged keys, with the beginning of the next one."""
    window = f"OVER (PARTITION BY {names(keys, 't.')} ORDER BY t.{quoted(VALID_FROM)}{merge.collation})"
    changed = f"SELECT DISTINCT {names(keys)} FROM {quoted(STAGED)}"
    same = " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in keys)
    return (
        f"SELECT {names(keys, 't.')}, t.{quoted(VALID_FROM)}, lead(t.{quoted(VALID_FROM)}) {window} AS moldau_next"
        f" FROM {merge.table.sql} t JOIN ({changed}) s ON {same}"
    )


def close_versions(merge: Merge) -> str:
    """Let each version of the staged keys end where the next one begins. The last key of `merge` is VALID_FROM."""
    keys = merge.keys[:-1]
    return (
        f"UPDATE {merge.table.sql} AS t SET {quoted(VALID_TO)} = n.moldau_next FROM ({_versions(merge, keys)}) n"
        f" WHERE {merge.same_key('t', 'n')} AND ({_ENDS_ELSEWHERE})"
    )


# --- the same for MySQL, which may not read a table in a subquery that changes it ------------------------------------


def mysql_forget_older(merge: Merge) -> str:
    """Remove staged rows that are older than those of the table."""
    table, rows = merge.table.sql, quoted(STAGED)
    newer = merge.is_newer("t", "s")
    return f"DELETE s FROM {rows} s JOIN {table} t ON {merge.same_key('t', 's')} WHERE NOT coalesce({newer}, FALSE)"


def mysql_delete_marked(merge: Merge) -> str:
    same = merge.same_key("t", "s")
    return f"DELETE t FROM {merge.table.sql} t JOIN {quoted(STAGED)} s ON {same} WHERE s.{quoted(MARK)}"


def mysql_upsert(merge: Merge) -> str:
    columns, condition = names(merge.columns), f"NOT {quoted(MARK)}" if merge.deletes else "TRUE"
    changed = merge.values or merge.keys[:1]
    changes = ", ".join(f"{quoted(column)} = VALUES({quoted(column)})" for column in changed)
    return (
        f"INSERT INTO {merge.table.sql} ({columns}) SELECT {columns} FROM {quoted(STAGED)} WHERE {condition}"
        f" ON DUPLICATE KEY UPDATE {changes}"
    )


def mysql_close_versions(merge: Merge) -> str:
    keys = merge.keys[:-1]
    return (
        f"UPDATE {merge.table.sql} t JOIN ({_versions(merge, keys)}) n ON {merge.same_key('t', 'n')}"
        f" SET t.{quoted(VALID_TO)} = n.moldau_next WHERE {_ENDS_ELSEWHERE}"
    )
