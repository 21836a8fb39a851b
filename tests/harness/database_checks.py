"""What every kind of database must do, as functions of a URL: files in tests/unit, servers in tests/interop."""

from __future__ import annotations

import datetime
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.depth import deep
from harness.patience import PATIENCE_S, wait_until
from moldau.databases import writing
from moldau.databases.batches import Batch
from moldau.databases.database import Database, connected, driver_of
from moldau.databases.destinations import Destination
from moldau.databases.errors import DatabaseRefused, DriverFenced, RowRefused
from moldau.databases.rows import TableRows
from moldau.databases.sql import TableName
from moldau.databases.urls import parse_url

Change = tuple[int | None, int | None, str | None, bool]
"""A row: its key, its order, its value, and whether it deletes the key."""
_numbers = itertools.count()


def destination(url: str, **more: Any) -> Destination:
    """A table that no other test has."""
    return Destination(url=parse_url(url), table=TableName(f"t{os.getpid()}_{next(_numbers)}"), **more)


def upserts(url: str, **more: Any) -> Destination:
    return destination(url, mode="upsert", keys=("id",), delete_column="gone", order_by="at", **more)


def history(url: str, **more: Any) -> Destination:
    return destination(url, mode="history", keys=("id",), delete_column="gone", order_by="at", **more)


def changes(*rows: Change) -> TableRows:
    ids, orders, values, gone = zip(*rows, strict=True) if rows else ((), (), (), ())
    columns = {
        "id": pa.array(ids, pa.int64()),
        "at": pa.array(orders, pa.int64()),
        "value": pa.array(values, pa.string()),
        "gone": pa.array(gone, pa.bool_()),
    }
    return TableRows(pa.table(columns))


def write(to: Destination, number: int, *rows: Change, run: str = "run") -> bool:
    return writing.write(to, changes(*rows), Batch("query", number, run))


def stored(to: Destination, *columns: str) -> list[tuple[Any, ...]]:
    """The rows, sorted; booleans as such."""
    found = writing.content(to)
    rows = [tuple(bool(row[name]) if name in ("deleted", "gone") else row[name] for name in columns) for row in found]
    return sorted(rows, key=lambda row: [(value is None, value) for value in row])


def execute(to: Destination, statement: str) -> list[tuple[Any, ...]]:
    with connected(to.url, "test") as database:
        return database.execute(statement)


# --- modes ------------------------------------------------------------------------------------------------------------


def check_modes(url: str) -> None:
    log = destination(url)
    assert write(log, 0, (1, 1, "a", False), (1, 1, "a", False))
    assert not write(log, 0, (1, 1, "a", False))
    assert write(log, 1, (None, None, None, True))
    assert stored(log, "id", "value") == [(1, "a"), (1, "a"), (None, None)]

    last = upserts(url)
    assert write(last, 0, (1, 1, "a", False), (2, 1, "b", False), (2, 0, "old", False), (3, 5, "c", False))
    assert not write(last, 0, (1, 1, "a", False))
    write(last, 1, (1, 0, "older", False), (2, 1, None, True), (3, 4, None, True), (9, 1, None, True))
    assert stored(last, "id", "at", "value") == [(1, 1, "a"), (3, 5, "c")]
    write(last, 2, (1, 1, "as old", False), (3, None, "none", False), (2, None, "again", False))
    write(last, 3, (2, None, "none", False), (2, 0, "first", False))
    assert stored(last, "id", "value") == [(1, "as old"), (2, "first"), (3, "c")]

    versions = history(url)
    write(versions, 0, (1, 1, "a", False), (1, 5, "c", False), (2, 0, "x", False))
    write(versions, 1, (1, 3, "b", False), (2, 9, None, True), (1, 5, "C", False))
    assert stored(versions, "id", "valid_from", "valid_to", "value", "deleted") == [
        (1, 1, 3, "a", False), (1, 3, 5, "b", False), (1, 5, None, "C", False), (2, 0, 9, "x", False),
        (2, 9, None, None, True),
    ]  # fmt: skip


