"""Snapshots: their names, their batches, and how a reader detects an incomplete one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.base.errors import MalformedData
from moldau.raft.snapshots import (
    BATCH_BYTES_MAX,
    BOOTSTRAP,
    SnapshotId,
    bootstrap_snapshot,
    check_snapshot,
    snapshot_batches,
    snapshot_values,
)
from moldau.raft.voters import ReplicaKey, Voter, VoterSet
from moldau.wire.batch import BatchHeader, split_batches
from moldau.wire.records import ControlType, control_type, decode_records

VOTERS = VoterSet([Voter(ReplicaKey(1, b"x" * 16))])


def read_batches(content: bytes) -> Iterator[tuple[BatchHeader, memoryview]]:
    return split_batches(memoryview(content))


def test_a_file_name_contains_end_offset_and_epoch() -> None:
    assert SnapshotId(1234, 56).file_name == "00000000000000001234-0000000056.checkpoint"
    assert BOOTSTRAP.file_name == "00000000000000000000-0000000000.checkpoint"
    assert SnapshotId.of_file("00000000000000001234-0000000056.checkpoint") == SnapshotId(1234, 56)


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000001234-0000000056.checkpoint.part",
        "00000000000000001234-0000000056.checkpoint.deleted",
        "1234-56.checkpoint",
        "00000000000000001234.log",
        "bootstrap.checkpoint",
    ],
)
def test_other_files_have_no_snapshot_id(name: str) -> None:
    assert SnapshotId.of_file(name) is None


def control_kinds(content: bytes) -> list[list[int]]:
    return [
        [control_type(record) for record in decode_records(batch, header)]
        for header, batch in read_batches(content)
        if header.is_control
    ]


def test_a_snapshot_begins_with_its_header_and_ends_with_its_footer() -> None:
    values = [b"%d" % each for each in range(100)]
    content = b"".join(snapshot_batches(7, values, last_contained_ms=5, now_ms=9))
    check_snapshot(read_batches(content))
    assert list(snapshot_values(read_batches(content))) == values
    assert control_kinds(content) == [[ControlType.SNAPSHOT_HEADER], [ControlType.SNAPSHOT_FOOTER]]
    headers = [header for header, _ in read_batches(content)]
    assert [(header.base_offset, header.last_offset) for header in headers] == [(0, 0), (1, 100), (101, 101)]
    assert {header.leader_epoch for header in headers} == {7}


def test_a_snapshot_without_values_is_valid() -> None:
    content = b"".join(snapshot_batches(0, [], last_contained_ms=0, now_ms=0))
    check_snapshot(read_batches(content))
    assert list(snapshot_values(read_batches(content))) == []


def test_a_snapshot_with_kraft_version_1_contains_the_voters() -> None:
    content = bootstrap_snapshot([b"feature"], VOTERS, 9)
    kinds = [ControlType.SNAPSHOT_HEADER, ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS]
    assert control_kinds(content) == [kinds, [ControlType.SNAPSHOT_FOOTER]]
    assert list(snapshot_values(read_batches(content))) == [b"feature"]


def test_many_records_are_split_into_batches_of_limited_size() -> None:
    values = [bytes(BATCH_BYTES_MAX // 4)] * 10 + [bytes(2 * BATCH_BYTES_MAX)]
    batches = list(snapshot_batches(1, values, last_contained_ms=0, now_ms=0))
    assert len(batches) == 2 + 4
    assert list(snapshot_values(read_batches(b"".join(batches)))) == values


def test_a_snapshot_without_header_or_footer_is_malformed() -> None:
    batches = list(snapshot_batches(1, [b"x"], last_contained_ms=0, now_ms=0))
    for missing in (0, 2):
        with pytest.raises(MalformedData):
            check_snapshot(read_batches(b"".join(batch for index, batch in enumerate(batches) if index != missing)))
    with pytest.raises(MalformedData):
        check_snapshot(read_batches(b""))


def test_a_reader_detects_a_flipped_bit() -> None:
    content = bytearray(b"".join(snapshot_batches(1, [b"xyz" * 20], last_contained_ms=0, now_ms=0)))
    content[content.index(b"xyz")] ^= 1
    with pytest.raises(MalformedData):
        list(snapshot_values(read_batches(bytes(content))))
