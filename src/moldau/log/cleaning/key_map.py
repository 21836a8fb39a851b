"""The keys of a log's dirty part and the last offset of each: exact, by the column, in bounded memory.

Keys are compared, never only their hashes: of two keys with one hash somebody's record would be lost. Most keys are
short. Those lie one behind the other in 8-byte words and are found by open addressing, thousands of rows at a time;
each takes its words and some 24 bytes. The few that are long are in a dict of Python's.

All arrays have their largest size from the start: pages that nobody writes to are no memory.
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from moldau.columns.varints import Bytes, Mask, Numbers

WORD_BYTES: Final = 8
SHORT_BYTES_MAX: Final = 64
LONG_KEY_COST_BYTES: Final = 220
"""Of a key in the dict besides its own bytes: two objects and its share of the table (measured)."""
ENTRY_BYTES: Final = 13
"""Of a short key besides its words and its cell: where they are, its length, its last offset."""
CELL_BYTES: Final = 8
CELLS_MIN: Final = 1 << 10
LOAD_MAX: Final = 0.6
GROWTH: Final = 4
NOT_FOUND: Final = -1

Words = npt.NDArray[np.uint64]

_MASKS: Final = np.array([(1 << 8 * size) - 1 for size in range(WORD_BYTES + 1)], np.uint64)
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX: Final = np.uint64(0xD6E8FEB86659FD93)
_HALF: Final = np.uint64(32)
_LOW: Final = np.uint64(0xFFFFFFFF)
_NOBODY: Final = np.empty(0, np.int64)


class Keys(NamedTuple):
    """Keys of some rows: data[start : start + length]. Behind the last one there are at least 7 more bytes of data."""

    data: Bytes
    starts: Numbers
    lengths: Numbers

    def cut(self, rows: slice | Mask) -> Keys:
        return Keys(self.data, self.starts[rows], self.lengths[rows])

    def words(self) -> list[Words]:
        """The first word of every key, the second, and so on; zeros behind a key's end."""
        if not self.lengths.size:
            return []
        everywhere: Words = np.ndarray((self.data.size - 7,), "<u8", self.data, strides=(1,))
        shortest, longest = int(self.lengths.min()), int(self.lengths.max())
        words = []
        for at in range(0, longest, WORD_BYTES):
            if shortest >= at + WORD_BYTES:
                words.append(everywhere[self.starts + at])
                continue
            left = np.clip(self.lengths - at, 0, WORD_BYTES)
            words.append(everywhere[np.where(left > 0, self.starts + at, 0)] & _MASKS[left])
        return words


