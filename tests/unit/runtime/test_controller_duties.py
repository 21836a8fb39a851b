"""What the active controller does unasked, on a node in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rooms import Rooms

from moldau.metadata.controller.decision import Decision
from moldau.metadata.image import MetadataImage
from moldau.runtime.controller import duties as controller_duties

CHECK = {"leader.imbalance.check.interval.seconds": "60"}


def rounds(monkeypatch: pytest.MonkeyPatch, name: str, more: list[bool]) -> list[int]:
    """Puts answers in the mouth of a decision; gives the list in which its rounds are noted."""
    asked: list[int] = []

    def decide(image: MetadataImage, *rest: object) -> Decision[bool]:
        asked.append(image.offset)
        return Decision(more.pop(0) if more else False)

    monkeypatch.setattr(controller_duties, name, decide)
    return asked


def pass_time(rooms: Rooms, ms: int, also: Callable[[], None] = lambda: None) -> None:
    for _ in range(ms // 1_000):
        rooms.timers.advance(1_000)
        rooms.flush()
        also()


def test_leaders_are_given_back_round_by_round_until_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = rounds(monkeypatch, "decide_balance", [True, True, False])
    rooms = Rooms(static=CHECK).start()
    pass_time(rooms, 59_000)
    assert asked == []
    pass_time(rooms, 2_000)
    assert len(asked) == 3
    pass_time(rooms, 60_000)
    assert len(asked) == 4


def test_nobody_is_given_back_what_nobody_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = rounds(monkeypatch, "decide_balance", [])
    unclean = rounds(monkeypatch, "decide_unclean_elections", [])
    rooms = Rooms(static={**CHECK, "auto.leader.rebalance.enable": "false"}).start()
    pass_time(rooms, 121_000)
    assert (asked, len(unclean)) == ([], 2)


def test_the_broker_beside_the_controller_is_not_fenced_for_the_time_it_slept() -> None:
    rooms = Rooms(static=CHECK).start()
    rooms.clock.move(60_000)
    pass_time(rooms, 5_000)
    assert [broker.id for broker in rooms.current.image.live_brokers()] == [1]
