"""What the pipeline must come to, computed again in plain Python: no Spark, nothing shared with the pipeline.

`recompute` takes the records as they were sent, in waves: a wave is sent only when the pipeline has done with the one
before, and consists of minutes, each sent only when the one before was acknowledged. How Spark cuts a wave into
micro-batches is chance, and an event is too late only if an earlier *batch* moved the watermark past it; so the result
is defined by the records alone if no event of a wave can be overtaken by the watermark of its own wave. That is checked
here for every event, and `ChanceDecides` is raised if it is not so.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

WATERMARK = timedelta(minutes=5)
WINDOW = timedelta(minutes=10)
FAILED_LOGINS = 5
COUNTRIES = 3
"""The four figures of pipeline.yaml."""

TEXTS = {"event_id", "type", "user_id", "session_id", "country", "book_id", "order_id"}
REQUIRED = {"event_id", "ts", "type", "user_id"}

Bytes = tuple[bytes, bytes]
"""Key and value of a record."""
Row = dict[str, Any]


class ChanceDecides(Exception):
    """The records do not define the result: whether an event is too late would depend on how Spark cuts its batches."""


class WindowCount(NamedTuple):
    events: int
    turnover: Decimal


class Suspicion(NamedTuple):
    name: str | None
    failed: int
    countries: tuple[str, ...]


@dataclass(slots=True)
class Result:
    read: int = 0
    dead: Counter[Bytes] = field(default_factory=Counter)
    duplicates: int = 0
    too_late: int = 0
    events: dict[str, Row] = field(default_factory=dict)
    """Every event once, by id, enriched: what the lake table and the topics by type hold."""
    watermark: datetime | None = None
    counts: dict[tuple[datetime, str], WindowCount] = field(default_factory=dict)
    """By the start of the window and the type; only windows that the watermark has closed."""
    suspicious: dict[tuple[datetime, str], Suspicion] = field(default_factory=dict)
    open_events: int = 0
    """Events whose window is still open, and which are therefore in no count yet."""

    @property
    def by_type(self) -> Counter[str]:
        return Counter(row["type"] for row in self.events.values())

    @property
    def by_day_and_type(self) -> Counter[tuple[str, str]]:
        return Counter((row["day"], row["type"]) for row in self.events.values())


def recompute(waves: Iterable[Sequence[Sequence[Bytes]]], users: Mapping[str, Mapping[str, str]]) -> Result:
    result = Result()
    for wave in waves:
        _accept(result, wave, users)
    _close_windows(result)
    return result


def _accept(result: Result, wave: Sequence[Sequence[Bytes]], users: Mapping[str, Mapping[str, str]]) -> None:
    """Reads, drops what is too late, and keeps each id once."""
    behind = result.watermark
    newest = behind + WATERMARK if behind else None
    for minute in wave:
        rows = [row for record in minute if (row := _read(result, record)) is not None]
        newest = max([row["ts"] for row in rows] + ([newest] if newest else []), default=None)
        for row in rows:
            if behind is not None and row["ts"] <= behind:
                result.too_late += 1
            elif row["ts"] <= newest - WATERMARK:
                raise ChanceDecides(f"{row['event_id']} of {row['ts']}: {newest} was in the topic at the same time")
            elif row["event_id"] in result.events:
                result.duplicates += 1
            else:
                result.events[row["event_id"]] = _enriched(row, users)
    result.watermark = newest - WATERMARK if newest else None


def _read(result: Result, record: Bytes) -> Row | None:
    result.read += 1
    row = parsed(record[1])
    if row is None:
        result.dead[record] += 1
    return row


def parsed(value: bytes) -> Row | None:
    """None for a record that does not fit the schema."""
    try:
        row = json.loads(value, parse_float=Decimal)
        row["ts"] = datetime.fromisoformat(row["ts"])
    except (ValueError, KeyError, TypeError):
        return None
    fits = (
        row.keys() >= REQUIRED
        and all(isinstance(row[name], str) for name in TEXTS & row.keys())
        and isinstance(row.get("success", True), bool)
        and isinstance(row.get("price", Decimal(0)), Decimal)
    )
    return row if fits else None


def _enriched(row: Row, users: Mapping[str, Mapping[str, str]]) -> Row:
    user = users.get(row["user_id"], {})
    return {
        **row,
        "day": row["ts"].date().isoformat(),
        "user_name": user.get("name"),
        "home_country": user.get("country"),
        "segment": user.get("segment"),
    }


def window_start(moment: datetime) -> datetime:
    return moment - timedelta(seconds=moment.timestamp() % WINDOW.total_seconds())


def _close_windows(result: Result) -> None:
    by_type: defaultdict[tuple[datetime, str], list[Row]] = defaultdict(list)
    logins: defaultdict[tuple[datetime, str], list[Row]] = defaultdict(list)
    for row in result.events.values():
        start = window_start(row["ts"])
        if result.watermark is None or start + WINDOW > result.watermark:
            result.open_events += 1
            continue
        by_type[start, row["type"]].append(row)
        if row["type"] == "login":
            logins[start, row["user_id"]].append(row)
    result.counts = {key: WindowCount(len(rows), _turnover(rows)) for key, rows in by_type.items()}
    result.suspicious = {key: found for key, rows in logins.items() if (found := _suspicion(rows))}


def _turnover(rows: list[Row]) -> Decimal:
    sign = {"buy": 1, "return": -1}
    return sum((sign.get(row["type"], 0) * row.get("price", Decimal(0)) for row in rows), Decimal(0))


def _suspicion(logins: list[Row]) -> Suspicion | None:
    failed = sum(row.get("success") is False for row in logins)
    countries = tuple(sorted({row["country"] for row in logins if "country" in row}))
    if failed < FAILED_LOGINS and len(countries) < COUNTRIES:
        return None
    return Suspicion(logins[0]["user_name"], failed, countries)
