"""Rebuilds producer state and leader epochs from the batches: from the newest intact snapshot, or from the start.

Used when a log is opened and after it was truncated. Damaged snapshots and checkpoints are not used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from moldau.base.buffers import Buffer
from moldau.base.errors import MalformedData, StorageFault
from moldau.base.limits import PRODUCER_BATCHES_KEPT
from moldau.base.steps import Steps
from moldau.base.turns import LISTED_A_TURN
from moldau.log import layout
from moldau.log.checkpoints import replace_file
from moldau.log.epochs import LeaderEpochs
from moldau.log.files import Files, write_all
from moldau.log.producer_snapshot import decode_snapshot, encode_snapshot
from moldau.log.producers import BatchMetadata, CompletedTxn, Producers
from moldau.log.segment import Segment
from moldau.log.segments import Segments
from moldau.log.txn_index import AbortedTxn
from moldau.log.walk import walk_headers
from moldau.wire.batch import BatchHeader
from moldau.wire.records import EndTxnMarker, decode_records, read_end_txn_marker

RECALL_OFFSETS: Final = 10_000
"""How far back to search for a producer's earlier batches: a snapshot keeps only the last one."""
RECALL_BATCHES: Final = 2_000
"""After how many batches of all producers that search ends: it runs within one append, a few milliseconds."""
RECALL_OFFSETS_A_STEP: Final = 500
"""The search goes back in steps, because within a step it can only go forward."""


class _Found(NamedTuple):
    """A batch and where it is."""

    segment: Segment
    position: int
    header: BatchHeader


def marker_in(batch: Buffer) -> EndTxnMarker | None:
    """Return the end-of-transaction marker in a control batch; None if the batch contains another control record."""
    records = decode_records(batch)
    return read_end_txn_marker(records[0]) if records else None


def replay_batch(producers: Producers, header: BatchHeader, read: Callable[[], Buffer]) -> CompletedTxn | None:
    """Apply one batch of the log to its producer's state. `read` is called only for control batches."""
    if header.producer_id < 0:
        return None
    if header.is_control:
        marker = marker_in(read())
        if marker is None:
            return None
        return producers.end_transaction(
            header.producer_id, header.producer_epoch, marker, header.base_offset, header.max_timestamp
        )
    replay_data_batch(producers, header)
    return None


def replay_data_batch(producers: Producers, header: BatchHeader) -> None:
    """Apply a batch that has a producer id and no control records."""
    producers.record(header.producer_id, header.producer_epoch, _batch_metadata(header), header.is_transactional)


def _batch_metadata(header: BatchHeader) -> BatchMetadata:
    return BatchMetadata(
        header.base_sequence, header.last_sequence, header.base_offset, header.last_offset, header.max_timestamp
    )


def aborted_txn(producers: Producers, completed: CompletedTxn) -> AbortedTxn:
    """Return the entry of the transaction index, with the last stable offset right after the marker."""
    oldest = producers.oldest_open_transaction
    stable = completed.marker_offset + 1 if oldest is None else oldest
    return AbortedTxn(completed.producer_id, completed.first_offset, completed.marker_offset, stable)


# --- producers --------------------------------------------------------------------------------------------------


def snapshot_offsets(names: list[str]) -> list[int]:
    """Return the offsets of the snapshots among these file names, newest first."""
    offsets = [offset for name in names if (offset := layout.offset_of(name, layout.SNAPSHOT)) is not None]
    return sorted(offsets, reverse=True)


def write_snapshot(files: Files, directory: str, offset: int, producers: Producers) -> str:
    """Write a snapshot and return its path, which the caller must sync. A half-written one fails its CRC and is
    ignored."""
    path = f"{directory}/{layout.offset_name(offset)}{layout.SNAPSHOT}"
    file = files.open(path, create=True)
    file.truncate(0)
    write_all(file, encode_snapshot(producers.active()), 0)
    return path


def write_snapshot_if_possible(files: Files, directory: str, offset: int, producers: Producers) -> list[str]:
    """Like `write_snapshot`; return no path if there was no room on the disk, and leave nothing there. Whoever opens
    the log then reads the batches behind an older snapshot."""
    try:
        return [write_snapshot(files, directory, offset, producers)]
    except StorageFault as fault:
        if not fault.is_shortage:
            raise
        files.unlink(f"{directory}/{layout.offset_name(offset)}{layout.SNAPSHOT}")
        return []


def reload_producers(
    producers: Producers,
    files: Files,
    directory: str,
    names: list[str],
    segments: Segments,
    end_offset: int,
) -> None:
    """Bring `producers` to the state at `end_offset`. Remove damaged snapshots and those beyond `end_offset`.

    Raise MalformedData if a batch after the snapshot cannot be read.
    """
    replay_from = 0
    producers.load([])
    for offset in snapshot_offsets(names):
        path = f"{directory}/{layout.offset_name(offset)}{layout.SNAPSHOT}"
        content = files.read(path) if offset <= end_offset else None
        try:
            if content is not None:
                producers.load(decode_snapshot(content), offset)
                replay_from = offset
                break
        except MalformedData:
            pass
        files.unlink(path)
    for found in _headers(segments, replay_from, end_offset):
        _replay(producers, found)


