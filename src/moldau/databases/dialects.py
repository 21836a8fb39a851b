"""The dialects of SQL: the type of each column, which existing type is good enough, and the statements of a merge.

No driver is imported here; the modules named like the databases connect and execute.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from moldau.databases import sql
from moldau.databases.columns import Column, Family, keeps_decimals
from moldau.databases.urls import Kind

Statement = Callable[[sql.Merge], str]
_INTEGERS: Final = {8: "SMALLINT", 16: "SMALLINT", 32: "INTEGER", 64: "BIGINT"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    kind: Kind
    types: Mapping[Family, str]
    """The types of new columns; for integers, floats and decimals see `sql_type`."""
    accepted: Mapping[Family, str]
    """A regular expression of the existing types, in lower case, that take all values of a family or refuse them."""
    double: str
    single: str
    integers: Mapping[int, str]
    key_types: Mapping[Family, str]
    """The types of new columns that are keys, where they differ."""
    collation: str = ""
    """Put behind a text that is compared, so that it is compared by its bytes."""
    lock: str = " FOR UPDATE"
    claim: str = "INSERT INTO {table} ({columns}) VALUES ({values}) ON CONFLICT DO NOTHING"
    """Inserts the first row about a query's batches, unless it is there."""
    delete_marked: Statement = sql.delete_marked
    upsert: Statement = sql.upsert
    close_versions: Statement = sql.close_versions
    forget_older: Statement | None = None
    can_order: frozenset[Family] = frozenset(
        {"boolean", "integer", "float", "decimal", "text", "date", "time zone", "no zone"}
    )
    """By which columns rows can be ordered in the database as in the batch."""

    def sql_type(self, column: Column, is_key: bool = False) -> str:
        family = column.family
        assert family is not None, "the columns of a write are checked before"
        if is_key and family in self.key_types:
            return self.key_types[family]
        if family == "integer":
            return self.integers[column.type.bit_width]
        if family == "float":
            return self.double if column.type == pa.float64() else self.single
        if family == "decimal" and "{" in self.types[family]:
            return self.types[family].format(column.type.precision, column.type.scale)
        return self.types[family]

    def fits(self, column: Column, sql_type: str) -> bool:
        """Return whether the values of the column can be stored as they are, or are refused one by one."""
        family = column.family
        assert family is not None, "the columns of a write are checked before"
        if column.type == pa.float32() and re.fullmatch(self.single.lower(), sql_type.lower()):
            return True
        if re.fullmatch(self.accepted[family], sql_type.lower()) is None:
            return False
        return family != "decimal" or keeps_decimals(column, sql_type)

    def comparison(self, column: Column | None) -> str:
        """Return what is put behind the column where it is compared by size."""
        return self.collation if column is not None and column.family == "text" else ""


