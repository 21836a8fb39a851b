"""Checks every log that was cleaned, loaded at a start, or is half swapped: it has every record that must be there, and
no tombstone was removed too early.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from compaction.ledger import CompactedLedger
from moldau.base.ids import Uuid
from moldau.log.cleaning.swap import SwapWork
from moldau.wire.batch import DELETE_HORIZON_BIT, split_batches
from moldau.wire.records import decode_records

if TYPE_CHECKING:
    from cluster.ledger import Ledger
    from cluster.world import ClusterWorld
    from machines.machine import Machine

READ_BYTES = 1 << 20
WINDOW_MS = 6_000
"""Maximum time of a round; the clock may have advanced as much since a horizon was set."""
NO_HORIZON = -1


@dataclass(slots=True)
class Look:
    """A log as it was after its last round."""

    log: Any
    generation: int
    cleaned_up_to: int = -1
    swap: SwapWork | None = None
    """The swap that was half done."""
    replaced: int = 0
    """How many segments that swap had replaced."""
    remaining: dict[int, int] = field(default_factory=dict)
    """Offsets that were there, and until when they may not be removed."""


class CleaningWatch:
    def __init__(self, world: ClusterWorld, ledger: Callable[[Uuid, int], Ledger]) -> None:
        self._world = world
        self._ledger = ledger
        self._looks: dict[tuple[int, Uuid, int], Look] = {}
        self._clocks: dict[int, deque[tuple[int, int]]] = {}
        self.rounds = 0
        self.removed = 0
        """Number of offsets that a round removed."""

    def check(self) -> None:
        image = self._world.image
        for machine in self._world.machines.values():
            self._note_clock(machine)
            for partition in machine.partitions():
                topic = image.topics.get(partition.name.topic)
                if topic is not None and topic.id == partition.topic_id and partition.log.config.is_compacted:
                    self._look_at(machine, partition)

    def _note_clock(self, machine: Machine) -> None:
        now_ms = self._world.elapsed_ms
        seen = self._clocks.setdefault(machine.node_id, deque())
        seen.append((now_ms, machine.clock.now_ms()))
        while seen[0][0] < now_ms - WINDOW_MS:
            seen.popleft()

    def _look_at(self, machine: Machine, partition: Any) -> None:
        ledger = self._ledger(partition.topic_id, partition.name.partition)
        if not isinstance(ledger, CompactedLedger):
            return
        log = partition.log
        place = (machine.node_id, partition.topic_id, partition.name.partition)
        before = self._looks.get(place)
        if before is None or before.log is not log or before.generation != log.generation:
            before = self._looks[place] = Look(log, log.generation)
        swap = log.swapping
        if swap is not None and not swap.replaced:
            swap = None
        is_seen = swap is None or (swap is before.swap and swap.replaced == before.replaced)
        if log.cleaned_up_to == before.cleaned_up_to and is_seen:
            return
        is_new = before.cleaned_up_to < 0
        self.rounds += not is_new and swap is None
        cleaned_up_to = log.cleaned_up_to if swap is None else swap.cleaned.cleaned_up_to
        remaining = self._read(machine.host, ledger, partition)
        known = min(partition.high_watermark if is_new else cleaned_up_to, ledger.end)
        ledger.judge_remaining(machine.host, before.remaining, remaining, log.start_offset, known)
        self._judge_tombstones(machine, ledger, log, before.remaining, remaining, cleaned_up_to)
        self.removed += len(before.remaining.keys() - remaining.keys())
        replaced = 0 if swap is None else swap.replaced
        self._looks[place] = Look(log, log.generation, log.cleaned_up_to, swap, replaced, remaining)

    def _read(self, who: str, ledger: CompactedLedger, partition: Any) -> dict[int, int]:
        """Return the records of the log. After a start it may be clean beyond the known high watermark, where it may
        also differ."""
        remaining: dict[int, int] = {}
        log, committed = partition.log, partition.high_watermark
        offset, up_to = log.start_offset, log.end_offset
        while offset < up_to:
            found = log.read(offset, READ_BYTES, up_to, at_least_one=True)
            if found is None:
                break
            for header, batch in split_batches(memoryview(found.read())):
                offset = header.next_offset
                if offset <= committed:
                    ledger.show(who, header, batch)
                horizon_ms = header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else NO_HORIZON
                for record in decode_records(batch, header):
                    if header.is_control or ledger.has(record):
                        remaining[record.offset] = horizon_ms
        return remaining

    def began_ms(self, log: Any, otherwise_ms: int) -> int:
        """Return when the round that is checked began, by the clock of its node; `otherwise_ms` if that is unknown."""
        return otherwise_ms

    def _judge_tombstones(
        self,
        machine: Machine,
        ledger: CompactedLedger,
        log: Any,
        before: dict[int, int],
        remaining: dict[int, int],
        cleaned_up_to: int,
    ) -> None:
        clocks = [shown for _, shown in self._clocks[machine.node_id]]
        hidden = ledger.hidden()
        for offset, horizon_ms in before.items():
            if offset < log.start_offset or offset in remaining or offset in hidden or not ledger.is_tombstone(offset):
                continue
            if not ledger.is_followed(offset, below=cleaned_up_to) and not 0 <= horizon_ms <= max(clocks):
                self._world.violated(
                    f"{machine.host} has removed the tombstone of {ledger.name} at {offset} too early: its horizon is "
                    f"{horizon_ms} by its clock, which shows {max(clocks)}"
                )
        soonest_ms = self.began_ms(log, min(clocks)) + log.config.delete_retention_ms
        for offset, horizon_ms in remaining.items():
            is_new = horizon_ms != NO_HORIZON and before.get(offset, NO_HORIZON) != horizon_ms
            if is_new and offset in before and horizon_ms < soonest_ms:
                self._world.violated(
                    f"{machine.host} would remove the tombstone of {ledger.name} at {offset} at {horizon_ms} by its "
                    f"clock, too early: {soonest_ms} is allowed"
                )
