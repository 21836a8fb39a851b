"""What the views of the simulation show, in plain Python: nothing here uses the parser or the engine of views."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from typing import Any

from cluster.ledger import NAME_HEADER
from compaction.clients import KEYS, TOMBSTONES

from moldau.wire.records import NEXT_OFFSET, Record

NO_JSON = 0.02
"""The probability of a value that is not JSON, as TOMBSTONES is that of a tombstone."""
AMOUNTS = 100
STEP_MS = 2_000
"""Amounts rise by ten in this time, up to 100 and from 0 again: records that follow each other have similar
amounts, and a view shows or hides many in a row."""

Fields = Mapping[str, Any]


def json_record(rng: Random, elapsed_ms: int, now_ms: int, name: bytes) -> Record:
    """Return a record with JSON, a tombstone, or a value that is not JSON; a header names its producer and number."""
    key = f"key-{min(int(rng.expovariate(0.3)), KEYS)}".encode()
    amount = (elapsed_ms // STEP_MS * 10 + rng.randrange(10)) % AMOUNTS
    value: bytes | None = json.dumps({"id": name.decode(), "amount": amount, "kind": rng.choice("ab")}).encode()
    chance = rng.random()
    if chance < TOMBSTONES:
        value = None
    elif chance < TOMBSTONES + NO_JSON:
        value = b"{no JSON"
    return Record(NEXT_OFFSET, now_ms, key, value, ((NAME_HEADER, name),))


@dataclass(frozen=True)
class Case:
    """A view, and what it does with the fields of a record; a tombstone has none."""

    configs: Mapping[str, str]
    matches: Callable[[Fields], bool]
    select: Callable[[Fields], dict[str, Any]] | None = None
    passes_unreadable: bool = False
    hashes_keys: bool = False

    def shown(self, record: Record) -> Record | None:
        """Return the record as the view must show it; None if it does not."""
        fields: Fields = {}
        value = record.value
        if value is not None:
            try:
                fields = json.loads(value)
            except ValueError:
                if not self.passes_unreadable:
                    return None
                return record._replace(key=self._key(record))
        if not self.matches({"tombstone": value is None, **fields}):
            return None
        if value is not None and self.select is not None:
            value = json.dumps(self.select(fields), separators=(",", ":")).encode()
        return record._replace(key=self._key(record), value=value)

    def _key(self, record: Record) -> bytes | None:
        if record.key is None or not self.hashes_keys:
            return record.key
        return sha256(record.key).hexdigest().encode()


def _amount(fields: Fields) -> float:
    return float(fields.get("amount", "nan"))


CASES = {
    "high": Case({"where": "amount >= 70"}, lambda fields: _amount(fields) >= 70),
    "some": Case(
        # A keyword of conditions, such as `is`, may be the name of a field.
        {"where": "amount between 20 and 39 and kind = 'a'", "select": "id, kind as is", "key": "sha256"},
        lambda fields: 20 <= _amount(fields) <= 39 and fields["kind"] == "a",
        lambda fields: {"id": fields["id"], "is": fields["kind"]},
        hashes_keys=True,
    ),
    "table": Case(
        {"where": "value is null or amount < 10", "select": "kind", "on.error": "pass"},
        lambda fields: fields["tombstone"] or _amount(fields) < 10,
        lambda fields: {"kind": fields["kind"]},
        passes_unreadable=True,
    ),
    "nothing": Case({"where": f"amount >= {AMOUNTS}"}, lambda fields: False),
}
