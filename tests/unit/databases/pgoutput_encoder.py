"""Writes pgoutput's messages, independently of the decoder: an oracle for its tests."""

from __future__ import annotations

import struct
from collections.abc import Sequence

Sent = bytes | None | str
"""A text, null, or "u": unchanged."""


def begin(commit_lsn: int, at_us: int, xid: int) -> bytes:
    return b"B" + struct.pack("!qqI", commit_lsn, at_us, xid)


def commit(commit_lsn: int, end_lsn: int, at_us: int) -> bytes:
    return b"C\0" + struct.pack("!qqq", commit_lsn, end_lsn, at_us)


def relation(id_: int, schema: str, name: str, identity: str, columns: Sequence[tuple[str, int, bool]]) -> bytes:
    head = b"R" + struct.pack("!I", id_) + schema.encode() + b"\0" + name.encode() + b"\0" + identity.encode()
    body = [bytes([is_key]) + column.encode() + b"\0" + struct.pack("!Ii", oid, -1) for column, oid, is_key in columns]
    return head + struct.pack("!H", len(columns)) + b"".join(body)


def insert(id_: int, new: Sequence[Sent]) -> bytes:
    return b"I" + struct.pack("!I", id_) + b"N" + row(new)


def update(id_: int, new: Sequence[Sent], old: Sequence[Sent] | None = None, kind: bytes = b"K") -> bytes:
    before = b"" if old is None else kind + row(old)
    return b"U" + struct.pack("!I", id_) + before + b"N" + row(new)


def delete(id_: int, old: Sequence[Sent], kind: bytes = b"K") -> bytes:
    return b"D" + struct.pack("!I", id_) + kind + row(old)


def truncate(*ids: int) -> bytes:
    return b"T" + struct.pack("!IB", len(ids), 0) + b"".join(struct.pack("!I", id_) for id_ in ids)


def row(values: Sequence[Sent]) -> bytes:
    return struct.pack("!H", len(values)) + b"".join(map(_value, values))


def _value(value: Sent) -> bytes:
    if value is None:
        return b"n"
    if isinstance(value, str):
        return b"u"
    return b"t" + struct.pack("!I", len(value)) + value
