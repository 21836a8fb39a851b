"""Drives a stream of a database's changes as Spark does, with crashes at any step, and checks what comes out.

The writers give each row a version that each update raises by one, so that in the output of a key every change is there
once and in order, or a gap or a repetition shows.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import psycopg

from harness.postgresql import PostgreSQL
from moldau.databases.changes.address import parse_address
from moldau.databases.changes.offsets import Offset
from moldau.databases.changes.options import ChangeOptions, read_options
from moldau.databases.changes.reading import read_piece
from moldau.databases.changes.stream import ChangeStream
from moldau.databases.changes.tables import look_up_columns

Row = dict[str, Any]


class Crash(Exception):
    """The process of the query dies here."""


def options_for(server: PostgreSQL, folder: Path, table: str = "public.orders", **more: Any) -> ChangeOptions:
    """Return the options as a pipeline passes them, through their texts."""
    schema, _, name = table.partition(".")
    address = parse_address(server.url)
    directory = folder / "databases" / "orders"
    made = ChangeOptions(
        address=address, table=(schema, name), columns=look_up_columns(address, (schema, name), directory),
        pipeline="shop", source="orders", directory=directory, checkpoints=folder / "checkpoints",
    )  # fmt: skip
    return replace(read_options(made.to_spark()), **more)


class ChangesQuery:
    """The part of a streaming query that matters to its source: planned and committed batches, and their rows."""

    def __init__(self, options: ChangeOptions, folder: Path, crash: Callable[[str], None] = lambda step: None) -> None:
        self._options, self._crash = options, crash
        self._log = folder / "checkpoints" / "mirror" / "offsets"
        self._log.mkdir(parents=True, exist_ok=True)
        self.ends: list[dict[str, Any]] = []
        self.committed = 0
        self.output: dict[int, list[Row]] = {}
        self.is_bounded = False
        self.stream = self._new_stream()

    def _new_stream(self) -> ChangeStream:
        stream = ChangeStream(self._options)
        if self.is_bounded:
            stream.fix_target()
        return stream

    def _end_of(self, count: int) -> Offset:
        return Offset.from_json(self.ends[count - 1]) if count else self.stream.initial()

    def step(self) -> bool:
        """Plan a batch unless one is planned, run it, commit it; return whether there was one. A Crash inside makes a
        new stream, and the next step goes on from what is noted."""
        try:
            return self._step()
        except Crash:
            self.restart()
            return True

    def restart(self) -> None:
        self.stream.close()
        self.stream = self._new_stream()

    def _step(self) -> bool:
        start = self._end_of(self.committed)
        if len(self.ends) == self.committed:
            self._crash("before planning")
            end = self.stream.next_end(start)
            self._crash("after planning")
            if end == start:
                return False
            self.ends.append(json.loads(json.dumps(end.to_json())))
            (self._log / str(self.committed)).write_text("v1\n{}\n" + json.dumps(end.to_json()))
            self._crash("after noting the plan")
        end = self._end_of(self.committed + 1)
        rows = [
            row
            for piece in self.stream.pieces(start, end)
            for batch in read_piece(self._options, piece)
            for row in batch.to_pylist()
        ]
        repeated = self.output.get(self.committed)
        assert repeated is None or repeated == rows, "the same offsets gave other rows"
        self.output[self.committed] = rows
        self._crash("after reading")
        self.committed += 1
        self._crash("after the commit")
        return True

    def run_until(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            self.step()

    def finish(self) -> None:
        """Read what there is now."""
        self.is_bounded = True
        self.restart()
        while self.step():
            pass
        self.is_bounded = False
        self.restart()

    @property
    def rows(self) -> list[Row]:
        return [row for number in sorted(self.output) for row in self.output[number]]


def check_exactly_once(rows: list[Row], table: Mapping[int, int]) -> None:
    """Check that the changes are in the order of their commits, and check_versions."""
    order = [(row["_lsn"], row["_index"]) for row in rows if row["_op"] != "r"]
    assert order == sorted(set(order)), "changes are not in the order of their commits, or are repeated"
    check_versions(rows, table)


def check_versions(rows: Iterable[Row], table: Mapping[int, int]) -> None:
    """Check that each key's changes are there once and in order, and end at the table: {id: version}."""
    now: dict[int, int] = {}
    for row in rows:
        key, version, op = row["id"], row["version"], row["_op"]
        if op in ("r", "c"):
            assert key not in now, f"{row} is inserted twice"
            assert op == "r" or version == 0, f"{row} comes without its earlier changes"
            now[key] = version
        elif op == "u":
            assert now.get(key) == version - 1, f"{row} comes after version {now.get(key)}"
            now[key] = version
        else:
            assert op == "d"
            assert key in now, f"{row} is deleted and was not there"
            del now[key]
    assert now == dict(table)


class Writers:
    """Threads that insert, update and delete rows in transactions of random length, some of which roll back."""

    def __init__(self, server: PostgreSQL, count: int, seed: int, pause_s: float = 0.01, old_rows: int = 0) -> None:
        """Besides keys of their own they change some of the rows of `make_table`, each writer its share."""
        self._server, self._stop, self._pause_s = server, threading.Event(), pause_s
        self._old_rows = old_rows // count
        self.transactions = 0
        self.failures: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(number, Random(f"{seed}/{number}")), daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert not self.failures, self.failures

    def _run(self, number: int, random: Random) -> None:
        keys = list(range(number * 1_000_000, number * 1_000_000 + 30))
        first = 1 + number * self._old_rows
        old_keys = range(-first, -first - self._old_rows, -1)
        try:
            while not self._stop.is_set():
                try:
                    with closing(psycopg.connect(self._server.url)) as connection:
                        while not self._stop.is_set():
                            self._transaction(connection, keys, old_keys, random)
                except psycopg.OperationalError:  # the server was killed: the table says what it kept
                    self._stop.wait(0.05)
        except BaseException as error:
            self.failures.append(error)

    def _transaction(
        self, connection: psycopg.Connection[Any], keys: Sequence[int], old_keys: Sequence[int], random: Random
    ) -> None:
        for _ in range(random.choice((1, 1, 2, 5, 20))):
            key = random.choice(old_keys if old_keys and random.random() < 0.5 else keys)
            is_undone = random.random() < 0.2
            if is_undone:
                connection.execute("SAVEPOINT a")
            change(connection, key, random)
            if is_undone and random.random() < 0.5:
                connection.execute("ROLLBACK TO a")
        if random.random() < 0.15:
            connection.rollback()
        else:
            connection.commit()
        self.transactions += 1
        if random.random() < 0.5:
            self._stop.wait(random.random() * self._pause_s)


def change(connection: psycopg.Connection[Any], key: int, random: Random) -> None:
    action = random.random()
    if action < 0.15:
        connection.execute("DELETE FROM orders WHERE id = %s", (key,))
    else:
        connection.execute(
            "INSERT INTO orders (id, version, note) VALUES (%s, 0, %s) ON CONFLICT (id) DO UPDATE"
            " SET version = orders.version + 1",
            (key, "x" * random.randrange(60)),
        )


def make_table(server: PostgreSQL, rows: int) -> None:
    server.query("DROP TABLE IF EXISTS orders")
    server.query("CREATE TABLE orders (id bigint PRIMARY KEY, version int NOT NULL, note text)")
    server.query("INSERT INTO orders SELECT -g, 0, 'old' FROM generate_series(1, %s) g", rows)


def table_now(server: PostgreSQL) -> dict[int, int]:
    return dict(server.query("SELECT id, version FROM orders"))  # type: ignore[arg-type]
