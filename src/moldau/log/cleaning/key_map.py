"""The keys of a log's dirty part with the last offset of each: exact, vectorized, in bounded memory.

Keys are compared, not only their hashes: with two keys of one hash a record would be lost. The few long keys are in a
Python dict. Each short key is an entry:

    _word_positions, _lengths, _last_offsets    by the entry's number
    _words    the keys one after the other, each padded with zeros to words of 8 bytes
    _cells    a hash table with open addressing: a cell is free or holds the hash and the number of an entry

A slot is an index of `_cells`. The hash of a key gives its first slot; if another key is in that cell, it is in one of
the next ones, before the first free cell. An entry takes its words, 13 bytes and, at the largest load, 13 of cells.

Thousands of rows are looked up or put at a time. In each round all rows that are not done yet look at one cell each: a
row is done if the cell has its key, or if the cell is free. Into a free cell a put writes a new entry.

All arrays but `_cells` are allocated at their largest size: pages that are never written take no memory.
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from moldau.columns.varints import Bytes, Mask, Numbers

WORD_BYTES: Final = 8
SHORT_KEY_BYTES_MAX: Final = 64
LONG_KEY_COST_BYTES: Final = 220
"""Memory of a key in the dict besides its bytes: two objects and its share of the table (measured)."""
ENTRY_BYTES: Final = 13
"""Memory of a short key besides its words and cell: the position of its words, its length, its last offset."""
CELL_BYTES: Final = 8
CELLS_MIN: Final = 1 << 10
LOAD_FACTOR_MAX: Final = 0.6
GROWTH_FACTOR: Final = 4
NOT_FOUND: Final = -1

Words = npt.NDArray[np.uint64]

_MASKS: Final = np.array([(1 << 8 * size) - 1 for size in range(WORD_BYTES + 1)], np.uint64)
_HASH_FACTORS: Final = 1 + 2 * SHORT_KEY_BYTES_MAX // WORD_BYTES
"""One for the length of a key and two for each of its words."""
_MIXES: Final = ((np.uint64(16), np.uint64(0x85EBCA6B)), (np.uint64(13), np.uint64(0xC2B2AE35)))
"""Shifts and factors of MurmurHash3's finalizer."""
_HALF: Final = np.uint64(32)
_LOW: Final = np.uint64(0xFFFFFFFF)
_NO_ROWS: Final = np.empty(0, np.int64)


class Keys(NamedTuple):
    """Keys of some rows: data[start : start + length]. Behind the last one there are at least 7 more bytes of data."""

    data: Bytes
    starts: Numbers
    lengths: Numbers

    def select(self, rows: slice | Mask) -> Keys:
        return Keys(self.data, self.starts[rows], self.lengths[rows])

    def words(self) -> list[Words]:
        """Return an array of the first word of every key, one of the second, and so on. Words are padded with zeros."""
        if not self.lengths.size:
            return []
        word_at: Words = np.ndarray((self.data.size - 7,), "<u8", self.data, strides=(1,))
        shortest, longest = int(self.lengths.min()), int(self.lengths.max())
        words = []
        for at in range(0, longest, WORD_BYTES):
            if shortest >= at + WORD_BYTES:
                words.append(word_at[self.starts + at])
                continue
            left = np.clip(self.lengths - at, 0, WORD_BYTES)
            words.append(word_at[np.where(left > 0, self.starts + at, 0)] & _MASKS[left])
        return words


