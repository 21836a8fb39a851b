"""Writes a snapshot of the metadata when the log has grown enough since the last attempt.

A node then starts from the snapshot instead of replaying the whole log, and old segments can be deleted. Every node
writes its own snapshots.
"""

from __future__ import annotations

import logging
from functools import partial

from moldau.base.errors import StorageFault
from moldau.base.ports import RunInThread
from moldau.metadata.apply import Changes
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import encode_record
from moldau.metadata.snapshot import image_records
from moldau.raft.snapshots import SnapshotId
from moldau.runtime.own_work import OwnWork
from moldau.runtime.quorum.driver import QuorumDriver
from moldau.runtime.quorum.metadata_log import SnapshotWork

log = logging.getLogger("moldau.controller")


class MetadataSnapshots:
    def __init__(
        self,
        driver: QuorumDriver,
        bytes_between_snapshots: int,
        run_in_thread: RunInThread,
        own_work: OwnWork,
    ) -> None:
        self._driver = driver
        self._bytes_between_snapshots = bytes_between_snapshots
        self._run_in_thread = run_in_thread
        self._own_work = own_work
        self._log_size_at_last_attempt = 0
        """Also set when the attempt failed: the next one comes only after the log has grown again, so that a full disk
        does not cause an attempt with every image."""
        self._is_writing = False

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        size = self._driver.log.size_bytes
        # Smaller after a snapshot was received: it has replaced the log.
        self._log_size_at_last_attempt = min(self._log_size_at_last_attempt, size)
        if not self._is_writing and size - self._log_size_at_last_attempt >= self._bytes_between_snapshots:
            self._start(image)

    def _start(self, image: MetadataImage) -> None:
        """Encode and write the image in a thread. It is immutable, so newer images can be published meanwhile."""
        values = map(encode_record, image_records(image))
        try:
            work = self._driver.begin_snapshot(SnapshotId(image.offset + 1, image.epoch), values)
        except StorageFault as fault:
            self._finish(image, None, fault)
            return
        if work is None:
            self._finish(image, None, None)
            return
        self._is_writing = True
        finish = partial(self._finish, image, work)
        self._run_in_thread(work.run).then(self._own_work.guard(finish))

    def _finish(self, image: MetadataImage, work: SnapshotWork | None, fault: StorageFault | None) -> None:
        self._is_writing = False
        try:
            if fault is not None:
                if work is not None:
                    work.abandon()
                raise fault
            # False: a newer snapshot was fetched from the leader meanwhile.
            if work is not None and self._driver.finish_snapshot(work):
                log.info("metadata snapshot up to offset %d written", image.offset)
        except StorageFault as failed:
            if not failed.is_shortage:
                self._own_work.on_fault(failed)
                return
            log.warning("metadata snapshot up to offset %d not written, retried later: %s", image.offset, failed)
        self._log_size_at_last_attempt = self._driver.log.size_bytes
