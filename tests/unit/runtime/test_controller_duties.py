"""The periodic duties of the active controller, on a node in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from in_memory_node import InMemoryNode

from moldau.metadata.controller.decision import Decision
from moldau.metadata.image import MetadataImage
from moldau.runtime.controller import duties as controller_duties

CHECK = {"leader.imbalance.check.interval.seconds": "60"}


def rounds(monkeypatch: pytest.MonkeyPatch, name: str, more: list[bool]) -> list[int]:
    """Replace a decision by fixed responses; return the list that records its rounds."""
    asked: list[int] = []

    def decide(image: MetadataImage, *rest: object) -> Decision[bool]:
        asked.append(image.offset)
        return Decision(more.pop(0) if more else False)

    monkeypatch.setattr(controller_duties, name, decide)
    return asked


def pass_time(node: InMemoryNode, ms: int, also: Callable[[], None] = lambda: None) -> None:
    for _ in range(ms // 1_000):
        node.timers.advance(1_000)
        node.flush()
        also()


def test_preferred_leaders_are_restored_in_rounds_until_done(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = rounds(monkeypatch, "decide_balance", [True, True, False])
    node = InMemoryNode(static=CHECK).start()
    pass_time(node, 59_000)
    assert asked == []
    pass_time(node, 2_000)
    assert len(asked) == 3
    pass_time(node, 60_000)
    assert len(asked) == 4


def test_without_automatic_balancing_only_unclean_elections_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = rounds(monkeypatch, "decide_balance", [])
    unclean = rounds(monkeypatch, "decide_unclean_elections", [])
    node = InMemoryNode(static={**CHECK, "auto.leader.rebalance.enable": "false"}).start()
    pass_time(node, 121_000)
    assert (asked, len(unclean)) == ([], 2)


def test_a_suspended_node_does_not_fence_its_own_broker() -> None:
    node = InMemoryNode(static=CHECK).start()
    node.clock.move(60_000)
    pass_time(node, 5_000)
    assert [broker.id for broker in node.current.image.live_brokers()] == [1]
