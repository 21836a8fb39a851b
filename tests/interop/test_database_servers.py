"""Batches written to real servers: PostgreSQL and MariaDB. Those in files are in tests/unit/databases."""

from __future__ import annotations

import datetime
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from harness import database_checks as checks
from harness import mariadb, postgresql
from harness.depth import DEPTH, only_deep

from moldau.databases import writing
from moldau.databases.batches import Batch
from moldau.databases.database import connected
from moldau.databases.destinations import Destination
from moldau.databases.errors import DatabaseRefused, DatabaseUnavailable, RowRefused
from moldau.databases.rows import TableRows
from moldau.databases.urls import parse_url

KILLED = Path(__file__).parents[1] / "harness" / "killed_writes.py"


@pytest.fixture(scope="module", params=["postgresql", "mysql"])
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    module: Any = {"postgresql": postgresql, "mysql": mariadb}[request.param]
    if (reason := module.why_none()) is not None:
        pytest.skip(reason)
    start = postgresql.postgresql if request.param == "postgresql" else mariadb.mariadb
    # Not in pytest's directory, which another run of pytest closes to the user postgres.
    with tempfile.TemporaryDirectory(prefix="moldau-database-") as folder, start(Path(folder)) as running:
        yield running


def test_modes(server: Any) -> None:
    checks.check_modes(server.url)


def test_types(server: Any) -> None:
    is_postgresql = server.url.startswith("postgresql")
    at = datetime.datetime(2020, 1, 2, 3, 4, 5, 1)
    first, second, *_ = checks.check_types(server.url)
    expected: dict[str, Any] = {"z": at.replace(tzinfo=datetime.UTC) if is_postgresql else at, "t": at}
    expected |= {"j": {"a": [1, None]}, "b": True} if is_postgresql else {"b": 1}
    same = {name: array[0].as_py() for name, array in checks.VALUES.items() if name not in expected}
    assert first == same | expected
    assert first["n"] == Decimal("12345678901234567890.12")
    assert second == dict.fromkeys(checks.VALUES) | {"s": "", "y": b""}


def test_tables_that_are_there(server: Any) -> None:
    checks.check_tables(server.url)


def test_keys_that_join_texts(server: Any) -> None:
    to = checks.upserts(server.url)
    if server.url.startswith("postgresql"):
        checks.execute(to, "CREATE EXTENSION citext")
        checks.execute(to, "CREATE DOMAIN email AS citext")
        collation = "provider = icu, locale = 'und-u-ks-level2', deterministic = false"
        checks.execute(to, f"CREATE COLLATION caseless ({collation})")
        checks.check_keys_that_join_texts(server.url, "citext", "email", "text COLLATE caseless", "character(9)")
        return
    checks.check_keys_that_join_texts(server.url, "varchar(9) COLLATE utf8mb4_general_ci", "varchar(9) CHARSET latin1")
    for collation, joins in {"utf8mb4_bin": True, "utf8mb4_nopad_bin": False}.items():
        to = checks.destination(server.url, mode="upsert", keys=("id",))
        checks.execute(to, f"CREATE TABLE {to.table} (id varchar(9) COLLATE {collation} NOT NULL UNIQUE, v int)")
        assert writing.write(to, TableRows(pa.table({"id": ["a"], "v": [1]})), Batch("q", 0, "r"))
        rows = TableRows(pa.table({"id": ["b", "a "], "v": [2, 2]}))
        if joins:
            with pytest.raises(
                RowRefused, match=r"row 2 of the batch \(id a \) is refused: column id, which is a key, ends"
            ):
                writing.write(to, rows, Batch("q", 1, "r"))
        else:
            assert writing.write(to, rows, Batch("q", 1, "r"))
        assert len(writing.content(to)) == (1 if joins else 3)


def test_tables_without_transactions(server: Any) -> None:
    if server.url.startswith("postgresql"):
        pytest.skip("all tables of PostgreSQL have transactions")
    for engine in ("MyISAM", "Aria"):
        to = checks.destination(server.url)
        checks.execute(to, f"CREATE TABLE {to.table} (id bigint) ENGINE = {engine}")
        with pytest.raises(DatabaseRefused, match=f"has the engine {engine}, which has no transactions: ALTER TABLE"):
            writing.write(to, TableRows(pa.table({"id": [1]})), Batch("q", 0, "r"))
    to = checks.upserts(server.url)
    checks.execute(to, "SET GLOBAL default_storage_engine = MyISAM")
    try:
        assert checks.write(to, 0, (1, 1, "a", False))
    finally:
        checks.execute(to, "SET GLOBAL default_storage_engine = InnoDB")
    engines = "SELECT engine FROM information_schema.tables WHERE table_name = ?"
    with connected(to.url, "test") as database:
        assert database.execute(engines, [to.table.name]) == [("InnoDB",)]


def test_bad_rows(server: Any) -> None:
    checks.check_bad_rows(server.url)


