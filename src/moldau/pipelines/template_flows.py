"""The pipelines of `moldau pipeline init --from … --to …`: one source, one step, one sink, and a test of them.

A pipeline is put together from the texts of its source and of its sink. In all of them orders become their totals.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

CASE: Final = "tests/first-orders"

_PIPELINE: Final = """\
# @FROM@ to @TO@. It works without changes:
#
@COMMANDS@
#
# To make it yours, change what has a comment "change".

name: "@NAME@"
bootstrap: localhost:9092 # change: your cluster

sources:
  orders:
@SOURCE@

steps:
  - name: totals # change: your SQL
    sql: |
@SELECT@

sinks:
  - name: totals
    from: totals
@SINK@
"""
_SCHEMA: Final = "id bigint not null, item string, email string, quantity int, price double"
_ORDERS: Final[tuple[dict[str, Any], ...]] = (
    {"id": 1, "item": "book", "email": "ann@example.org", "quantity": 2, "price": 12.5},
    {"id": 2, "item": "pen", "email": "bob@example.org", "quantity": 10, "price": 1.5},
    {"id": 3, "item": "lamp", "email": "ann@example.org", "quantity": 1, "price": 39.0},
)
_SQL: Final = """\
create table orders (id bigint primary key, item text, email text, quantity int, price double precision);
insert into orders values (1, 'book', 'ann@example.org', 2, 12.5), (2, 'pen', 'bob@example.org', 10, 1.5);
"""
_RECEIVER: Final = '''\
"""A web server for trying things out: prints what is sent to it."""

from http.server import BaseHTTPRequestHandler, HTTPServer


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        print(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Print nothing but what is sent."""


