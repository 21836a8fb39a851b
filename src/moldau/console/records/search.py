"""Searches in a topic with bounded work: oldest first from a position, or newest first from the end.

A search that ends at a bound returns where to go on, so that no request takes long and nothing is kept in between.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from typing import Final

from moldau.base.errors import MalformedData
from moldau.base.ids import TopicPartition
from moldau.client.cluster import EARLIEST, Cluster
from moldau.console.records.choosing import Choice
from moldau.console.records.condition import Condition
from moldau.console.records.fetching import FETCH_BYTES_MAX, Fetched, advance, fetch
from moldau.console.records.shown import FoundRecord
from moldau.web.failures import ApiError, bad_request
from moldau.wire.records import append_varint, read_varint

RECORDS_MAX: Final = 20_000
BYTES_MAX: Final = 32 << 20
CHOOSING_SECONDS: Final = 2.0
SECONDS_MAX: Final = 3.0
FOUND_BYTES_MAX: Final = 16 << 20
"""Of the records of one answer."""
PARTITION_BYTES: Final = 512 << 10
PARTITION_BYTES_MIN: Final = 16 << 10
WINDOW_BYTES: Final = 4 << 20
"""A search from the end reads windows of at most about this size in each partition."""
WINDOW_WITH_FILTER: Final = 2_000
CURSOR_TEXT_MAX: Final = 4_000
PACKED: Final = "~"
Offsets = dict[int, int]
"""By partition."""


@dataclass(slots=True)
class Work:
    """What a search has looked at, and its bounds."""

    records_max: int = RECORDS_MAX
    bytes_max: int = BYTES_MAX
    seconds_max: float = SECONDS_MAX
    records: int = 0
    bytes: int = 0
    begin: float = field(default_factory=time.monotonic)

    @property
    def is_done(self) -> bool:
        return (
            self.records >= self.records_max
            or self.bytes >= self.bytes_max
            or time.monotonic() - self.begin >= self.seconds_max
        )

    @property
    def chooses_until(self) -> float:
        """When to stop choosing among records that were fetched now: with the work, but not before a few are chosen."""
        return max(self.begin + self.seconds_max, time.monotonic() + CHOOSING_SECONDS)

    def add(self, fetched: Iterable[Fetched]) -> None:
        for each in fetched:
            self.records += each.seen
            self.bytes += each.bytes

    def data(self) -> dict[str, float]:
        seconds = round(time.monotonic() - self.begin, 3)
        return {"records": self.records, "bytes": self.bytes, "seconds": seconds}


@dataclass(slots=True)
class Found:
    records: list[FoundRecord]
    next: Offsets | None
    """Where to go on; None at the end."""
    stopped: str
    work: Work


def bounds(cluster: Cluster, topic: str, indexes: Iterable[int], committed: bool) -> tuple[Offsets, Offsets]:
    """Return the first offset and the one after the last that can be read, by partition."""
    partitions = [TopicPartition(topic, index) for index in indexes]
    starts = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = cluster.latest(partitions, read_committed=committed)
    return (
        {each.partition: offset for each, offset in starts.items()},
        {each.partition: offset for each, offset in ends.items()},
    )


def oldest_first(
    cluster: Cluster,
    topic: str,
    positions: Mapping[int, int],
    ends: Mapping[int, int],
    choice: Choice,
    limit: int,
    work: Work,
    committed: bool = True,
) -> Found:
    """Return up to `limit` records from the positions on, partitions merged by time."""
    reading = dict(positions)
    found: list[FoundRecord] = []
    found_bytes = 0
    while open_positions := {index: at for index, at in reading.items() if at < ends[index]}:
        if work.is_done:
            return Found(found, reading, "work", work)
        share = max(PARTITION_BYTES_MIN, min(PARTITION_BYTES, FETCH_BYTES_MAX // len(open_positions)))
        fetched = fetch(
            cluster, topic, open_positions,
            partition_bytes=share, ends=ends, committed=committed, where=choice.where,
        )  # fmt: skip
        work.add(fetched.values())
        choose_until = work.chooses_until
        for each in merge(*(part.records for part in fetched.values()), key=_timestamp):
            if each.record.offset >= ends[each.partition]:
                continue
            reading[each.partition] = each.record.offset + 1
            if choice.wants(each):
                found.append(each)
                found_bytes += each.size_bytes
                if len(found) >= limit or found_bytes >= FOUND_BYTES_MAX:
                    return Found(found, reading, "limit", work)
            if time.monotonic() >= choose_until:  # the filters of long records take time
                return Found(found, reading, "work", work)
        advance(open_positions, fetched)
        reading = open_positions | {index: at for index, at in reading.items() if index not in open_positions}
    return Found(found, None, "end", work)


def _timestamp(found: FoundRecord) -> int:
    return found.record.timestamp


def _minus_timestamp(found: FoundRecord) -> int:
    return -found.record.timestamp


class NewestFirst:
    """A search backwards: windows of offsets below `uppers`, each read forwards and turned round."""

    def __init__(
        self, cluster: Cluster, topic: str, starts: Mapping[int, int], uppers: Mapping[int, int], committed: bool = True
    ) -> None:
        self._cluster, self._topic, self._committed = cluster, topic, committed
        self._starts, self._uppers = starts, dict(uppers)

    def search(self, choice: Choice, limit: int, work: Work, record_bytes: Mapping[int, float]) -> Found:
        """Return up to `limit` records. `record_bytes` is about how large records are, for the size of windows.

        It always gets ahead: if a bound is reached before a window is whole, one more is read without bounds.
        """
        begin, insisted = dict(self._uppers), False
        found: list[FoundRecord] = []
        found_bytes = 0
        sizes = dict.fromkeys(self._uppers, limit if choice.wants_all else WINDOW_WITH_FILTER)
        while pending := [index for index, upper in self._uppers.items() if upper > self._starts[index]]:
            if work.is_done and (insisted or self._uppers != begin):
                return Found(found, self._uppers, "work", work)
            insisted = work.is_done
            room = _room(work, pending, record_bytes)
            lows = {index: max(self._starts[index], self._uppers[index] - min(sizes[index], room[index]))
                    for index in pending}  # fmt: skip
            windows, fitting = self._read(lows, work, choice.where)
            for index in pending:
                sizes[index] = min(sizes[index] * 2, WINDOW_WITH_FILTER) if index in windows else fitting[index]
            choose_until = work.chooses_until
            for each in merge(*(reversed(records) for records in windows.values()), key=_minus_timestamp):
                self._uppers[each.partition] = each.record.offset
                if choice.wants(each):
                    found.append(each)
                    found_bytes += each.size_bytes
                    if len(found) >= limit or found_bytes >= FOUND_BYTES_MAX:
                        return Found(found, self._uppers, "limit", work)
                if time.monotonic() >= choose_until:
                    return Found(found, self._uppers, "work", work)
            for index in windows:
                self._uppers[index] = lows[index]
        return Found(found, None, "end", work)

    def _read(
        self, lows: Mapping[int, int], work: Work, where: Condition | None
    ) -> tuple[dict[int, list[FoundRecord]], Offsets]:
        """Return the records of each window that was read as a whole, and how large the others should be: half of what
        was read of them. If the work is done already, nothing was found out yet: it reads until a window is whole."""
        insists = work.is_done
        reading = dict(lows)
        windows: dict[int, list[FoundRecord]] = {index: [] for index in lows}
        share = max(PARTITION_BYTES_MIN, min(PARTITION_BYTES, work.bytes_max // 2 // len(lows)))
        while pending := {index: at for index, at in reading.items() if at < self._uppers[index]}:
            fetched = fetch(
                self._cluster, self._topic, pending,
                partition_bytes=share, ends=self._uppers, committed=self._committed, where=where,
            )  # fmt: skip
            work.add(fetched.values())
            for index, part in fetched.items():
                windows[index] += [each for each in part.records if each.record.offset < self._uppers[index]]
                reading[index] = max(reading[index], part.next_offset)
            is_stuck = all(reading[index] == at for index, at in pending.items())
            if work.is_done and (not insists or is_stuck or any(reading[each] >= self._uppers[each] for each in lows)):
                break
        fitting = {index: max(1, (at - lows[index]) // 2) for index, at in reading.items()}
        return {index: windows[index] for index, at in reading.items() if at >= self._uppers[index]}, fitting


def _room(work: Work, pending: Sequence[int], record_bytes: Mapping[int, float]) -> Offsets:
    """Return how many records a window may have in each partition, so that all windows fit into the work."""
    window_bytes = min(WINDOW_BYTES, work.bytes_max / 2 / len(pending))
    records = work.records_max // len(pending)
    return {index: max(1, min(records, int(window_bytes / record_bytes.get(index, 1)))) for index in pending}


def cursor_text(offsets: Offsets | None) -> str | None:
    """Return `0:1200,1:870`; of very many partitions the differences as varints, for a query has a bound."""
    if offsets is None:
        return None
    text = ",".join(f"{index}:{offset}" for index, offset in sorted(offsets.items()))
    return text if len(text) <= CURSOR_TEXT_MAX else _packed(offsets)


def _packed(offsets: Offsets) -> str:
    data = bytearray()
    before = (-1, 0)
    for each in sorted(offsets.items()):
        append_varint(data, each[0] - before[0] - 1)
        append_varint(data, each[1] - before[1])
        before = each
    return PACKED + base64.urlsafe_b64encode(data).decode().rstrip("=")


def parse_cursor(text: str, known: Iterable[int]) -> Offsets:
    """Read the cursor of an earlier answer; all partitions must exist."""
    offsets: Offsets = {}
    allowed = set(known)
    for index, offset in _unpacked(text) if text.startswith(PACKED) else _pairs(text):
        if index not in allowed:
            raise bad_request(f"cursor: there is no partition {index}")
        offsets[index] = offset
    return offsets


def _pairs(text: str) -> Iterator[tuple[int, int]]:
    for part in text.split(","):
        index, _, offset = part.partition(":")
        if not (index.isascii() and index.isdigit() and offset.isascii() and offset.isdigit()) or len(part) > 30:
            raise _bad_cursor()
        yield int(index), int(offset)


def _unpacked(text: str) -> Iterator[tuple[int, int]]:
    digits = text.removeprefix(PACKED)
    try:
        data = base64.b64decode(digits + "=" * (-len(digits) % 4), altchars=b"-_", validate=True)
        index, offset, position = -1, 0, 0
        while position < len(data):
            skipped, position = read_varint(data, position)
            more, position = read_varint(data, position, 64)
            index, offset = index + skipped + 1, offset + more
            if not 0 <= offset < 2**63:
                raise _bad_cursor()
            yield index, offset
    except (ValueError, MalformedData) as error:
        raise _bad_cursor() from error


def _bad_cursor() -> ApiError:
    return bad_request("cursor: not one of an earlier answer")
