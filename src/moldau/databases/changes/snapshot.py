"""Copies a table, as one transaction sees it, into Parquet files of bounded size.

The slot exists before the snapshot is taken, and all transactions that were open in between have ended: so a
transaction is in the snapshot, or in the slot, or in both, and `visibility.py` tells the last from the log alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from moldau.base.errors import MalformedData, StorageFault
from moldau.databases.changes.address import Address
from moldau.databases.changes.columns import Column, array, arrow_type
from moldau.databases.changes.offsets import Offset, parse_lsn
from moldau.databases.changes.postgresql import connect, translated, wait_for_open_transactions
from moldau.databases.changes.slot_files import Manifest, SlotFiles
from moldau.platforms.durable_files import sync_file

if TYPE_CHECKING:
    import psycopg

PART_ROWS: Final = 50_000
PART_BYTES: Final = 64 << 20
_ESCAPE: Final = re.compile(rb"\\(.)", re.DOTALL)
_ESCAPED: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_NOW_MS: Final = "(extract(epoch FROM pg_catalog.now()) * 1000)::bigint"


class Cancelled(Exception):
    """The stream has been stopped while its snapshot was copied."""


def copy_table(
    address: Address, files: SlotFiles, lsn: int, table: tuple[str, str], columns: Sequence[Column], rows_max: int,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Manifest:  # fmt: skip
    """Write the snapshot for the slot of `files`, which begins at `lsn`; return its manifest, written last. What
    an earlier attempt left is replaced."""
    files.remove_snapshot()
    with closing(connect(address, "moldau snapshot")) as connection:
        from psycopg import sql

        wait_for_open_transactions(connection, address)
        with translated(address):
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            # Locked first: a TRUNCATE or ALTER TABLE between the snapshot and the COPY would change what the COPY sees.
            connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(sql.Identifier(*table)))
            row = connection.execute(f"SELECT pg_catalog.pg_current_snapshot()::text, {_NOW_MS}").fetchone()
            until = connection.execute("SELECT pg_catalog.pg_current_wal_insert_lsn()::text").fetchone()
            assert row is not None
            assert until is not None
            present = _present(connection, table, columns)
            rows = _write_parts(
                _rows(connection, table, present), present, files, min(PART_ROWS, rows_max), is_cancelled
            )
            connection.execute("COMMIT")
    offset = Offset(files.slot, lsn, row[0], parse_lsn(until[0]))
    manifest = Manifest(tuple(rows), offset, int(row[1]))
    files.write_manifest(manifest)
    return manifest


def _present(
    connection: psycopg.Connection[Any], table: tuple[str, str], columns: Sequence[Column]
) -> tuple[Column, ...]:
    """Return the columns that the table has in this snapshot: others have been dropped, or will be added."""
    found = connection.execute(
        "SELECT a.attname FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid"
        " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped",
        table,
    ).fetchall()
    names = {row[0] for row in found}
    return tuple(column for column in columns if column.name in names)


def present_rows(
    address: Address, table: tuple[str, str], columns: Sequence[Column], limit: int | None, rows_max: int
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield the rows of a table as one transaction sees them, and when it did."""
    with closing(connect(address, "moldau batch")) as connection, translated(address):
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        row = connection.execute(f"SELECT {_NOW_MS}").fetchone()
        assert row is not None
        present = _present(connection, table, columns)
        part: list[list[bytes | None]] = []
        for fields in _rows(connection, table, present, limit):
            part.append(fields)
            if len(part) >= rows_max:
                yield _batch(part, present), row[0]
                part = []
        if part:
            yield _batch(part, present), row[0]


def _rows(
    connection: psycopg.Connection[Any],
    table: tuple[str, str],
    columns: Sequence[Column],
    limit: int | None = None,
) -> Iterator[list[bytes | None]]:
    from psycopg import sql

    statement = sql.SQL("COPY (SELECT {} FROM {}{}) TO STDOUT").format(
        sql.SQL(", ").join(sql.Identifier(column.name) for column in columns),
        sql.Identifier(*table),
        sql.SQL("") if limit is None else sql.SQL(" LIMIT {}").format(sql.Literal(limit)),
    )
    with connection.cursor().copy(statement) as copy:
        yield from copied_rows((bytes(block) for block in copy), len(columns))


def copied_rows(blocks: Iterable[bytes], columns: int) -> Iterator[list[bytes | None]]:
    """Yield the rows of a COPY in text format; a block may end within a row."""
    rest: list[bytes] = []
    for block in blocks:
        *ended, last = block.split(b"\n")
        for line in ended:
            rest.append(line)
            yield _fields(b"".join(rest), columns)
            rest = []
        if last:
            rest.append(last)
    if rest:
        raise MalformedData("the database ended a COPY within a row")


def _fields(line: bytes, columns: int) -> list[bytes | None]:
    fields: list[bytes | None] = [None if field == b"\\N" else field for field in line.split(b"\t")] if columns else []
    if len(fields) != columns:
        raise MalformedData("the database sent a row with another number of columns")
    if b"\\" in line:
        return [None if field is None else _ESCAPE.sub(_unescaped, field) for field in fields]
    return fields


def _unescaped(match: re.Match[bytes]) -> bytes:
    return _ESCAPED.get(match[1], match[1])


def _write_parts(
    rows: Iterator[list[bytes | None]], columns: Sequence[Column], files: SlotFiles, rows_max: int,
    is_cancelled: Callable[[], bool],
) -> list[int]:  # fmt: skip
    """Write the rows and return how many each file has."""
    counts: list[int] = []
    part: list[list[bytes | None]] = []
    size = 0
    for row in rows:
        part.append(row)
        size += sum(len(field) for field in row if field is not None)
        if len(part) >= rows_max or size >= PART_BYTES:
            if is_cancelled():
                raise Cancelled
            counts.append(_write_part(part, columns, files, len(counts)))
            part, size = [], 0
    if is_cancelled():
        raise Cancelled
    if part:
        counts.append(_write_part(part, columns, files, len(counts)))
    return counts


def _write_part(part: list[list[bytes | None]], columns: Sequence[Column], files: SlotFiles, number: int) -> int:
    rows = _batch(part, columns)
    path = files.part(number)
    try:
        with open(path, "wb") as file:
            pq.write_table(pa.Table.from_batches([rows]), file, compression="zstd")
            file.flush()
            sync_file(file.fileno())
    except OSError as error:
        raise StorageFault(str(path), error) from error
    return len(part)


def _batch(part: list[list[bytes | None]], columns: Sequence[Column]) -> pa.RecordBatch:
    arrays = [array(column, values) for column, values in zip(columns, zip(*part, strict=True), strict=True)]
    schema = pa.schema([pa.field(column.name, arrow_type(column.type)) for column in columns])
    return pa.record_batch(arrays, schema=schema)


def read_part(path: str, rows_max: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part. Raises StorageFault if it cannot be read."""
    try:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(rows_max)
    except (OSError, pa.ArrowInvalid) as error:
        raise StorageFault(path, error if isinstance(error, OSError) else OSError(str(error))) from error
