"""Periodic work of a node: the shortest interval."""

from __future__ import annotations

import pytest
from harness.raised_faults import own_work

from moldau.runtime.chores import INTERVAL_MS_MIN, Chores
from moldau.testing.clock import FakeClock, FakeTimers


@pytest.mark.parametrize("interval_ms", [0, 1])
def test_an_interval_of_zero_does_not_keep_the_loop_busy(interval_ms: int) -> None:
    timers = FakeTimers(FakeClock())
    runs: list[None] = []
    Chores(own_work(timers)).every(interval_ms, lambda: runs.append(None))
    for _ in range(3 * INTERVAL_MS_MIN):
        timers.advance(1)
    assert len(runs) == 3
