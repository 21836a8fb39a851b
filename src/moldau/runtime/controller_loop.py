"""The controller at work: decide, append, apply, and answer when it is committed.

It is the single writer of the metadata log. Decisions see what was decided before them, committed or not; everyone else
sees an image only once its records are on disk with a majority.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from moldau.base.clock import Clock
from moldau.base.later import Later
from moldau.log.log import Log
from moldau.log.validate import Origin
from moldau.log.walk import walk_headers
from moldau.metadata.apply import Changes, apply
from moldau.metadata.controller.decision import Decision
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import MetadataRecord, decode_record, encode_record
from moldau.raft.quorum import Quorum
from moldau.replica.flushing import Flusher
from moldau.wire.records import decode_records

R = TypeVar("R")


class MetadataLog:
    """The log `__cluster_metadata-0` as the quorum sees it."""

    def __init__(self, log: Log) -> None:
        self.log = log

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    @property
    def flushed_offset(self) -> int:
        return self.log.recovery_point

    @property
    def last_epoch(self) -> int:
        return self.log.last_epoch

    def append(self, batch: bytearray, epoch: int, now_ms: int) -> None:
        self.log.append(memoryview(batch), leader_epoch=epoch, now_ms=now_ms, origin=Origin.RAFT)


class _Parked(NamedTuple):
    """An answer that waits for its records to be committed."""

    commit_offset: int
    image: MetadataImage
    changes: Changes
    answer: Later[Any]
    response: Any


class Controller:
    def __init__(
        self, quorum: Quorum, metadata_log: MetadataLog, flusher: Flusher, current: CurrentImage, clock: Clock
    ) -> None:
        self._quorum = quorum
        self._metadata_log = metadata_log
        self._flusher = flusher
        self._current = current
        self._clock = clock
        self._image = MetadataImage()
        self._parked: deque[_Parked] = deque()

    @property
    def log(self) -> Log:
        return self._metadata_log.log

    def start(self) -> None:
        """Learns what was committed, then leads. Alone in the quorum, all that is on disk is committed."""
        changes = self._replay()
        self._quorum.elect(self._clock.now_ms())
        self._current.publish(self._image, changes)

    def submit(self, decide: Callable[[MetadataImage], Decision[R]]) -> Later[R]:
        """Decides by what is known now; the answer comes when what it rests on is committed."""
        decision = decide(self._image)
        answer: Later[R] = Later()
        changes = Changes()
        if decision.records:
            values = [encode_record(record) for record in decision.records]
            end_offset = self._quorum.append(values, self._clock.now_ms())
            self._image, changes = apply(self._image, decision.records, end_offset - 1, self._quorum.leader_epoch)
            self._flusher.request(self)
        self._parked.append(_Parked(self.log.end_offset, self._image, changes, answer, decision.response))
        self._release()
        return answer

    def flushed(self) -> None:
        self._quorum.flushed()
        self._release()

    def _release(self) -> None:
        while self._parked and self._parked[0].commit_offset <= self._quorum.high_watermark:
            parked = self._parked.popleft()
            self._current.publish(parked.image, parked.changes)
            parked.answer.complete(parked.response)

    def _replay(self) -> Changes:
        """Applies every record of the log, all at once: a map that they touch is copied once, not for each batch."""
        records: list[MetadataRecord] = []
        offset, epoch = self._image.offset, self._image.epoch
        for segment in self.log.segments:
            for position, header in walk_headers(segment.file, 0, segment.size):
                if not header.is_control:
                    batch = segment.read_batch(position, header.size_in_bytes)
                    records += [decode_record(record.value or b"") for record in decode_records(batch, header)]
                    offset, epoch = header.last_offset, header.leader_epoch
        self._image, changes = apply(self._image, records, offset, epoch)
        return changes
