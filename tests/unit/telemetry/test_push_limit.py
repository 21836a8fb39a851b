"""The limit of pushes of one connection."""

from __future__ import annotations

import pytest

from moldau.telemetry import push_limit as module
from moldau.telemetry.push_limit import PushLimit

ONE = "10.0.0.1:1"


def test_one_push_per_interval_and_a_burst_of_two_are_accepted() -> None:
    limit = PushLimit()
    assert all(limit.try_push(ONE, 1_000, now_ms) for now_ms in range(0, 20_000, 1_000))
    assert [limit.try_push(ONE, 1_000, 19_000) for _ in range(3)] == [True, True, False]


def test_a_shortened_interval_applies_to_the_next_push() -> None:
    limit = PushLimit()
    assert [limit.try_push(ONE, 300_000, 0) for _ in range(4)] == [True, True, True, False]
    assert not limit.try_push(ONE, 1_000, 0)
    assert limit.try_push(ONE, 1_000, 1_000), "after one of the new intervals"
    assert limit.try_push("10.0.0.1:2", 1_000, 0)


def test_many_connections_use_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED_CONNECTIONS_MAX", 10)
    limit = PushLimit()
    for port in range(100):
        limit.try_push(f"10.0.0.1:{port}", 1_000, 0)
    assert len(limit._paid_until_ms) == 10
