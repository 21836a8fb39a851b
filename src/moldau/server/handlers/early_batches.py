"""Batches of idempotent producers for partitions that this node does not have yet: the metadata has not arrived, or
there was no room for the log. The partition is told of them when it is there, so that those in flight behind them are
refused too until they come again."""

from __future__ import annotations

from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode
from moldau.log.producer_batches import note_refusal
from moldau.replica.partition import Partition
from moldau.wire.batch import BATCH_HEADER_BYTES
from moldau.wire.schema import Records

EARLY_MAX: Final = 1_000
"""Batches that are remembered, at 400 bytes for each. Anybody may name partitions that do not exist."""
EARLY_MS: Final = 60_000
"""How long they are remembered: a partition comes in milliseconds, room for its log perhaps in seconds."""


class _Early(NamedTuple):
    header: bytes
    code: ErrorCode
    at_ms: int


class EarlyBatches:
    def __init__(self) -> None:
        self.batches: dict[tuple[str, int], list[_Early]] = {}
        """By topic and index of the partition."""
        self._count = 0

    def add(self, topic: str, index: int, batch: Records | None, code: ErrorCode, now_ms: int) -> None:
        if not isinstance(batch, memoryview) or len(batch) < BATCH_HEADER_BYTES:
            return
        while self._count >= EARLY_MAX:
            self._count -= len(self.batches.pop(next(iter(self.batches))))
        early = _Early(bytes(batch[:BATCH_HEADER_BYTES]), code, now_ms)
        self.batches.setdefault((topic, index), []).append(early)
        self._count += 1

    def pass_on(self, topic: str, partition: Partition, index: int, now_ms: int) -> None:
        """Tell the partition, which is here now, of the batches that came too early for it."""
        early = self.batches.pop((topic, index), ())
        self._count -= len(early)
        for each in early:
            if now_ms - each.at_ms < EARLY_MS:
                note_refusal(partition.log.producers, memoryview(each.header), each.code, each.at_ms)
