"""The exercises of the page Learn while several requests change them at once."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.console import learning
from moldau.console.endpoints import learn
from moldau.console.learning import Practice


class ModelConsumer:
    """A consumer that only records whether it runs."""

    def __init__(self, name: str, practice: Practice) -> None:
        self.is_running = False

    def start(self) -> None:
        self.is_running = True

    def stop(self) -> None:
        self.is_running = False

    def join(self, timeout_seconds: float) -> None:
        assert not self.is_running


def test_consumers_requested_after_close_do_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "PracticeConsumer", ModelConsumer)
    practice = Practice("localhost:1", {})
    practice.set_consumers(2)
    running: list[Any] = list(practice.consumers)
    practice.close()
    practice.set_consumers(3)
    assert practice.consumers == []
    assert not any(each.is_running for each in running)


def test_workers_requested_after_close_do_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "PracticeWorker", ModelConsumer)
    practice = Practice("localhost:1", {})
    practice.set_workers(3)
    running: list[Any] = list(practice.workers)
    practice.set_workers(1)
    assert [each.is_running for each in running] == [True, False, False], "the newest stop first"
    practice.close()
    practice.set_workers(2)
    assert (practice.workers, running[0].is_running) == ([], False)


def test_a_failure_is_said_of_one_record() -> None:
    practice = Practice("localhost:1", {})
    practice.failures.extend(["release", "reject"])
    assert [practice.next_answer() for _ in range(3)] == ["release", "reject", "accept"]


def test_a_watcher_does_not_change_a_newer_compaction() -> None:
    practice = Practice("localhost:1", {})
    first: dict[str, Any] = {"before": [], "after": None, "waiting": True}
    again: dict[str, Any] = {"before": [], "after": None, "waiting": True}
    practice.compaction = again
    call: Any = None  # not used: there is nothing to watch
    learn._watch(call, practice, first)
    assert practice.compaction is again
