"""Input and result of a round of compaction: plain values, so that a round may run in another process."""

from __future__ import annotations

from typing import NamedTuple

from moldau.log.txn_index import AbortedTxn


class SourceSegment(NamedTuple):
    """A segment to be cleaned, as it was when the round began."""

    base_offset: int
    size: int


class LastProducerBatches(NamedTuple):
    """Batches of an active producer whose headers must stay in the log: else a restart would lose the producer."""

    last_data_offset: int
    """-1 if its last batch is a marker: the marker has the epoch by which the producer is fenced."""
    epoch: int
    earlier_offsets: tuple[int, ...] = ()
    """Last offsets of the batches before it: as many as may have been in flight and may be sent again."""


class CleaningJob(NamedTuple):
    """One round over one log. It does not change during the round."""

    directory: str
    generation: int
    """The log's generation when the round began: the result is discarded if the log was truncated since."""
    segments: tuple[SourceSegment, ...]
    """All segments below `up_to`, oldest first."""
    first_dirty_offset: int
    up_to: int
    """The base of the first segment that is not cleaned."""
    aborted: tuple[AbortedTxn, ...]
    """Every aborted transaction with a record below `up_to`, by first offset."""
    producers: dict[int, LastProducerBatches]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    map_bytes_max: int
    """Memory for the whole round; the map of keys has the larger part of it."""
    io_buffer_bytes: int
    """Bytes read at a time, more if a batch is larger. Working memory is about twenty times this."""
    decompressed_bytes_max: int
    """The largest size to which a batch may expand: at least that with which batches are accepted."""
    may_remove_expired: bool = True
    """Whether expired tombstones and markers are removed. Not while a replica is out of sync: it may still have the
    records that they delete, and would never see them."""


class CleanedGroup(NamedTuple):
    """One new segment that replaces some old ones. Its files end in `.cleaned` until they are swapped in."""

    old: tuple[SourceSegment, ...]
    size: int

    @property
    def base_offset(self) -> int:
        return self.old[0].base_offset


class CleaningResult(NamedTuple):
    """The result of a round."""

    cleaned_up_to: int
    """Where the next round begins. Below the job's `up_to` if the keys of the rest did not fit into the map."""
    groups: tuple[CleanedGroup, ...]
    bytes_read: int
    """In both passes: the dirty part, and everything."""
    bytes_written: int
    records_read: int
    records_kept: int
    keys: int
    """Distinct keys in the map."""
    map_bytes: int