VALUES = {
    "b": pa.array([True, None], pa.bool_()),
    "i1": pa.array([-128, None], pa.int8()),
    "i8": pa.array([-(2**63), None], pa.int64()),
    "f4": pa.array([1.5, None], pa.float32()),
    "f8": pa.array([0.1, None], pa.float64()),
    "n": pa.array([Decimal("12345678901234567890.12"), None], pa.decimal128(22, 2)),
    "s": pa.array(["a\"b,\\\n\t€'%?", ""], pa.string()),
    "y": pa.array([b"\x00\xff'\\", b""], pa.binary()),
    "d": pa.array([datetime.date(2026, 1, 2), None], pa.date32()),
    "z": pa.array([1_577_934_245_000_001, None], pa.timestamp("us", "America/New_York")),
    "t": pa.array([1_577_934_245_000_001, None], pa.timestamp("us")),
    'odd "name" %?': pa.array([1, None], pa.int32()),
    "j": pa.array(['{"a": [1, null]}', None], pa.string()),
}


def check_types(url: str) -> list[dict[str, Any]]:
    """Every type is stored without loss, in a table made for it, twice; the rows are returned."""
    to = destination(url, json_columns=("j",))
    rows = TableRows(pa.table(VALUES))
    for number in range(2):
        assert writing.write(to, rows, Batch("query", number, "run"))
    assert writing.check(to, rows.schema) is None
    keyed = destination(url, mode="upsert", keys=("s", "y", "i8"), order_by="t")
    only = TableRows(pa.table(VALUES).slice(0, 1))
    assert writing.write(keyed, only, Batch("query", 0, "run"))
    assert writing.write(keyed, only, Batch("query", 1, "run"))
    assert len(writing.content(keyed)) == 1
    return writing.content(to)


# --- the table that is there ------------------------------------------------------------------------------------------


def check_tables(url: str) -> None:
    to = upserts(url)
    execute(to, f'CREATE TABLE {to.table} (id BIGINT NOT NULL, "AT" BIGINT)')
    with pytest.raises(
        DatabaseRefused, match=r"no column value (TEXT|VARCHAR|LONGTEXT).*: add it, leave it out in SQL"
    ):
        write(to, 0, (1, 1, "a", False))
    adding = replace(to, add_columns=True)
    with pytest.raises(DatabaseRefused, match="no primary key or unique index on exactly id, the keys"):
        write(adding, 0, (1, 1, "a", False))
    execute(to, f"CREATE UNIQUE INDEX u{to.table} ON {to.table} (id)")
    write(adding, 0, (1, 1, "a", False))
    assert [tuple(row.values()) for row in writing.content(to)] == [(1, 1, "a")], "AT is at: case does not matter"

    if to.url.kind == "mysql":
        execute(to, f'CREATE UNIQUE INDEX v{to.table} ON {to.table} (id, "AT")')
        with pytest.raises(DatabaseRefused, match="the table has another unique index, on AT, id: MySQL would update"):
            write(adding, 1, (1, 1, "a", False))

    wrong = destination(url)
    execute(wrong, f'CREATE TABLE {wrong.table} (id DATE, "at" BIGINT, value VARCHAR(9), gone BOOLEAN)')
    with pytest.raises(DatabaseRefused, match=r"(?i)column id is date, which cannot hold the view's (bigint|integer)"):
        write(wrong, 0, (1, 1, "a", False))
    assert (problem := writing.check(wrong, changes().schema)) is not None
    assert problem.startswith("column id is ")

    strict = destination(url)
    execute(strict, f"CREATE TABLE {strict.table} (id BIGINT NOT NULL, \"at\" BIGINT, value VARCHAR(9), gone BOOLEAN,"
                    " more INTEGER NOT NULL)")  # fmt: skip
    with pytest.raises(DatabaseRefused, match="column more is NOT NULL and has no default, and the view has no such"):
        write(strict, 0, (1, 1, "a", False))

    lacking = destination(url, mode="upsert", keys=("id",), order_by="missing")
    with pytest.raises(DatabaseRefused, match="the rows have no column missing, which is to be order_by"):
        write(lacking, 0, (1, 1, "a", False))


