"""The changes of a real PostgreSQL: a snapshot and then each change once, whatever crashes and however often."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from changes_query import (
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
from harness.postgresql import PostgreSQL, postgresql, why_none

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
