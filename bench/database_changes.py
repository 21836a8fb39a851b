"""How fast do the changes of a PostgreSQL table become Arrow rows, beside pg_recvlogical, and how soon is each there?

    python -m bench.database_changes --postgresql postgresql://user:password@localhost/scratch

The server needs wal_level = logical, the user may create tables, publications and slots. The table `moldau_bench` is
made and dropped. Without Spark: the stream is asked for the end of a batch and its rows are read, in one process.
pg_recvlogical, which PostgreSQL brings, receives the same changes with the same plugin and writes them to /dev/null:
the limit. Latency is the time from the return of a commit until its row is there, at 50 commits of one row a second.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from moldau.databases.changes.address import parse_address
from moldau.databases.changes.offsets import Offset
from moldau.databases.changes.options import ChangeOptions
from moldau.databases.changes.postgresql import drop_publication, drop_slot
from moldau.databases.changes.reading import read_piece
from moldau.databases.changes.stream import ChangeStream
from moldau.databases.changes.tables import look_up_columns

TABLE = "moldau_bench"
ROWS_OF_TRANSACTION = 100
COMMITS_PER_SECOND = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--postgresql", metavar="URL", required=True)
    parser.add_argument("--rows", type=int, default=200_000, help="rows of the snapshot, and changes of each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="for how long latency is measured")
    parser.add_argument("--recvlogical", default=shutil.which("pg_recvlogical"), help="the path of pg_recvlogical")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    chosen = parser.parse_args()
    with closing(psycopg.connect(chosen.postgresql, autocommit=True)) as connection, _table(connection):
        lines = _measure(chosen, connection)
    print("\n".join(lines))
    if chosen.markdown:
        chosen.markdown.write_text("\n".join(lines) + "\n")


@contextmanager
def _table(connection: psycopg.Connection[Any]) -> Iterator[None]:
    connection.execute(f"DROP TABLE IF EXISTS {TABLE}")
    connection.execute(
        f"CREATE TABLE {TABLE} (id bigint PRIMARY KEY, customer text, total numeric(10, 2), at timestamptz, note text)"
    )
    try:
        yield
    finally:
        connection.execute(f"DROP TABLE {TABLE}")


def _measure(chosen: argparse.Namespace, connection: psycopg.Connection[Any]) -> list[str]:
    insert = (
        f"INSERT INTO {TABLE} SELECT g, 'customer ' || g, g %% 1000, now(), repeat('n', 60)"
        " FROM generate_series(%s::bigint, %s::bigint) g"
    )
    connection.execute(insert, (1, chosen.rows))
    with tempfile.TemporaryDirectory() as folder:
        address = parse_address(chosen.postgresql)
        table = ("public", TABLE)
        options = ChangeOptions(
            address=address, table=table, columns=look_up_columns(address, table, None), pipeline="bench",
            source=TABLE, directory=Path(folder),
        )  # fmt: skip
        stream = ChangeStream(options)
        stream.fix_target()
        began = time.perf_counter()
        rows, at = _drain(stream, options, Offset())
        snapshot = rows / (time.perf_counter() - began)
        stream.close()
        assert at.slot is not None
        try:
            ours, cpu, limits = [], [], []
            for _ in range(chosen.rounds):
                for first in range(1, chosen.rows, ROWS_OF_TRANSACTION):
                    connection.execute(
                        f"UPDATE {TABLE} SET total = total + 1 WHERE id BETWEEN %s AND %s",
                        (first, first + ROWS_OF_TRANSACTION - 1),
                    )
                if chosen.recvlogical:
                    limits.append(chosen.rows / _receive(chosen, connection, options))
                stream = ChangeStream(options)
                stream.fix_target()
                began, cpu_began = time.perf_counter(), time.process_time()
                rows, at = _drain(stream, options, at)
                assert rows == chosen.rows, f"{rows} of {chosen.rows} changes"
                cpu.append((time.process_time() - cpu_began) / rows * 1e6)
                ours.append(rows / (time.perf_counter() - began))
                stream.close()
            latencies = _latencies(chosen, options, at)
        finally:
            drop_slot(connection, address, at.slot)
            drop_publication(connection, address, options.publication)
    limit = f"{statistics.median(limits):,.0f}" if limits else "-"
    percentiles = statistics.quantiles(latencies, n=100)
    return [
        "| | |",
        "|---|--:|",
        f"| changes → Arrow, rows/s, median of {chosen.rounds} | {statistics.median(ours):,.0f} |",
        f"| CPU time of the reader, µs a row | {statistics.median(cpu):,.1f} |",
        f"| pg_recvlogical to /dev/null, rows/s | {limit} |",
        f"| snapshot → files → Arrow, rows/s | {snapshot:,.0f} |",
        f"| commit → row, p50 | {statistics.median(latencies) * 1000:,.0f} ms |",
        f"| commit → row, p99 of {len(latencies)} | {percentiles[98] * 1000:,.0f} ms |",
    ]


def _drain(stream: ChangeStream, options: ChangeOptions, at: Offset) -> tuple[int, Offset]:
    """Read up to the end; return the number of rows and the position."""
    rows = 0
    while (end := stream.next_end(at)) != at:
        rows += sum(batch.num_rows for piece in stream.pieces(at, end) for batch in read_piece(options, piece))
        at = end
    return rows, at


def _receive(chosen: argparse.Namespace, connection: psycopg.Connection[Any], options: ChangeOptions) -> float:
    """Return how many seconds pg_recvlogical takes for the changes that wait, from a copy of the slot."""
    (slot,) = connection.execute(
        "SELECT slot_name FROM pg_replication_slots WHERE slot_name LIKE 'moldau_bench_%%'"
    ).fetchone() or ("",)
    connection.execute("SELECT pg_copy_logical_replication_slot(%s, 'moldau_recv')", (slot,))
    (end,) = connection.execute("SELECT pg_current_wal_lsn()::text").fetchone() or ("",)
    connection.execute("SELECT pg_switch_wal()")
    command = [
        chosen.recvlogical, "--dbname", chosen.postgresql, "--slot", "moldau_recv", "--start", "--file", "/dev/null",
        "--endpos", end, "--no-loop", "--option", "proto_version=1", "--option",
        f"publication_names={options.publication}",
    ]  # fmt: skip
    began = time.perf_counter()
    subprocess.run(command, check=True)
    took = time.perf_counter() - began
    connection.execute("SELECT pg_drop_replication_slot('moldau_recv')")
    return took


def _latencies(chosen: argparse.Namespace, options: ChangeOptions, at: Offset) -> list[float]:
    """Return the seconds from the return of each commit until its row is there."""
    committed: dict[int, float] = {}
    is_over = threading.Event()

    def write() -> None:
        with closing(psycopg.connect(chosen.postgresql, autocommit=True)) as connection:
            for key in range(1, round(chosen.seconds * COMMITS_PER_SECOND) + 1):
                connection.execute(f"UPDATE {TABLE} SET total = 0 WHERE id = %s", (key,))
                committed[key] = time.perf_counter()
                time.sleep(1 / COMMITS_PER_SECOND)
        is_over.set()

    stream = ChangeStream(options)
    at = stream.next_end(at)
    writing = threading.Thread(target=write)
    writing.start()
    seen: dict[int, float] = {}
    while not is_over.is_set() or len(seen) < len(committed):
        end = stream.next_end(at)
        keys = [
            key
            for piece in stream.pieces(at, end)
            for batch in read_piece(options, piece)
            for key in batch.column("id").to_pylist()
        ]
        now = time.perf_counter()
        seen |= dict.fromkeys(keys, now)
        at = end
    writing.join()
    stream.close()
    return [max(0.0, seen[key] - committed[key]) for key in committed]


if __name__ == "__main__":
    main()