def check_bad_rows(url: str) -> None:
    """A row that is refused is named, and nothing of its batch is stored."""
    to = destination(url)
    columns = 'id BIGINT NOT NULL, "at" SMALLINT CHECK ("at" < 100), value VARCHAR(5), gone BOOLEAN'
    execute(to, f"CREATE TABLE {to.table} ({columns})")
    good = [(number, 1, "a", False) for number in range(40)]
    with pytest.raises(RowRefused, match="row 41 of the batch is refused: column id, which is NOT NULL, is null"):
        write(to, 0, *good, (None, 1, "a", False))
    with pytest.raises(RowRefused, match=r"row 21 of the batch is refused: .*(?i:check|constraint)"):
        write(to, 0, *good[:20], (7, 100, "a", False), *good)
    assert stored(to, "id") == []
    keyed = upserts(url)
    write(keyed, 0, (1, 1, "a", False))
    with pytest.raises(
        RowRefused, match=r"row 2 of the batch \(id None\) is refused: column id, which is a key, is null"
    ):
        write(keyed, 1, (1, 2, "b", False), (None, 2, "b", False))
    assert stored(keyed, "id", "at") == [(1, 1)]
    versions = history(url)
    with pytest.raises(RowRefused, match=r"row 1 of the batch .* column valid_from, which is a key, is null"):
        write(versions, 0, (1, None, "a", False))


# --- exactly once -----------------------------------------------------------------------------------------------------


@dataclass
class Stepping:
    """A database that calls `before` before each of its steps."""

    real: Database
    before: Callable[[str], None]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.real, name)
        if name not in ("execute", "columns", "unique_keys", "stage", "load", "begin", "commit", "close"):
            return found

        def step(*arguments: Any) -> Any:
            self.before(name)
            return found(*arguments)

        return step


@contextmanager
def steps(to: Destination, before: Callable[[str], None]) -> Iterator[None]:
    """Within it, `before` is called before each step of a write; not in those that it makes itself."""
    driver: Any = driver_of(to.url.kind)
    connect = driver.connect

    def stepping(url: Any) -> Any:
        driver.connect = connect
        return Stepping(connect(url), before)

    driver.connect = stepping
    try:
        yield
    finally:
        driver.connect = connect


def check_two_drivers(url: str, every: int = 1) -> None:
    """Another driver writes everything at a step before the transaction: the first one stores nothing more."""
    for number in itertools.count(1, every):
        to, left, is_over = upserts(url), [number], list[str]()
        write(to, 0, (0, 0, "earlier", False), run="earlier")

        def interrupt(step: str, to: Destination = to, left: list[int] = left, is_over: list[str] = is_over) -> None:
            left[0] -= 1
            if left[0] == 0 and not is_over:
                assert write(to, 1, (1, 1, "b", False), run="b")
                assert write(to, 2, (2, 1, "b", False), run="b")
            if step == "begin":
                is_over.append(step)  # from here on the other one would wait

        with steps(to, interrupt):
            first = write(to, 1, (1, 1, "a", False), run="a")
        if left[0] > 0 or (is_over and first):
            assert number > 3
            return
        assert not first
        assert stored(to, "id", "value") == [(0, "earlier"), (1, "b"), (2, "b")]
        with pytest.raises(DriverFenced, match="another driver of query query has taken over, so batch 3"):
            write(to, 3, (3, 1, "a", False), run="earlier")
        assert write(to, 3, (3, 1, "b", False), run="b")


def check_waiting_driver(url: str) -> None:
    """A driver that comes while another one's transaction is open waits for it, and then finds the batch."""
    to = upserts(url)
    write(to, 0, (0, 0, "earlier", False))
    results: list[Any] = []
    other = threading.Thread(target=lambda: results.append(write(to, 1, (1, 1, "b", False), run="b")))

    def hold(step: str) -> None:
        if step == "commit":
            other.start()
            wait_until(other.is_alive, "the other driver runs")

    with steps(to, hold):
        assert write(to, 1, (1, 1, "a", False), run="a")
    other.join(PATIENCE_S)
    assert results == [False]
    assert stored(to, "id", "value") == [(0, "earlier"), (1, "a")]


