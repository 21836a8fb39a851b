"""The decoder of pgoutput: captured bytes, an independent encoder, and bytes that are no messages."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pgoutput_encoder as sent
import pytest
from harness.depth import deep
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.base.errors import MalformedData
from moldau.databases.changes.pgoutput import (
    EPOCH_US,
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    Other,
    Relation,
    RelationColumn,
    Truncate,
    Update,
    decode,
)

CAPTURED = {
    "420000000001529828000303 95b2817b52000002d7": Begin(0x1529828, 0x3039_5B28_17B52 + EPOCH_US, 727),
    "490000400 04e000274000000013174000000027831": Insert(0x4000, [b"1", b"x1"]),
    "440000400 04b0002740000000132 6e": Delete(0x4000, [b"2", None], False),
}
"""Of PostgreSQL 15.18."""
values = st.one_of(st.none(), st.just("u"), st.binary(max_size=30))
rows = st.lists(values, max_size=6)
ids = st.integers(0, 2**32 - 1)
lsns = st.integers(0, 2**63 - 1)
times = st.integers(0, 2**60)
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)


@pytest.mark.parametrize("captured", CAPTURED)
def test_captured(captured: str) -> None:
    assert decode(bytes.fromhex(captured.replace(" ", ""))) == CAPTURED[captured]


def test_captured_relation() -> None:
    columns = "0169640000000014ffffffff" + "00610000000019ffffffff"
    data = bytes.fromhex("52000040007075626c69630074006400 02".replace(" ", "") + columns)
    expected = (RelationColumn("id", 20, True), RelationColumn("a", 25, False))
    assert decode(data) == Relation(0x4000, "public", "t", "d", expected)


def received(row: list[object]) -> list[object]:
    return [UNCHANGED if value == "u" and isinstance(value, str) else value for value in row]


@settings(max_examples=deep(60, quick=20), deadline=None)
@given(ids, rows, st.one_of(st.none(), rows), st.sampled_from([b"K", b"O"]))
def test_rows_of_another_encoder(id_: int, new: list, old: list | None, kind: bytes) -> None:
    assert decode(sent.insert(id_, new)) == Insert(id_, received(new))
    is_whole = kind == b"O"
    expected = Update(id_, None if old is None else received(old), old is not None and is_whole, received(new))
    assert decode(sent.update(id_, new, old, kind)) == expected
    assert decode(sent.delete(id_, new, kind)) == Delete(id_, received(new), is_whole)


@settings(max_examples=deep(60, quick=20), deadline=None)
@given(ids, lsns, lsns, times, st.lists(ids, max_size=4))
def test_messages_of_another_encoder(xid: int, lsn: int, end: int, at_us: int, relations: list[int]) -> None:
    assert decode(sent.begin(lsn, at_us, xid)) == Begin(lsn, at_us + EPOCH_US, xid)
    assert decode(sent.commit(lsn, end, at_us)) == Commit(lsn, end, at_us + EPOCH_US)
    assert decode(sent.truncate(*relations)) == Truncate(tuple(relations))
    assert decode(b"Oanything") == Other("O")


@settings(max_examples=deep(60, quick=20), deadline=None)
@given(
    ids, names, names, st.sampled_from("dfin"), st.lists(st.tuples(names, ids, st.booleans()), unique_by=lambda c: c[0])
)
def test_relations_of_another_encoder(id_: int, schema: str, name: str, identity: str, columns: list) -> None:
    expected = Relation(id_, schema, name, identity, tuple(RelationColumn(*column) for column in columns))
    assert decode(sent.relation(id_, schema, name, identity, columns)) == expected


def test_mutated_bytes_are_refused_or_another_message() -> None:
    random = Random(5)
    good = [
        sent.begin(7, 8, 9),
        sent.commit(7, 8, 9),
        sent.relation(1, "public", "t", "d", [("id", 20, True), ("name", 25, False)]),
        sent.insert(1, [b"1", None, "u", b"x" * 20]),
        sent.update(1, [b"1", b"2"], [b"0", None]),
        sent.delete(1, [b"1", None], b"O"),
        sent.truncate(1, 2),
    ]
    for _ in range(deep(3000, quick=1000)):
        data = bytearray(random.choice(good))
        for _ in range(random.randint(1, 4)):
            match random.randrange(3):
                case 0:
                    data[random.randrange(len(data))] = random.randrange(256)
                case 1:
                    del data[random.randrange(len(data)) :]
                case _:
                    data += random.randbytes(random.randrange(6))
            if not data:
                break
        with suppress(MalformedData):
            decode(bytes(data))


@pytest.mark.parametrize("data", [b"", b"X", b"I\0\0\0\1N\0\1t\xff\xff\xff\xff", b"I\0\0\0\1N\0\1b\0\0\0\1a"])
def test_what_is_no_message(data: bytes) -> None:
    with pytest.raises(MalformedData):
        decode(data)
