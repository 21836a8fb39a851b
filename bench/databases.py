"""How many rows a second a sink of a pipeline writes to a table: appends and upserts, beside plain ways to add them.

Rows have a key, a number, a text of 20 characters, a time and a decimal, in Arrow, as tasks hand them over. A batch of
`--rows` is one transaction. *Limit* is the fastest plain way of the driver to add these rows: COPY of ready CSV for
PostgreSQL, executemany of ready tuples for SQLite, an INSERT from Arrow for DuckDB. Upserts are to a table that has
all keys already; the limit and both modes take turns. A server is the system's PostgreSQL, fsync included. CPU time is
that of this process and of the server's sessions. Linux only.

    python -m bench.databases
    python -m bench.databases --rows 20000 --rounds 3 --only sqlite
"""

from __future__ import annotations

import argparse
import io
import itertools
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from harness import postgresql

from moldau.databases.batches import Batch
from moldau.databases.columns import columns_of
from moldau.databases.destinations import Destination
from moldau.databases.rows import TableRows
from moldau.databases.sql import TableName
from moldau.databases.sqlite import values_of
from moldau.databases.urls import parse_url
from moldau.databases.writing import write

KINDS = ("postgresql", "sqlite", "duckdb")
_numbers = itertools.count()


def rows_of(count: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "n": pa.array((number * 7919 % count for number in range(count)), pa.int64()),
            "name": pa.array(f"{number:020}" for number in range(count)),
            "at": pa.array((number * 1_000_000 for number in range(count)), pa.timestamp("us", "UTC")),
            "amount": pa.array((Decimal(number) / 100 for number in range(count)), pa.decimal128(12, 2)),
        }
    )


@contextmanager
def database(kind: str, folder: Path) -> Iterator[tuple[str, Callable[[], float]]]:
    """Yield the URL, and the function that returns the CPU seconds so far."""
    if kind != "postgresql":
        yield f"{kind}:///{folder}/out.{kind}", time.process_time
        return
    with postgresql.postgresql(folder, fsync="on", shared_buffers="128MB", wal_level="replica") as server:
        yield server.url, lambda: time.process_time() + ended_children_s(server.pid)


def ended_children_s(pid: int) -> float:
    """Return the CPU seconds of the process's children that have ended: of PostgreSQL, each session is one."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def limit_of(kind: str, url: str, rows: pa.Table) -> Callable[[], None]:
    """Return a function that adds the rows to a new table, in a transaction; what can be is prepared before."""
    return {"postgresql": _copy, "sqlite": _executemany, "duckdb": _insert}[kind](url, rows)


def _copy(url: str, rows: pa.Table) -> Callable[[], None]:
    import psycopg

    content = io.BytesIO()
    pa.csv.write_csv(rows, content, pa.csv.WriteOptions(include_header=False))

    def run() -> None:
        with psycopg.connect(url) as connection:
            table = f"plain{next(_numbers)}"
            connection.execute(
                f"CREATE TABLE {table} (id BIGINT, n BIGINT, name TEXT, at TIMESTAMPTZ, amount NUMERIC(12,2))"
            )
            with connection.cursor().copy(f"COPY {table} FROM STDIN WITH (FORMAT csv)") as copy:
                copy.write(content.getbuffer())

    return run


def _executemany(url: str, rows: pa.Table) -> Callable[[], None]:
    arrays = [column.combine_chunks() for column in rows.columns]
    values = [values_of(column, array) for column, array in zip(columns_of(rows.schema), arrays, strict=True)]
    tuples = list(zip(*values, strict=True))

    def run() -> None:
        with closing(sqlite3.connect(parse_url(url).path)) as connection, connection:
            table = f"plain{next(_numbers)}"
            connection.execute(f"CREATE TABLE {table} (id INTEGER, n INTEGER, name TEXT, at DATETIME, amount TEXT)")
            connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?)", tuples)

    return run


def _insert(url: str, rows: pa.Table) -> Callable[[], None]:
    import duckdb

    def run() -> None:
        with closing(duckdb.connect(parse_url(url).path)) as connection:
            connection.register("arriving", rows)
            connection.execute(f"CREATE TABLE plain{next(_numbers)} AS SELECT * FROM arriving")

    return run


def measure(kind: str, count: int, rounds: int) -> None:
    rows = rows_of(count)
    with tempfile.TemporaryDirectory(prefix="moldau-bench-") as folder, database(kind, Path(folder)) as (url, cpu_s):
        at = parse_url(url)
        log = Destination(url=at, table=TableName("log"))
        last = Destination(url=at, table=TableName("last"), mode="upsert", keys=("id",), order_by="n")
        limit = limit_of(kind, url, rows)
        works: dict[str, Callable[[int], object]] = {
            "limit": lambda number: limit(),
            "append": lambda number: write(log, TableRows(rows), Batch("bench", number, "run")),
            "upsert": lambda number: write(last, TableRows(rows), Batch("bench", number, "run")),
        }
        rates: dict[str, list[float]] = {name: [] for name in works}
        cpu_us: dict[str, list[float]] = {name: [] for name in works}
        for number in range(rounds + 1):
            for name, work in works.items():
                began, cpu_began = time.perf_counter(), cpu_s()
                work(number)
                if number:  # the first round creates the tables
                    took_s = time.perf_counter() - began
                    time.sleep(0.2)  # until the session has ended
                    rates[name].append(count / took_s)
                    cpu_us[name].append(1e6 * (cpu_s() - cpu_began) / count)
    cells = [
        f"{statistics.median(each):,.0f} ({min(each):,.0f}–{max(each):,.0f}); {statistics.median(cpu_us[name]):.1f} µs"
        for name, each in rates.items()
    ]
    print(f"| {kind} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=KINDS, action="append")
    options = parser.parse_args()
    print("| rows/s: median (lowest–highest); CPU time of a row | limit | append | upsert of existing keys |")
    print("|---|--:|--:|--:|")
    for kind in options.only or KINDS:
        if kind == "postgresql" and (reason := postgresql.why_none()) is not None:
            print(f"| {kind} | {reason} | | |")
        else:
            measure(kind, options.rows, options.rounds)


if __name__ == "__main__":
    main()
