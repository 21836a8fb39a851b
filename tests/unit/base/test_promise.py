"""A value that comes later: once, to one waiter, at once."""

from __future__ import annotations

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise, resolved, when_ready


def test_the_waiter_is_called_when_the_value_comes() -> None:
    later: Promise[int] = Promise()
    seen: list[int] = []
    later.then(seen.append)
    assert not later.done
    assert seen == []
    later.complete(7)
    assert later.done
    assert seen == [7]
    assert later.value() == 7


def test_who_comes_late_is_told_at_once() -> None:
    later: Promise[str] = Promise()
    later.complete("there")
    seen: list[str] = []
    later.then(seen.append)
    assert seen == ["there"]


@pytest.mark.parametrize("value", [None, False, 0, ""])
def test_an_empty_value_is_a_value(value: object) -> None:
    later: Promise[object] = Promise()
    later.complete(value)
    seen: list[object] = []
    later.then(seen.append)
    assert later.done
    assert seen == [value]


def test_only_once_and_only_to_one() -> None:
    later: Promise[int] = Promise()
    with pytest.raises(AssertionError, match="before it was there"):
        later.value()
    later.then(lambda _: None)
    with pytest.raises(AssertionError, match="two waiters"):
        later.then(lambda _: None)
    later.complete(1)
    with pytest.raises(AssertionError, match="completed twice"):
        later.complete(1)


def test_the_value_is_there_while_the_waiter_is_told() -> None:
    later: Promise[int] = Promise()
    seen: list[tuple[bool, int]] = []
    later.then(lambda value: seen.append((later.done, later.value() - value)))
    later.complete(3)
    assert seen == [(True, 0)]


def test_map_changes_the_value_on_the_way_early_or_late() -> None:
    early: Promise[int] = Promise()
    changed = early.map(lambda n: f"<{n}>")
    assert not changed.done
    early.complete(1)
    assert changed.value() == "<1>"
    done: Promise[int] = Promise()
    done.complete(2)
    assert done.map(str).map(lambda text: text * 2).value() == "22"


def test_what_a_promise_leads_to_may_be_there_or_be_promised() -> None:
    asked: Promise[int] = Promise()
    further: Promise[str] = Promise()
    there = asked.and_then(lambda n: f"<{n}>")
    assert not there.done
    asked.complete(1)
    assert there.value() == "<1>"
    promised = resolved(2).and_then(lambda n: further)
    assert not promised.done
    further.complete("<2>")
    assert promised.value() == "<2>"


def test_a_refusal_on_the_way_is_what_the_promise_comes_to() -> None:
    def refuse(n: int) -> int:
        raise KafkaError(ErrorCode.NOT_COORDINATOR, str(n))

    asked: Promise[int] = Promise()
    led: Promise[object] = asked.and_then(refuse)
    asked.complete(7)
    refused = led.value()
    assert isinstance(refused, KafkaError)
    assert (refused.code, refused.message) == (ErrorCode.NOT_COORDINATOR, "7")


def test_a_mistake_of_ours_on_the_way_is_not_taken_for_an_answer() -> None:
    asked: Promise[int] = Promise()
    led = asked.and_then(lambda n: 1 // n)
    with pytest.raises(ZeroDivisionError):
        asked.complete(0)
    assert not led.done


def test_one_goes_on_at_once_with_what_is_there_and_later_with_what_is_promised() -> None:
    assert when_ready(1, lambda n: n + 1) == 2
    asked: Promise[int] = Promise()
    given = when_ready(asked, lambda n: n + 1)
    assert isinstance(given, Promise)
    assert not given.done
    asked.complete(2)
    assert given.value() == 3


def test_a_refusal_of_who_goes_on_at_once_is_raised_at_once() -> None:
    def refuse(n: int) -> int:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)

    with pytest.raises(KafkaError):
        when_ready(1, refuse)


def test_what_is_there_can_be_promised_and_a_promise_is_one_already() -> None:
    assert resolved("there").value() == "there"
    assert resolved(None).done
    asked: Promise[int] = Promise()
    assert resolved(asked) is asked
