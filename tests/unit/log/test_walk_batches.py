"""Batches read in large pieces are those that a walk over the headers finds; damage is reported."""

from __future__ import annotations

import pytest

from moldau.base.errors import MalformedData
from moldau.log import walk
from moldau.log.walk import find_offset, walk_batches, walk_headers
from moldau.testing.files import MemoryFile, MemoryFiles
from moldau.wire.records import NEXT_OFFSET, Record, build_batch


def written(*sizes: int) -> tuple[MemoryFile, bytes]:
    data = b"".join(
        bytes(build_batch([Record(NEXT_OFFSET, 0, None, b"v" * size)], base_offset=number))
        for number, size in enumerate(sizes)
    )
    files = MemoryFiles()
    file = files.open("x.log", create=True)
    file.pwrite(data, 0)
    return file, data


@pytest.mark.parametrize("piece_bytes", [61, 62, 100, 177, 300, 1 << 20])
def test_batches_do_not_depend_on_the_size_of_pieces(piece_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "WHOLE_PIECE_BYTES", piece_bytes)
    file, data = written(1, 100, 5, 1000, 2, 0, 300)
    found = list(walk_batches(file, 0, len(data)))
    assert [header for header, _ in found] == [header for _, header in walk_headers(file, 0, len(data))]
    assert b"".join(bytes(batch) for _, batch in found) == data


def test_an_empty_file_has_no_batches() -> None:
    file, _ = written()
    assert list(walk_batches(file, 0, 0)) == []


@pytest.mark.parametrize("cut", [1, 30, 60, 61, 70])
def test_a_partial_batch_is_reported_after_the_whole_batches_before_it(cut: int) -> None:
    file, data = written(10, 20)
    second = data.index(b"v" * 20) - 61
    end = len(data) - 20 + 0 if cut > 61 else second + cut
    walked = walk_batches(file, 0, end)
    assert next(walked)[0].base_offset == 0
    with pytest.raises(MalformedData):
        next(walked)


@pytest.mark.parametrize("missing", [1, 2_000_000])
def test_a_truncated_file_is_reported_after_the_whole_batches(missing: int) -> None:
    file, data = written(10, 3_000_000)
    file.truncate(len(data) - missing)
    walked = walk_batches(file, 0, len(data))
    assert next(walked)[0].base_offset == 0
    with pytest.raises(MalformedData, match="ends at"):
        next(walked)


def test_every_walk_reports_where_a_truncated_file_ends() -> None:
    file, data = written(10, 20)
    second = data.index(b"v" * 20) - 61
    file.truncate(second + 5)
    message = f"ends at {second + 5} instead of {len(data)}"
    with pytest.raises(MalformedData, match=message):
        list(walk_headers(file, second, len(data)))
    with pytest.raises(MalformedData, match=message):
        find_offset(file, second, len(data), 1)
    with pytest.raises(MalformedData, match=f"5 bytes at {second} are too few"):
        list(walk_headers(file, second, second + 5))


def test_an_offset_is_found_in_its_batch() -> None:
    file, data = written(10, 20, 30)
    sizes = [71 + 7, 81 + 7, 91 + 7]
    assert sum(sizes) == len(data)
    found = [find_offset(file, 0, len(data), offset) for offset in range(4)]
    assert found == [(0, 0, sizes[0]), (sizes[0], 1, sizes[1]), (sizes[0] + sizes[1], 2, sizes[2]), None]


@pytest.mark.parametrize("flipped_at", [8, 10, 16], ids=["length below 0", "length beyond the file", "magic"])
@pytest.mark.parametrize("offset", [1, 2], ids=["of the batch", "after it"])
def test_a_damaged_header_is_reported_by_a_search(flipped_at: int, offset: int) -> None:
    file, data = written(10, 20, 30)
    second = 78
    flipped = data[second + flipped_at] ^ 0x80
    file.pwrite(bytes([flipped]), second + flipped_at)
    assert find_offset(file, 0, len(data), 0) is not None
    with pytest.raises(MalformedData, match=f"no batch at {second}"):
        find_offset(file, 0, len(data), offset)