class KeyMap:
    def __init__(self, bytes_max: int, keys_max: int) -> None:
        """`keys_max` is a bound that the caller knows: there are no more records than offsets."""
        self._bytes_max = bytes_max
        entries_max = max(16, min(keys_max, bytes_max // (ENTRY_BYTES + int(CELL_BYTES / LOAD_MAX) + WORD_BYTES)))
        self._entries_max = entries_max
        self._words = np.empty(max(bytes_max // WORD_BYTES, 16), np.uint64)
        self._words_used = 0
        self._places = np.empty(entries_max, np.uint32)
        self._lengths = np.empty(entries_max, np.uint8)
        self._last = np.empty(entries_max, np.int64)
        self._count = 0
        self._cells = np.zeros(CELLS_MIN, np.uint64)
        """The upper half of a hash and, in the lower, one more than the entry. 0 is nobody's."""
        self._long: dict[bytes, int] = {}
        self._long_bytes = 0
        self._seed = np.uint64(random.getrandbits(64))
        """Else somebody could choose keys that all fall together."""

    def __len__(self) -> int:
        return self._count + len(self._long)

    @property
    def bytes_used(self) -> int:
        short = self._count * ENTRY_BYTES + self._words_used * WORD_BYTES + self._cells.size * CELL_BYTES
        return short + self._long_bytes

    # --- in -----------------------------------------------------------------------------------------------------

    def fits(self, keys: Keys) -> int:
        """How many of the first rows can be put in for certain, were all of them new."""
        is_long = keys.lengths > SHORT_BYTES_MAX
        words = np.cumsum(np.where(is_long, 0, _word_counts(keys.lengths)))
        counts = np.cumsum(~is_long)
        long_bytes = np.cumsum(np.where(is_long, keys.lengths + LONG_KEY_COST_BYTES, 0))
        cells = np.maximum(self._cells.size, (self._count + counts) / LOAD_MAX + 1)
        size = (self._count + counts) * ENTRY_BYTES + (self._words_used + words) * WORD_BYTES
        total = size + cells * CELL_BYTES + self._long_bytes + long_bytes
        fit = (total <= self._bytes_max) & (self._count + counts <= self._entries_max)
        return int(fit.size if fit.all() else fit.argmin())

    def put(self, keys: Keys, offsets: Numbers) -> None:
        """Offsets go up from row to row, and from call to call."""
        is_long = keys.lengths > SHORT_BYTES_MAX
        if is_long.any():
            self._put_long(keys.cut(is_long), offsets[is_long])
            keys, offsets = keys.cut(~is_long), offsets[~is_long]
        self._make_room(self._count + offsets.size)
        entries = self._find(keys, is_put=True)
        np.maximum.at(self._last, entries, offsets)

    def _put_long(self, keys: Keys, offsets: Numbers) -> None:
        for key, offset in zip(_whole(keys), offsets.tolist(), strict=True):
            if key not in self._long:
                self._long_bytes += len(key) + LONG_KEY_COST_BYTES
            self._long[key] = offset

    # --- out ----------------------------------------------------------------------------------------------------

    def last_offsets(self, keys: Keys) -> Numbers:
        """The last offset of each row's key, -1 if it is not in the map."""
        is_long = keys.lengths > SHORT_BYTES_MAX
        if not is_long.any():
            return self._last_short(keys)
        found = np.empty(is_long.size, np.int64)
        found[~is_long] = self._last_short(keys.cut(~is_long))
        found[is_long] = [self._long.get(key, NOT_FOUND) for key in _whole(keys.cut(is_long))]
        return found

    def _last_short(self, keys: Keys) -> Numbers:
        if not self._count:
            return np.full(keys.starts.size, NOT_FOUND, np.int64)
        entries = self._find(keys, is_put=False)
        return np.where(entries < 0, NOT_FOUND, self._last[np.maximum(entries, 0)])

    # --- the table ----------------------------------------------------------------------------------------------

    def _find(self, keys: Keys, *, is_put: bool) -> Numbers:
        """The entry of each row's key, made if there is none and it `is_put`, else -1."""
        lengths, words = keys.lengths, keys.words()
        hashes = self._hash(lengths, words)
        slots = _slots(hashes, self._cells.size)
        entries = np.full(hashes.size, NOT_FOUND, np.int64)
        pending = np.arange(hashes.size)
        while pending.size:
            cells = self._cells[slots[pending]]
            is_free = cells == 0
            rows = pending
            waiting = _NOBODY
            if is_free.any():
                free, rows, cells = pending[is_free], pending[~is_free], cells[~is_free]
                if is_put:
                    self._claim(lengths, words, hashes, slots, free, entries)
                    waiting = free[entries[free] < 0]
            candidates = (cells & _LOW).astype(np.int64) - 1
            same = cells >> _HALF == hashes[rows]
            self._compare(lengths, words, rows, candidates, same)
            entries[rows[same]] = candidates[same]
            passed = rows[~same]
            slots[passed] += 1
            slots[passed[slots[passed] == self._cells.size]] = 0
            pending = np.concatenate([passed, waiting]) if waiting.size else passed
        return entries

    def _claim(
        self, lengths: Numbers, words: list[Words], hashes: Words, slots: Numbers, rows: Numbers, entries: Numbers
    ) -> None:
        """New entries for those of the rows that come first to their free cells; the others will meet them there."""
        at = slots[rows]
        names = rows.astype(np.uint64)
        self._cells[at] = names
        first = self._cells[at] == names
        rows, at = rows[first], at[first]
        made = np.arange(self._count, self._count + rows.size)
        self._cells[at] = hashes[rows] << _HALF | (made + 1).astype(np.uint64)
        counts = _word_counts(lengths[rows])
        places = self._words_used + np.cumsum(counts) - counts
        self._places[made], self._lengths[made], self._last[made] = places, lengths[rows], NOT_FOUND
        for index, word in enumerate(words):
            longer = counts > index
            self._words[places[longer] + index] = word[rows[longer]]
        self._count += rows.size
        self._words_used += int(counts.sum())
        entries[rows] = made

    def _compare(self, lengths: Numbers, words: list[Words], rows: Numbers, entries: Numbers, same: Mask) -> None:
        """Leaves `same` only where the whole key is that of the entry."""
        alike = np.flatnonzero(same)
        rows, entries = rows[alike], entries[alike]
        of_row = lengths[rows]
        equal = self._lengths[entries] == of_row
        places = self._places[entries].astype(np.int64)
        for index, word in enumerate(words):
            # Behind the end of a key there is the next one's first word, or nothing yet.
            equal &= (self._words[np.minimum(places + index, self._words.size - 1)] == word[rows]) | (
                of_row <= WORD_BYTES * index
            )
        same[alike] = equal

    def _hash(self, lengths: Numbers, words: list[Words]) -> Words:
        """32 bits, of which none is more than any other."""
        mixed = (lengths.astype(np.uint64) ^ self._seed) * _SPREAD
        for index, word in enumerate(words):
            following = (mixed ^ word) * _SPREAD
            following ^= following >> _HALF
            # Which keys are looked up together must not matter.
            mixed = np.where(lengths > WORD_BYTES * index, following, mixed)
        mixed ^= mixed >> np.uint64(29)
        return mixed * _MIX >> _HALF

    # --- growing ------------------------------------------------------------------------------------------------

    def _make_room(self, count: int) -> None:
        """Cells for so many entries; rather for as many as the memory will do for, if that is not much more."""
        needed = _cells_for(count)
        if needed <= self._cells.size:
            return
        key_bytes = WORD_BYTES * max(1.0, self._words_used / max(self._count, 1))
        to_come = (self._bytes_max - self.bytes_used) / (key_bytes + ENTRY_BYTES + CELL_BYTES / LOAD_MAX)
        in_the_end = _cells_for(min(self._entries_max, self._count + int(max(to_come, 0))))
        cells = self._cells[self._cells != 0]
        self._cells = np.zeros(max(needed, min(GROWTH * self._cells.size, in_the_end)), np.uint64)
        slots = _slots(cells >> _HALF, self._cells.size)
        while cells.size:
            is_free = self._cells[slots] == 0
            self._cells[slots[is_free]] = cells[is_free]
            homeless = self._cells[slots] != cells
            cells, slots = cells[homeless], (slots[homeless] + 1) % self._cells.size


def _cells_for(count: int) -> int:
    return int(count / LOAD_MAX) + 1


def _slots(hashes: Words, cells: int) -> Numbers:
    return (hashes * np.uint64(cells) >> _HALF).astype(np.int64)


def _word_counts(lengths: Numbers) -> Numbers:
    return (lengths + (WORD_BYTES - 1)) // WORD_BYTES


def _whole(keys: Keys) -> list[bytes]:
    view = keys.data.data
    return [
        bytes(view[start : start + length])
        for start, length in zip(keys.starts.tolist(), keys.lengths.tolist(), strict=True)
    ]
