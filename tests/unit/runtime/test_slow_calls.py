"""Calls that hold up the event loop are counted, named and logged."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from itertools import count

import pytest

from moldau.base.loop_watch import LOOP_WATCH, LoopWatch, name_of
from moldau.runtime import timers as timers_module
from moldau.runtime.running_clock import TICK_MS, RunningClock
from moldau.runtime.slow_calls import LINE_EVERY_MS, SlowCalls
from moldau.runtime.timers import LoopTimers
from moldau.testing.clock import FakeClock, FakeTimers


def test_long_calls_are_counted_and_the_longest_is_named() -> None:
    watch = LoopWatch()
    for name, took_s in (("a", 0.006), ("b", 0.051), ("c", 0.007)):
        watch.note(name, took_s)
    assert (watch.calls_above_5_ms, watch.calls_above_50_ms) == (3, 1)
    assert (watch.longest, watch.longest_us) == ("b", 51_000)


def test_a_call_has_the_name_of_its_function_and_its_purpose() -> None:
    assert name_of(partial(partial(LoopWatch.note, 1), 2)) == "LoopWatch.note"
    assert name_of(partial(LoopWatch.note, "purge", 2)) == "LoopWatch.note (purge)"
    assert name_of(lambda: None) == "test_a_call_has_the_name_of_its_function_and_its_purpose.<lambda>"


def test_very_long_calls_are_logged_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    watch, clock = LoopWatch(), FakeClock()
    SlowCalls(watch, clock, lambda: None)
    watch.note("short", 0.049)
    for name in ("first", "second", "third"):
        watch.note(name, 0.25)
    clock.move(LINE_EVERY_MS)
    watch.note("Metadata from 192.0.2.1:9", 0.08)
    assert [record.getMessage() for record in caplog.records] == [
        "first held up the event loop for 250 ms",
        "Metadata from 192.0.2.1:9 held up the event loop for 80 ms; 2 other calls since the last line",
    ]


@pytest.mark.parametrize(
    ("took_ms", "waited_before_mark_ms", "waited_ms", "level", "line"),
    [
        (250, 900, 0, "WARNING", "Fetch held up the event loop for 250 ms"),
        (250, 900, 150, "WARNING", "Fetch held up the event loop for 250 ms, 150 of them without a free processor"),
        (250, 0, 210, "DEBUG", "Fetch took 250 ms, 210 of them without a free processor"),
        (60, 0, 400, "DEBUG", "Fetch took 60 ms, 60 of them without a free processor"),
    ],
    ids=["a slow disk or much work", "partly the machine", "the machine", "waits before the call too"],
)
def test_a_call_without_a_processor_is_no_warning(
    caplog: pytest.LogCaptureFixture,
    took_ms: int,
    waited_before_mark_ms: int,
    waited_ms: int,
    level: str,
    line: str,
) -> None:
    caplog.set_level("DEBUG", "moldau.node")
    watch, clock = LoopWatch(), FakeClock()
    readings = [0.5, 0.5 + waited_before_mark_ms / 1000]
    readings.append(readings[-1] + waited_ms / 1000)
    reading = iter(readings)
    slow_calls = SlowCalls(watch, clock, lambda: next(reading))
    slow_calls.mark()
    watch.note("a call below the limit reads nothing", 0.04)
    watch.note("Fetch", took_ms / 1000)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [(level, line)]


def test_calls_without_a_processor_do_not_suppress_the_next_warning(caplog: pytest.LogCaptureFixture) -> None:
    waited_s = [0.0]
    watch = LoopWatch()
    slow_calls = SlowCalls(watch, FakeClock(), lambda: waited_s[0])
    waited_s[0] = 0.2
    watch.note("Produce", 0.2)
    slow_calls.mark()
    watch.note("Fetch", 0.2)
    assert [record.getMessage() for record in caplog.records] == ["Fetch held up the event loop for 200 ms"]


def test_a_running_clock_marks_each_tick() -> None:
    clock, marks = FakeClock(), []
    timers = FakeTimers(clock)
    RunningClock(clock, timers, lambda: marks.append(clock.monotonic_ms()))
    timers.advance(5 * TICK_MS)
    assert len(marks) == 5


@pytest.fixture
def each_reading_is_20_ms_later(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    readings = count()
    monkeypatch.setattr(timers_module, "monotonic", lambda: next(readings) * 0.02)
    longest, longest_us = LOOP_WATCH.take_longest()
    yield
    LOOP_WATCH.longest, LOOP_WATCH.longest_us = longest, longest_us


@pytest.mark.usefixtures("each_reading_is_20_ms_later")
def test_timers_measure_their_calls() -> None:
    async def run() -> None:
        timers, called = LoopTimers(asyncio.get_running_loop()), asyncio.Event()
        timers.soon(lambda: None)
        timers.after_ms(0, called.set)
        await called.wait()

    before = LOOP_WATCH.calls_above_5_ms
    asyncio.run(run())
    assert LOOP_WATCH.calls_above_5_ms == before + 2
    assert LOOP_WATCH.longest == "test_timers_measure_their_calls.run.<lambda>"