def _replay(producers: Producers, found: _Found) -> None:
    segment, position, header = found
    replay_batch(producers, header, partial(segment.read_batch, position, header.size_in_bytes))


def _headers(segments: Segments, from_offset: int, up_to: int) -> Iterator[_Found]:
    """Yield each batch with from_offset <= base offset < up_to. Raise MalformedData where there is no whole batch."""
    if from_offset >= up_to:
        return
    for place in range(segments.floor(from_offset), len(segments)):
        segment = segments.at(place)
        if segment.base_offset >= up_to:
            return
        start = 0
        if from_offset > segment.base_offset:
            # `locate` rebuilds an index that does not match the log.
            located = segment.locate(from_offset)
            start = segment.size if located is None else located[0]
        for position, header in walk_headers(segment.file, start, segment.size):
            if header.base_offset >= up_to:
                return
            if header.base_offset >= from_offset:
                yield _Found(segment, position, header)


def search_ended(
    files: Files, directory: str, segments: Segments, from_offset: int, up_to: int
) -> Steps[list[CompletedTxn]]:
    """Return the transactions with a marker in from_offset <= offset < up_to, in the order of their markers.

    Between steps the log may grow, and its oldest segments may be deleted. Raise MalformedData if a batch cannot be
    read.
    """
    has_control_batch = False
    for found in _in_steps(segments, from_offset, up_to):
        if found is None:
            yield
        elif found.header.is_control:
            has_control_batch = True
            break
    if not has_control_batch:
        return []
    producers, replay_from = Producers(), 0
    for offset in snapshot_offsets(files.names(directory)):
        path = f"{directory}/{layout.offset_name(offset)}{layout.SNAPSHOT}"
        content = files.read(path) if offset <= from_offset else None
        if content is not None:
            with suppress(MalformedData):
                producers.load(decode_snapshot(content), offset)
                replay_from = offset
                break
    for found in _in_steps(segments, replay_from, up_to):
        if found is None:
            yield
        else:
            _replay(producers, found)
    # Nothing was forgotten during the replay: these are all transactions that ended from `replay_from` on.
    return [txn for txn in producers.unreplicated if txn.marker_offset >= from_offset]


def _in_steps(segments: Segments, from_offset: int, up_to: int) -> Iterator[_Found | None]:
    """Yield what `_headers` yields, and None after every LISTED_A_TURN batches."""
    while True:
        for number, found in enumerate(_headers(segments, from_offset, up_to)):
            if number == LISTED_A_TURN:
                break
            yield found
        else:
            return
        yield None
        # Look the position up again: the list of segments may have changed.
        from_offset = found.header.base_offset


def batches_before(segments: Segments, producer_id: int, epoch: int, offset: int) -> list[BatchMetadata]:
    """Return the last batches that the producer wrote with `epoch` below `offset`. Raise MalformedData if one cannot be
    read.

    The search ends RECALL_OFFSETS back, or in the step that reaches RECALL_BATCHES. An older batch that is sent again
    is refused as out of order."""
    batches: list[BatchMetadata] = []
    oldest, batches_read = max(offset - RECALL_OFFSETS, 0), 0
    while oldest < offset and batches_read < RECALL_BATCHES and len(batches) < PRODUCER_BATCHES_KEPT:
        begin = max(offset - RECALL_OFFSETS_A_STEP, oldest)
        headers = [header for _, _, header in _headers(segments, begin, offset)]
        batches[:0] = [
            _batch_metadata(header)
            for header in headers
            if (header.producer_id, header.producer_epoch) == (producer_id, epoch) and not header.is_control
        ]
        batches_read += len(headers)
        offset = begin
    return batches[-PRODUCER_BATCHES_KEPT:]


# --- leader epochs ----------------------------------------------------------------------------------------------


def read_epochs(files: Files, directory: str) -> LeaderEpochs | None:
    """Return the epochs of the checkpoint; None if it is missing or damaged."""
    content = files.read(f"{directory}/{layout.LEADER_EPOCH_CHECKPOINT}")
    if content is None:
        return None
    try:
        return LeaderEpochs.decode(content)
    except MalformedData:
        return None


def replace_epochs(files: Files, directory: str, epochs: LeaderEpochs) -> None:
    """Write the epochs to the checkpoint. Without room on the disk the old ones are removed: they are rebuilt."""
    try:
        replace_file(files, directory, layout.LEADER_EPOCH_CHECKPOINT, epochs.encode())
        epochs.is_dirty = False
    except StorageFault as fault:
        if not fault.is_shortage:
            raise
        files.unlink(f"{directory}/{layout.LEADER_EPOCH_CHECKPOINT}")


def epochs_from_batches(segments: Iterable[Segment]) -> LeaderEpochs:
    """Read the leader epoch of every batch: slow, but needs no checkpoint. Covers the batches before the first
    unreadable one."""
    epochs = LeaderEpochs()
    try:
        for segment in segments:
            for _, header in walk_headers(segment.file, 0, segment.size):
                epochs.assign(header.leader_epoch, header.base_offset)
    except MalformedData:
        return epochs
    return epochs