HTTPServer(("localhost", 8080), Receiver).serve_forever()
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """One end of a pipeline."""

    title: str
    text: str
    """The keys of the source or sink."""
    before: tuple[tuple[str, str], ...] = ()
    """Commands to give before the run, and what is to say of each."""
    after: tuple[tuple[str, str], ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    keeps_rows: bool = False
    """Whether a sink keeps one row for each key, so that a deletion deletes it."""


def _lines(rows: Iterable[Any]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


_CSV: Final = "".join(
    f"{','.join(map(str, values))}\n" for values in ([*_ORDERS[0]], *([*order.values()] for order in _ORDERS))
)
_TABLE: Final = "table: totals # change: as schema.table; it is created if it is missing\nmode: upsert\nkeys: [id]"

SOURCES: Final[Mapping[str, _End]] = {
    "topic": _End(
        title="A topic",
        text=f"""\
topic: shop.orders # change: your topic
format: json # change: or csv, avro, debezium, text, raw
schema: {_SCHEMA} # change: its fields
dead_letter: shop.orders.dead # what does not fit the schema goes there, with the reason""",
        before=((f"moldau produce shop.orders {CASE}/input/orders.txt", ""),),
        files={f"{CASE}/input/orders.txt": _lines(_ORDERS)},
    ),
    "csv": _End(
        title="CSV files",
        text=f"""\
file: data/*.csv # change: your files; they have a header
format: csv
watch: true # new files are read as they come; without it each run reads all files once
schema: {_SCHEMA} # change: its columns""",
        files={"data/orders.csv": _CSV, f"{CASE}/input/orders.csv": _CSV},
    ),
    "postgres": _End(
        title="A table of PostgreSQL",
        text=f"""\
database: postgresql://localhost:5432/shop # change: postgresql://USER:${{env:PASSWORD}}@HOST:5432/DATABASE
table: orders # change: your table
changes: true # first the table as it is, then each change: columns _op (r, c, u, d), _before, _ts_ms, …
schema: {_SCHEMA} # change: its columns
key: id # change: its primary key""",
        before=(("createdb shop && psql shop -f orders.sql", "the server needs wal_level = logical"),),
        after=(("psql shop -c \"insert into orders values (3, 'lamp', 'ann@example.org', 1, 39)\"", ""),),
        files={"orders.sql": _SQL, f"{CASE}/input/orders.jsonl": _lines([*_ORDERS, {"_op": "d", "id": 3}])},
    ),
}
SINKS: Final[Mapping[str, _End]] = {
    "topic": _End(
        title="a topic",
        text="""\
topic: shop.totals # change: your topic
key: string(id) # SQL, as all of key, value, headers, partition
partitions: 1 # if the topic is missing, it is created with so many""",
        after=(("moldau consume shop.totals", ""),),
        keeps_rows=True,
    ),
    "postgres": _End(
        title="a table of PostgreSQL",
        text=f"database: postgresql://localhost:5432/warehouse # change: postgresql://USER:${{env:PASSWORD}}@HOST/DATABASE"
        f"\n{_TABLE}",
        before=(("createdb warehouse", ""),),
        after=(("psql warehouse -c 'select * from totals'", ""),),
        keeps_rows=True,
    ),
    "sqlite": _End(
        title="a table of SQLite",
        text=f"database: sqlite:///warehouse.db # change: the file, beside this one\n{_TABLE}",
        after=(("sqlite3 warehouse.db 'select * from totals'", ""),),
        keeps_rows=True,
    ),
    "delta": _End(
        title="a Delta table",
        text="""\
table: lake/totals # change: a directory, or a URL such as s3a://bucket/totals
format: delta # change: or iceberg, parquet
mode: upsert # or append: every row is a row of the table
keys: [id]""",
        after=(("moldau pipeline status pipeline.yaml", "any reader of Delta tables can read lake/totals"),),
        keeps_rows=True,
    ),
    "http": _End(
        title="a web server",
        text="""\
backend: http
url: http://localhost:8080/totals # change: where to; every row is a POST of its JSON
key: string(id) # by this header (Idempotency-Key) the server recognises a repetition
rate: 50 # rows a second
dead_letter: shop.totals.dead # what the server refuses goes there, with the reason""",
        before=(("python receiver.py", "shows what comes, in a terminal of its own"),),
        files={"receiver.py": _RECEIVER},
    ),
    "mail": _End(
        title="mails",
        text="""\
backend: mail
url: smtp://localhost:1025 # change: your server; then `user` and `password: ${env:…}` under options, and starttls
to: email
subject: concat('Your order ', id)
body: concat(item, ' for ', total, ' EUR')
rate: 10 # mails a second
dead_letter: shop.totals.dead # what the server refuses goes there, with the reason
options: {from: shop@example.org, starttls: off} # change: the sender""",
        before=(("python -m aiosmtpd -n -l localhost:1025", "a server that prints mails (pip install aiosmtpd)"),),
    ),
}
_SELECT: Final = "select id, item, email, quantity * price as total"
_TEST: Final = ("moldau pipeline test pipeline.yaml", "feeds tests/ through it and compares: needs nothing else")
_START: Final = ("moldau start", "a broker, in a terminal of its own")
_RUN: Final = ("moldau pipeline run pipeline.yaml", "until Ctrl-C, and continues from there next time")


def flow_files(name: str, source: str, sink: str) -> Mapping[str, str]:
    """Return the files of a pipeline from a key of SOURCES to a key of SINKS: text by path, that of the pipeline
    first."""
    begin, end = SOURCES[source], SINKS[sink]
    parts = {
        "FROM": begin.title,
        "TO": end.title,
        "NAME": name,
        "COMMANDS": _commands((_TEST, _START, *begin.before, *end.before, _RUN, *begin.after, *end.after)),
        "SELECT": _indented(_select(source, sink), 6),
        "SOURCE": _indented(begin.text, 4),
        "SINK": _indented(_sink_text(source, sink), 4),
    }
    text = _PIPELINE
    for part, value in parts.items():
        text = text.replace(f"@{part}@", value)
    expected = {f"{CASE}/expected/totals.jsonl": _lines(_expected(source, sink))}
    return {"pipeline.yaml": text, **begin.files, **end.files, **expected}


def _indented(text: str, columns: int) -> str:
    return "\n".join(" " * columns + line for line in text.split("\n"))


def _commands(commands: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"#   {command:<42}  {what}".rstrip() for command, what in commands)


def _select(source: str, sink: str) -> str:
    """Return the SQL of the step. Of a database's changes, what keeps rows gets deletions too, a backend new rows."""
    if source != "postgres":
        return f"{_SELECT}\nfrom orders"
    if sink == "topic":
        return "select *, quantity * price as total -- with all columns: a deletion becomes a null\nfrom orders"
    if SINKS[sink].keeps_rows:
        return f"{_SELECT}, _op\nfrom orders"
    return f"{_SELECT}\nfrom orders where _op = 'c' -- inserted; not r, which was there before the first run"


def _sink_text(source: str, sink: str) -> str:
    text = SINKS[sink].text
    if source != "postgres" or not SINKS[sink].keeps_rows:
        return text
    if sink == "topic":
        written = "format: json # change: or debezium, for its envelope"
        return text.replace("key: string(id) # SQL, as all of key, value, headers, partition", written)
    return f"{text}\ndelete_when: _op = 'd'"


def _expected(source: str, sink: str) -> Iterable[Any]:
    rows = [
        {"id": order["id"], "item": order["item"], "email": order["email"], "total": order["quantity"] * order["price"]}
        for order in _ORDERS
    ]
    is_changes = source == "postgres"
    if sink == "topic" and is_changes:
        keys = [f'{{"id":{order["id"]}}}' for order in _ORDERS]
        records = [
            {"key": key, "value": order | {"total": row["total"]}}
            for key, order, row in zip(keys, _ORDERS, rows, strict=True)
        ]
        return [*records, {"key": keys[-1], "value": None}]
    if sink in ("topic", "http"):
        return [{"key": str(row["id"]), "value": row} for row in rows]
    if sink == "mail":
        return [
            {
                "value": {
                    "to": row["email"],
                    "subject": f"Your order {row['id']}",
                    "body": f"{row['item']} for {row['total']} EUR",
                }
            }
            for row in rows
        ]
    return [row | {"_op": "c"} for row in rows[:-1]] if is_changes else rows
