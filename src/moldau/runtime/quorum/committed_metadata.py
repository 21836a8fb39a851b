"""Applies the committed part of the metadata log to the current image.

On a node that is not a controller, this listens to the quorum directly. On a controller, `Controller` passes commits on
while another node leads; while it leads itself, it publishes its own images. Thousands of records take several turns of
the loop; the image is published when all records of a batch are in it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, TypeVar

from moldau.base.errors import MalformedData, StorageFault
from moldau.base.long_work import LongWork
from moldau.base.promise import Promise
from moldau.base.steps import Steps, WaitingSteps, finish
from moldau.base.turns import METADATA_BYTES_MAX
from moldau.metadata.apply import Changes, apply_in_steps
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import decode_record
from moldau.metadata.snapshot import changes_between
from moldau.runtime.own_work import OwnWork
from moldau.runtime.quorum.metadata_log import MetadataLog
from moldau.wire.batch import BatchHeader
from moldau.wire.records import iterate_records
from moldau.wire.schema import MetadataRecord

R = TypeVar("R")
log = logging.getLogger("moldau.controller")
SHORTAGE_RETRY_MS: Final = 1_000
NOT_READABLE: Final = "the metadata cannot be read, retried every second"


class CommittedMetadata:
    def __init__(self, log: MetadataLog, current: CurrentImage, own_work: OwnWork) -> None:
        self._log = log
        self._current = current
        self._own_work = own_work
        self._high_watermark = 0
        self._publishing: LongWork[None] | None = None

    def leading(self, epoch: int) -> None:
        """Do nothing: only a controller leads, and it handles this itself."""

    def no_longer_leading(self) -> None:
        """Do nothing, for the same reason."""

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        """Do nothing: what is committed stays committed under any leader."""

    def committed(self, high_watermark: int) -> None:
        """Publish everything that was committed since the last call."""
        self._high_watermark = high_watermark
        if self._publishing is None or not self._publishing.is_running:
            self._publishing = self._own_work.long_work(self._publish())
            self._publishing()

    def stop(self) -> None:
        """Publish nothing more until the next call of `committed`."""
        if self._publishing is not None:
            self._publishing.cancel()

    def _publish(self) -> WaitingSteps[None]:
        while True:
            while (loaded := (yield from self._when_possible(self._missing_snapshot))) is not None:
                self._take_over(loaded)
            read_up_to = self._current.image.offset + 1
            if self._high_watermark <= read_up_to:
                return
            image, changes = yield from self._when_possible(
                lambda: self._read(self._high_watermark, METADATA_BYTES_MAX)
            )
            self._current.publish(image, changes)
            has_advanced, is_behind = image.offset >= read_up_to, image.offset < self._high_watermark - 1
            if not (has_advanced and is_behind):
                return
            yield None

    def read(self, up_to: int) -> tuple[MetadataImage, Changes]:
        """Return the image with everything below the offset `up_to` applied, and the changes.

        A snapshot that the image lacks is loaded and published first: after a start, this node may become the leader
        before `committed` has loaded it.
        """
        while (loaded := finish(self._missing_snapshot())) is not None:
            self._take_over(loaded)
        return finish(self._read(up_to))

    def _read(self, up_to: int, bytes_max: int | None = None) -> Steps[tuple[MetadataImage, Changes]]:
        """Apply the next batches: one at least, and more as long as they have at most `bytes_max` together. All are
        read in the first step, since the log may change between two steps."""
        image = self._current.image
        batches: list[tuple[BatchHeader, memoryview]] = []
        offset, epoch, size = image.offset, image.epoch, 0
        for header, batch in self._log.batches(image.offset + 1, up_to):
            size += len(batch)
            if bytes_max is not None and batches and size > bytes_max:
                break
            batches.append((header, batch))
            offset, epoch = header.last_offset, header.leader_epoch
        return (yield from apply_in_steps(image, _records(batches), offset, epoch))

    def _missing_snapshot(self) -> Steps[MetadataImage | None]:
        """Return the image of the latest snapshot if the log no longer has the records right after the current image. A
        later one may be fetched meanwhile. Raise MalformedData if no snapshot has these records."""
        if self._log.start_offset <= self._current.image.offset + 1:
            return None
        latest = self._log.latest_snapshot()
        if latest is None or latest.end_offset <= self._current.image.offset + 1:
            start = self._log.start_offset
            raise MalformedData(f"the metadata log begins at offset {start}, and no snapshot reaches that far")
        records = (decode_record(value) for value in self._log.read_snapshot(latest))
        image, _ = yield from apply_in_steps(MetadataImage(), records, latest.end_offset - 1, latest.epoch)
        return image

    def _take_over(self, snapshot: MetadataImage) -> None:
        self._current.publish(snapshot, changes_between(self._current.image, snapshot))

    def _when_possible(self, read: Callable[[], Steps[R]]) -> WaitingSteps[R]:
        """Return what `read` returns. Without file descriptors it is tried again every second."""
        is_logged = False
        while True:
            try:
                return (yield from read())
            except StorageFault as fault:
                if not fault.is_shortage:
                    raise
                if not is_logged:
                    log.warning("%s: %s", NOT_READABLE, fault)
                is_logged = True
                awaited: Promise[float] = Promise()
                self._own_work.after_ms(SHORTAGE_RETRY_MS, partial(awaited.complete, 0.0))
            yield awaited


def _records(batches: Iterable[tuple[BatchHeader, memoryview]]) -> Iterator[MetadataRecord]:
    for header, batch in batches:
        if not header.is_control:
            for record in iterate_records(batch, header):
                yield decode_record(record.value or b"")
