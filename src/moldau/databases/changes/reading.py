"""Reads the rows of a micro-batch, in a task: files of the snapshot, or changes of the log.

Workers are used for many batches, so connections are kept, one for each database.
"""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from moldau.databases.changes.errors import ChangesError
from moldau.databases.changes.offsets import Offset
from moldau.databases.changes.options import ChangeOptions
from moldau.databases.changes.postgresql import check_slot, connect, read_changes, translated
from moldau.databases.changes.rows import ROWS_MAX, Bounds, ChangeRows, snapshot_batch
from moldau.databases.changes.snapshot import present_rows, read_part
from moldau.databases.changes.tables import is_read
from moldau.databases.changes.visibility import parse_snapshot

if TYPE_CHECKING:
    import psycopg


@dataclass(frozen=True, slots=True)
class PartPiece:
    """A file of the snapshot."""

    path: str
    lsn: int
    at_ms: int
    first_row: int


@dataclass(frozen=True, slots=True)
class ChangePiece:
    """The changes from `start` to `end`."""

    start: Offset
    end: Offset


Piece = PartPiece | ChangePiece
_connections: dict[str, psycopg.Connection[Any]] = {}
"""Idle connections of this process, by URL."""


@atexit.register
def _close_idle() -> None:
    for connection in _connections.values():
        connection.close()


def read_piece(options: ChangeOptions, piece: Piece) -> Iterator[pa.RecordBatch]:
    if isinstance(piece, PartPiece):
        first = piece.first_row
        for batch in read_part(piece.path, ROWS_MAX):
            yield snapshot_batch(batch, options.columns, piece.lsn, piece.at_ms, first)
            first += batch.num_rows
        return
    snapshot = None if piece.start.snapshot is None else parse_snapshot(piece.start.snapshot)
    bounds = Bounds(start=piece.start.lsn, end=piece.end.lsn, snapshot=snapshot, until=piece.start.until)
    rows = ChangeRows(options.columns, options.shown_table, bounds, options.truncation)
    rows.is_read = partial(is_read, options.address, options.table)
    if not options.is_declared:
        rows.is_read = partial(is_read, options.address, options.table, columns=options.columns, source=options.files)
    slot = piece.start.slot
    assert slot is not None, "changes come after the snapshot, which has a slot"
    connection = _connected(options, slot)
    try:
        messages = read_changes(connection, options.address, slot, options.publication, piece.end.lsn)
        with closing(messages):  # type: ignore[type-var]
            yield from rows.batches(messages)
    except BaseException:
        connection.close()
        raise
    _connections[options.address.url] = connection


def read_present_rows(options: ChangeOptions) -> Iterator[pa.RecordBatch]:
    """Yield the rows that the table has now, as rows of a snapshot; with `limit`, only so many."""
    first = 0
    for batch, at_ms in present_rows(options.address, options.table, options.columns, options.limit, ROWS_MAX):
        yield snapshot_batch(batch, options.columns, 0, at_ms, first)
        first += batch.num_rows


def _connected(options: ChangeOptions, slot: str) -> psycopg.Connection[Any]:
    """Return the idle connection if it still works, else a new one."""
    connection = _connections.pop(options.address.url, None)
    if connection is not None:
        try:
            with translated(options.address):
                connection.execute("SELECT")
            return connection
        except (ConnectionError, ChangesError):
            connection.close()
    connection = connect(options.address, "moldau reader")
    check_slot(connection, options.address, slot)
    return connection
