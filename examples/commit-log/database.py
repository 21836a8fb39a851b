"""A small database whose every change becomes a record, and the proof that the lake table ends up the same.

    python database.py work --changes 2000          # changes customers.db, and sends each change to db.customers
    python database.py compare lake/customers       # is the table what the database is?

Triggers write each change into a table of the database, in the same transaction as the change itself: the commit log.
It is sent in its order, keyed by the row's id, and a row of it goes when the broker has acknowledged it: a crash sends
some changes again, never none.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from confluent_kafka import KafkaError, Message, Producer

TOPIC = "db.customers"
NAMES = ("Felice", "Milena", "Ottla", "Max", "Josef", "Karl", "Frieda", "Gregor")
CITIES = ("Praha", "Wien", "Berlin", "Zürau", "Meran", "Kierling")
COLUMNS = ("id", "name", "email", "city")

_OLD = "json_object({})".format(", ".join(f"'{column}', old.{column}" for column in COLUMNS))
_NEW = _OLD.replace("old.", "new.")
SCHEMA = f"""
create table if not exists customers (id integer primary key, name text, email text, city text);
create table if not exists change (lsn integer primary key autoincrement, op text, id integer, before text, after text);
create trigger if not exists created after insert on customers
  begin insert into change (op, id, after) values ('c', new.id, {_NEW}); end;
create trigger if not exists updated after update on customers
  begin insert into change (op, id, before, after) values ('u', new.id, {_OLD}, {_NEW}); end;
create trigger if not exists deleted after delete on customers
  begin insert into change (op, id, before) values ('d', old.id, {_OLD}); end;
"""


def opened(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path)
    database.executescript(SCHEMA)
    return database


def work(database: sqlite3.Connection, changes: int, rng: Random) -> None:
    """People come, move and go."""
    for _ in range(changes):
        ids = [number for (number,) in database.execute("select id from customers order by id")]
        chance = rng.random()
        with database:
            if len(ids) < 5 or chance < 0.4:
                name = rng.choice(NAMES)
                row = (name, f"{name.lower()}@example.org", rng.choice(CITIES))
                database.execute("insert into customers (name, email, city) values (?, ?, ?)", row)
            elif chance < 0.8:
                row = (rng.choice(CITIES), rng.choice(ids))
                database.execute("update customers set city = ? where id = ?", row)
            else:
                database.execute("delete from customers where id = ?", (rng.choice(ids),))


def send(database: sqlite3.Connection, producer: Producer) -> int:
    """Sends what is in the commit log; what was acknowledged is taken out of it."""
    acknowledged: list[tuple[int]] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged.append((json.loads(message.value())["lsn"],))

    for lsn, op, number, before, after in database.execute("select * from change order by lsn"):
        change = {"op": op, "lsn": lsn, "ts": datetime.now(UTC).isoformat(timespec="milliseconds")}
        images = {name: json.loads(image) for name, image in (("before", before), ("after", after)) if image}
        producer.produce(TOPIC, json.dumps(change | images), str(number), on_delivery=delivered)
        producer.poll(0)
    producer.flush()
    with database:
        database.executemany("delete from change where lsn = ?", acknowledged)
    return len(acknowledged)


def rows_of_database(database: sqlite3.Connection) -> list[dict[str, object]]:
    found = database.execute(f"select {', '.join(COLUMNS)} from customers order by id")
    return [dict(zip(COLUMNS, row, strict=True)) for row in found]


def rows_of_table(path: Path) -> list[dict[str, object]]:
    from deltalake import DeltaTable

    rows = DeltaTable(str(path)).to_pyarrow_table(columns=list(COLUMNS)).to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def main() -> int:
    parser = argparse.ArgumentParser(description="A database whose changes become records.")
    parser.add_argument("--database", type=Path, default=Path("customers.db"))
    commands = parser.add_subparsers(dest="command", required=True)
    working = commands.add_parser("work", help="change the database, and send the changes")
    working.add_argument("--changes", type=int, default=1000, metavar="N")
    working.add_argument("-b", "--bootstrap-server", default="localhost:9092")
    working.add_argument("--seed", type=int, default=7)
    comparing = commands.add_parser("compare", help="hold the lake table against the database")
    comparing.add_argument("table", type=Path)
    args = parser.parse_args()
    with closing(opened(args.database)) as database:
        if args.command == "work":
            work(database, args.changes, Random(args.seed))
            producer = Producer({"bootstrap.servers": args.bootstrap_server, "enable.idempotence": True})
            print(f"{send(database, producer):,} changes sent to {TOPIC}")
            return 0
        ours, theirs = rows_of_database(database), rows_of_table(args.table)
    verdict = "the same" if ours == theirs else "they differ"
    print(f"{len(ours):,} customers in the database, {len(theirs):,} in the table: {verdict}")
    return int(ours != theirs)


if __name__ == "__main__":
    sys.exit(main())
