from __future__ import annotations

import time

import pytest
import stand_in_brokers
from stand_in_brokers import FakeBrokers

from moldau.client import cluster
from moldau.client.stand_in import batch_sender, consumer


class HurriedTime:
    """A clock on which `sleep` returns at once, but moves the time."""

    def __init__(self) -> None:
        self._slept = 0.0

    def sleep(self, seconds: float) -> None:
        self._slept += seconds

    def monotonic(self) -> float:
        return time.monotonic() + self._slept


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    hurried = HurriedTime()
    for module in (cluster, batch_sender, consumer, stand_in_brokers):
        monkeypatch.setattr(module, "time", hurried)


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> FakeBrokers:
    return FakeBrokers(monkeypatch)
