"""Applies the committed part of the metadata log to the current image.

On a node that is not a controller, this listens to the quorum directly.
"""

from __future__ import annotations

from moldau.metadata.apply import Changes, apply
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import MetadataRecord, decode_record
from moldau.metadata.snapshot import changes_between
from moldau.runtime.quorum.metadata_log import MetadataLog
from moldau.wire.records import decode_records


class CommittedMetadata:
    def __init__(self, log: MetadataLog, current: CurrentImage) -> None:
        self._log = log
        self._current = current

    def leading(self, epoch: int) -> None:
        """Do nothing: only a controller leads, and it handles this itself."""

    def no_longer_leading(self) -> None:
        """Do nothing, for the same reason."""

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        """Do nothing: what is committed stays committed under any leader."""

    def committed(self, high_watermark: int) -> None:
        """Publish everything that was committed since the last call as one change."""
        self._load_snapshot()
        if high_watermark > self._current.image.offset + 1:
            self._current.publish(*self.read(high_watermark))

    def read(self, up_to: int) -> tuple[MetadataImage, Changes]:
        """Return the image with everything below the offset `up_to` applied, and the changes."""
        image = self._current.image
        records: list[MetadataRecord] = []
        offset, epoch = image.offset, image.epoch
        for header, batch in self._log.batches(image.offset + 1, up_to):
            if not header.is_control:
                records += [decode_record(record.value or b"") for record in decode_records(batch, header)]
            offset, epoch = header.last_offset, header.leader_epoch
        return apply(image, records, offset, epoch)

    def _load_snapshot(self) -> None:
        """Load the latest snapshot if the log no longer has the records right after the current image."""
        latest = self._log.latest_snapshot()
        if latest is None or self._log.start_offset <= self._current.image.offset + 1:
            return
        records = [decode_record(value) for value in self._log.read_snapshot(latest)]
        image, _ = apply(MetadataImage(), records, latest.end_offset - 1, latest.epoch)
        self._current.publish(image, changes_between(self._current.image, image))
