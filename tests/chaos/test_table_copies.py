"""A table is copied while it changes, through a topic, into another database, by two pipelines. Their drivers, Python
processes of Spark, the broker and the databases are killed (-9) at random: in the end both tables have the same rows.

A long test: `make chaos`. MOLDAU_CHAOS_ROWS (1,000,000) is the size of the table at first, MOLDAU_CHAOS_KILLS (20) how
often something is killed in each test, each kind equally often, and MOLDAU_CHAOS_SEED changes what and when.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from itertools import cycle, islice, zip_longest
from pathlib import Path
from typing import Any

import psycopg
import pytest
from chaos_pipeline import PARTITIONS, SEED, start
from confluent_kafka.admin import AdminClient, NewTopic
from harness.changes_query import Writers
from harness.patience import PATIENCE_S, wait_until
from harness.postgresql import PostgreSQL, postgresql, why_none
from harness.restartable_broker import RestartableBroker
from harness.spark_processes import python_processes
from sqlite_writer import COLUMNS as SQLITE_COLUMNS

from moldau.base.ids import TopicPartition
from moldau.client.cluster import Cluster

ROWS = int(os.environ.get("MOLDAU_CHAOS_ROWS", "1000000"))
KILLS = int(os.environ.get("MOLDAU_CHAOS_KILLS", "20"))
BATCH_ROWS = max(2_000, ROWS // 50)
LONGEST_PAUSE_S = 10.0
"""Before a kill; before most kills a batch is awaited as well."""
pytestmark = pytest.mark.counts_always
NEEDS_POSTGRESQL = pytest.mark.skipif(why_none() is not None, reason=why_none() or "")
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
Kill = Callable[[], None]
Row = tuple[Any, ...]

COLUMNS = "id, version, note, total, at, local, day, ratio, is_paid, raw"
TYPES = (
    "id bigint not null, version int, note string, total decimal(12,2), at timestamp, local timestamp_ntz, day date,"
    " ratio double, is_paid boolean, raw binary"
)
TABLE = """
CREATE TABLE orders (id bigint PRIMARY KEY, version int NOT NULL, note text, total numeric(12, 2), at timestamptz,
                     local timestamp, day date, ratio double precision, is_paid boolean, raw bytea);
CREATE FUNCTION other_values() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  NEW.total := round((random() * 1e9)::numeric, 2); NEW.at := clock_timestamp(); NEW.local := NEW.at - interval '1 day';
  NEW.day := NEW.at - random() * interval '9999 days'; NEW.ratio := random() - 0.5;
  NEW.is_paid := nullif((random() * 2)::int, 2)::boolean; NEW.raw := decode(md5(random()::text), 'hex');
  RETURN NEW;
END $$;
CREATE TRIGGER other_values BEFORE INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION other_values();
INSERT INTO orders SELECT -n, 0, nullif('old ' || n, 'old 7') FROM generate_series(1, {rows}) n;
"""
FROM_POSTGRESQL = """
name: there
sources:
  orders: {{database: "{url}", table: orders, changes: true, max_per_trigger: {batch_rows}}}
sinks:
  - {{from: orders, topic: orders{format}}}
"""
TO_POSTGRESQL = {
    "rows": """
name: here
sources:
  orders: {{topic: orders, schema: "{types}", tombstone: row, max_per_trigger: {batch_rows}}}
steps:
  - name: changed
    sql: >-
      select {columns}, version is null as gone
      from (select * except (id), cast(get_json_object(_key, '$.id') as bigint) as id from orders)
sinks:
  - {{from: changed, database: "{url}", table: orders, mode: upsert, keys: [id], delete_when: gone}}
""",
    "debezium": """
name: here
sources:
  orders: {{topic: orders, format: debezium, schema: "{types}", tombstone: row, max_per_trigger: {batch_rows}}}
steps:
  - {{name: changed, sql: "select {columns}, _op = 'd' as gone from orders"}}
sinks:
  - {{from: changed, database: "{url}", table: orders, mode: upsert, keys: [id], delete_when: gone}}
""",
}
FROM_SQLITE = """
name: there
sources:
  orders:
    {{database: "sqlite:///{file}", table: orders, key: id, changes: {{column: seq}}, max_per_trigger: {batch_rows}}}
sinks:
  - {{from: orders, topic: orders}}
"""
TO_FILES = """
name: here
sources:
  orders:
    topic: orders
    schema: id bigint not null, seq bigint, version bigint, note string, ratio double, raw binary, gone bigint
    max_per_trigger: {batch_rows}
