"""Random orders as records, some of them not valid JSON, and an oracle in plain Python for reads with `where` and
`fields`."""

from __future__ import annotations

import json
import random
from typing import Any, NamedTuple

WHERE = "amount > 100 and (site = 'Prague' or key is null)"
FIELDS = "id, amount, user.name as buyer"
UNREADABLE = (b"", b"{", b'{"id": 1, "amount": 200', b"\xff\xfe", b"nan\x00", b"{'id': 1}")


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int
    partition: int


def random_orders(rng: random.Random, count: int, now_ms: int, partitions: int = 2) -> list[Record]:
    records = []
    for number in range(count):
        key = None if rng.random() < 0.3 else rng.choice([b"a", b"b", b"Prague"])
        headers: list[tuple[str, bytes | None]] = [("n", b"%d" % number), ("empty", None)] if number % 3 == 0 else []
        value = rng.choice(UNREADABLE) if rng.random() < 0.1 else _order(rng, number)
        if rng.random() < 0.05:
            value = None
        records.append(Record(key, value, headers, now_ms + number, rng.randrange(partitions)))
    return records


def _order(rng: random.Random, number: int) -> bytes:
    order: dict[str, Any] = {
        "id": number,
        "padding": "x" * rng.randrange(60),
        "user": {"name": rng.choice(["Eva", ""])},
    }
    if rng.random() < 0.9:
        order["amount"] = rng.choice(
            [rng.randrange(200), rng.randrange(2000) / 10, "150", "50", None, True, [101], "x"]
        )
    if rng.random() < 0.9:
        order["site"] = rng.choice(["Prague", "Prague", "Brno", "prague", 7, None])
    return json.dumps(rng.choice([order, order, order, [order], 5]) if rng.random() < 0.2 else order).encode()


def shown_value(record: Record) -> Any:
    """Return the parsed value that a reader with WHERE and FIELDS gets; None if it does not get the record."""
    try:
        order = json.loads(record.value or b"")
    except ValueError:
        return None
    if not isinstance(order, dict):
        return None
    amount = _number(order.get("amount"))
    if amount is None or amount <= 100 or not (order.get("site") == "Prague" or record.key is None):
        return None
    return {"id": order["id"], "amount": order["amount"], "buyer": order["user"]["name"]}


def _number(value: Any) -> float | None:
    """Return a field that is compared with a number as a number, also if it is text; None if it is not one."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except ValueError:
        return None
