"""Views on several nodes: they follow the leader of their source, also when it dies."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import PATIENCE_S, Patience

from moldau.testing import cluster

pytest.importorskip("duckdb")
pytestmark = pytest.mark.moldau_only


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests do not use the shared broker of this directory."""


def test_a_consumer_of_a_view_continues_when_the_leader_of_the_source_dies() -> None:
    with cluster(offsets_topic_num_partitions=1, group_initial_rebalance_delay_ms=0) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": "0"})
        admin.create_topics([NewTopic("orders", 1, 3)], operation_timeout=PATIENCE_S)["orders"].result(PATIENCE_S)
        new = NewTopic("big", -1, -1, config={"moldau.view.from": "orders", "moldau.view.where": "a >= 2"})
        admin.create_topics([new], operation_timeout=PATIENCE_S)["big"].result(PATIENCE_S)
        kafka.wait_for_topic("big")
        assert kafka.leader_of("big", 0) == kafka.leader_of("orders", 0)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "acks": "all", "log_level": "0"})
        consumer = Consumer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "log_level": "0",
            }
        )
        consumer.subscribe(["big"])
        expected, found = [], []
        for killed in (False, True):
            if killed:
                leader = kafka.leader_of("orders", 0)
                assert leader is not None
                kafka.kill(leader)
                kafka.wait_for(
                    lambda: kafka.leader_of("big", 0) not in (None, -1, leader),  # noqa: B023
                    what="a new leader",
                )
            for number in range(40):
                producer.produce("orders", json.dumps({"a": number % 4, "killed": killed}).encode())
            assert producer.flush(PATIENCE_S) == 0
            expected += [(killed, number % 4) for number in range(40) if number % 4 >= 2]
            patience = Patience("the records of the view")
            while len(found) < len(expected):
                message = consumer.poll(0.2)
                patience.check(len(found))
                if message is not None and not message.error():
                    value = json.loads(message.value())
                    found.append((value["killed"], value["a"]))
        consumer.close()
        assert found == expected
