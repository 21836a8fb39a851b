"""A persistent map compared with a dict: the same entries after the same changes, and old maps stay unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.base.persistent_map import BUCKETS_MIN, PersistentMap
from moldau.base.steps import finish
from moldau.base.turns import ENTRIES_A_TURN

KEYS = st.one_of(st.integers(0, 300), st.text(max_size=2), st.binary(max_size=2))
CHANGES = st.lists(st.tuples(KEYS, st.none() | st.integers()), max_size=60)
"""A key and its value, None to remove it."""


@settings(deadline=None)
@given(st.dictionaries(KEYS, st.integers(), max_size=200), st.lists(CHANGES, max_size=8))
def test_a_map_has_the_entries_of_a_dict_with_the_same_changes(
    first: dict[object, int], batches: list[list[tuple[object, int | None]]]
) -> None:
    versions = [(PersistentMap(first), first)]
    for batch in batches:
        latest, model = versions[-1][0].edit(), dict(versions[-1][1])
        for key, value in batch:
            if value is None:
                assert latest.pop(key) == model.pop(key, None)
            else:
                latest[key] = value
                model[key] = value
            assert (key in latest) == (key in model)
            assert latest.get(key) == model.get(key)
        versions.append((latest.finish(), model))
    for version, model in versions:
        assert dict(version.items()) == model
        assert version == model
        assert len(version) == len(model)
        assert set(version) == set(model)
        assert sorted(version.values()) == sorted(model.values())


def test_a_map_grows_beyond_its_first_buckets_in_one_batch_and_one_by_one() -> None:
    count = BUCKETS_MIN**2 * 5
    at_once = PersistentMap[int, str]().edit()
    one_by_one = PersistentMap[int, str]()
    for key in range(count):
        at_once[key] = str(key)
        edited = one_by_one.edit()
        edited[key] = str(key)
        one_by_one = edited.finish()
    whole = {key: str(key) for key in range(count)}
    assert at_once.finish() == one_by_one == PersistentMap(whole) == whole
    assert [one_by_one[key] for key in whole] == list(whole.values())
    assert max(map(len, one_by_one._buckets)) < BUCKETS_MIN * 2, "there are more buckets, not larger ones"


def test_many_entries_get_new_buckets_in_steps() -> None:
    whole = {key: -key for key in range(2 * ENTRIES_A_TURN + 1)}
    edited = PersistentMap[int, int]().edit()
    for key, value in whole.items():
        edited[key] = value
    steps = edited.finish_in_steps()
    for _ in range(2):
        next(steps)
    assert finish(steps) == whole


def test_a_change_copies_one_bucket_and_shares_the_others() -> None:
    old = PersistentMap({key: key for key in range(10_000)})
    edited = old.edit()
    edited[7] = -7
    new = edited.finish()
    copied = [now for before, now in zip(old._buckets, new._buckets, strict=True) if before is not now]
    assert len(copied) == 1
    assert len(copied[0]) < 200
    assert (old[7], new[7]) == (7, -7)


def test_without_a_change_the_editor_returns_the_same_map() -> None:
    old = PersistentMap({"orders": 1})
    edited = old.edit()
    assert edited["orders"] == 1
    assert edited.finish() is old


def test_missing_keys() -> None:
    empty = PersistentMap[str, int]()
    assert empty.get("orders") is None
    assert empty.get("orders", 3) == 3
    assert "orders" not in empty
    with pytest.raises(KeyError, match="orders"):
        empty["orders"]
