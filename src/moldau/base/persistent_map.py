"""An immutable map: a change makes a new map, which shares all unchanged parts with the old one.

The entries are in buckets by their hash, each bucket is a dict, and there are about as many buckets as entries in a
bucket. A change copies the list of buckets and the changed buckets, so with n entries it costs the square root of n; a
lookup is one step more than in a dict. The map has no defined order.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from itertools import chain, islice
from typing import Any, Final, Generic, TypeVar, overload

from moldau.base.steps import Steps, finish
from moldau.base.turns import ENTRIES_A_TURN

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

BUCKETS_MIN: Final = 8

Buckets = list[dict[K, V]]


class PersistentMap(Mapping[K, V]):
    __slots__ = ("_buckets", "_len", "_mask")

    def __init__(self, entries: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        content = dict(entries)
        self._init_buckets(finish(_distribute([content], _bucket_count(len(content)))), len(content))

    @classmethod
    def _from_buckets(cls, buckets: Buckets[K, V], count: int) -> PersistentMap[K, V]:
        new = cls.__new__(cls)
        new._init_buckets(buckets, count)
        return new

    def _init_buckets(self, buckets: Buckets[K, V], count: int) -> None:
        self._buckets = buckets
        self._mask = len(buckets) - 1
        self._len = count

    def __getitem__(self, key: K) -> V:
        return self._buckets[hash(key) & self._mask][key]

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D, /) -> V | D: ...
    def get(self, key: K, default: Any = None, /) -> Any:
        return self._buckets[hash(key) & self._mask].get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._buckets[hash(key) & self._mask]

    def __len__(self) -> int:
        return self._len

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self._buckets)

    def values(self) -> ValuesView[V]:
        return _Values(self)

    def items(self) -> ItemsView[K, V]:
        return _Items(self)

    def __repr__(self) -> str:
        return f"PersistentMap({dict(self.items())!r})"

    def edit(self) -> MapEditor[K, V]:
        return MapEditor(self)


class MapEditor(Generic[K, V]):
    """A mutable view of a map. Nothing is copied before the first change."""

    __slots__ = ("_base", "_buckets", "_copied", "_len", "_mask")

    def __init__(self, base: PersistentMap[K, V]) -> None:
        self._base = base
        self._buckets = base._buckets
        self._mask = base._mask
        self._len = base._len
        self._copied: set[int] = set()

    def __getitem__(self, key: K) -> V:
        return self._buckets[hash(key) & self._mask][key]

    def __contains__(self, key: K) -> bool:
        return key in self._buckets[hash(key) & self._mask]

    def get(self, key: K) -> V | None:
        return self._buckets[hash(key) & self._mask].get(key)

    def __setitem__(self, key: K, value: V) -> None:
        bucket = self._own_bucket(key)
        before = len(bucket)
        bucket[key] = value
        self._len += len(bucket) - before

    def pop(self, key: K) -> V | None:
        bucket = self._own_bucket(key)
        before = len(bucket)
        removed = bucket.pop(key, None)
        self._len += len(bucket) - before
        return removed

    def _own_bucket(self, key: K) -> dict[K, V]:
        """Return the bucket of a key, copied before its first change."""
        if not self._copied:
            self._buckets = self._buckets.copy()
        index = hash(key) & self._mask
        if index not in self._copied:
            self._copied.add(index)
            self._buckets[index] = self._buckets[index].copy()
        return self._buckets[index]

    def finish(self) -> PersistentMap[K, V]:
        """Return the map with all changes. Do not use the editor afterwards: it would change the map."""
        return finish(self.finish_in_steps())

    def finish_in_steps(self) -> Steps[PersistentMap[K, V]]:
        """Like `finish`. Most often this is one step: only a map that has outgrown its buckets gets new ones."""
        if not self._copied:
            return self._base
        buckets = self._buckets
        if self._len > len(buckets) ** 2:
            buckets = yield from _distribute(buckets, _bucket_count(self._len))
        return PersistentMap._from_buckets(buckets, self._len)


class _Values(ValuesView[V]):
    """Iterates over the values bucket by bucket, without looking up each key."""

    _mapping: PersistentMap[Any, V]

    def __iter__(self) -> Iterator[V]:
        return chain.from_iterable(map(dict.values, self._mapping._buckets))


class _Items(ItemsView[K, V]):
    _mapping: PersistentMap[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return chain.from_iterable(map(dict.items, self._mapping._buckets))


def _bucket_count(count: int) -> int:
    """Return the number of buckets: a power of two, so that a mask of the hash gives the bucket."""
    buckets = BUCKETS_MIN
    while count > buckets**2:
        buckets *= 2
    return buckets


def _distribute(entries: Buckets[K, V], count: int) -> Steps[Buckets[K, V]]:
    result: Buckets[K, V] = [{} for _ in range(count)]
    items = chain.from_iterable(map(dict.items, entries))
    while some := list(islice(items, ENTRIES_A_TURN)):
        for key, value in some:
            result[hash(key) & (count - 1)][key] = value
        if len(some) == ENTRIES_A_TURN:
            yield
    return result
