"""Snapshots of the metadata log: their names, and their bytes as a sequence of record batches.

A snapshot replaces the log below its end offset; its epoch is that of the last record there. Its file,
`<end offset, 20 digits>-<epoch, 10 digits>.checkpoint`, consists of batches like a log's, with offsets from 0 on:

    a control batch      SnapshotHeader; with kraft.version 1 also KRaftVersion and the Voters
    data batches         metadata records
    a control batch      SnapshotFooter: without it the snapshot is incomplete

The bootstrap snapshot, at offset 0 and epoch 0, is written by the storage tool and contains the first voters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from moldau.base.errors import MalformedData
from moldau.raft.control_records import kraft_version_record, snapshot_footer, snapshot_header, voters_record
from moldau.raft.voters import VoterSet
from moldau.wire.batch import BatchHeader, has_valid_crc
from moldau.wire.records import ControlType, Record, build_batch, control_type, decode_records, iterate_records

SUFFIX: Final = ".checkpoint"
BATCH_BYTES_MAX: Final = 1 << 20
"""The size at which a data batch of a snapshot ends and the next one begins."""
_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint", re.ASCII)


class SnapshotId(NamedTuple):
    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}{SUFFIX}"

    @classmethod
    def of_file(cls, name: str) -> SnapshotId | None:
        match = _NAME.fullmatch(name)
        return None if match is None else cls(int(match[1]), int(match[2]))


BOOTSTRAP: Final = SnapshotId(0, 0)


def snapshot_batches(
    epoch: int,
    values: Iterable[bytes],
    *,
    last_contained_ms: int,
    now_ms: int,
    kraft_version: int = 0,
    voters: VoterSet | None = None,
) -> Iterator[bytearray]:
    """Yield the bytes of a snapshot batch by batch, with only one batch in memory at a time."""
    header_records = [snapshot_header(last_contained_ms, now_ms)]
    if kraft_version > 0:
        header_records.append(kraft_version_record(kraft_version, now_ms))
        if voters is not None:
            header_records.append(voters_record(voters, now_ms))
    offset = len(header_records)
    yield _build_batch(header_records, 0, epoch, is_control=True)
    for run in _split_by_size(values):
        yield _build_batch([Record(-1, now_ms, None, value) for value in run], offset, epoch, is_control=False)
        offset += len(run)
    yield _build_batch([snapshot_footer(now_ms)], offset, epoch, is_control=True)


def bootstrap_snapshot(values: Iterable[bytes], voters: VoterSet, now_ms: int) -> bytes:
    """Return the snapshot that `kafka-storage format --standalone` or `--initial-controllers` writes."""
    batches = snapshot_batches(
        BOOTSTRAP.epoch, values, last_contained_ms=0, now_ms=now_ms, kraft_version=1, voters=voters
    )
    return b"".join(batches)


def _build_batch(records: Sequence[Record], base_offset: int, epoch: int, *, is_control: bool) -> bytearray:
    records_with_offsets = [record._replace(offset=base_offset + delta) for delta, record in enumerate(records)]
    return build_batch(records_with_offsets, base_offset=base_offset, leader_epoch=epoch, is_control=is_control)


def _split_by_size(values: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Split the values into lists that fit into batches of `BATCH_BYTES_MAX`."""
    run: list[bytes] = []
    size = 0
    for value in values:
        if run and size + len(value) > BATCH_BYTES_MAX:
            yield run
            run, size = [], 0
        run.append(value)
        size += len(value)
    if run:
        yield run


def check_snapshot(batches: Iterable[tuple[BatchHeader, memoryview]]) -> None:
    """Raise MalformedData unless every CRC matches, the first control batch has the header and the last batch the
    footer."""
    kinds: list[int] = []
    last_kinds: list[int] = []
    for header, batch in batches:
        if not has_valid_crc(batch):
            raise MalformedData(f"snapshot: the CRC of the batch at offset {header.base_offset} does not match")
        last_kinds = [control_type(record) for record in decode_records(batch, header)] if header.is_control else []
        kinds = kinds or last_kinds
    if not kinds or kinds[0] != ControlType.SNAPSHOT_HEADER or ControlType.SNAPSHOT_FOOTER not in last_kinds:
        raise MalformedData("snapshot: incomplete, it lacks its header or its footer")


def snapshot_values(batches: Iterable[tuple[BatchHeader, memoryview]]) -> Iterator[bytes]:
    """Yield the values of the metadata records of a snapshot."""
    for header, batch in batches:
        if not has_valid_crc(batch):
            raise MalformedData(f"snapshot: the CRC of the batch at offset {header.base_offset} does not match")
        if not header.is_control:
            for record in iterate_records(batch, header):
                yield record.value or b""
