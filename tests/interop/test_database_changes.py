"""The changes of a real PostgreSQL: a snapshot and then each change once, whatever crashes and however often."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random

import psycopg
import pytest
from harness.changes_query import (
    ChangesQuery,
    Crash,
    Row,
    Writers,
    check_exactly_once,
    make_table,
    options_for,
    table_now,
)
from harness.depth import deep
from harness.patience import wait_until
from harness.postgresql import PostgreSQL, postgresql, why_none

from moldau.databases.changes import postgresql as database
from moldau.databases.changes import stream
from moldau.databases.changes.address import parse_address
from moldau.databases.changes.columns import Column
from moldau.databases.changes.errors import ChangesError, ChangesLost, ChangesRefused, TableChanged
from moldau.databases.changes.postgresql import connect, read_table, wait_for_open_transactions
from moldau.databases.changes.reading import read_present_rows
from moldau.databases.changes.stream import drop_orphans

pytestmark = pytest.mark.skipif(why_none() is not None, reason=why_none() or "")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgreSQL]:
    with postgresql(tmp_path_factory.mktemp("changes")) as running:
        yield running


@pytest.fixture(autouse=True)
def _no_slots_left(server: PostgreSQL) -> Iterator[None]:
    yield
    server.query("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
    for (name,) in server.query("SELECT pubname FROM pg_publication"):
        server.query(f'DROP PUBLICATION "{name}"')


def test_snapshot_then_changes(server: PostgreSQL, tmp_path: Path) -> None:
    make_table(server, 3)
    query = ChangesQuery(options_for(server, tmp_path), tmp_path)
    query.run_until(lambda: bool(query.output))
    server.query("UPDATE orders SET version = 1, note = NULL WHERE id = -1")
    server.query("UPDATE orders SET id = 7 WHERE id = -2")
    server.query("DELETE FROM orders WHERE id = -3")
    query.finish()
    shown = [
        (row["_op"], row["id"], row["version"], row["note"], (row["_before"] or {}).get("id")) for row in query.rows
    ]
    assert sorted(shown[:3]) == [("r", -3, 0, "old", None), ("r", -2, 0, "old", None), ("r", -1, 0, "old", None)]
    assert shown[3:] == [
        ("u", -1, 1, None, None),
        ("d", -2, None, None, -2),
        ("c", 7, 0, "old", None),
        ("d", -3, None, None, -3),
    ]
    query.stream.close()


@pytest.mark.parametrize("seed", range(deep(2)))
def test_each_change_once_with_crashes_and_writers(server: PostgreSQL, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    make_table(server, 2_000)

    def crash(step: str) -> None:
        if random.random() < 0.12:
            raise Crash(step)

    writers = Writers(server, 3, seed)
    query = ChangesQuery(options_for(server, tmp_path, rows_max=random.choice((50, 500, 5_000))), tmp_path, crash)
    query.run_until(lambda: bool(query.ends) and "part" not in query.ends[-1])
    seen = writers.transactions
    query.run_until(lambda: writers.transactions > seen + 150)
    writers.stop()
    query.finish()
    check_exactly_once(query.rows, table_now(server))
    query.stream.close()


def _key_before(row: Row) -> object:
    return (row["_before"] or {}).get("id")


def test_server_killed_in_the_middle(server: PostgreSQL, tmp_path: Path) -> None:
    make_table(server, 500)
    writers = Writers(server, 2, seed=7)
    query = ChangesQuery(options_for(server, tmp_path, rows_max=200), tmp_path)

    def step_over_failures(is_done: Callable[[], bool]) -> None:
        while not is_done():
            try:
                query.step()
            except ConnectionError:  # Spark starts the query again
                query.restart()

    step_over_failures(lambda: len(query.output) > 3)
    for _ in range(deep(2)):
        server.kill()
        query.step() if not query.is_bounded and len(query.ends) == query.committed else None
        server.start()
        seen = writers.transactions
        step_over_failures(lambda seen=seen: writers.transactions > seen + 30)  # type: ignore[misc]
    writers.stop()
    query.finish()
    check_exactly_once(query.rows, table_now(server))
    query.stream.close()


def test_what_is_committed_after_the_target_of_a_bounded_run_is_not_lost(server: PostgreSQL, tmp_path: Path) -> None:
    make_table(server, 1)
    query = ChangesQuery(options_for(server, tmp_path), tmp_path)
    query.finish()
    query.is_bounded = True
    query.restart()
    server.query("INSERT INTO orders VALUES (100, 0, 'before the target')")
    assert query.step()
    server.query("INSERT INTO orders VALUES (101, 0, 'after it')")
    assert not query.step()
    assert not query.step(), "Spark may ask again, for a query with state"
    query.finish()
    assert {100, 101} <= {row["id"] for row in query.rows}
    query.stream.close()


@pytest.mark.parametrize("change", [
    "ALTER PUBLICATION moldau_shop_orders DROP TABLE orders",
    "DROP TABLE orders; CREATE TABLE orders (id bigint PRIMARY KEY, version bigint, text text)",
])  # fmt: skip
def test_a_table_that_is_published_no_more_ends_the_query(server: PostgreSQL, tmp_path: Path, change: str) -> None:
    make_table(server, 1)
    query = ChangesQuery(options_for(server, tmp_path), tmp_path)
    query.finish()
    server.query(change)
    query.restart()
    with pytest.raises(ChangesLost, match="no longer has the table"):
        query.step()
    query.stream.close()


def test_a_commit_that_is_not_visible_yet_is_not_lost(server: PostgreSQL, tmp_path: Path) -> None:
    """A transaction that waits for a standby is in the log, but in no snapshot."""
    make_table(server, 1)
    server.query("CREATE PUBLICATION moldau_shop_orders FOR TABLE orders")  # its commit would wait for the standby
    is_over = threading.Event()

    def insert() -> None:
        for key in range(1, 100_000):
            if is_over.is_set():
                return
            server.query("INSERT INTO orders VALUES (%s, 0, 'late')", key)

    inserting = threading.Thread(target=insert, daemon=True)
    query = ChangesQuery(options_for(server, tmp_path), tmp_path)
    with _synchronous_standby_names(server, "nobody"):
        inserting.start()
        wait_until(
            lambda: server.query("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") == [(1,)],
            "a commit waits for the standby",
        )
        assert not query.step(), "the snapshot waits for it too"
    is_over.set()
    inserting.join()
    query.run_until(lambda: bool(query.output))
    query.finish()
    check_exactly_once(query.rows, table_now(server))
    query.stream.close()


def test_a_commit_in_the_log_before_the_slot_and_not_visible_after_it(server: PostgreSQL, tmp_path: Path) -> None:
    """The slot's creation waits for those that ran when it began (10) and when that had ended (11). Meanwhile 12 begins
    and writes its commit into the log, which the slot does not have, and waits for a standby."""
    make_table(server, 1)
    server.query("CREATE PUBLICATION moldau_shop_orders FOR TABLE orders")  # its commit would wait for the standby
    query = ChangesQuery(options_for(server, tmp_path), tmp_path)

    def insert(key: int) -> None:
        with psycopg.connect(server.url, application_name=f"insert {key}") as connection:
            connection.execute("INSERT INTO orders VALUES (%s, 0, '')", (key,))

    def waits_for_standby(key: int) -> Callable[[], bool]:
        waits = "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND wait_event = 'SyncRep'"
        return lambda: bool(server.query(waits, f"insert {key}"))

    def slot_waits_for(condition: str) -> Callable[[], bool]:
        waits = f"SELECT pid FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted AND {condition}"
        return lambda: bool(server.query(waits))

    inserting = [threading.Thread(target=insert, args=(key,), daemon=True) for key in (11, 12)]
    with _synchronous_standby_names(server, "nobody"):
        with psycopg.connect(server.url) as first:
            first.execute("SET synchronous_commit = local")
            first.execute("INSERT INTO orders VALUES (10, 0, '')")
            (xid,) = first.execute("SELECT pg_current_xact_id()::text::bigint").fetchone() or (0,)
            assert not query.step()
            wait_until(slot_waits_for(f"transactionid::text::bigint = {xid}"), "the slot waits for the first")
            inserting[0].start()
            wait_until(waits_for_standby(11), "the second waits for the standby")
        wait_until(slot_waits_for(f"transactionid::text::bigint > {xid}"), "the slot waits for the second")
        inserting[1].start()
        wait_until(waits_for_standby(12), "the third waits for the standby")
        server.query("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'insert 11'")
        wait_until(
            lambda: server.query("SELECT confirmed_flush_lsn IS NOT NULL FROM pg_replication_slots") == [(True,)],
            "the slot is made",
        )
        assert not query.step(), "the snapshot waits for the third"
    for thread in inserting:
        thread.join()
    query.run_until(lambda: bool(query.output))
    query.finish()
    check_exactly_once(query.rows, {-1: 0, 10: 0, 11: 0, 12: 0})
    query.stream.close()


@contextmanager
def _synchronous_standby_names(server: PostgreSQL, names: str) -> Iterator[None]:
    def change(value: str) -> None:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("SET synchronous_commit = local")
            connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{value}'")
            connection.execute("SELECT pg_reload_conf()")

    change(names)
    try:
        yield
    finally:
        change("")


def test_the_snapshot_waits_for_transactions_above_the_barrier_of_its_list(server: PostgreSQL) -> None:
    """A snapshot does not list a transaction that began after the last one that has ended."""
    make_table(server, 0)
    done = threading.Event()
    with psycopg.connect(server.url) as open_one:
        open_one.execute("INSERT INTO orders VALUES (1, 0, '')")

        def wait() -> None:
            address = parse_address(server.url)
            with closing(connect(address)) as connection:
                wait_for_open_transactions(connection, address)
            done.set()

        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not done.wait(0.3)
        open_one.commit()
    waiting.join()
    assert done.is_set()


def test_a_transaction_that_stays_open_is_named(
    server: PostgreSQL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "OPEN_TRANSACTIONS_S", 0.5)
    make_table(server, 1)
    query = ChangesQuery(options_for(server, tmp_path), tmp_path)
    with psycopg.connect(server.url) as open_one:
        (xid,) = open_one.execute("SELECT pg_current_xact_id()::text").fetchone() or ("",)
        with pytest.raises(ChangesError, match=f"transaction {xid} has been open for"):
            query.run_until(lambda: False)
    query.run_until(lambda: bool(query.output))
    check_exactly_once(query.rows, {-1: 0})
    query.stream.close()


def test_orphans_are_dropped_and_slots_in_use_are_not(server: PostgreSQL, tmp_path: Path) -> None:
    make_table(server, 10)
    options = options_for(server, tmp_path)
    used = ChangesQuery(options, tmp_path)
    used.run_until(lambda: bool(used.output))

    def crash(step: str) -> None:
        if step == "after planning":
            raise Crash(step)

    crashed = ChangesQuery(options, tmp_path / "other", crash)
    while len(_slots(server)) < 2:  # its slot is made, and nothing notes it
        crashed.step()
    crashed.stream.close()
    drop_orphans(options)
    assert _slots(server) == [used.ends[-1]["slot"]]
    used.stream.close()
    drop_orphans(options)
    assert len(_slots(server)) == 1, "the checkpoint mentions it"
    for noted in (tmp_path / "checkpoints" / "mirror" / "offsets").iterdir():
        noted.unlink()
    drop_orphans(options)
    assert _slots(server) == []


def _slots(server: PostgreSQL) -> list[str]:
    return [row[0] for row in server.query("SELECT slot_name FROM pg_replication_slots")]


def test_a_quiet_table_does_not_keep_the_log(
    server: PostgreSQL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.0)
    make_table(server, 1)
    server.query("CREATE TABLE IF NOT EXISTS busy (x int)")
    query = ChangesQuery(options_for(server, tmp_path), tmp_path)
    query.run_until(lambda: bool(query.output))
    (before,) = server.query("SELECT pg_current_wal_lsn()")[0]

    def is_forgotten() -> bool:
        server.query("INSERT INTO busy SELECT generate_series(1, 100)")
        server.query("CHECKPOINT")
        assert not query.step(), "there is no change of the table"
        ((behind,),) = server.query("SELECT restart_lsn > %s FROM pg_replication_slots", before)
        return bool(behind)

    wait_until(is_forgotten, "the slot moves over the log of the other table")
    server.query("UPDATE orders SET version = 1")
    query.finish()
    check_exactly_once(query.rows, {-1: 1})
    query.stream.close()


def test_columns_come_and_go(server: PostgreSQL, tmp_path: Path) -> None:
    make_table(server, 1)
    query = ChangesQuery(options_for(server, tmp_path), tmp_path)
    query.run_until(lambda: bool(query.output))
    server.query("ALTER TABLE orders ADD COLUMN extra numeric(6, 2), DROP COLUMN note")
    server.query("UPDATE orders SET version = 1, extra = 1.5")
    server.query("ALTER TABLE orders DROP COLUMN extra, ALTER COLUMN version TYPE bigint")
    server.query("UPDATE orders SET version = 10000000000")
    with pytest.raises(TableChanged, match="a new column extra"):
        query.finish()
    query._options = options_for(server, tmp_path)
    assert [(column.name, column.type) for column in query._options.columns] == [
        ("id", "bigint"), ("version", "bigint"), ("note", "string"), ("extra", "string"),
    ]  # fmt: skip
    query.finish()
    last = [{name: row[name] for name in ("version", "note", "extra")} for row in query.rows[1:]]
    assert last == [
        {"version": 1, "note": None, "extra": "1.50"},
        {"version": 10_000_000_000, "note": None, "extra": None},
    ]
    query.stream.close()


def test_values_of_all_types(server: PostgreSQL, tmp_path: Path) -> None:
    server.query("DROP TABLE IF EXISTS orders; DROP TYPE IF EXISTS mood; CREATE TYPE mood AS ENUM ('fine')")
    server.query("DROP DOMAIN IF EXISTS small; CREATE DOMAIN small AS int CHECK (value < 10)")
    server.query(
        "CREATE TABLE orders (id bigint PRIMARY KEY, b bool, s small, f real, d double precision, n numeric(5, 2),"
        " m numeric, t text, x bytea, day date, at timestamptz, local timestamp, l int[], j jsonb, e mood, u uuid,"
        " g int GENERATED ALWAYS AS (id + 1) STORED)"
    )
    _insert_all_types(server, 0)
    query = ChangesQuery(options_for(server, tmp_path), tmp_path)
    query.run_until(lambda: bool(query.output))
    _insert_all_types(server, 1)
    query.finish()
    shown = [{name: value for name, value in row.items() if not name.startswith("_")} for row in query.rows]
    by_id = {row["id"]: row for row in shown}
    assert "g" not in by_id[0], "the log has no generated columns"
    assert math.isnan(by_id[0].pop("f"))
    assert math.isnan(by_id[1].pop("f"))
    assert by_id[0] | {"id": 1} == by_id[1]
    assert by_id[1] == {
        "id": 1, "b": True, "s": 3, "d": -math.inf, "n": Decimal("-1.50"), "m": "NaN", "t": "a\tb\\\nč",
        "x": b"\0\xff", "day": date(2026, 1, 31), "at": datetime(2026, 1, 31, 6, 0, 0, 1, UTC),
        "local": datetime(9999, 12, 31, 23, 59, 59, 999_999), "l": "{1,NULL}", "j": '{"a": [1]}', "e": "fine",
        "u": "00000000-0000-0000-0000-000000000001",
    }  # fmt: skip
    assert all(value is None for name, value in by_id[11].items() if name != "id")
    query.stream.close()


def _insert_all_types(server: PostgreSQL, key: int) -> None:
    server.query(
        "INSERT INTO orders VALUES (%s, true, 3, 'NaN', '-Infinity', -1.5, 'NaN', %s, %s, '2026-01-31',"
        " '2026-01-31 08:00:00.000001+02', 'infinity', '{1,NULL}', '{\"a\": [1]}', 'fine',"
        " '00000000-0000-0000-0000-000000000001')",
        key,
        "a\tb\\\nč",
        b"\0\xff",
    )
    server.query("INSERT INTO orders (id) VALUES (%s)", key + 10)


def test_what_the_type_cannot_hold_is_refused_with_the_column(server: PostgreSQL, tmp_path: Path) -> None:
    server.query("DROP TABLE IF EXISTS orders")
    server.query("CREATE TABLE orders (id bigint PRIMARY KEY, price numeric(5, 2))")
    server.query("INSERT INTO orders VALUES (1, 'NaN')")
    query = ChangesQuery(options_for(server, tmp_path), tmp_path)
    with pytest.raises(ChangesRefused, match=r"column price: 'NaN' is not a decimal\(5,2\)"):
        query.run_until(lambda: False)
    assert _slots(server) == [], "the attempt left no slot"
    query.stream.close()


def test_long_values_that_an_update_leaves(server: PostgreSQL, tmp_path: Path) -> None:
    make_table(server, 1)
    server.query("ALTER TABLE orders ALTER COLUMN note SET STORAGE EXTERNAL")
    query = ChangesQuery(options_for(server, tmp_path), tmp_path)
    query.run_until(lambda: bool(query.output))
    long = "n" * 5_000_000
    server.query("UPDATE orders SET version = 1, note = %s", long)
    server.query("UPDATE orders SET version = 2")
    server.query("ALTER TABLE orders REPLICA IDENTITY FULL")
    server.query("UPDATE orders SET version = 3")
    query.finish()
    assert [row["note"] for row in query.rows[1:]] == [long, "__debezium_unavailable_value", long]
    assert query.rows[-1]["_before"] == {"id": -1, "version": 2, "note": long}
    query.stream.close()


def test_truncation(server: PostgreSQL, tmp_path: Path) -> None:
    make_table(server, 1)
    options = options_for(server, tmp_path)
    query = ChangesQuery(options, tmp_path)
    query.run_until(lambda: bool(query.output))
    server.query("TRUNCATE orders")
    server.query("INSERT INTO orders VALUES (1, 0, '')")
    with pytest.raises(ChangesRefused, match=r"was truncated by transaction \d+.*`truncate: skip`"):
        query.finish()
    query._options = replace(options, truncation="row")
    query.finish()
    assert [row["_op"] for row in query.rows] == ["r", "t", "c"]
    query.stream.close()


def test_tables_without_a_key(server: PostgreSQL, tmp_path: Path) -> None:
    make_table(server, 1)
    server.query("ALTER TABLE orders DROP CONSTRAINT orders_pkey")
    with pytest.raises(ChangesRefused, match=r"has no primary key.*REPLICA IDENTITY FULL"):
        options_for(server, tmp_path)
    server.query("ALTER TABLE orders REPLICA IDENTITY FULL")
    query = ChangesQuery(options_for(server, tmp_path), tmp_path)
    query.run_until(lambda: bool(query.output))
    server.query("DELETE FROM orders")
    query.finish()
    assert [(row["_op"], row["id"], row["note"]) for row in query.rows] == [("r", -1, "old"), ("d", -1, "old")]
    query.stream.close()


def test_a_publication_with_other_tables(server: PostgreSQL, tmp_path: Path) -> None:
    make_table(server, 1)
    server.query("DROP TABLE IF EXISTS others; CREATE TABLE others (id bigint PRIMARY KEY, version text, more text)")
    server.query("CREATE PUBLICATION ours FOR TABLE orders, others")
    query = ChangesQuery(options_for(server, tmp_path, published_as="ours"), tmp_path)
    query.run_until(lambda: bool(query.output))
    server.query("INSERT INTO others VALUES (1, 'x', 'y'); TRUNCATE others; UPDATE orders SET version = 1")
    query.finish()
    check_exactly_once(query.rows, {-1: 1})
    server.query("ALTER TABLE orders RENAME TO renamed")
    server.query("UPDATE renamed SET version = 2")
    with pytest.raises(ChangesRefused, match=r"has no table public\.orders"):
        query.finish()
    server.query("ALTER TABLE renamed RENAME TO orders")
    query.finish()
    check_exactly_once(query.rows, {-1: 2})
    query.stream.close()


@pytest.mark.parametrize(("filtered", "reason"), [
    ("FOR TABLE orders WITH (publish = 'insert, truncate')", "leaves out update, delete: ALTER PUBLICATION ours SET"),
    ("FOR TABLE orders WITH (publish = 'insert, update, delete')", "leaves out truncate: "),
    ("FOR TABLE orders WHERE (id > 0)", r"has only the rows of public.orders with \(id > 0\): take away its WHERE"),
    ("FOR TABLE orders (id, version)", "leaves out column note of public.orders: give the source a `schema` without"),
])  # fmt: skip
def test_a_publication_that_leaves_out_changes(server: PostgreSQL, tmp_path: Path, filtered: str, reason: str) -> None:
    ((version,),) = server.query("SELECT current_setting('server_version_num')::int")
    if version < 150_000 and "WITH" not in filtered:
        pytest.skip("PostgreSQL 15 has filters of rows and columns")
    make_table(server, 1)
    server.query(f"CREATE PUBLICATION ours {filtered}")
    options = options_for(server, tmp_path, published_as="ours")
    query = ChangesQuery(options, tmp_path)
    with pytest.raises(ChangesRefused, match=reason):
        query.run_until(lambda: False)
    query.stream.close()
    without_note = tuple(column for column in options.columns if column.name != "note")
    allowed = replace(options, truncation="skip", columns=without_note, is_declared=True)
    if "truncate: " in reason or "column" in reason:
        server.query("ALTER PUBLICATION ours SET (publish = 'insert, update, delete')")
        fitting = ChangesQuery(allowed, tmp_path)
        fitting.run_until(lambda: bool(fitting.output))
        server.query("UPDATE orders SET version = 1")
        fitting.finish()
        check_exactly_once(fitting.rows, {-1: 1})
        server.query("ALTER PUBLICATION ours SET (publish = 'update, delete')")
        fitting.restart()
        with pytest.raises(ChangesRefused, match="leaves out insert: "):
            fitting.step()
        fitting.stream.close()


def test_a_table_that_others_inherit_from_is_refused(server: PostgreSQL, tmp_path: Path) -> None:
    make_table(server, 1)
    server.query("DROP TABLE IF EXISTS archive, parts; CREATE TABLE archive () INHERITS (orders)")
    with pytest.raises(
        ChangesRefused, match=r"public\.orders has tables that inherit from it, such as public\.archive"
    ):
        options_for(server, tmp_path)
    server.query("DROP TABLE archive")
    server.query("CREATE TABLE parts (id bigint PRIMARY KEY) PARTITION BY RANGE (id)")
    server.query("CREATE TABLE part PARTITION OF parts DEFAULT")
    assert options_for(server, tmp_path, table="public.parts").columns


def test_declared_columns_and_keys_are_those_of_the_table(server: PostgreSQL, tmp_path: Path) -> None:
    """With `schema` and `key` nothing asks the database before the run."""
    make_table(server, 1)
    id_, version, note = options_for(server, tmp_path).columns
    declared = options_for(server, tmp_path, is_declared=True)

    def refused(reason: str, *columns: Column) -> None:
        query = ChangesQuery(replace(declared, columns=columns), tmp_path)
        with pytest.raises(ChangesRefused, match=reason):
            query.run_until(lambda: False)
        query.stream.close()

    refused(r"public\.orders has no column totl; it has id, note, version", id_, Column("totl", "bigint"))
    refused(
        r"public\.orders has the key id, but `key` is version",
        replace(id_, is_key=False),
        replace(version, is_key=True),
    )
    refused("has the key id, but `key` is id, version", id_, replace(version, is_key=True))
    query = ChangesQuery(replace(declared, columns=(note, id_)), tmp_path)
    query.run_until(lambda: bool(query.output))
    query._options = replace(declared, columns=(replace(note, is_key=True), replace(id_, is_key=False)))
    query.restart()
    with pytest.raises(ChangesRefused, match="has the key id, but `key` is note"):
        query.step()
    server.query("ALTER TABLE orders REPLICA IDENTITY FULL")
    query.restart()
    query.step()
    query.stream.close()


def test_a_slot_that_is_gone(server: PostgreSQL, tmp_path: Path) -> None:
    make_table(server, 1)
    query = ChangesQuery(options_for(server, tmp_path), tmp_path)
    query.run_until(lambda: bool(query.output))
    query.stream.close()
    server.query("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    query.restart()
    with pytest.raises(
        ChangesLost, match=r"the replication slot moldau_shop_orders_[0-9a-f]{8} of database .* is gone"
    ):
        query.step()
    query.stream.close()


def test_logins_and_servers_that_are_wrong(server: PostgreSQL) -> None:
    address = parse_address(server.url)
    with pytest.raises(ChangesRefused, match="authentication failed") as refused:
        connect(replace(address, password="something wrong"))
    assert "something wrong" not in str(refused.value)
    with pytest.raises(ConnectionError, match=r"database 127\.0\.0\.1:9/"):
        connect(parse_address("postgresql://me:secret@127.0.0.1:9/shop"))
    with pytest.raises(ChangesRefused, match=r"has no table public\.missing"), closing(connect(address)) as connection:
        read_table(connection, address, "public", "missing")


def test_a_batch_reads_the_present_rows(server: PostgreSQL, tmp_path: Path) -> None:
    make_table(server, 25_000)
    options = options_for(server, tmp_path)
    assert sum(batch.num_rows for batch in read_present_rows(options)) == 25_000
    assert sum(batch.num_rows for batch in read_present_rows(replace(options, limit=3))) == 3
