"""Writes a snapshot of the metadata when the log has grown enough since the last one, so that a start need not read the
whole history and old segments can be deleted. Every node writes its own.
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
        bytes_between: int,
        run_in_thread: RunInThread,
        on_fault: Callable[[StorageFault], None],
    ) -> None:
        """`on_fault` gets the faults that stop a node; a full disk is only logged."""
        self._driver = driver
        self._bytes_between = bytes_between
        self._run_in_thread = run_in_thread
        self._on_fault = on_fault
        self._size_before = 0
        """The size of the log when the last snapshot was written."""
        self._is_writing = False

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        if not self._is_writing and self._driver.log.size_bytes - self._size_before >= self._bytes_between:
            self._begin(image)

    def _begin(self, image: MetadataImage) -> None:
        """Encode the image in a thread: it is immutable, so newer images can be published meanwhile."""
        self._is_writing = True
        values: list[bytes] = []

        def encode() -> None:
            values.extend(encode_record(record) for record in image_records(image))

        self._run_in_thread(encode).then(lambda _: self._write(image, values))

    def _write(self, image: MetadataImage, values: list[bytes]) -> None:
        self._is_writing = False
        snapshot = SnapshotId(image.offset + 1, image.epoch)
        try:
            if self._driver.write_snapshot(snapshot, values):
                log.info("metadata snapshot up to offset %d written: %d records", image.offset, len(values))
        except StorageFault as fault:
            if not fault.is_shortage:
                self._on_fault(fault)
                return
            log.warning("metadata snapshot up to offset %d not written, retried later: %s", image.offset, fault)
        self._size_before = self._driver.log.size_bytes
