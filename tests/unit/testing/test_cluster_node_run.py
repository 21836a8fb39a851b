"""The end of a node's run inside a test's process: a kill ends it whenever it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from harness.patience import PATIENCE_S

from moldau.testing import cluster_node
from moldau.testing.cluster_node import _NodeRun
from moldau.testing.fillable_disk import FillableDisk


class ScriptedNode:
    """Records the calls of `stop` and `abandon`."""

    def __init__(self, on_started: Callable[[], None], is_stoppable: bool) -> None:
        self.failed = asyncio.get_running_loop().create_future()
        self.events: list[str] = []
        self._on_started = on_started
        self._is_stoppable = is_stoppable

    async def start(self) -> None:
        await asyncio.sleep(0)
        self._on_started()

    async def stop(self) -> None:
        self.events.append("stopping")
        if not self._is_stoppable:
            await asyncio.get_running_loop().create_future()
        self.events.append("stopped")

    def abandon(self) -> None:
        self.events.append("abandoned")


def start(
    monkeypatch: pytest.MonkeyPatch, on_started: Callable[[_NodeRun], None], is_stoppable: bool = True
) -> tuple[_NodeRun, list[str]]:
    """Start a run with a scripted node; return it and the node's events when it is ready."""
    runs: list[_NodeRun] = []

    def new_node(*_: object, **__: object) -> ScriptedNode:
        return ScriptedNode(lambda: on_started(runs[0]), is_stoppable)

    class Run(_NodeRun):
        def _serve(self) -> None:
            runs.append(self)
            super()._serve()

    monkeypatch.setattr(cluster_node, "Node", new_node)
    settings, link = SimpleNamespace(node_id=1), SimpleNamespace()
    run = Run(settings, link, FillableDisk())  # type: ignore[arg-type]
    run.ready.result(PATIENCE_S)
    node: Any = run.node
    return run, node.events


def no_event(run: _NodeRun) -> None:
    pass


def test_a_stopped_node_is_not_abandoned_and_a_killed_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    run, events = start(monkeypatch, no_event)
    run.stop()
    assert events == ["stopping", "stopped"]
    run, events = start(monkeypatch, no_event)
    run.kill()
    assert events == ["abandoned"]


def test_a_kill_right_after_the_start_abandons_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start has ended, but the run does not know it yet."""
    run, events = start(monkeypatch, lambda run: run._call(run._request_kill))
    run._thread.join(PATIENCE_S)
    assert run.is_over
    assert events == ["abandoned"]


def test_a_node_that_does_not_stop_can_be_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    run, events = start(monkeypatch, no_event, is_stoppable=False)
    with monkeypatch.context() as patch:
        patch.setattr(cluster_node, "END_TIMEOUT_S", 0.01)
        with pytest.raises(AssertionError, match="node 1 did not end"):
            run.stop()
    run.kill()
    assert run.is_over
    assert events[-1] == "abandoned"


def test_a_paused_node_that_is_killed_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    run, events = start(monkeypatch, no_event)
    run.pause()
    assert run.is_paused
    run.kill()
    assert events == ["abandoned"]
