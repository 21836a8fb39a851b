"""What still has turns to come when a node stops: its logs are closed in another thread meanwhile."""

from __future__ import annotations

import pytest
from harness.in_memory_node import InMemoryNode, batch

from moldau.base.topic_names import CONSUMER_OFFSETS_TOPIC
from moldau.metadata.apply import Changes
from moldau.security.acls.access import UNRESTRICTED
from moldau.server.handler import Caller
from moldau.server.handlers import produce
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def test_a_long_request_whose_client_has_gone_appends_nothing_to_the_logs_of_a_node_that_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(produce, "CHANGES_A_TURN", 1)
    node = InMemoryNode().start()
    node.create_topic("a", 3)
    data = [PartitionProduceData(index, batch()) for index in range(3)]
    request = ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[TopicProduceData(name="a", partition_data=data)])
    node.produce.answer(request, Caller("PLAINTEXT", "c", None, 9, UNRESTRICTED))
    node.assembly.release()
    node.assembly.stop()
    node.timers.run_soon()
    assert [node.partition("a", index).log.end_offset for index in range(3)] == [1, 0, 0]


def test_coordinators_that_an_image_opens_while_a_node_stops_are_closed() -> None:
    """An image may come while the listeners wait for their clients."""
    node = InMemoryNode().start()
    node.create_topic(CONSUMER_OFFSETS_TOPIC, 3)
    node.settle()
    broker = node.assembly.broker_side
    assert broker is not None
    node.assembly.release()
    broker.groups.on_image(node.current.image, Changes({CONSUMER_OFFSETS_TOPIC: {0, 1, 2}}))
    assert len(list(broker.groups.shards.machines())) == 3
    node.assembly.stop()
    assert list(broker.groups.shards.machines()) == []
