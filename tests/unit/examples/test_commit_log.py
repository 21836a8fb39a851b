"""The database of examples/commit-log: replaying its commit log gives the same rows."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "commit-log"))

import database


def test_replaying_the_changes_gives_the_database(tmp_path: Path) -> None:
    with closing(database.opened(tmp_path / "customers.db")) as customers:
        database.work(customers, 300, Random(1))
        replayed: dict[int, object] = {}
        ops = set()
        for lsn, op, number, before, after in customers.execute("select * from change order by lsn"):
            assert (json.loads(before) if before else None) == replayed.get(number), f"change {lsn}"
            ops.add(op)
            replayed.pop(number, None)
            if after:
                replayed[number] = json.loads(after)
        assert ops == {"c", "u", "d"}
        assert [replayed[number] for number in sorted(replayed)] == database.rows_of_database(customers)
