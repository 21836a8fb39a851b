"""A promise: it is completed once, and calls its one waiter at once."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.promise import Promise, resolved, unanswered_by, when_ready


def test_the_waiter_is_called_on_completion() -> None:
    promise: Promise[int] = Promise()
    seen: list[int] = []
    promise.then(seen.append)
    assert not promise.done
    assert seen == []
    promise.complete(7)
    assert promise.done
    assert seen == [7]
    assert promise.value() == 7


def test_a_late_waiter_is_called_at_once() -> None:
    promise: Promise[str] = Promise()
    promise.complete("there")
    seen: list[str] = []
    promise.then(seen.append)
    assert seen == ["there"]


@pytest.mark.parametrize("value", [None, False, 0, ""])
def test_an_empty_value_is_a_value(value: object) -> None:
    promise: Promise[object] = Promise()
    promise.complete(value)
    seen: list[object] = []
    promise.then(seen.append)
    assert promise.done
    assert seen == [value]


def test_a_promise_is_completed_once_and_has_one_waiter() -> None:
    promise: Promise[int] = Promise()
    with pytest.raises(AssertionError, match="before it was completed"):
        promise.value()
    promise.then(lambda _: None)
    with pytest.raises(AssertionError, match="two waiters"):
        promise.then(lambda _: None)
    promise.complete(1)
    with pytest.raises(AssertionError, match="completed twice"):
        promise.complete(1)


def test_the_waiter_can_read_the_value() -> None:
    promise: Promise[int] = Promise()
    seen: list[tuple[bool, int]] = []
    promise.then(lambda value: seen.append((promise.done, promise.value() - value)))
    promise.complete(3)
    assert seen == [(True, 0)]


def test_map_works_before_and_after_completion() -> None:
    early: Promise[int] = Promise()
    changed = early.map(lambda n: f"<{n}>")
    assert not changed.done
    early.complete(1)
    assert changed.value() == "<1>"
    done: Promise[int] = Promise()
    done.complete(2)
    assert done.map(str).map(lambda text: text * 2).value() == "22"


def test_and_then_accepts_a_value_or_a_promise() -> None:
    first: Promise[int] = Promise()
    second: Promise[str] = Promise()
    by_value = first.and_then(lambda n: f"<{n}>")
    assert not by_value.done
    first.complete(1)
    assert by_value.value() == "<1>"
    by_promise = resolved(2).and_then(lambda n: second)
    assert not by_promise.done
    second.complete("<2>")
    assert by_promise.value() == "<2>"


def test_and_then_completes_with_a_raised_kafka_error() -> None:
    def refuse(n: int) -> int:
        raise KafkaError(ErrorCode.NOT_COORDINATOR, str(n))

    first: Promise[int] = Promise()
    result: Promise[object] = first.and_then(refuse)
    first.complete(7)
    refused = result.value()
    assert isinstance(refused, KafkaError)
    assert refused.__traceback__ is None, "a traceback would keep its frames in memory"
    assert (refused.code, refused.message) == (ErrorCode.NOT_COORDINATOR, "7")


@pytest.mark.parametrize("method", [Promise.map, Promise.and_then])
def test_an_unexpected_exception_is_raised_and_tells_what_it_leaves_unanswered(method: Any) -> None:
    first: Promise[int] = Promise()
    result = method(first.map(lambda n: n), lambda n: 1 // n)
    method(result, lambda _: pytest.fail("there is no value"))
    with pytest.raises(ZeroDivisionError) as raised:
        first.complete(0)
    assert not result.done
    assert unanswered_by(raised.value) is result
    assert unanswered_by(raised.value) is None, "it is ended once"


@pytest.mark.parametrize("method", [Promise.map, Promise.and_then])
def test_what_ends_a_request_is_passed_on(method: Any) -> None:
    first: Promise[Any] = Promise()
    result = method(first, lambda _: pytest.fail("it is no value"))
    malformed = MalformedData("bad")
    first.complete(malformed)
    assert result.value() is malformed


def test_when_ready_continues_at_once_with_a_value_and_later_with_a_promise() -> None:
    assert when_ready(1, lambda n: n + 1) == 2
    promise: Promise[int] = Promise()
    result = when_ready(promise, lambda n: n + 1)
    assert isinstance(result, Promise)
    assert not result.done
    promise.complete(2)
    assert result.value() == 3


def test_when_ready_raises_errors_for_a_value_at_once() -> None:
    def refuse(n: int) -> int:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)

    with pytest.raises(KafkaError):
        when_ready(1, refuse)


def test_resolved_wraps_a_value_and_returns_a_promise_unchanged() -> None:
    assert resolved("there").value() == "there"
    assert resolved(None).done
    promise: Promise[int] = Promise()
    assert resolved(promise) is promise