class KeyMap:
    def __init__(self, bytes_max: int, keys_max: int) -> None:
        """`keys_max` bounds the number of keys: there are no more keys than offsets."""
        self._bytes_max = bytes_max
        entries_max = max(
            16, min(keys_max, bytes_max // (ENTRY_BYTES + int(CELL_BYTES / LOAD_FACTOR_MAX) + WORD_BYTES))
        )
        self._entries_max = entries_max
        self._words = np.empty(max(bytes_max // WORD_BYTES, 16), np.uint64)
        self._words_used = 0
        self._word_positions = np.empty(entries_max, np.uint32)
        self._lengths = np.empty(entries_max, np.uint8)
        self._last_offsets = np.empty(entries_max, np.int64)
        self._count = 0
        self._cells = np.zeros(CELLS_MIN, np.uint64)
        """The hash in the upper half, the entry's index + 1 in the lower half. 0 is a free cell."""
        self._long_keys: dict[bytes, int] = {}
        self._long_bytes = 0
        self._factors = np.array([random.getrandbits(64) for _ in range(_HASH_FACTORS)], np.uint64)
        """They are random, so that nobody can choose keys that collide."""

    def __len__(self) -> int:
        return self._count + len(self._long_keys)

    @property
    def bytes_used(self) -> int:
        short = self._count * ENTRY_BYTES + self._words_used * WORD_BYTES + self._cells.size * CELL_BYTES
        return short + self._long_bytes

    # --- put ----------------------------------------------------------------------------------------------------

    def count_fitting(self, keys: Keys) -> int:
        """Return how many of the first rows are certain to fit, even if all keys are new."""
        is_long = keys.lengths > SHORT_KEY_BYTES_MAX
        words = np.cumsum(np.where(is_long, 0, _word_counts(keys.lengths)))
        counts = np.cumsum(~is_long)
        long_bytes = np.cumsum(np.where(is_long, keys.lengths + LONG_KEY_COST_BYTES, 0))
        cells = np.maximum(self._cells.size, (self._count + counts) / LOAD_FACTOR_MAX + 1)
        size = (self._count + counts) * ENTRY_BYTES + (self._words_used + words) * WORD_BYTES
        total = size + cells * CELL_BYTES + self._long_bytes + long_bytes
        fit = (total <= self._bytes_max) & (self._count + counts <= self._entries_max)
        return int(fit.size if fit.all() else fit.argmin())

    def put(self, keys: Keys, offsets: Numbers) -> None:
        """Add keys. Offsets must increase from row to row and from call to call."""
        is_long = keys.lengths > SHORT_KEY_BYTES_MAX
        if is_long.any():
            self._put_long(keys.select(is_long), offsets[is_long])
            keys, offsets = keys.select(~is_long), offsets[~is_long]
        self._grow_for(self._count + offsets.size)
        entries = self._find(keys, is_insert=True)
        np.maximum.at(self._last_offsets, entries, offsets)

    def _put_long(self, keys: Keys, offsets: Numbers) -> None:
        for key, offset in zip(_key_bytes(keys), offsets.tolist(), strict=True):
            if key not in self._long_keys:
                self._long_bytes += len(key) + LONG_KEY_COST_BYTES
            self._long_keys[key] = offset

    # --- get ----------------------------------------------------------------------------------------------------

    def last_offsets(self, keys: Keys) -> Numbers:
        """Return the last offset of each row's key; -1 if it is not in the map."""
        is_long = keys.lengths > SHORT_KEY_BYTES_MAX
        if not is_long.any():
            return self._last_offsets_of_short(keys)
        found = np.empty(is_long.size, np.int64)
        found[~is_long] = self._last_offsets_of_short(keys.select(~is_long))
        found[is_long] = [self._long_keys.get(key, NOT_FOUND) for key in _key_bytes(keys.select(is_long))]
        return found

    def _last_offsets_of_short(self, keys: Keys) -> Numbers:
        if not self._count:
            return np.full(keys.starts.size, NOT_FOUND, np.int64)
        entries = self._find(keys, is_insert=False)
        return np.where(entries < 0, NOT_FOUND, self._last_offsets[np.maximum(entries, 0)])

    # --- the table ----------------------------------------------------------------------------------------------

    def _find(self, keys: Keys, *, is_insert: bool) -> Numbers:
        """Return the entry of each row's key. If there is none, create it with `is_insert`; else return -1 for it."""
        lengths, words = keys.lengths, keys.words()
        hashes = self._hash(lengths, words)
        slots = _slots(hashes, self._cells.size)
        entries = np.full(hashes.size, NOT_FOUND, np.int64)
        pending = np.arange(hashes.size)
        while pending.size:
            cells = self._cells[slots[pending]]
            is_free = cells == 0
            rows = pending
            waiting = _NO_ROWS
            if is_free.any():
                free, rows, cells = pending[is_free], pending[~is_free], cells[~is_free]
                if is_insert:
                    self._insert(lengths, words, hashes, slots, free, entries)
                    # Another row just took the cell: compare with its key in the next round.
                    waiting = free[entries[free] < 0]
            candidates = (cells & _LOW).astype(np.int64) - 1
            same = cells >> _HALF == hashes[rows]
            self._compare(lengths, words, rows, candidates, same)
            entries[rows[same]] = candidates[same]
            # Another key is in the cell: try the next cell.
            passed = rows[~same]
            slots[passed] += 1
            slots[passed[slots[passed] == self._cells.size]] = 0
            pending = np.concatenate([passed, waiting]) if waiting.size else passed
        return entries

    def _insert(
        self, lengths: Numbers, words: list[Words], hashes: Words, slots: Numbers, rows: Numbers, entries: Numbers
    ) -> None:
        """Create entries for rows at free cells. Several rows may want one cell: the row whose number stays in it gets
        it; the others find it there."""
        at = slots[rows]
        row_ids = rows.astype(np.uint64)
        self._cells[at] = row_ids
        won = self._cells[at] == row_ids
        rows, at = rows[won], at[won]
        new_entries = np.arange(self._count, self._count + rows.size)
        self._cells[at] = hashes[rows] << _HALF | (new_entries + 1).astype(np.uint64)
        counts = _word_counts(lengths[rows])
        word_positions = self._words_used + np.cumsum(counts) - counts
        self._word_positions[new_entries], self._lengths[new_entries] = word_positions, lengths[rows]
        self._last_offsets[new_entries] = NOT_FOUND
        for index, word in enumerate(words):
            longer = counts > index
            self._words[word_positions[longer] + index] = word[rows[longer]]
        self._count += rows.size
        self._words_used += int(counts.sum())
        entries[rows] = new_entries

    def _compare(self, lengths: Numbers, words: list[Words], rows: Numbers, entries: Numbers, same: Mask) -> None:
        """Set `same` to False where the key differs from that of the entry."""
        alike = np.flatnonzero(same)
        rows, entries = rows[alike], entries[alike]
        of_row = lengths[rows]
        equal = self._lengths[entries] == of_row
        word_positions = self._word_positions[entries].astype(np.int64)
        for index, word in enumerate(words):
            # Beyond the end of a key is the next key's first word, or nothing yet.
            equal &= (self._words[np.minimum(word_positions + index, self._words.size - 1)] == word[rows]) | (
                of_row <= WORD_BYTES * index
            )
        same[alike] = equal

    def _hash(self, lengths: Numbers, words: list[Words]) -> Words:
        """Return 32 evenly distributed bits for each row.

        The sum is a multilinear hash: whatever two keys somebody chooses, only about one in 2^32 choices of the factors
        makes them collide. Words of padding add nothing, so a key's hash does not depend on the other keys in the call.
        Counting keys have counting sums, which can crowd in some cells: the mixing scatters them, one to one.
        """
        sums = lengths.astype(np.uint64) * self._factors[0]
        for index, word in enumerate(words):
            sums += (word & _LOW) * self._factors[2 * index + 1]
            sums += (word >> _HALF) * self._factors[2 * index + 2]
        hashes: Words = sums >> _HALF
        for shift, factor in _MIXES:
            hashes ^= hashes >> shift
            hashes *= factor
            hashes &= _LOW
        return hashes

    # --- growing ------------------------------------------------------------------------------------------------

    def _grow_for(self, count: int) -> None:
        """Grow for `count` entries: fourfold, but not beyond what the memory limit will ever need."""
        needed = _cells_for(count)
        if needed <= self._cells.size:
            return
        key_bytes = WORD_BYTES * max(1.0, self._words_used / max(self._count, 1))
        keys_expected = (self._bytes_max - self.bytes_used) / (key_bytes + ENTRY_BYTES + CELL_BYTES / LOAD_FACTOR_MAX)
        final_cells = _cells_for(min(self._entries_max, self._count + int(max(keys_expected, 0))))
        cells = self._cells[self._cells != 0]
        self._cells = np.zeros(max(needed, min(GROWTH_FACTOR * self._cells.size, final_cells)), np.uint64)
        slots = _slots(cells >> _HALF, self._cells.size)
        while cells.size:
            is_free = self._cells[slots] == 0
            self._cells[slots[is_free]] = cells[is_free]
            is_displaced = self._cells[slots] != cells
            cells, slots = cells[is_displaced], (slots[is_displaced] + 1) % self._cells.size


def _cells_for(count: int) -> int:
    return int(count / LOAD_FACTOR_MAX) + 1


def _slots(hashes: Words, cell_count: int) -> Numbers:
    return (hashes * np.uint64(cell_count) >> _HALF).astype(np.int64)


def _word_counts(lengths: Numbers) -> Numbers:
    return (lengths + (WORD_BYTES - 1)) // WORD_BYTES


def _key_bytes(keys: Keys) -> list[bytes]:
    view = keys.data.data
    return [
        bytes(view[start : start + length])
        for start, length in zip(keys.starts.tolist(), keys.lengths.tolist(), strict=True)
    ]
