"""Topics for the workloads, made and removed through librdkafka's admin client."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping

from confluent_kafka.admin import AdminClient, NewTopic

TIMEOUT_S = 120
LOOK_AGAIN_S = 0.05


def new_topic(address: str, partitions: int) -> str:
    """A topic with a name of its own and a leader for every partition."""
    name = f"bench-{uuid.uuid4().hex[:12]}"
    create_topics(address, {name: partitions})
    return name


def create_topics(address: str, topics: Mapping[str, int]) -> None:
    """Asks for all at once and returns when every partition has a leader."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    asked = admin.create_topics([NewTopic(name, count) for name, count in topics.items()], request_timeout=TIMEOUT_S)
    for created in asked.values():
        created.result(TIMEOUT_S)
    deadline = time.perf_counter() + TIMEOUT_S
    while not _has_leaders(admin, topics):
        if time.perf_counter() > deadline:
            raise TimeoutError(f"{address}: the new topics have no leaders")
        time.sleep(LOOK_AGAIN_S)


def delete_topics(address: str, topics: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    for deleted in admin.delete_topics(topics, request_timeout=TIMEOUT_S).values():
        deleted.result(TIMEOUT_S)


def _has_leaders(admin: AdminClient, topics: Mapping[str, int]) -> bool:
    known = admin.list_topics(timeout=TIMEOUT_S).topics
    return all(
        name in known
        and len(known[name].partitions) == count
        and all(partition.leader >= 0 for partition in known[name].partitions.values())
        for name, count in topics.items()
    )
