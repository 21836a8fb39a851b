"""Consumers of a view. They read it again and again, from its beginning or any offset: each time they must get what the
view shows of the records of its source, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from cluster.consumers import Consumer, Place
from transactions.reader import READ_COMMITTED, AbortedFilter

from moldau.base.ids import Uuid
from moldau.wire.batch import BatchHeader, has_valid_crc, read_header, split_batches
from moldau.wire.records import Record, decode_records
from views.cases import Case
from views.clients import SourceLedger

if TYPE_CHECKING:
    from views.world import ViewsWorld

REST_MS = (200, 2_000)
FROM_THE_BEGINNING = 0.6
READ_BYTES = 1 << 20


@dataclass(slots=True, eq=False)
class Pass:
    """One reading of a partition up to the end that it had."""

    ledger: SourceLedger
    case: Case
    begin: int
    """The offset from which everything must be shown."""
    until: int = -1
    high_watermark: int = -1
    """The greatest that was returned: what was committed below it decides which records were aborted."""
    seen: dict[int, Record] = field(default_factory=dict)
    logs: dict[int, Any] = field(default_factory=dict)
    """The log of each node that was asked."""
    left: set[int] | None = None
    """The offsets that all of these logs had at the end, and therefore all the time; None if that is not known."""
    again_at_ms: int = -1
    """When to begin again, once it is read."""


class ViewReader(Consumer):
    def __init__(self, world: ViewsWorld, name: str, view: str, isolation_level: int, rng: Random) -> None:
        self.isolation_level = isolation_level
        self._views = world
        self._passes: dict[tuple[Uuid, int], Pass] = {}
        self._unjudged: list[Pass] = []
        self._filter = AbortedFilter(())
        self.read_up_to: dict[tuple[Uuid, int], int] = {}
        """How far each partition was read by the last whole pass."""
        self.passes = 0
        self.shown = 0
        super().__init__(world, name, view, rng)

    # --- the source -----------------------------------------------------------------------------------------------

    @property
    def _may_be_another(self) -> bool:
        return True  # the view may be recreated, and its source too

    def _ledger(self, place: Place) -> SourceLedger:
        return self._views.source_ledger(place.topic_id, place.partition)

    def source_id(self) -> Uuid | None:
        return None if self.topic_id is None else self._views.known_views[self.topic_id].source_id

    def _log(self, node_id: int, place: Place) -> Any:
        source_id = self._views.known_views[place.topic_id].source_id
        for partition in self.world.machines[node_id].partitions():
            if partition.topic_id == source_id and partition.name.partition == place.partition:
                return partition.log
        return None

    def _pass(self, place: Place) -> Pass:
        key = (place.topic_id, place.partition)
        if key not in self._passes:
            case = self._views.known_views[place.topic_id].case
            self._passes[key] = Pass(self._ledger(place), case, place.position)
        return self._passes[key]

    # --- reading --------------------------------------------------------------------------------------------------

    def topic_changed(self) -> None:
        super().topic_changed()
        self.world.newest_image()  # the world must know the view

    def _fetch(self, node_id: int, places: list[Place]) -> None:
        for place in places:
            log = self._log(node_id, place)
            known = self._pass(place).logs.setdefault(node_id, log)
            if known is not log:
                self._pass(place).logs[node_id] = None
        super()._fetch(node_id, places)

    def begins(self, place: Place, epoch: int, start_offset: int) -> None:
        super().begins(place, epoch, start_offset)
        reading = self._pass(place)
        reading.begin = max(reading.begin, start_offset)

    def skipped(self, place: Place) -> None:
        reading = self._pass(place)
        reading.begin = max(reading.begin, place.position)

    def readable_end(self, place: Place, epoch: int, partition_data: Any) -> int:
        reading = self._pass(place)
        self._filter = AbortedFilter(partition_data.aborted_transactions)
        is_committed = self.isolation_level == READ_COMMITTED
        end = int(partition_data.last_stable_offset if is_committed else partition_data.high_watermark)
        if reading.until < 0:
            reading.until = end
        reading.high_watermark = max(reading.high_watermark, partition_data.high_watermark)
        return end

    def take(self, place: Place, epoch: int, partition_data: Any) -> None:
        super().take(place, epoch, partition_data)
        reading = self._pass(place)
        if reading.again_at_ms >= 0:
            if self.world.elapsed_ms >= reading.again_at_ms:
                del self._passes[place.topic_id, place.partition]
                is_whole = self.world.faults.is_over or self.rng.random() < FROM_THE_BEGINNING
                place.position = 0 if is_whole else self.rng.randint(0, reading.until)
                place.last_epoch = -1
        elif 0 <= reading.until <= place.position:
            self._ends(place, reading)

    def _read(self, place: Place, batch: memoryview, end: int) -> None:
        header = read_header(batch)
        where = f"{self.name}: {self.topic}-{place.partition} at {header.base_offset}"
        if not has_valid_crc(batch):
            self.world.violated(f"{where} has a wrong CRC")
        if header.last_offset >= end:
            self.world.violated(f"{where} reaches {header.last_offset}, the readable end is {end}")
        if header.next_offset <= place.position:
            return
        reading = self._pass(place)
        if reading.again_at_ms < 0 and self._is_given(header, batch):
            for record in decode_records(batch, header):
                if record.offset in reading.seen:
                    self.world.violated(f"{where} shows {record.offset} again")
                if record.offset >= place.position:
                    reading.seen[record.offset] = record
        place.position, place.last_epoch = header.next_offset, header.leader_epoch

    def _is_given(self, header: BatchHeader, batch: memoryview) -> bool:
        if self.isolation_level == READ_COMMITTED:
            return self._filter.passes(header, batch)
        return not header.is_control

    # --- checks ---------------------------------------------------------------------------------------------------

    def _ends(self, place: Place, reading: Pass) -> None:
        self.passes += 1
        reading.again_at_ms = self.world.elapsed_ms + self.rng.randint(*REST_MS)
        reading.left = self._left(place, reading)
        self.read_up_to[place.topic_id, place.partition] = reading.until
        self.world.trace(
            f"{self.name} has read {place.partition} from {reading.begin} to {reading.until}: {len(reading.seen)} shown"
        )
        self._unjudged.append(reading)
        self.world.audit.check()
        self.judge()

    def _left(self, place: Place, reading: Pass) -> set[int] | None:
        lefts = []
        for node_id, log in reading.logs.items():
            if log is None or self._log(node_id, place) is not log:
                return None
            lefts.append(_offsets(log, reading.begin, reading.until))
        return set.intersection(*lefts) if lefts else None

    def judge(self) -> None:
        """Compare what was read with the records of the source, as far as they are known."""
        known = [each for each in self._unjudged if each.high_watermark <= each.ledger.end]
        self._unjudged = [each for each in self._unjudged if each.high_watermark > each.ledger.end]
        for reading in known:
            self._judge_pass(reading)

    def _judge_pass(self, reading: Pass) -> None:
        ledger = reading.ledger
        hidden = ledger.hidden() if self.isolation_level == READ_COMMITTED else set()
        self.shown += len(reading.seen)
        for offset, record in reading.seen.items():
            source = ledger.records.get(offset)
            expected = None if source is None else reading.case.shown(source)
            if expected != record:
                self.world.violated(
                    f"{self.name} reads {record} of {ledger.name}, it should be {expected}: the source has {source}"
                )
            if offset in hidden:
                self.world.violated(f"{self.name} reads {record} of {ledger.name}, which was aborted")
        for offset in sorted((reading.left or set()) - reading.seen.keys() - hidden):
            source = ledger.records.get(offset)
            if source is not None and reading.case.shown(source) is not None:
                self.world.violated(
                    f"{self.name} did not get {source} of {ledger.name}, read from {reading.begin} to {reading.until}"
                )


def _offsets(log: Any, begin: int, end: int) -> set[int]:
    """The offsets of the records that a log has in this range."""
    found: set[int] = set()
    offset = max(begin, log.start_offset)
    while offset < min(end, log.end_offset):
        records = log.read(offset, READ_BYTES, end, at_least_one=True)
        if records is None:
            break
        for header, batch in split_batches(memoryview(records.read())):
            offset = header.next_offset
            if not header.is_control:
                found.update(record.offset for record in decode_records(batch, header) if begin <= record.offset < end)
    return found
