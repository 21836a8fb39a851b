from __future__ import annotations

import time

import pytest
from fake_brokers import FakeBrokers


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever sleeps between two tries does not: time passes by that much all the same."""
    slept = 0.0
    now = time.monotonic

    def sleep(seconds: float) -> None:
        nonlocal slept
        slept += seconds

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now() + slept)


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> FakeBrokers:
    return FakeBrokers(monkeypatch)
