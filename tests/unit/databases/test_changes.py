"""The pure parts of a stream of changes: addresses, offsets, visibility, COPY's text, rows of transactions."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pgoutput_encoder as sent
import pytest

from moldau.base.errors import MalformedData
from moldau.databases.changes.address import parse_address
from moldau.databases.changes.columns import Column, spark_type
from moldau.databases.changes.errors import ChangesRefused
from moldau.databases.changes.offsets import Offset, lsn_text, parse_lsn
from moldau.databases.changes.postgresql import Table, object_name
from moldau.databases.changes.rows import Bounds, ChangeRows
from moldau.databases.changes.snapshot import copied_rows
from moldau.databases.changes.tables import stream_columns
from moldau.databases.changes.visibility import parse_snapshot

COLUMNS = (Column("id", "bigint", 20, True), Column("name", "string", 25))
RELATION = sent.relation(1, "public", "t", "d", [("id", 20, True), ("name", 25, False)])


@pytest.mark.parametrize(
    ("text", "url", "password"),
    [
        ("postgresql://me:s%40e@h:5433/shop?sslmode=require", "postgresql://me@h:5433/shop?sslmode=require", "s@e"),
        ("postgres://h/shop?password=s%20t&user=me", "postgresql://h/shop?user=me", "s t"),
        ("postgresql://me@a:1,b:2/shop", "postgresql://me@a:1,b:2/shop", None),
        ("sqlite:///shop.db", "sqlite:///shop.db", None),
    ],
)
def test_addresses(text: str, url: str, password: str | None) -> None:
    address = parse_address(text)
    assert (address.url, address.password) == (url, password)
    assert password is None or password not in repr(address)


@pytest.mark.parametrize(
    "text", ["shop", "oracle://me:secret@h/x", "postgresql://me:secret@h:x/y", "postgresql://me:secret@h"]
)
def test_wrong_addresses_are_refused_without_the_password(text: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_address(text)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "offset",
    [Offset(), Offset("s", 0x1_0000_0002), Offset("s", 5, "7:9:7", 8), Offset("s", 5, "7:9:7", 8, part=3)],
)
def test_offsets_survive_json(offset: Offset) -> None:
    assert Offset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


def test_the_snapshot_is_forgotten_after_it() -> None:
    offset = Offset("s", 5, "7:9:7", 8, part=3)
    assert offset.at(7) == Offset("s", 7, "7:9:7", 8)
    assert offset.at(8) == Offset("s", 8)
    with pytest.raises(ValueError, match="not a position"):
        Offset.from_json({"topic": {"0": 1}})


def test_lsns() -> None:
    assert parse_lsn("16/B374D848") == 0x16_B374D848
    assert lsn_text(0x16_0000_00FF) == "16/FF"
    with pytest.raises(ValueError):
        parse_lsn("16")


@pytest.mark.parametrize(
    ("snapshot", "visible", "hidden"),
    [
        ("10:20:10,14", [9, 11, 19], [10, 14, 20, 21]),
        ("10:10:", [9], [10, 11]),
        (f"{2**32 - 5}:{2**32 + 5}:{2**32 + 2}", [2**32 - 6, 2**32 - 1, 0, 1, 3, 4], [2, 5, 6]),
        (f"{3 * 2**32 + 100}:{3 * 2**32 + 110}:", [50, 109, 2**32 - 1], [110, 200, 2**30]),
    ],
    ids=["in progress", "none", "over the wrap", "after three epochs"],
)
def test_visibility(snapshot: str, visible: list[int], hidden: list[int]) -> None:
    parsed = parse_snapshot(snapshot)
    assert [xid for xid in visible if not parsed.contains(xid)] == []
    assert [xid for xid in hidden if parsed.contains(xid)] == []


def test_copied_rows_may_be_split_anywhere() -> None:
    text = b"1\ta\\tb\\\\\\n\t\\N\n2\t\t\\\\N\n"
    expected = [[b"1", b"a\tb\\\n", None], [b"2", b"", b"\\N"]]
    for at in range(len(text)):
        assert list(copied_rows([text[:at], text[at:]], 3)) == expected
    with pytest.raises(MalformedData, match="within a row"):
        list(copied_rows([text[:-1]], 3))
    with pytest.raises(MalformedData, match="number of columns"):
        list(copied_rows([b"1\n"], 2))


def test_types() -> None:
    assert spark_type(1700, (10 << 16 | 2) + 4) == "decimal(10,2)"
    assert [spark_type(1700, -1), spark_type(1700, (50 << 16 | 2) + 4)] == ["string", "string"]
    assert [spark_type(20, -1), spark_type(3802, -1), spark_type(1184, -1)] == ["bigint", "string", "timestamp"]


def test_names_of_slots_are_postgresqls() -> None:
    assert object_name("my-shop", "Orders", "0a1b") == "moldau_my_shop_orders_0a1b"
    assert len(object_name("p" * 80, "s", "0a1b2c3d")) == 63


def test_columns_that_are_gone_stay() -> None:
    now = Table(1, "public", "t", "d", (Column("id", "bigint", 20, True), Column("new", "int", 23)))
    known = (Column("gone", "string", 25, True), Column("id", "int", 23, True))
    more = (Column("seen", "string", 25), Column("new", "string", 25))
    assert stream_columns(now, known, more) == (
        Column("gone", "string", 25), Column("id", "bigint", 20, True), Column("new", "int", 23), more[0],
    )  # fmt: skip


def changes(messages: Sequence[bytes], bounds: Bounds) -> list[tuple[object, ...]]:
    rows = ChangeRows(COLUMNS, "public.t", bounds)
    return [
        (row["_op"], row["id"], row["name"], row["_lsn"], row["_index"])
        for batch in rows.batches(iter(messages))
        for row in batch.to_pylist()
    ]


def transaction(lsn: int, xid: int, *messages: bytes) -> list[bytes]:
    return [sent.begin(lsn, 0, xid), *messages, sent.commit(lsn, lsn + 5, 0)]


def test_transactions_of_a_batch() -> None:
    messages = [
        *transaction(10, 1, RELATION, sent.insert(1, [b"1", b"before"])),
        *transaction(20, 2, sent.insert(1, [b"2", b"in the snapshot"])),
        *transaction(30, 3, sent.insert(1, [b"3", b"a"]), sent.update(1, [b"4", "u"], [b"3", None])),
        *transaction(40, 2, sent.delete(1, [b"4", None])),
        *transaction(50, 5, sent.insert(1, [b"5", b"after"])),
    ]
    bounds = Bounds(start=20, end=50, snapshot=parse_snapshot("3:3:"), until=40)
    assert changes(messages, bounds) == [
        ("c", 3, "a", 30, 0),
        ("d", 3, None, 30, 1),
        ("c", 4, "__debezium_unavailable_value", 30, 2),
        ("d", 4, None, 40, 0),
    ]


@pytest.mark.parametrize(
    "messages",
    [
        [sent.insert(1, [b"1", b""])],
        [sent.begin(1, 0, 1), sent.begin(2, 0, 2)],
        [sent.begin(1, 0, 1), sent.insert(1, [b"1", b""])],
        [sent.begin(1, 0, 1), RELATION, sent.insert(1, [b"1"])],
        [sent.begin(1, 0, 1), RELATION],
        [sent.begin(1, 0, 1), sent.commit(2, 3, 0)],
    ],
)
def test_messages_in_a_wrong_order_are_refused(messages: list[bytes]) -> None:
    with pytest.raises(MalformedData):
        changes(messages, Bounds(start=0, end=100))


def test_a_deletion_without_the_key_is_refused() -> None:
    with pytest.raises(ChangesRefused, match="no longer has the key"):
        changes(transaction(1, 1, RELATION, sent.delete(1, [None, None])), Bounds(start=0, end=100))
