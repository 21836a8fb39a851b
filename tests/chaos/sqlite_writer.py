"""Changes the rows of a SQLite table until it is killed: inserts, updates, rows that are marked as gone.

    python sqlite_writer.py FILE ROWS SEED

Each change gets the next number of the column seq, within transactions of which some are rolled back. The first start
makes the table, with so many rows.
"""

from __future__ import annotations

import random
import sqlite3
import sys
import time

HOT_KEYS = 60
PAUSE_S = 0.2
COLUMNS = ("id", "seq", "version", "note", "ratio", "raw", "gone")
TABLE = """
CREATE TABLE orders (id INTEGER PRIMARY KEY, seq INTEGER NOT NULL UNIQUE, version INTEGER NOT NULL, note TEXT,
                     ratio REAL, raw BLOB, gone INTEGER NOT NULL)"""
CHANGE = """
INSERT INTO orders VALUES (:id, (SELECT max(seq) + 1 FROM orders), 0, :note, :ratio, :raw, :gone)
ON CONFLICT (id) DO UPDATE SET seq = excluded.seq, version = version + 1, note = excluded.note, ratio = excluded.ratio,
                               raw = excluded.raw, gone = excluded.gone"""


def values(key: int, chance: random.Random) -> dict[str, object]:
    return {
        "id": key,
        "note": chance.choice([None, "", "ä\"b,\\\n'", "x" * chance.randrange(60)]),
        "ratio": chance.random(),
        "raw": chance.randbytes(chance.randrange(20)),
        "gone": int(chance.random() < 0.2),
    }


def make_table(connection: sqlite3.Connection, rows: int, chance: random.Random) -> None:
    connection.execute("BEGIN IMMEDIATE")
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'orders'").fetchone():
        connection.execute(TABLE)
        insert = "INSERT INTO orders VALUES (:id, -:id, 0, :note, :ratio, :raw, :gone)"
        connection.executemany(insert, (values(-number, chance) for number in range(1, rows + 1)))
    connection.execute("COMMIT")


def main(file: str, rows: int, seed: str) -> None:
    chance = random.Random(seed)
    connection = sqlite3.connect(file, timeout=60, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")  # processes are killed here, not machines
    make_table(connection, rows, chance)
    print("ready", flush=True)
    while True:
        connection.execute("BEGIN IMMEDIATE")
        for _ in range(chance.choice((1, 2, 5, 20))):
            key = chance.randrange(HOT_KEYS) if chance.random() < 0.5 else -chance.randrange(1, rows + 1)
            connection.execute(CHANGE, values(key, chance))
        connection.execute("ROLLBACK" if chance.random() < 0.15 else "COMMIT")
        time.sleep(chance.random() * PAUSE_S)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
