"""RunningClock: a clock that stops while the node does not run, for example while it is suspended."""

from __future__ import annotations

import logging

import pytest

from moldau.runtime.running_clock import GRACE_MS, TICK_MS, RunningClock
from moldau.testing.clock import FakeClock, FakeTimers


class Machine:
    """Timers that do not fire while the machine is busy with something else."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.timers = FakeTimers(self.clock)
        self.running = RunningClock(self.clock, self.timers)

    def run(self, ms: int) -> None:
        self.timers.advance(ms)

    def pause(self, ms: int) -> None:
        self.clock.move(ms)


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_the_clock_advances_while_the_node_runs(machine: Machine) -> None:
    for _ in range(50):
        machine.run(37)
        assert machine.running.monotonic_ms() == machine.clock.monotonic_ms()
    assert machine.running.now_ms() == machine.clock.now_ms()


def test_a_pause_does_not_advance_the_clock(machine: Machine) -> None:
    machine.run(1_000)
    before_ms = machine.running.monotonic_ms()
    machine.pause(60_000)
    assert machine.running.monotonic_ms() <= before_ms + TICK_MS + GRACE_MS, "the clock stops before the next tick"
    machine.run(1)
    assert machine.running.monotonic_ms() <= before_ms + TICK_MS + GRACE_MS + 1
    paused_ms = machine.clock.monotonic_ms() - machine.running.monotonic_ms()
    machine.run(10_000)
    assert machine.clock.monotonic_ms() - machine.running.monotonic_ms() == paused_ms, "the clock advances again"


def test_a_short_delay_is_not_a_pause(machine: Machine) -> None:
    machine.run(TICK_MS)
    for _ in range(20):
        machine.pause(GRACE_MS)
        machine.run(TICK_MS)
    assert machine.running.monotonic_ms() == machine.clock.monotonic_ms()


def test_the_clock_never_goes_back(machine: Machine) -> None:
    last_ms = machine.running.monotonic_ms()
    for number in range(400):
        (machine.pause if number % 3 == 0 else machine.run)(7 * number % 900)
        assert machine.running.monotonic_ms() >= last_ms
        last_ms = machine.running.monotonic_ms()


def test_a_long_pause_is_logged_but_not_a_pause_during_the_start(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    machine.pause(5_000)
    machine.run(TICK_MS)
    assert not caplog.messages
    machine.pause(5_000)
    machine.run(TICK_MS)
    assert len(caplog.messages) == 1
    assert "did not run for 4" in caplog.messages[0]


def test_a_stopped_clock_has_no_timers(machine: Machine) -> None:
    machine.running.stop()
    assert machine.timers.pending == 0
    machine.pause(5_000)
    assert machine.running.monotonic_ms() == machine.clock.monotonic_ms()
