"""The fake timers of the tests: they run in order, to the millisecond, and detect endless loops."""

from __future__ import annotations

from functools import partial

import pytest

from moldau.testing import clock
from moldau.testing.clock import FakeClock, FakeTimers


def test_timers_run_by_time_then_in_the_order_they_were_set() -> None:
    timers, seen = FakeTimers(), []

    def note(name: str) -> None:
        seen.append((name, timers.clock.monotonic_ms()))

    for name, delay_ms in [("c", 30), ("a", 10), ("b1", 20), ("b2", 20), ("now", 0), ("past", -5)]:
        timers.after_ms(delay_ms, partial(note, name))
    timers.advance(20)
    assert seen == [("now", 0), ("past", 0), ("a", 10), ("b1", 20), ("b2", 20)]
    assert timers.next_due_ms() == 10
    timers.advance(9)
    assert timers.pending == 1
    timers.advance(1)
    assert seen[-1] == ("c", 30)
    assert (timers.pending, timers.next_due_ms()) == (0, None)


def test_a_cancelled_timer_does_not_run() -> None:
    timers, seen = FakeTimers(), []
    timer = timers.after_ms(10, lambda: seen.append("beat"))
    timer.cancel()
    timers.advance(100)
    assert seen == []
    timer.cancel()


def test_soon_runs_after_the_current_call_and_before_time_advances() -> None:
    timers, seen = FakeTimers(), []

    def soon() -> None:
        seen.append("soon")
        timers.soon(lambda: seen.append("sooner"))

    def timer() -> None:
        timers.soon(lambda: seen.append("after the timer"))
        seen.append("timer")

    timers.soon(soon)
    timers.after_ms(1, timer)
    timers.after_ms(1, lambda: seen.append("second timer"))
    assert seen == []
    timers.advance(1)
    assert seen == ["soon", "sooner", "timer", "after the timer", "second timer"]


def test_a_timer_may_set_another_within_the_same_advance() -> None:
    timers, beats = FakeTimers(), []

    def beat() -> None:
        beats.append(timers.clock.monotonic_ms())
        timers.after_ms(10, beat)

    timers.after_ms(10, beat)
    timers.advance(35)
    assert beats == [10, 20, 30]
    assert timers.clock.monotonic_ms() == 35


def test_an_endless_chain_of_calls_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "SOON_CALLS_MAX", 100)
    timers = FakeTimers()

    def again() -> None:
        timers.soon(again)

    timers.soon(again)
    with pytest.raises(AssertionError, match="endlessly"):
        timers.run_soon()


def test_a_jump_moves_only_the_wall_clock() -> None:
    both = FakeClock(1000)
    both.move(5)
    both.jump(-600)
    assert (both.now_ms(), both.monotonic_ms()) == (405, 5)
    with pytest.raises(AssertionError):
        both.move(-1)