@pytest.mark.parametrize(
    ("kind", "value", "reasons"),
    [
        ("SMALLINT", pa.array([1, 70_000]), ("out of range", "Out of range")),
        ("VARCHAR(3)", pa.array(["abc", "abcd"]), ("value too long", "Data too long")),
        ("DOUBLE PRECISION", pa.array([1.0, float("nan")]), (None, "NaN or infinite")),
        ("VARCHAR(9)", pa.array(["a", "b\0"]), ("invalid byte sequence", None)),
        ("VARCHAR(9)", pa.array([b"a", b"\xff"]).view(pa.string()), ("invalid byte sequence", "can't decode")),
        ("NUMERIC(4,2)", pa.array([Decimal("1.00"), Decimal("100.00")]), ("numeric field overflow", "Out of range")),
        ("DATE", pa.array([1, -10_000_000], pa.date32()), ("before the year 1", "Incorrect date value")),
    ],
)
def test_values_that_are_refused(
    server: Any, kind: str, value: pa.Array, reasons: tuple[str | None, str | None]
) -> None:
    to = checks.destination(server.url)
    checks.execute(to, f"CREATE TABLE {to.table} (v {kind})")
    reason = reasons[0 if server.url.startswith("postgresql") else 1]
    rows = TableRows(pa.table({"v": value}))
    if reason is None:
        assert writing.write(to, rows, Batch("q", 0, "r"))
        return
    with pytest.raises(RowRefused, match=f"row 2 of the batch is refused: .*{reason}"):
        writing.write(to, rows, Batch("q", 0, "r"))
    assert writing.content(to) == []


def test_a_large_value(server: Any) -> None:
    to = checks.destination(server.url)
    checks.write(to, 0, (1, 1, "y" * 10_000_000, False))
    [row] = writing.content(to)
    assert len(row["value"]) == 10_000_000


def test_schemas(server: Any) -> None:
    to = checks.upserts(server.url)
    where = "elsewhere" if server.url.startswith("postgresql") else "shop"
    if where == "elsewhere":
        checks.execute(to, "CREATE SCHEMA elsewhere")
    in_schema = Destination(url=to.url, table=writing.sql.TableName('odd "t"', where), mode="upsert", keys=("id",))
    assert checks.write(in_schema, 0, (1, 1, "a", False))
    assert not checks.write(in_schema, 0, (1, 1, "a", False))
    assert checks.execute(to, f"SELECT batch FROM {where}.moldau_batches WHERE target LIKE 'odd%'") == [(0,)]
    assert not writing.is_empty(in_schema)
    writing.rename(in_schema, "renamed")
    assert writing.is_empty(in_schema)


def test_two_drivers(server: Any) -> None:
    checks.check_two_drivers(server.url, every=1 if DEPTH > 1 else 3)


def test_a_driver_waits_for_another_ones_transaction(server: Any) -> None:
    checks.check_waiting_driver(server.url)


def test_a_suspended_driver_loses_its_transaction(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the first one does nothing, the server ends its session, and the second one writes."""
    monkeypatch.setattr("moldau.databases.postgresql.IDLE_S", 1)
    if (module := sys.modules.get("moldau.databases.mysql")) is not None:
        session = module._SESSION.replace("wait_timeout = 60", "wait_timeout = 1")  # type: ignore[attr-defined]
        monkeypatch.setattr(module, "_SESSION", session)
    to = checks.upserts(server.url)
    checks.write(to, 0, (0, 0, "earlier", False))

    def suspend(name: str) -> None:
        if name == "commit":
            assert checks.write(to, 1, (1, 1, "b", False), run="b")

    with checks.steps(to, suspend), pytest.raises(DatabaseUnavailable):
        checks.write(to, 1, (1, 1, "a", False), run="a")
    assert checks.stored(to, "id", "value") == [(0, "earlier"), (1, "b")]


@only_deep
def test_random_batches(server: Any) -> None:
    checks.check_oracle(server.url, examples=3)


@pytest.mark.parametrize("mode", ["upsert", *(pytest.param(mode, marks=only_deep) for mode in ("append", "history"))])
def test_a_batch_killed_at_any_step_is_stored_once_after_the_replay(server: Any, mode: str) -> None:
    command = [sys.executable, str(KILLED), server.url, mode, "1" if DEPTH > 1 else "5"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) > 8


def test_wrong_logins_are_refused_and_absent_servers_are_not(server: Any) -> None:
    def failing(url: str) -> Destination:
        return Destination(url=parse_url(url), table=writing.sql.TableName("t"))

    wrong = server.url.replace("Geheimnis", "anderes")
    with pytest.raises(DatabaseRefused, match=r"(?i)password authentication failed|access denied") as refused:
        checks.write(failing(wrong), 0, (1, 1, "a", False))
    assert "anderes" not in str(refused.value)
    nowhere = server.url.rpartition("/")[0] + "/nowhere"
    with pytest.raises(DatabaseRefused, match="nowhere"):
        checks.write(failing(nowhere), 0, (1, 1, "a", False))
    absent = server.url.replace(str(server.port), "1")
    with pytest.raises(DatabaseUnavailable, match=r"(?i)connection refused|can't connect"):
        checks.write(failing(absent), 0, (1, 1, "a", False))


def test_a_server_that_is_killed_at_any_step(server: Any) -> None:
    """The write fails in a way that is worth a retry, and its repetition stores each row once."""
    for step in ("execute", "begin", "load", "commit") if DEPTH > 1 else ("load", "commit"):
        to, killed = checks.destination(server.url), list[str]()
        checks.write(to, 0, (0, 0, "earlier", False))

        def kill(name: str, step: str = step, killed: list[str] = killed) -> None:
            if name == step and not killed:
                killed.append(name)
                server.kill()

        try:
            with checks.steps(to, kill), pytest.raises(DatabaseUnavailable):
                checks.write(to, 1, (1, 1, "a", False))
        finally:
            server.start()
        assert killed
        assert checks.write(to, 1, (1, 1, "a", False))
        assert checks.stored(to, "id") == [(0,), (1,)]
