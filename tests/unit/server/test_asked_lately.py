"""A broker that is cut off answers a client once, and then makes it ask others."""

from __future__ import annotations

import pytest

from moldau.base.errors import MalformedData
from moldau.server.handlers.current_leaders import ASKED_MAX, LATELY_MS, AskedLately
from moldau.testing.clock import FakeTimers


@pytest.fixture
def timers() -> FakeTimers:
    return FakeTimers()


@pytest.fixture
def asked(timers: FakeTimers) -> AskedLately:
    return AskedLately(timers)


def test_the_second_question_of_a_connection_closes_it(asked: AskedLately) -> None:
    asked.check("127.0.0.1:1000")
    asked.check("127.0.0.1:1001")
    with pytest.raises(MalformedData, match="ask another broker"):
        asked.check("127.0.0.1:1000")
    asked.check("127.0.0.1:1000")


def test_who_asks_again_much_later_is_answered(asked: AskedLately, timers: FakeTimers) -> None:
    for _ in range(3):
        asked.check("127.0.0.1:1000")
        timers.advance(LATELY_MS)


def test_not_more_connections_are_remembered_than_allowed(asked: AskedLately) -> None:
    for number in range(ASKED_MAX + 1):
        asked.check(str(number))
    asked.check(str(ASKED_MAX))
    with pytest.raises(MalformedData):
        asked.check("0")
