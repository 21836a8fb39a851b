"""Writes a snapshot of the metadata when the log has grown enough since the last attempt.

A node then starts from the snapshot instead of replaying the whole log, and old segments can be deleted. Every node
writes its own snapshots.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from moldau.base.errors import StorageFault
from moldau.base.ports import RunInThread
from moldau.metadata.apply import Changes
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import encode_record
from moldau.metadata.snapshot import image_records
from moldau.raft.snapshots import SnapshotId
from moldau.runtime.quorum.driver import QuorumDriver

log = logging.getLogger("moldau.controller")


class MetadataSnapshots:
    def __init__(
        self,
        driver: QuorumDriver,
        bytes_between_snapshots: int,
        run_in_thread: RunInThread,
        on_fault: Callable[[StorageFault], None],
    ) -> None:
        """`on_fault` is called with faults that stop the node; a full disk is only logged."""
        self._driver = driver
        self._bytes_between_snapshots = bytes_between_snapshots
        self._run_in_thread = run_in_thread
        self._on_fault = on_fault
        self._log_size_at_last_attempt = 0
        """Also set when the attempt failed: the next one comes only after the log has grown again, so that a full disk
        does not cause an attempt with every image."""
        self._is_encoding = False

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        growth = self._driver.log.size_bytes - self._log_size_at_last_attempt
        if not self._is_encoding and growth >= self._bytes_between_snapshots:
            self._start_encoding(image)

    def _start_encoding(self, image: MetadataImage) -> None:
        """Encode the image in a thread, because many records would block the event loop. The image is immutable, so
        newer images can be published meanwhile."""
        self._is_encoding = True
        values: list[bytes] = []

        def encode() -> None:
            values.extend(encode_record(record) for record in image_records(image))

        self._run_in_thread(encode).then(lambda _: self._write(image, values))

    def _write(self, image: MetadataImage, values: list[bytes]) -> None:
        self._is_encoding = False
        snapshot = SnapshotId(image.offset + 1, image.epoch)
        try:
            # False: a snapshot at least as new exists, for example one that was fetched from the leader meanwhile.
            if self._driver.write_snapshot(snapshot, values):
                log.info("metadata snapshot up to offset %d written: %d records", image.offset, len(values))
        except StorageFault as fault:
            if not fault.is_shortage:
                self._on_fault(fault)
                return
            log.warning("metadata snapshot up to offset %d not written, retried later: %s", image.offset, fault)
        self._log_size_at_last_attempt = self._driver.log.size_bytes
