"""Reads back what the pipeline wrote, topics and lake table, and holds every piece of it against the recomputation.

The topics are read with confluent-kafka and the table with deltalake: two readers that know nothing of each other.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from deltalake import DeltaTable
from recompute import Bytes, Result, Row, Suspicion, WindowCount

FETCH_TIMEOUT_S = 120.0
CONSUME_MAX = 10_000
CONSUME_S = 0.05

Counts = dict[tuple[datetime, str], WindowCount]
Suspicions = dict[tuple[datetime, str], Suspicion]


class Check(NamedTuple):
    """One line of the report."""

    what: str
    pipeline: str
    recomputed: str
    agrees: bool


class DeadLetter(NamedTuple):
    record: Bytes
    headers: dict[str, bytes]


@dataclass(slots=True)
class Written:
    """What the pipeline wrote, as it was read back."""

    by_type: dict[str, list[Row]]
    counts: list[Row]
    suspicious: list[Row]
    dead: list[DeadLetter]
    lake: list[Row]
    lake_partitions: set[tuple[str, str]]

    def windows(self) -> Counts:
        return {(row["window_start"], row["type"]): WindowCount(row["events"], row["turnover"]) for row in self.counts}

    def suspicions(self) -> Suspicions:
        return {
            (row["window_start"], row["user_id"]): Suspicion(row.get("user_name"), row["failed"], (*row["countries"],))
            for row in self.suspicious
        }


class Reader:
    """Whole topics, from the first record to the last there is now, each read on from where it was read to before.

    The pipeline writes in transactions: what is not committed is not seen, and offsets are no count of records.
    """

    def __init__(self, address: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "demo",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                # Topics are read one after the other, on one connection: nobody is to wait for what does not come.
                "fetch.wait.max.ms": 10,
                "fetch.queue.backoff.ms": 5,
                "log_level": 0,
            }
        )
        self._found: dict[str, list[Message]] = {}
        self._next: dict[tuple[str, int], int] = {}

    def close(self) -> None:
        self._consumer.close()

    def records(self, topic: str) -> list[Message]:
        found = self._found.setdefault(topic, [])
        rest = set(self._consumer.list_topics(topic, FETCH_TIMEOUT_S).topics[topic].partitions)
        self._consumer.assign([TopicPartition(topic, index, self._next.get((topic, index), 0)) for index in rest])
        deadline = time.monotonic() + FETCH_TIMEOUT_S
        while rest:
            for message in self._consumer.consume(CONSUME_MAX, CONSUME_S):
                error, partition = message.error(), message.partition()
                if error is None:
                    found.append(message)
                    self._next[topic, partition] = message.offset() + 1
                    deadline = time.monotonic() + FETCH_TIMEOUT_S
                elif error.code() == KafkaError._PARTITION_EOF:
                    rest.discard(partition)
                else:
                    raise KafkaException(error)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic}: no more came after {len(found):,} records")
        self._consumer.unassign()
        return found

    def count(self, topic: str) -> int:
        return len(self.records(topic))


def read_back(reader: Reader, lake: Path, types: Iterable[str]) -> Written:
    def rows(topic: str) -> list[Row]:
        return [_from_json(message.value()) for message in reader.records(topic)]

    table = DeltaTable(str(lake))
    return Written(
        by_type={kind: rows(f"bookstore.{kind}") for kind in types},
        counts=rows("bookstore.counts"),
        suspicious=rows("bookstore.suspicious"),
        dead=[
            DeadLetter((message.key(), message.value()), dict(message.headers() or []))
            for message in reader.records("bookstore.dead")
        ],
        lake=[_comparable(row) for row in table.to_pyarrow_table().to_pylist()],
        lake_partitions={(each["day"], each["type"]) for each in table.partitions()},
    )


def compare(written: Written, expected: Result) -> list[Check]:
    return [
        *(_events_of(kind, rows, expected) for kind, rows in written.by_type.items()),
        *_counts(written, expected),
        _suspicious(written, expected),
        _dead(written, expected),
        *_lake(written, expected),
    ]


def _events_of(kind: str, rows: list[Row], expected: Result) -> Check:
    wanted = {event_id: row for event_id, row in expected.events.items() if row["type"] == kind}
    return _check(f"topic bookstore.{kind}", len(rows), len(wanted), _same_events(rows, wanted))


def _counts(written: Written, expected: Result) -> list[Check]:
    found = written.windows()
    agree = found == expected.counts and len(written.counts) == len(found)
    (events, turnover), (wanted_events, wanted_turnover) = _sums(found), _sums(expected.counts)
    return [
        _check("topic bookstore.counts", len(written.counts), len(expected.counts), agree),
        _check("  events in its windows", events, wanted_events, agree),
        _check("  turnover in its windows", turnover, wanted_turnover, agree),
    ]


def _suspicious(written: Written, expected: Result) -> Check:
    found = written.suspicions()
    agrees = found == expected.suspicious and len(written.suspicious) == len(found)
    return _check("topic bookstore.suspicious", len(written.suspicious), len(expected.suspicious), agrees)


def _dead(written: Written, expected: Result) -> Check:
    """Bad records are kept as they came, and say where they came from and what was wrong."""
    headers = [letter.headers for letter in written.dead]
    told = all(each.get("moldau.topic") == b"bookstore.events" and each.get("moldau.error") for each in headers)
    places = {(each.get("moldau.partition"), each.get("moldau.offset")) for each in headers}
    same = Counter(letter.record for letter in written.dead) == expected.dead
    agrees = same and told and len(places) == len(written.dead)
    return _check("topic bookstore.dead", len(written.dead), expected.dead.total(), agrees)


def _lake(written: Written, expected: Result) -> list[Check]:
    wanted = set(expected.by_day_and_type)
    return [
        _check("lake table", len(written.lake), len(expected.events), _same_events(written.lake, expected.events)),
        _check("  its partitions", len(written.lake_partitions), len(wanted), written.lake_partitions == wanted),
    ]


def _check(what: str, found: int | Decimal, wanted: int | Decimal, agrees: bool) -> Check:
    return Check(what, f"{found:,}", f"{wanted:,}", agrees)


def _sums(counts: Counts) -> tuple[int, Decimal]:
    return sum(count.events for count in counts.values()), sum((c.turnover for c in counts.values()), Decimal(0))


def _same_events(found: list[Row], wanted: dict[str, Row]) -> bool:
    """Every event once, and each field of it as it should be."""
    if len(found) != len(wanted):
        return False
    return {row["event_id"]: row for row in found} == {name: _comparable(row) for name, row in wanted.items()}


def _from_json(value: bytes) -> Row:
    row = json.loads(value, parse_float=Decimal)
    for name in ("ts", "window_start", "window_end"):
        if name in row:
            row[name] = datetime.fromisoformat(row[name])
    return _comparable(row)


def _comparable(row: dict[str, Any]) -> Row:
    """A field that is null is a field that is not there; a day is its text."""
    known = {name: value for name, value in row.items() if value is not None}
    return known | {"day": str(known["day"])} if "day" in known else known
