"""The changes of a SQLite table by a column that grows."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moldau.databases.changes.address import parse_address
from moldau.databases.changes.columns import Column
from moldau.databases.changes.errors import ChangesRefused
from moldau.databases.changes.growing import GrowingStream, read_growing, read_present, sqlite_columns
from moldau.databases.changes.options import ChangeOptions


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "my shop.db"
    execute(path, "CREATE TABLE orders (id INTEGER PRIMARY KEY, total REAL, photo BLOB, note TEXT, changed TEXT)")
    return path


def execute(path: Path, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql, values)


def options_of(path: Path, column: str = "changed", **more: Any) -> ChangeOptions:
    address = parse_address(f"sqlite:///{str(path).replace(' ', '%20')}")
    columns = sqlite_columns(address, "orders", ("id",))
    return ChangeOptions(
        address=address, table=("", "orders"), columns=columns, pipeline="p", source="s", growing=column, **more
    )


def run(options: ChangeOptions, start: dict[str, Any]) -> tuple[list[tuple[int, str]], dict[str, Any]]:
    stream = GrowingStream(options)
    stream.fix_target()
    rows = []
    while (end := stream.next_end(start)) != start:
        for piece in stream.pieces(start, end):
            for batch in read_growing(options, piece):
                rows += [(row["id"], row["note"]) for row in batch.to_pylist()]
        start = end
    return rows, start


def test_rows_that_change_come_again(database: Path) -> None:
    for number in range(1, 6):
        at = f"2026-01-0{(number + 1) // 2}"
        execute(database, "INSERT INTO orders VALUES (?, 1.5, x'00ff', ?, ?)", number, f"n{number}", at)
    execute(database, "INSERT INTO orders (id) VALUES (9)")
    options = options_of(database, rows_max=2)
    rows, end = run(options, {})
    assert rows == [(1, "n1"), (2, "n2"), (3, "n3"), (4, "n4"), (5, "n5")], "a row without a time is not read"
    assert end == {"after": "2026-01-03"}
    execute(database, "UPDATE orders SET note = 'new', changed = '2026-02-01' WHERE id = 2")
    assert run(options, end) == ([(2, "new")], {"after": "2026-02-01"})
    row = next(iter(read_present(options))).to_pylist()[0]
    assert (row["total"], row["photo"], row["_op"]) == (1.5, b"\0\xff", "u")


def test_equal_values_are_not_divided(database: Path) -> None:
    for number in range(5):
        execute(database, "INSERT INTO orders (id, note, changed) VALUES (?, '', 'same')", number)
    stream = GrowingStream(options_of(database, rows_max=2))
    assert stream.next_end({}) == {"after": "same"}
    rows, _ = run(options_of(database, "id", rows_max=2), {})
    assert [row[0] for row in rows] == [0, 1, 2, 3, 4]


def test_what_is_missing_is_refused(database: Path, tmp_path: Path) -> None:
    with pytest.raises(ChangesRefused, match="has no table orders"):
        options_of(_empty(tmp_path))
    with pytest.raises(ChangesRefused, match="unable to open"):
        options_of(tmp_path / "none.db")
    execute(database, "INSERT INTO orders (id, total, changed) VALUES (1, 'many', 'a')")
    with pytest.raises(ChangesRefused, match="column total: 'many' is not a double"):
        run(options_of(database), {})


def test_a_name_that_is_no_column_is_refused(database: Path) -> None:
    """SQLite would take it for a text."""
    execute(database, "INSERT INTO orders (id, changed) VALUES (1, 'a')")
    options = options_of(database)
    other_case = replace(options, columns=(Column("ID", "bigint"),), growing="CHANGED")
    assert [batch["ID"].to_pylist() for batch in read_present(other_case)] == [[1]]
    typo = replace(options, columns=(*options.columns, Column("totl", "double")))
    for wrong, name in ((typo, "totl"), (replace(options, growing="chnged"), "chnged")):
        with pytest.raises(ChangesRefused, match=f"has no column {name}; it has id, total, photo, note, changed"):
            run(wrong, {})
        with pytest.raises(ChangesRefused, match=f"has no column {name}"):
            GrowingStream(wrong).next_end({})
        with pytest.raises(ChangesRefused, match=f"has no column {name}"):
            list(read_present(wrong))
    with pytest.raises(ChangesRefused, match="has no column idd"):
        sqlite_columns(options.address, "orders", ("idd",))


KILLED = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE orders SET note = 'half written' || note")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_writer_that_was_killed_in_a_transaction(database: Path) -> None:
    """Its changes are rolled back by whoever comes next."""
    with closing(sqlite3.connect(database)) as connection, connection:
        values = [(number, "x" * 3_000) for number in range(200)]
        connection.executemany("INSERT INTO orders (id, note, changed) VALUES (?, ?, 'a')", values)
    subprocess.run([sys.executable, "-c", KILLED, str(database)], check=False)
    assert database.with_name("my shop.db-journal").stat().st_size > 0
    rows, _ = run(options_of(database), {})
    assert rows == values


def _empty(folder: Path) -> Path:
    path = folder / "empty.db"
    execute(path, "CREATE TABLE other (x)")
    return path
