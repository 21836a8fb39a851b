"""Decodes the messages of PostgreSQL's plugin pgoutput, version 1 of its protocol, with values as text.

    B  commit LSN, commit time, xid                      C  flags, commit LSN, end LSN, commit time
    R  relation: id, schema, name, identity, columns     Y  type     O  origin     M  a message of an application
    I  relation, N row      U  relation, [K or O row], N row      D  relation, K or O row      T  relations, options
    a row: number of columns, then for each n (null), u (unchanged, stored apart) or t, length, text

K has only the columns of the key; O has all, if the table's replica identity is FULL. Numbers are big-endian, names end
with a zero byte, times are microseconds since 2000. The bytes come from a server that may be any program: whatever is
not such a message is MalformedData. https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import Final, NamedTuple

from moldau.base.errors import MalformedData


class Unchanged(Enum):
    """A long value, stored apart from its row, that the update did not change: it is not in the log."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED
Value = bytes | None | Unchanged
Row = list[Value]
EPOCH_US: Final = 946_684_800_000_000
"""2000-01-01 as microseconds since 1970."""


class Begin(NamedTuple):
    commit_lsn: int
    """Where the commit's record begins."""
    at_us: int
    """Since 1970."""
    xid: int
    """The lower 32 bits."""


class Commit(NamedTuple):
    commit_lsn: int
    end_lsn: int
    at_us: int


class RelationColumn(NamedTuple):
    name: str
    type_oid: int
    is_key: bool


class Relation(NamedTuple):
    id: int
    schema: str
    name: str
    identity: str
    """d (primary key), f (full), i (an index), n (nothing)."""
    columns: tuple[RelationColumn, ...]


class Insert(NamedTuple):
    relation: int
    new: Row


class Update(NamedTuple):
    relation: int
    old: Row | None
    is_old_whole: bool
    """Whether `old` has all columns; otherwise those of the key."""
    new: Row


class Delete(NamedTuple):
    relation: int
    old: Row
    is_old_whole: bool


class Truncate(NamedTuple):
    relations: tuple[int, ...]


class Other(NamedTuple):
    """A message without rows: an origin, a type, or a message of an application."""

    kind: str


Message = Begin | Commit | Relation | Insert | Update | Delete | Truncate | Other
_BEGIN: Final = struct.Struct(">qqI")
_COMMIT: Final = struct.Struct(">bqqq")
_COLUMN: Final = struct.Struct(">Ii")
_INT32: Final = struct.Struct(">I")
_INT16: Final = struct.Struct(">H")
_K, _N, _O = b"KNO"
_NULL, _TEXT, _UNCHANGED = b"ntu"


def decode(data: bytes) -> Message:
    """Return the message. Raises MalformedData."""
    try:
        return _decode(data)
    except (IndexError, struct.error):
        raise _malformed(data, "it is cut off") from None


def _decode(data: bytes) -> Message:
    kind = data[0]
    if kind == 0x49:  # I
        if data[5] != _N:
            raise _malformed(data, "its row is missing")
        new, at = _row(data, 6)
        return Insert(_relation_id(data), _whole(new, data, at))
    if kind == 0x55:  # U
        return _update(data)
    if kind == 0x44:  # D
        if data[5] not in (_K, _O):
            raise _malformed(data, "its row is missing")
        old, at = _row(data, 6)
        return Delete(_relation_id(data), _whole(old, data, at), data[5] == _O)
    if kind == 0x42:  # B
        commit_lsn, at_us, xid = _BEGIN.unpack(data[1:])
        return Begin(commit_lsn, at_us + EPOCH_US, xid)
    if kind == 0x43:  # C
        _, commit_lsn, end_lsn, at_us = _COMMIT.unpack(data[1:])
        return Commit(commit_lsn, end_lsn, at_us + EPOCH_US)
    if kind == 0x52:  # R
        return _relation(data)
    if kind == 0x54:  # T
        count = _INT32.unpack_from(data, 1)[0]
        if len(data) != 6 + 4 * count:
            raise _malformed(data, "its length is wrong")
        return Truncate(struct.unpack_from(f">{count}I", data, 6))
    if kind in b"YOM":
        return Other(chr(kind))
    raise _malformed(data, "there is no such message")


def _relation_id(data: bytes) -> int:
    return int.from_bytes(data[1:5])


def _update(data: bytes) -> Update:
    old, at, kind = None, 5, data[5]
    if kind in (_K, _O):
        old, at = _row(data, 6)
    if data[at] != _N:
        raise _malformed(data, "its new row is missing")
    new, at = _row(data, at + 1)
    return Update(_relation_id(data), old, kind == _O, _whole(new, data, at))


def _row(data: bytes, at: int) -> tuple[Row, int]:
    """Return the row at a position, and the position after it, which may be behind the end of the data."""
    (count,) = _INT16.unpack_from(data, at)
    at += 2
    row: Row = []
    for _ in range(count):
        kind = data[at]
        if kind == _TEXT:
            start = at + 5
            at = start + int.from_bytes(data[at + 1 : start])
            row.append(data[start:at])
        elif kind == _NULL:
            row.append(None)
            at += 1
        elif kind == _UNCHANGED:
            row.append(UNCHANGED)
            at += 1
        else:
            raise _malformed(data, "a value has an unknown format")
    return row, at


def _whole(row: Row, data: bytes, end: int) -> Row:
    if end != len(data):
        raise _malformed(data, "its length is wrong")
    return row


def _relation(data: bytes) -> Relation:
    schema, at = _name(data, 5)
    name, at = _name(data, at)
    identity = chr(data[at])
    (count,) = _INT16.unpack_from(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        flags = data[at]
        column, at = _name(data, at + 1)
        type_oid, _ = _COLUMN.unpack_from(data, at)
        at += _COLUMN.size
        columns.append(RelationColumn(column, type_oid, bool(flags & 1)))
    if at != len(data):
        raise _malformed(data, "its length is wrong")
    if len({column.name for column in columns}) != len(columns):
        raise _malformed(data, "a column is there twice")
    return Relation(_relation_id(data), schema, name, identity, tuple(columns))


def _name(data: bytes, at: int) -> tuple[str, int]:
    end = data.find(0, at)
    if end < 0:
        raise IndexError
    try:
        return data[at:end].decode(), end + 1
    except UnicodeDecodeError:
        raise _malformed(data, "a name is not UTF-8") from None


def _malformed(data: bytes, why: str) -> MalformedData:
    return MalformedData(f"the database sent a message of kind {data[:1]!r} that cannot be read: {why}")
