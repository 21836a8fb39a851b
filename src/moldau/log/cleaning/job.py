"""What a round of cleaning is told and what it tells: plain values, so that a round may run in another process."""

from __future__ import annotations

from typing import NamedTuple

from moldau.log.txn_index import AbortedTxn


class SourceSegment(NamedTuple):
    """A segment to be cleaned, as it was when the round began."""

    base_offset: int
    size: int


class LastOfProducer(NamedTuple):
    """What the log must keep of a producer that is still known, or a restart would forget it."""

    last_data_offset: int
    """-1 if its last word is a marker: that has the epoch by which the producer is fenced."""
    epoch: int
    earlier_offsets: tuple[int, ...] = ()
    """The last ones of the batches before: as many as may have been in flight and be sent again."""


class CleaningJob(NamedTuple):
    """One round over one log. Nothing in it changes while the round goes on."""

    directory: str
    generation: int
    """Of the log, when the round began: one that is cut meanwhile has no use for it."""
    segments: tuple[SourceSegment, ...]
    """All below `up_to`, from the oldest on."""
    first_dirty_offset: int
    up_to: int
    """The base of the first segment that is not cleaned."""
    aborted: tuple[AbortedTxn, ...]
    """Every aborted transaction with a record below `up_to`, by first offset."""
    producers: dict[int, LastOfProducer]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    map_bytes_max: int
    """What a round may take in all: the map of keys has the larger part of it."""
    io_buffer_bytes: int
    """What is read at a time, more if a batch is larger. About twenty times as much is computed on the way."""
    may_forget: bool = True
    """Whether tombstones and spent markers go when their time has come. Not while a replica is away: it may have what
    they speak of, and would never get them."""


class CleanedGroup(NamedTuple):
    """One new segment in the place of some old ones. Its files end in `.cleaned` until they are swapped in."""

    old: tuple[SourceSegment, ...]
    size: int

    @property
    def base_offset(self) -> int:
        return self.old[0].base_offset


class Cleaned(NamedTuple):
    """What a round has done."""

    cleaned_up_to: int
    """Where the next round begins. Below the job's `up_to` if the keys of the rest did not fit into the map."""
    groups: tuple[CleanedGroup, ...]
    bytes_read: int
    """In both passes: over what is dirty, and over everything."""
    bytes_written: int
    records_read: int
    records_kept: int
    keys: int
    """Distinct keys in the map."""
    map_bytes: int