sinks:
  - {{from: orders, name: duckdb, database: "duckdb:///out.duckdb", table: orders, mode: upsert, keys: [id],
     delete_when: gone = 1}}
  - {{from: orders, name: sqlite, database: "sqlite:///out.db", table: orders, mode: upsert, keys: [id],
     delete_when: gone = 1, options: {{order_by: seq}}}}
"""


class Driver:
    """A pipeline in a directory of its own, run by a driver that is started again when it was killed."""

    def __init__(self, folder: Path, bootstrap: str, spec: str) -> None:
        folder.mkdir()
        (folder / "chaos.yaml").write_text(spec)
        self._folder, self._bootstrap = folder, bootstrap
        self._process = self._start()

    def _start(self, *options: str) -> subprocess.Popen[bytes]:
        log = self._folder / "run.log"
        self._began_at = log.stat().st_size if log.exists() else 0
        return start(self._folder, self._bootstrap, *options)

    def restart(self) -> None:
        self.kill()
        self._process = self._start()

    def kill(self) -> None:
        """Kill the driver's Python, its JVM and their workers at once: they share a process group."""
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def kill_python(self, chance: random.Random) -> None:
        """Kill one of Spark's Python processes: a worker, their daemon, a source, or the server that forks them."""
        found = wait_until(lambda: sorted(python_processes(self._process.pid)), self._awaited("Python"), self.progress)
        with suppress(ProcessLookupError):  # it ended meanwhile
            os.kill(chance.choice(found), signal.SIGKILL)

    def batches(self) -> list[str]:
        """Return the last micro-batches that are done."""
        return sorted(path.name for path in self._folder.glob(".moldau/pipelines/*/checkpoints/*/commits/[0-9]*"))

    def progress(self) -> int:
        """Return a number that changes as long as something is written: snapshots, batches, the log."""
        found = 0
        for path in self._folder.rglob("*"):
            with suppress(FileNotFoundError):
                found += path.stat().st_size
        return found

    def check(self) -> None:
        """A run that finds nobody at its start ends, and is started again; later it never ends by itself."""
        if self._process.poll() is not None:
            said = (self._folder / "run.log").read_bytes()[self._began_at :].decode()
            assert " running · " not in said, f"the run ended by itself: {self.log()}"
            print(f"{self._folder.name} is started again: {said.splitlines()[-1]}", flush=True)
            self._process = self._start()

    def wait_for_batch(self, before: list[str]) -> None:
        def is_done() -> bool:
            self.check()
            return self.batches() != before

        wait_until(is_done, self._awaited("a batch"), self.progress, every_s=0.1)

    def finish(self) -> None:
        """Stop, then run until there is nothing more."""
        self.kill()
        self._process = self._start("--until-caught-up")
        wait_until(lambda: self._process.poll() is not None, self._awaited("the end"), self.progress, every_s=0.5)
        assert self._process.wait() == 0, self.log()

    def log(self) -> str:
        return (self._folder / "run.log").read_text()[-5000:]

    def _awaited(self, what: str) -> Callable[[], str]:
        return lambda: f"{what} of {self._folder.name}: {self.log()}"


@contextmanager
def drivers(folder: Path, bootstrap: str, there: str, here: str) -> Iterator[tuple[Driver, Driver]]:
    """The pipelines from the table to the topic and from the topic to the other table."""
    make_topic(bootstrap)
    both = Driver(folder / "there", bootstrap, there), Driver(folder / "here", bootstrap, here)
    try:
        yield both
    finally:
        for each in both:
            each.kill()