POSTGRESQL: Final = Dialect(
    kind="postgresql",
    types={
        "boolean": "BOOLEAN",
        "decimal": "NUMERIC({},{})",
        "text": "TEXT",
        "bytes": "BYTEA",
        "date": "DATE",
        "time zone": "TIMESTAMPTZ",
        "no zone": "TIMESTAMP",
        "json": "JSONB",
    },
    accepted={
        "boolean": "boolean",
        "integer": r"smallint|integer|bigint|numeric(\(\d+(,\d+)?\))?",
        "float": "double precision|numeric",
        "decimal": r"numeric(\(\d+,\d+\))?",
        "text": ".*",
        "bytes": "bytea",
        "date": "date",
        "time zone": r"timestamp(\(\d\))? with time zone",
        "no zone": r"timestamp(\(\d\))? without time zone",
        "json": r"jsonb?|text|character varying(\(\d+\))?",
    },
    double="DOUBLE PRECISION",
    single="REAL",
    integers=_INTEGERS,
    key_types={},
    collation=' COLLATE "C"',
)
_SQLITE_TEXT: Final = ".*(char|clob|text).*"
SQLITE: Final = Dialect(
    kind="sqlite",
    types={
        "boolean": "BOOLEAN",
        "decimal": "TEXT",
        "text": "TEXT",
        "bytes": "BLOB",
        "date": "DATE",
        "time zone": "DATETIME",
        "no zone": "DATETIME",
        "json": "JSON",
    },
    accepted={
        "boolean": "bool.*|.*int.*|numeric|",
        "integer": ".*int.*|numeric|",
        "float": ".*(real|floa|doub).*|",
        "decimal": f"{_SQLITE_TEXT}|blob|",
        "text": f"{_SQLITE_TEXT}|blob|json|uuid|",
        "bytes": "blob|",
        "date": f"date.*|{_SQLITE_TEXT}|",
        "time zone": f"datetime|timestamp.*|{_SQLITE_TEXT}|",
        "no zone": f"datetime|timestamp.*|{_SQLITE_TEXT}|",
        "json": f"jsonb?|{_SQLITE_TEXT}|",
    },
    double="REAL",
    single="REAL",
    integers=dict.fromkeys(_INTEGERS, "INTEGER"),
    key_types={},
    lock="",
    can_order=frozenset({"boolean", "integer", "float", "text", "date", "time zone", "no zone"}),
)
DUCKDB: Final = Dialect(
    kind="duckdb",
    types={
        "boolean": "BOOLEAN",
        "decimal": "DECIMAL({},{})",
        "text": "VARCHAR",
        "bytes": "BLOB",
        "date": "DATE",
        "time zone": "TIMESTAMPTZ",
        "no zone": "TIMESTAMP",
        "json": "VARCHAR",
    },
    accepted={
        "boolean": "boolean",
        "integer": r"tinyint|smallint|integer|bigint|hugeint|decimal\(\d+,\d+\)",
        "float": "double",
        "decimal": r"decimal\(\d+,\d+\)",
        "text": "varchar|json|uuid|enum.*",
        "bytes": "blob",
        "date": "date",
        "time zone": "timestamp with time zone",
        "no zone": "timestamp",
        "json": "json|varchar",
    },
    double="DOUBLE",
    single="FLOAT",
    integers=_INTEGERS,
    key_types={},
    lock="",
)
MYSQL: Final = Dialect(
    kind="mysql",
    types={
        "boolean": "BOOLEAN",
        "decimal": "DECIMAL({},{})",
        "text": "LONGTEXT COLLATE utf8mb4_bin",
        "bytes": "LONGBLOB",
        "date": "DATE",
        "time zone": "DATETIME(6)",
        "no zone": "DATETIME(6)",
        "json": "JSON",
    },
    accepted={
        "boolean": r"tinyint(\(\d+\))?|bit\(1\)",
        "integer": r"(tiny|small|medium|big)?int(\(\d+\))?( unsigned)?|decimal\(\d+,\d+\)",
        "float": "double",
        "decimal": r"decimal\(\d+,\d+\)",
        "text": r".*(char|text)(\(\d+\))?|json|uuid|enum\(.*\)",
        "bytes": r".*(blob|binary)(\(\d+\))?",
        "date": "date",
        "time zone": r"datetime(\(\d\))?",
        "no zone": r"datetime(\(\d\))?",
        "json": "json|.*text",
    },
    double="DOUBLE",
    single="FLOAT",
    integers=_INTEGERS,
    key_types={"text": "VARCHAR(255) COLLATE utf8mb4_bin", "bytes": "VARBINARY(255)"},
    collation=" COLLATE utf8mb4_bin",
    claim="INSERT IGNORE INTO {table} ({columns}) VALUES ({values})",
    delete_marked=sql.mysql_delete_marked,
    upsert=sql.mysql_upsert,
    close_versions=sql.mysql_close_versions,
    forget_older=sql.mysql_forget_older,
)
DIALECTS: Final[Mapping[Kind, Dialect]] = {each.kind: each for each in (POSTGRESQL, SQLITE, DUCKDB, MYSQL)}
