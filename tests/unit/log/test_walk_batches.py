"""Whole batches, read in large pieces, are those that a walk over the headers finds."""

from __future__ import annotations

import pytest

from moldau.base.errors import MalformedData
from moldau.log import walk
from moldau.log.walk import walk_batches, walk_headers
from moldau.testing.files import MemoryFile, MemoryFiles
from moldau.wire.records import IN_LINE, Record, build_batch


def written(*sizes: int) -> tuple[MemoryFile, bytes]:
    data = b"".join(
        bytes(build_batch([Record(IN_LINE, 0, None, b"v" * size)], base_offset=number))
        for number, size in enumerate(sizes)
    )
    files = MemoryFiles()
    file = files.open("x.log", create=True)
    file.pwrite(data, 0)
    return file, data


@pytest.mark.parametrize("piece_bytes", [61, 62, 100, 177, 300, 1 << 20])
def test_whatever_the_pieces_the_batches_are_the_same(piece_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "WHOLE_PIECE_BYTES", piece_bytes)
    file, data = written(1, 100, 5, 1000, 2, 0, 300)
    found = list(walk_batches(file, 0, len(data)))
    assert [header for header, _ in found] == [header for _, header in walk_headers(file, 0, len(data))]
    assert b"".join(bytes(batch) for _, batch in found) == data


def test_nothing_is_nothing() -> None:
    file, _ = written()
    assert list(walk_batches(file, 0, 0)) == []


@pytest.mark.parametrize("cut", [1, 30, 60, 61, 70])
def test_a_rest_that_is_no_batch_is_told_after_those_before_it(cut: int) -> None:
    file, data = written(10, 20)
    second = data.index(b"v" * 20) - 61
    end = len(data) - 20 + 0 if cut > 61 else second + cut
    walked = walk_batches(file, 0, end)
    assert next(walked)[0].base_offset == 0
    with pytest.raises(MalformedData):
        next(walked)