def make_topic(bootstrap: str) -> None:
    """It is compacted meanwhile."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("orders", PARTITIONS, config=COMPACTED)])["orders"].result(PATIENCE_S)


def kill_at_random(chance: random.Random, pipelines: tuple[Driver, Driver], more: Mapping[str, Kill]) -> None:
    there, here = pipelines
    kinds: Mapping[str, Kill] = {
        "the first driver": there.restart,
        "the second driver": here.restart,
        "Python of the first driver": lambda: there.kill_python(chance),
        "Python of the second driver": lambda: here.kill_python(chance),
        **more,
    }
    kills = list(islice(cycle(kinds), KILLS))
    chance.shuffle(kills)
    for number, kind in enumerate(kills):
        if chance.random() < 0.8:
            pipeline = chance.choice(pipelines)
            pipeline.wait_for_batch(pipeline.batches())
        time.sleep(chance.uniform(0, LONGEST_PAUSE_S))
        for pipeline in pipelines:
            pipeline.check()
        kinds[kind]()
        print(f"kill {number + 1} of {KILLS}: {kind}", flush=True)


def restarted(killed: PostgreSQL | RestartableBroker) -> Kill:
    def kill() -> None:
        killed.kill()
        killed.start()

    return kill


def check_no_bad_records(bootstrap: str) -> None:
    places = [TopicPartition("orders.dead", partition) for partition in range(PARTITIONS)]
    with closing(Cluster(bootstrap, {})) as cluster:
        if "orders.dead" in cluster.topics():
            assert not any(cluster.latest(places).values()), "there are bad records"


def check_equal(first: Iterator[Row], second: Iterator[Row]) -> None:
    """Both are sorted by their first column, the key."""
    count = 0
    for one, other in zip_longest(first, second):
        differing = [pair for pair in zip(one or (), other or (), strict=False) if pair[0] != pair[1]]
        assert one == other, f"after {count:,} equal rows the tables differ: {differing}: {one}, {other}"
        count += 1
    print(f"{count:,} rows are equal", flush=True)


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


@NEEDS_POSTGRESQL
@pytest.mark.parametrize("format", ["rows", "debezium"])
def test_a_table_of_postgresql_is_copied(format: str, restartable_broker: RestartableBroker, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    with postgresql(tmp_path / "first", max_wal_size="4GB") as first, postgresql(tmp_path / "second") as second:
        first.query(TABLE.format(rows=ROWS))
        written = "" if format == "rows" else f", format: {format}"
        there = FROM_POSTGRESQL.format(url=first.url, batch_rows=BATCH_ROWS, format=written)
        here = TO_POSTGRESQL[format].format(url=second.url, types=TYPES, columns=COLUMNS, batch_rows=BATCH_ROWS)
        writers = Writers(first, 2, SEED, pause_s=0.5, old_rows=ROWS)
        kills = {
            "the broker": restarted(restartable_broker),
            "the first database": restarted(first),
            "the second database": restarted(second),
        }
        with drivers(tmp_path, restartable_broker.bootstrap, there, here) as pipelines:
            kill_at_random(random.Random(SEED), pipelines, kills)
            writers.stop()
            for each in pipelines:
                each.finish()
        print(f"{writers.transactions:,} transactions were written meanwhile", flush=True)
        check_equal(rows_of(first), rows_of(second))
        check_no_bad_records(restartable_broker.bootstrap)
        assert len(first.query("SELECT slot_name FROM pg_replication_slots")) == 1


def rows_of(server: PostgreSQL) -> Iterator[Row]:
    with psycopg.connect(server.url) as connection, connection.cursor(name="rows") as cursor:
        cursor.itersize = 10_000
        yield from cursor.execute(f"SELECT {COLUMNS} FROM orders ORDER BY id")  # type: ignore[call-overload]


# --- files ------------------------------------------------------------------------------------------------------------


class SqliteWriter:
    """A process that writes a SQLite table, and is killed in a transaction or between two."""

    def __init__(self, file: Path) -> None:
        self._file, self._seed = file, SEED
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, str(Path(__file__).with_name("sqlite_writer.py"))]
        arguments = [str(self._file), str(ROWS), str(self._seed)]
        process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", "the writer did not start"
        return process

    def kill(self) -> None:
        with self._process as process:
            process.kill()

    def restart(self) -> None:
        self.kill()
        self._seed += 1
        self._process = self._start()


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_table_of_sqlite_is_copied_to_files(
    journal: str, restartable_broker: RestartableBroker, tmp_path: Path
) -> None:
    import duckdb

    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal}")
    there = FROM_SQLITE.format(file=file, batch_rows=BATCH_ROWS)
    here = TO_FILES.format(batch_rows=BATCH_ROWS)
    writer = SqliteWriter(file)
    kills = {"the broker": restarted(restartable_broker), "the writer of the database": writer.restart}
    try:
        with drivers(tmp_path, restartable_broker.bootstrap, there, here) as pipelines:
            kill_at_random(random.Random(SEED), pipelines, kills)
            writer.kill()
            for each in pipelines:
                each.finish()
    finally:
        writer.kill()
    columns = ", ".join(SQLITE_COLUMNS)
    with (
        closing(sqlite3.connect(file)) as source,
        closing(sqlite3.connect(tmp_path / "here" / "out.db")) as copy,
        closing(duckdb.connect(str(tmp_path / "here" / "out.duckdb"))) as other_copy,
    ):
        for one in (copy, other_copy):
            expected = source.execute(f"SELECT {columns} FROM orders WHERE gone = 0 ORDER BY id")
            copied: Any = one.execute(f"SELECT {columns} FROM orders ORDER BY id")
            check_equal(iter(expected.fetchone, None), iter(copied.fetchone, None))
    check_no_bad_records(restartable_broker.bootstrap)
