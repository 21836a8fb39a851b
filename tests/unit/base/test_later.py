"""A value that comes later: once, to one waiter, at once."""

from __future__ import annotations

import pytest

from moldau.base.later import Later


def test_the_waiter_is_called_when_the_value_comes() -> None:
    later: Later[int] = Later()
    seen: list[int] = []
    later.then(seen.append)
    assert not later.done
    assert seen == []
    later.complete(7)
    assert later.done
    assert seen == [7]
    assert later.value() == 7


def test_who_comes_late_is_told_at_once() -> None:
    later: Later[str] = Later()
    later.complete("there")
    seen: list[str] = []
    later.then(seen.append)
    assert seen == ["there"]


@pytest.mark.parametrize("value", [None, False, 0, ""])
def test_an_empty_value_is_a_value(value: object) -> None:
    later: Later[object] = Later()
    later.complete(value)
    seen: list[object] = []
    later.then(seen.append)
    assert later.done
    assert seen == [value]


def test_only_once_and_only_to_one() -> None:
    later: Later[int] = Later()
    with pytest.raises(AssertionError, match="before it was there"):
        later.value()
    later.then(lambda _: None)
    with pytest.raises(AssertionError, match="two waiters"):
        later.then(lambda _: None)
    later.complete(1)
    with pytest.raises(AssertionError, match="completed twice"):
        later.complete(1)


def test_the_value_is_there_while_the_waiter_is_told() -> None:
    later: Later[int] = Later()
    seen: list[tuple[bool, int]] = []
    later.then(lambda value: seen.append((later.done, later.value() - value)))
    later.complete(3)
    assert seen == [(True, 0)]


def test_map_changes_the_value_on_the_way_early_or_late() -> None:
    early: Later[int] = Later()
    changed = early.map(lambda n: f"<{n}>")
    assert not changed.done
    early.complete(1)
    assert changed.value() == "<1>"
    done: Later[int] = Later()
    done.complete(2)
    assert done.map(str).map(lambda text: text * 2).value() == "22"
