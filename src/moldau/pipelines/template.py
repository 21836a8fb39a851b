"""The template of `moldau pipeline init`: a small pipeline that works, with comments that explain it, and a test.

When the pipeline file can do more, change these texts too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from moldau.pipelines.problems import PipelineError
from moldau.pipelines.template_flows import flow_files

TOPIC: Final = "topic"

_PIPELINE = """\
# A pipeline: topics in, SQL, topics out. It works without changes:
#
#   moldau start                                 a broker, in a terminal of its own
#   moldau pipeline test pipeline.yaml           feeds tests/ through it and compares: no broker needed
#   moldau produce orders tests/first-orders/input/orders.txt
#   moldau pipeline run pipeline.yaml            runs it until Ctrl-C, and continues from there next time
#   moldau consume orders.per-minute             what comes out
#   moldau consume orders.dead --json            what could not be read, and why
#
# Also: `moldau pipeline validate` finds every mistake without running, `moldau pipeline graph` draws the flow.

name: "@NAME@"
bootstrap: localhost:9092 # any Kafka cluster; -b or MOLDAU_BOOTSTRAP override it
trigger: 1 second # how often a batch starts; without it, each starts when the last one ends

vars: # used as ${currency}; `--set currency=USD` overrides; ${env:NAME} reads the environment
  currency: EUR

# Where the data comes from. The name of a source is a view that SQL can use.
sources:
  orders:
    topic: orders # or  topics: [a, b]  or  pattern: orders-.*  or  file: users.csv  or  table: lake/rates
    format: json # json, csv, avro, text or raw
    # A record without a column that is NOT NULL, or whose value does not fit its type, is a bad record.
    # Every row also has _key, _topic, _partition, _offset and _timestamp.
    schema: |
      order_id string not null,
      item     string not null,
      amount   double not null,
      currency string,
      ts       timestamp not null
    start: earliest # or latest, or a time such as 2026-01-31T08:00:00Z; only where there is no checkpoint yet
    watermark: {column: ts, delay: 1 minute} # how late an order may come and still be counted
    deduplicate: [order_id] # an order that was sent twice counts once
    dead_letter: orders.dead # bad records go here, with the reason as headers; or `drop`, or `fail`

# What is done with it: SQL, or a Python function (`python: module:function` with `inputs: [orders]`).
# Each step is a view for those after it.
steps:
  - name: priced
    sql: |
      select order_id, item, amount, coalesce(currency, '${currency}') as currency, ts
      from orders
      where amount > 0

  - name: per_minute
    sql: |
      select date_format(window.start, 'yyyy-MM-dd HH:mm') as minute,
             item,
             count(*)              as orders,
             round(sum(amount), 2) as turnover
      from priced
      where currency = '${currency}'
      group by window(ts, '1 minute'), item

# Where the results go. Each sink is a query of its own, with a checkpoint of its own.
sinks:
  - name: per-minute
    from: per_minute
    topic: orders.per-minute
    key: concat(minute, ' ', item) # an SQL expression; also: headers, partition, value
    mode: update # a new record whenever a count changes; `append` waits until the window is over
    partitions: 1 # if the topic does not exist, it is created with this many partitions

  # Other sinks to try:
  #
  # - from: priced
  #   route: concat('orders.', lower(item)) # the topic of each record by its content
  #
  # - from: priced
  #   table: lake/orders # a lake table: parquet, delta or iceberg
  #   format: delta
  #
  # - from: per_minute
  #   backend: http # webhooks; also mail, opensearch, statsd, graphite, files, or a Python class of yours
  #   url: https://hooks.example/per-minute
  #
  # - from: per_minute
  #   console: true
  #   mode: update
"""

_INPUT_ORDERS = """\
{"order_id": "1", "item": "book", "amount": 12.9, "currency": "EUR", "ts": "2026-01-31T08:00:01Z"}
{"order_id": "2", "item": "book", "amount": 7.5, "ts": "2026-01-31T08:00:20Z"}
{"order_id": "2", "item": "book", "amount": 7.5, "ts": "2026-01-31T08:00:20Z"}
{"order_id": "3", "item": "pen", "amount": 2, "currency": "EUR", "ts": "2026-01-31T08:00:59Z"}
{"order_id": "4", "item": "pen", "amount": 3, "currency": "USD", "ts": "2026-01-31T08:01:00Z"}
{"order_id": "5", "item": "book", "amount": "much", "ts": "2026-01-31T08:01:01Z"}
{"order_id": "6", "item": "book", "amount": 20, "currency": "EUR", "ts": "2026-01-31T08:01:30Z"}
"""

_EXPECTED_PER_MINUTE = """\
{"key": "2026-01-31 08:00 book", "value": {"minute": "2026-01-31 08:00", "item": "book", "orders": 2, "turnover": 20.4}}
{"key": "2026-01-31 08:00 pen", "value": {"minute": "2026-01-31 08:00", "item": "pen", "orders": 1, "turnover": 2.0}}
{"key": "2026-01-31 08:01 book", "value": {"minute": "2026-01-31 08:01", "item": "book", "orders": 1, "turnover": 20.0}}
"""

_EXPECTED_DEAD_LETTERS = """\
{"value": {"order_id": "5", "item": "book", "amount": "much", "ts": "2026-01-31T08:01:01Z"}}
"""


def template_files(name: str, source: str | None = None, sink: str | None = None) -> Mapping[str, str]:
    """Return the files of a new pipeline: text by path relative to its folder. With a source or a sink (keys of SOURCES
    and SINKS; a topic for the one that is not given) it is a short one from there to there."""
    if source or sink:
        return flow_files(name, source or TOPIC, sink or TOPIC)
    case = "tests/first-orders"
    return {
        "pipeline.yaml": _PIPELINE.replace("@NAME@", name),
        f"{case}/input/orders.txt": _INPUT_ORDERS,
        f"{case}/expected/per-minute.jsonl": _EXPECTED_PER_MINUTE,
        f"{case}/expected/orders.dead-letters.jsonl": _EXPECTED_DEAD_LETTERS,
    }


def write_template(folder: Path, name: str, source: str | None = None, sink: str | None = None) -> tuple[Path, ...]:
    """Write a new pipeline into a folder, which may exist. Return the paths of the files, that of the pipeline first.

    Raise PipelineError if one of the files exists; then nothing is written.
    """
    files = {folder / path: text for path, text in template_files(name, source, sink).items()}
    for path in files:
        if path.exists():
            raise PipelineError(f"{path} is there already; choose another folder, or remove it first")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tuple(files)
