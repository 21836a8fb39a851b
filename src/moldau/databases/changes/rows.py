"""Makes rows of a stream from the messages of PostgreSQL's log: columns of the table, and what happened to the row.

| column | |
|---|---|
| those of the table | after the change; of a deleted row what its replica identity keeps, at least the key |
| `_op` | r (in the snapshot), c (insert), u (update), d (delete), t (truncate) |
| `_before` | the row before the change as far as the log has it: the key, or everything with REPLICA IDENTITY FULL |
| `_lsn`, `_index` | where its commit begins in the log, and the number of the change in it: both order all changes |
| `_ts_ms`, `_xid` | when it was committed, and its id |

An update that changes the key is a delete of the old and an insert of the new. A value that the update left unchanged
and that is stored apart (TOAST) is not in the log: it is taken from the old row if that is there, else it is
UNAVAILABLE, as in Debezium.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import pyarrow as pa

from moldau.base.errors import MalformedData
from moldau.databases.changes.columns import Column, Texts, array, arrow_type
from moldau.databases.changes.errors import ChangesRefused
from moldau.databases.changes.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    Relation,
    Row,
    Truncate,
    Update,
    decode,
)
from moldau.databases.changes.visibility import Snapshot

Truncation = Literal["fail", "skip", "row"]
TRUNCATIONS: Final[tuple[Truncation, ...]] = ("fail", "skip", "row")
ROWS_MAX: Final = 10_000
BYTES_MAX: Final = 16 << 20
"""Of one record batch. Spark holds a few of them."""
UNAVAILABLE: Final = b"__debezium_unavailable_value"
META: Final[dict[str, pa.DataType]] = {
    "_op": pa.string(),
    "_lsn": pa.int64(),
    "_index": pa.int64(),
    "_ts_ms": pa.int64(),
    "_xid": pa.int64(),
}
BEFORE: Final = "_before"
CHANGE_COLUMNS: Final = ("_op", BEFORE, "_lsn", "_index", "_ts_ms", "_xid")


def stream_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the columns of the stream: those of the table, then CHANGE_COLUMNS."""
    own = [pa.field(column.name, arrow_type(column.type)) for column in columns]
    meta = [pa.field(name, pa.struct(own) if name == BEFORE else META[name]) for name in CHANGE_COLUMNS]
    return pa.schema(own + meta)


