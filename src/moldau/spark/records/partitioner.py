"""Kafka's default partitioner, vectorized: murmur2 of the key without its sign bit, modulo the partitions.

The first four bytes of all keys are hashed at once, then the next four, and so on. This is fast for keys of similar and
moderate length; the few that are much longer are finished one by one.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from moldau.columns.varints import Bytes, Numbers

NO_KEY: Final = -1
"""The partition of rows without a key: the caller chooses one."""
SEED: Final = 0x9747B28C
FACTOR: Final = 0x5BD1E995
MASK: Final = 0xFFFFFFFF
KEYS_AT_ONCE_MIN: Final = 32
"""If fewer keys than this have more bytes, hashing them one by one is cheaper."""

Hashes = npt.NDArray[np.uint32]


def partition_of(keys: pa.Array, partitions: int) -> npt.NDArray[np.int32]:
    """Return the partition of each key: its murmur2 hash modulo the number of partitions; NO_KEY for a null key."""
    chosen = ((murmur2(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)).astype(np.int32)
    if keys.null_count:
        chosen[keys.is_null().to_numpy(zero_copy_only=False)] = NO_KEY
    return chosen


def murmur2(keys: pa.Array) -> Hashes:
    """Return the hash of each key. The hash of a null key is meaningless."""
    keys = keys.cast(pa.large_binary())
    if not len(keys):
        return np.empty(0, np.uint32)
    offsets = np.frombuffer(keys.buffers()[1], np.int64)[keys.offset : keys.offset + len(keys) + 1]
    begin, end = int(offsets[0]), int(offsets[-1])
    # Four bytes of padding, so that a whole word can be read at the end of the last key.
    data = np.zeros(end - begin + 4, np.uint8)
    if end > begin:
        data[:-4] = np.frombuffer(keys.buffers()[2], np.uint8)[begin:end]
    return _hash(data, offsets[:-1] - begin, np.diff(offsets))


def _hash(data: Bytes, starts: Numbers, lengths: Numbers) -> Hashes:
    words = np.ndarray(data.size - 3, "<u4", data, strides=(1,))  # the word at every byte: most are not aligned
    hashes = (np.uint32(SEED) ^ lengths.astype(np.uint32)).astype(np.uint32)
    whole = lengths >> 2
    rows = np.flatnonzero(whole)
    index = 0
    while rows.size >= KEYS_AT_ONCE_MIN:
        all_rows = rows.size == hashes.size
        at = starts if all_rows else starts[rows]
        mixed = _mixed(words[at + 4 * index])
        if all_rows:
            hashes = hashes * np.uint32(FACTOR) ^ mixed
        else:
            hashes[rows] = hashes[rows] * np.uint32(FACTOR) ^ mixed
        index += 1
        rows = rows[whole[rows] > index]
    for row in rows.tolist():
        first = int(starts[row]) + 4 * index
        last = int(starts[row]) + 4 * int(whole[row])
        hashes[row] = _hash_rest(int(hashes[row]), _mixed(words[first:last:4]))
    return _finished(hashes, words, starts + 4 * whole, lengths & 3)


def _mixed(words: Hashes) -> Hashes:
    words = words * np.uint32(FACTOR)
    words ^= words >> np.uint32(24)
    words *= np.uint32(FACTOR)
    return words


def _hash_rest(value: int, mixed: Hashes) -> int:
    """Finish one long key: each step needs the previous one."""
    for word in mixed.tolist():
        value = value * FACTOR & MASK ^ word
    return value


def _finished(hashes: Hashes, words: Hashes, at: Numbers, left: Numbers) -> Hashes:
    """Add the last up to three bytes and apply the final mixing."""
    rows = np.flatnonzero(left)
    if rows.size:
        tail = words[at[rows]] & ((np.uint32(1) << (8 * left[rows]).astype(np.uint32)) - np.uint32(1))
        hashes[rows] = (hashes[rows] ^ tail) * np.uint32(FACTOR)
    hashes ^= hashes >> np.uint32(13)
    hashes *= np.uint32(FACTOR)
    hashes ^= hashes >> np.uint32(15)
    return hashes
