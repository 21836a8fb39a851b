"""The periodic duties of the active controller, on a node in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness.in_memory_node import InMemoryNode

from moldau.base.promise import Promise
from moldau.metadata.controller.broker_sessions import BrokerSessions
from moldau.metadata.controller.decision import Decision
from moldau.metadata.image import MetadataImage
from moldau.runtime.controller import duties as controller_duties
from moldau.server.handler import Caller
from moldau.server.handlers.controller.broker_apis import BrokerHeartbeat
from moldau.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

CHECK = {"leader.imbalance.check.interval.seconds": "60"}


def record_rounds(monkeypatch: pytest.MonkeyPatch, name: str, more: list[bool]) -> list[int]:
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
    asked = record_rounds(monkeypatch, "decide_balance", [True, True, False])
    node = InMemoryNode(static=CHECK).start()
    pass_time(node, 59_000)
    assert asked == []
    pass_time(node, 2_000)
    assert len(asked) == 3
    pass_time(node, 60_000)
    assert len(asked) == 4


def test_without_automatic_balancing_only_unclean_elections_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = record_rounds(monkeypatch, "decide_balance", [])
    unclean = record_rounds(monkeypatch, "decide_unclean_elections", [])
    node = InMemoryNode(static={**CHECK, "auto.leader.rebalance.enable": "false"}).start()
    pass_time(node, 121_000)
    assert (asked, len(unclean)) == ([], 2)


def test_a_check_of_leaders_that_fails_stops_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def decide(image: MetadataImage, *rest: object) -> Decision[bool]:
        raise ZeroDivisionError

    monkeypatch.setattr(controller_duties, "decide_unclean_elections", decide)
    node = InMemoryNode(static=CHECK).start()
    pass_time(node, 61_000)
    assert [type(fault) for fault in node.faults] == [ZeroDivisionError]


def test_a_heartbeat_is_not_recorded_if_its_connection_ended_before_the_response() -> None:
    node = InMemoryNode(static=CHECK).start()
    side = node.assembly.controller_side
    assert side is not None
    responses: list[Promise[BrokerHeartbeatResponse]] = []

    def send_to_controller(*request: object) -> Promise[BrokerHeartbeatResponse]:
        responses.append(Promise())
        return responses[-1]

    handler = BrokerHeartbeat(send_to_controller, node.timers, side.duties)
    ended, open_one = "10.0.0.1:1", "10.0.0.1:2"
    for address in (ended, open_one):
        handler.answer(BrokerHeartbeatRequest(7), Caller("CONTROLLER", address, None, 1))
    side.connection_gone(ended)
    for response in responses:
        response.complete(BrokerHeartbeatResponse())
    assert [address for address, broker_id in side.duties._connections.items() if broker_id == 7] == [open_one]


def test_a_suspended_node_does_not_fence_its_own_broker() -> None:
    node = InMemoryNode(static=CHECK).start()
    node.clock.move(60_000)
    pass_time(node, 5_000)
    assert [broker.id for broker in node.current.image.live_brokers()] == [1]


def test_the_node_of_the_previous_controller_is_suspected(monkeypatch: pytest.MonkeyPatch) -> None:
    node = InMemoryNode(static=CHECK).start()
    suspects: list[int] = []
    monkeypatch.setattr(BrokerSessions, "begin_all", lambda self, image, now_ms, suspect=-1: suspects.append(suspect))
    controller, own_id = node.controller, node.assembly.settings.node_id
    controller.no_longer_leading()
    for leader_id, epoch in [(7, 5), (-1, 6), (8, 6), (-1, 7), (own_id, 7)]:
        controller.leader_changed(leader_id, epoch)
    controller.leading(7)
    assert suspects == [8]
    controller.no_longer_leading()
    controller.leader_changed(-1, 8)
    controller.leader_changed(own_id, 8)
    controller.leading(8)
    assert suspects == [8, own_id], "the previous controller was this node itself"