def snapshot_batch(rows: pa.RecordBatch, columns: Sequence[Column], lsn: int, at_ms: int, first: int) -> pa.RecordBatch:
    """Return rows of the snapshot as rows of the stream; `first` is the number of the first."""
    schema, count = stream_schema(columns), rows.num_rows
    meta = {
        "_op": pa.array(["r"] * count, pa.string()),
        "_lsn": pa.array([lsn] * count, pa.int64()),
        "_index": pa.array(range(first, first + count), pa.int64()),
        "_ts_ms": pa.array([at_ms] * count, pa.int64()),
    }
    meta |= {name: values for name, values in zip(rows.schema.names, rows.columns, strict=True) if name not in META}
    filled = [meta[each.name].cast(each.type) if each.name in meta else pa.nulls(count, each.type) for each in schema]
    return pa.record_batch(filled, schema=schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Which transactions belong to a batch: those whose commit begins in [start, end) and that the snapshot lacks."""

    start: int
    end: int
    snapshot: Snapshot | None = None
    until: int = 0

    def have(self, begin: Begin) -> bool:
        if not self.start <= begin.commit_lsn < self.end:
            return False
        return self.snapshot is None or begin.commit_lsn >= self.until or not self.snapshot.contains(begin.xid)


@dataclass(slots=True)
class _Layout:
    """Where a relation's rows have the columns of the stream."""

    relation: Relation
    places: list[int | None]
    keys: list[int]
    """Places of the key's columns, in the rows of the stream."""


@dataclass(slots=True)
class ChangeRows:
    """Feed it the messages in their order; it yields record batches."""

    columns: tuple[Column, ...]
    table: str
    """For messages."""
    bounds: Bounds
    truncation: Truncation = "fail"
    is_read: Callable[[Relation], bool] = lambda relation: True
    """Called when the log describes a table: returns whether it is that of the stream, as a publication may have more.
    Raises TableChanged if the stream should have other columns."""
    _layouts: dict[int, _Layout] = field(default_factory=dict)
    _ignored: set[int] = field(default_factory=set)
    """The relations that are other tables."""
    _begin: Begin | None = None
    _is_ours: bool = False
    _index: int = 0
    _bytes: int = 0
    _after: list[Row] = field(default_factory=list)
    _before: list[Row | None] = field(default_factory=list)
    _meta: list[tuple[str, int, int, int, int]] = field(default_factory=list)

    def batches(self, messages: Iterator[bytes]) -> Iterator[pa.RecordBatch]:
        for data in messages:
            self._add(data)
            if len(self._meta) >= ROWS_MAX or self._bytes >= BYTES_MAX:
                yield self._flush()
        if self._begin is not None:
            raise MalformedData("the database sent a transaction without its end")
        if self._meta:
            yield self._flush()

    def _add(self, data: bytes) -> None:
        kind = data[:1]
        if kind in b"IUDT" and kind and not self._is_ours:
            if self._begin is None:
                raise MalformedData("the database sent a change outside of a transaction")
            return
        message = decode(data)
        if isinstance(message, Insert | Update | Delete) and message.relation in self._ignored:
            return
        if isinstance(message, Insert):
            self._bytes += len(data)
            self._append("c", self._arranged(message.new, self._layout(message.relation), None), None)
        elif isinstance(message, Update):
            self._bytes += len(data)
            self._update(message)
        elif isinstance(message, Delete):
            self._bytes += len(data)
            layout = self._layout(message.relation)
            old = self._arranged(message.old, layout, None)
            self._check_key(old, layout)
            self._append("d", old, old)
        elif isinstance(message, Begin):
            if self._begin is not None:
                raise MalformedData("the database sent a transaction within another")
            self._begin, self._index, self._is_ours = message, 0, self.bounds.have(message)
        elif isinstance(message, Commit):
            if self._begin is None or self._begin.commit_lsn != message.commit_lsn:
                raise MalformedData("the database sent the end of another transaction")
            self._begin, self._is_ours = None, False
        elif isinstance(message, Relation):
            self._add_relation(message)
        elif isinstance(message, Truncate):
            self._truncate(message)

    def _add_relation(self, relation: Relation) -> None:
        if not self.is_read(relation):
            self._ignored.add(relation.id)
            return
        names = {column.name: place for place, column in enumerate(relation.columns)}
        places = [names.get(column.name) for column in self.columns]
        keys = [place for place, column in enumerate(self.columns) if column.is_key]
        self._layouts[relation.id] = _Layout(relation, places, keys)

    def _layout(self, relation: int) -> _Layout:
        layout = self._layouts.get(relation)
        if layout is None:
            raise MalformedData("the database sent a row of a table that it has not described")
        return layout

    def _arranged(self, row: Row, layout: _Layout, old: Row | None) -> Row:
        """Return the values in the order of the stream's columns; UNCHANGED ones come from `old`, which is arranged."""
        if len(row) != len(layout.relation.columns):
            raise MalformedData("the database sent a row with another number of columns than its table has")
        arranged: Row = [None if place is None else row[place] for place in layout.places]
        if UNCHANGED in arranged:
            for place, value in enumerate(arranged):
                if value is UNCHANGED:
                    arranged[place] = self._unchanged(place, old)
        return arranged

    def _unchanged(self, place: int, old: Row | None) -> bytes:
        value = None if old is None else old[place]
        if isinstance(value, bytes):
            return value
        column = self.columns[place]
        if column.type == "string":
            return UNAVAILABLE
        if column.type == "binary":
            return b"\\x" + UNAVAILABLE.hex().encode()
        raise ChangesRefused(
            f"table {self.table}, column {column.name}: the log does not have the long value that an update left as it"
            f" was; ALTER TABLE {self.table} REPLICA IDENTITY FULL makes it complete from then on"
        )

    def _update(self, message: Update) -> None:
        layout = self._layout(message.relation)
        old = None if message.old is None else self._arranged(message.old, layout, None)
        new = self._arranged(message.new, layout, old if message.is_old_whole else None)
        if old is not None and any(old[key] != new[key] for key in layout.keys):
            self._check_key(old, layout)
            self._append("d", old, old)
            self._append("c", new, None)
        else:
            self._append("u", new, old)

    def _check_key(self, old: Row, layout: _Layout) -> None:
        if any(old[key] is None for key in layout.keys):
            raise ChangesRefused(
                f"table {self.table}: its log no longer has the key of deleted rows, as its replica identity changed;"
                f" ALTER TABLE {self.table} REPLICA IDENTITY DEFAULT, then begin again with --fresh"
            )

    def _truncate(self, message: Truncate) -> None:
        if self._ignored.issuperset(message.relations):
            return
        if self.truncation == "fail":
            begin = self._begin
            assert begin is not None, "outside of a transaction it is refused"
            raise ChangesRefused(
                f"table {self.table} was truncated by transaction {begin.xid}, and a truncation names no rows;"
                " `truncate: skip` goes on without it, `truncate: row` passes on a row with _op = 't'"
            )
        if self.truncation == "row":
            self._append("t", [None] * len(self.columns), None)

    def _append(self, op: str, after: Row, before: Row | None) -> None:
        begin = self._begin
        assert begin is not None, "a change is ours only inside of a transaction"
        self._after.append(after)
        self._before.append(before)
        self._meta.append((op, begin.commit_lsn, self._index, begin.at_us // 1000, begin.xid))
        self._index += 1

    def _flush(self) -> pa.RecordBatch:
        after, before, meta = self._after, self._before, self._meta
        self._after, self._before, self._meta, self._bytes = [], [], [], 0
        schema = stream_schema(self.columns)
        own = self._arrays(after)
        metas = dict(zip(META, map(list, zip(*meta, strict=True)), strict=True))
        arrays = own + [
            self._before_array(before, schema.field(name).type) if name == BEFORE else pa.array(metas[name], META[name])
            for name in CHANGE_COLUMNS
        ]
        return pa.record_batch(arrays, schema=schema)

    def _arrays(self, rows: Sequence[Row]) -> list[pa.Array]:
        texts: list[Texts] = list(zip(*rows, strict=True)) if self.columns else []
        return [array(column, values) for column, values in zip(self.columns, texts, strict=True)]

    def _before_array(self, rows: Sequence[Row | None], type_: pa.DataType) -> pa.Array:
        if all(row is None for row in rows):
            return pa.nulls(len(rows), type_)
        nothing: Row = [None] * len(self.columns)
        arrays = self._arrays([nothing if row is None else row for row in rows])
        mask = pa.array([row is None for row in rows], pa.bool_())
        return pa.StructArray.from_arrays(arrays, fields=list(type_), mask=mask)
