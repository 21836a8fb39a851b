"""Takes a snapshot of the metadata now and then: when the log has grown enough since the last one, so that a start need
not read all that ever happened, and the log can let go of it. Every node takes its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from moldau.base.errors import StorageFault
from moldau.metadata.apply import Changes
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import encode_record
from moldau.metadata.snapshot import image_records
from moldau.raft.snapshots import SnapshotId
from moldau.runtime.housekeeping import RunInThread
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
        """`on_fault` is told of what a node cannot go on after; a full disk is not that."""
        self._driver = driver
        self._bytes_between = bytes_between
        self._run_in_thread = run_in_thread
        self._on_fault = on_fault
        self._size_before = 0
        """Of the log, when the last snapshot was taken."""
        self._is_writing = False

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        if not self._is_writing and self._driver.log.size_bytes - self._size_before >= self._bytes_between:
            self._begin(image)

    def _begin(self, image: MetadataImage) -> None:
        """An image never changes: it can be written down while others take its place."""
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
                log.info("metadata up to offset %d is in a snapshot of %d records", image.offset, len(values))
        except StorageFault as fault:
            if not fault.is_shortage:
                self._on_fault(fault)
                return
            log.warning("no snapshot of the metadata is written now: %s", fault)
        self._size_before = self._driver.log.size_bytes
