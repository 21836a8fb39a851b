"""The positions of records in many batches, found with numpy and compared with what was written."""

from __future__ import annotations

import random

import pytest
from harness.depth import deep

pytest.importorskip("numpy")

import numpy as np

from moldau.columns.side_by_side import BATCHES_MIN, starts_of_batches
from moldau.log.cleaning.pieces import PADDING, Piece, batch_starts
from moldau.log.cleaning.rows import RUN_HOPED_FOR, SIDE_BY_SIDE_MAX, read_rows
from moldau.wire.records import Record, append_varint, build_batch

BATCHES = (0, 1, BATCHES_MIN - 1, BATCHES_MIN, 40)
LONGEST = (20, 100, 100, 2_000, 2_000, 9_000, 100_000)
"""From 8,192 bytes on a length takes three bytes."""


def random_bodies(rng: random.Random) -> tuple[bytearray, list[int], list[int], list[int]]:
    """Records behind each other, with something else between the batches: the bytes, where each batch begins, how many
    records it has, and where these begin."""
    content, begins, counts, starts = bytearray(rng.randrange(5)), [], [], []
    longest = rng.choice(LONGEST)
    for _ in range(rng.choice(BATCHES)):
        begins.append(len(content))
        counts.append(rng.choice([0, 1, 2, 7, 7, rng.randrange(60)]))
        for _ in range(counts[-1]):
            starts.append(len(content))
            length = rng.randrange(6, longest)
            append_varint(content, length)
            content += rng.randbytes(length)
        content += bytes(rng.randrange(61))
    return content + PADDING, begins, counts, starts


@pytest.mark.parametrize("seed", range(deep(20, quick=8)))
def test_record_positions_are_those_that_were_written(seed: int) -> None:
    content, begins, counts, starts = random_bodies(random.Random(seed))
    data = np.frombuffer(content, np.uint8)
    found = starts_of_batches(content, data, np.array(begins, np.int64), np.array(counts, np.int64))
    assert found.tolist() == starts


def test_records_beyond_the_buffer_raise_index_error() -> None:
    content = bytearray(b"\xfe\x01" * 100)
    begins, counts = np.arange(BATCHES_MIN), np.full(BATCHES_MIN, 50)
    with pytest.raises(IndexError):
        starts_of_batches(content, np.frombuffer(content, np.uint8), begins, counts)


@pytest.mark.parametrize("count", [2, RUN_HOPED_FOR, RUN_HOPED_FOR + 1, SIDE_BY_SIDE_MAX, SIDE_BY_SIDE_MAX + 1])
@pytest.mark.parametrize("sizes", [(10,), (10, 11), (10,) * 400 + (90,), (70, 7), (9_000, 5)])
def test_batches_of_any_size_are_read(count: int, sizes: tuple[int, ...]) -> None:
    batches = 1 if count * max(sizes) > 2_000_000 else BATCHES_MIN + 1
    content = bytearray()
    for number in range(batches):
        values = [bytes(sizes[index % len(sizes)]) for index in range(count)]
        records = [Record(number * count + index, 0, None, value) for index, value in enumerate(values)]
        content += build_batch(records, base_offset=number * count)
    size = len(content)
    starts, end = batch_starts(content, size)
    piece = Piece(content + PADDING, starts, end)
    (rows,) = read_rows(piece, np.ones(batches, np.bool_))
    assert rows.offsets.tolist() == list(range(batches * count))