# --- beside a dict ----------------------------------------------------------------------------------------------------

ROW = st.tuples(st.integers(0, 4), st.one_of(st.none(), st.integers(0, 6)), st.sampled_from("abc"), st.booleans())
BATCHES = st.lists(st.tuples(st.lists(ROW, max_size=8), st.booleans()), max_size=6)
"""Batches of rows, and whether each is repeated."""


def check_oracle(url: str, examples: int) -> None:
    """Random batches in all modes, with repetitions, have the rows that a dict has."""

    @settings(max_examples=deep(examples), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(BATCHES)
    def compare(batches: Sequence[tuple[Sequence[Change], bool]]) -> None:
        log, last, versions = destination(url), upserts(url), history(url)
        with_order = [([row for row in rows if row[1] is not None], repeats) for rows, repeats in batches]
        for to, given_batches in ((log, batches), (last, batches), (versions, with_order)):
            for number, (rows, is_repeated) in enumerate(given_batches):
                assert write(to, number, *rows)
                if is_repeated:
                    assert not write(to, number, *rows)
        if not batches:
            return
        everything = [row for rows, _ in batches for row in rows]
        assert stored(log, "id", "at", "value", "gone") == _sorted(everything)
        assert stored(last, "id", "at", "value") == _sorted(last_rows([rows for rows, _ in batches]))
        expected = _sorted(versions_of(row for rows, _ in with_order for row in rows))
        assert stored(versions, "id", "valid_from", "valid_to", "value", "deleted") == expected

    compare()


def _sorted(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: [(value is None, value) for value in row])


def last_rows(batches: Sequence[Sequence[Change]]) -> list[tuple[Any, ...]]:
    table: dict[int | None, tuple[int | None, str | None]] = {}
    for rows in batches:
        winners: dict[int | None, Change] = {}
        for row in rows:
            before = winners.get(row[0])
            if before is None or (-1 if row[1] is None else row[1]) >= (-1 if before[1] is None else before[1]):
                winners[row[0]] = row
        for key, order, value, gone in winners.values():
            if key in table and table[key][0] is not None and (order is None or order < (table[key][0] or 0)):
                continue
            table.pop(key, None)
            if not gone:
                table[key] = (order, value)
    return [(key, order, value) for key, (order, value) in table.items()]


def versions_of(rows: Iterable[Change]) -> list[tuple[Any, ...]]:
    table: dict[int | None, dict[int, tuple[str | None, bool]]] = {}
    for key, order, value, gone in rows:
        assert order is not None
        table.setdefault(key, {})[order] = (value, gone)
    found = []
    for key, versions in table.items():
        begins = sorted(versions)
        for begin, end in itertools.zip_longest(begins, begins[1:]):
            found.append((key, begin, end, *versions[begin]))
    return found


# --- keys that would join rows ----------------------------------------------------------------------------------------


def check_keys_that_join_texts(url: str, *types: str) -> None:
    """Keys of these types take different texts for the same: they are refused before a row is lost."""
    for kind in types:
        to = destination(url, mode="upsert", keys=("id",))
        execute(to, f"CREATE TABLE {to.table} (id {kind} NOT NULL UNIQUE, value INTEGER)")
        rows = TableRows(pa.table({"id": ["a", "A"], "value": [1, 2]}))
        with pytest.raises(DatabaseRefused, match=r"column id, a key, is .* takes different texts for the same"):
            writing.write(to, rows, Batch("query", 0, "run"))
        assert writing.check(to, rows.schema) is not None
        log = replace(to, mode="append", keys=())
        assert writing.write(log, TableRows(pa.table({"id": ["a"], "value": [1]})), Batch("query", 0, "run"))
