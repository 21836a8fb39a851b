"""Finds leaders, coordinators and controllers of a cluster of three, and creates replicated topics, for tests that kill
them.

It contains no assertions about behaviour.
"""

from __future__ import annotations

import uuid

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import PATIENCE_S, wait_until
from wire_client import Wire, message

from moldau.testing import TestCluster

GROUP_KEY, TRANSACTION_KEY = 0, 1


def create_replicated(three: TestCluster, admin: AdminClient, name: str, partitions: int) -> None:
    """Create a topic; on return all replicas are in sync and every node knows the topic."""
    try:
        admin.create_topics([NewTopic(name, partitions, 3)], operation_timeout=PATIENCE_S)[name].result(PATIENCE_S)
    except KafkaException as refused:
        # The response was lost with the previous controller, so the broker or the client repeated the request.
        if refused.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    three.wait_for_topic(name)
    await_in_sync(admin, name, partitions)


def await_in_sync(admin: AdminClient, topic: str, partitions: int) -> None:
    def is_so() -> bool:
        try:
            found = admin.list_topics(topic, timeout=5).topics[topic].partitions.values()
        except KafkaException:
            return False
        return len(found) == partitions and all(len(each.isrs) == 3 and each.leader > 0 for each in found)

    wait_until(is_so, f"all replicas of {topic} are in sync")


def leader_of(bootstrap: str, topic: str) -> int:
    """Return the leader of the first partition."""
    with Wire(bootstrap) as wire:
        requested = [{"topic_id": uuid.UUID(int=0), "name": topic}]
        answer = wire.ask(message("metadata", 12, topics=requested, allow_auto_topic_creation=False,
                                  include_topic_authorized_operations=False))  # fmt: skip
        return int(answer.topics[0].partitions[0].leader_id)


def coordinator_of(bootstrap: str, key: str, kind: int = GROUP_KEY) -> int:
    """Return the coordinator, or -1 while there is none."""
    with Wire(bootstrap) as wire:
        answer = wire.ask(message("find_coordinator", 4, key_type=kind, coordinator_keys=(key,)))
        return int(answer.coordinators[0].node_id)


def controller_of(bootstrap: str) -> int:
    with Wire(bootstrap) as wire:
        requested = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        answer = wire.ask(message("describe_quorum", 0, topics=requested))
        return int(answer.topics[0].partitions[0].leader_id)
