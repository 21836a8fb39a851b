"""What happened in the cluster: differences of two versions of the collector's state, kept by the console, bounded."""

from __future__ import annotations

from array import array

from moldau.client.admin.cluster_values import Quorum
from moldau.console.access import Access
from moldau.console.collector.events import EVENTS_KEPT, PARTITIONS_TOLD, ClusterEvents
from moldau.console.collector.state import ClusterState, TopicState
from moldau.console.endpoints.cluster import cluster_data


def topic(leaders: list[int], isr: tuple[int, ...], name: str = "orders", topic_id: bytes = bytes(16)) -> TopicState:
    return TopicState(name, False, topic_id, array("i", leaders), [(1, 2)] * len(leaders), [isr] * len(leaders))


def state_of(*topics: TopicState, alive: tuple[int, ...] = (1, 2), silent: tuple[int, ...] = ()) -> ClusterState:
    state = ClusterState(alive=frozenset(alive), silent=frozenset(silent), topics={each.name: each for each in topics})
    state.read = {"brokers", "topics"}
    return state


def texts(events: ClusterEvents, topic_name: str | None = None) -> list[str]:
    return [each.text for each in events.last(1000, topic_name)]


def test_brokers_leaders_and_replicas_in_sync_are_told_newest_first() -> None:
    events = ClusterEvents()
    for each in (
        ClusterState(),
        state_of(topic([1], (1, 2))),
        state_of(topic([1], (1, 2)), silent=(1,)),
        state_of(topic([2], (2,)), alive=(2,)),
        state_of(topic([2], (1, 2))),
        state_of(topic([-1], (1, 2))),
    ):
        events.note(each)
    assert texts(events) == [
        "orders-0: leader 2 → none",
        "orders-0: in sync 1, 2",
        "Broker 1 is up",
        "orders-0: leader 1 → 2",
        "Broker 1 is down",
        "Broker 1 does not answer",
    ]


def test_a_new_controller_is_told_also_after_a_time_without_a_quorum() -> None:
    events, state = ClusterEvents(), state_of()
    for leader in (1, None, 2, -1):
        state.quorum = None if leader is None else Quorum(leader, 3, 10, (), (), {})
        events.note(state)
    assert texts(events) == ["Controller: 2 → none", "Controller: 1 → 2"]


def test_a_topic_that_was_created_again_is_no_event() -> None:
    events = ClusterEvents()
    events.note(state_of(topic([1], (1,))))
    events.note(state_of(topic([2], (2,), topic_id=b"\1" * 16)))
    assert texts(events) == []


def test_a_topics_events_are_those_of_its_partitions_and_of_brokers() -> None:
    events = ClusterEvents()
    events.note(state_of(topic([1], (1,)), topic([1], (1,), "users"), topic([1], (1,), "__internal")))
    events.note(state_of(topic([2], (1,)), topic([2], (1,), "users"), topic([2], (1,), "__internal"), alive=(1, 2, 3)))
    assert texts(events) == ["users-0: leader 1 → 2", "orders-0: leader 1 → 2", "Broker 3 is up"]
    assert texts(events, "__internal") == ["__internal-0: leader 1 → 2", "Broker 3 is up"]


def test_events_are_bounded() -> None:
    events = ClusterEvents()
    for number in range(40):
        leader = 1 + number % 2
        events.note(state_of(topic([leader] * 1000, (1, 2))))
    assert len(texts(events)) == EVENTS_KEPT
    assert texts(events)[0] == f"{1000 - PARTITIONS_TOLD} more partitions changed"


def test_a_page_that_comes_later_sees_what_happened() -> None:
    access = Access("localhost:1", {}, None)
    for state in (state_of(topic([1], (1, 2))), state_of(topic([2], (1, 2)))):
        state.read_ms = 17
        access.collector.state = state
        for listener in access.collector.listeners:
            listener()
    data = cluster_data(access.collector, access.events, None)
    assert data["events"] == [{"time_ms": 17, "kind": "warn", "text": "orders-0: leader 1 → 2"}]
