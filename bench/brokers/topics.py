"""Topics for the workloads, made and removed through librdkafka's admin client."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

TIMEOUT_S = 120
LOOK_AGAIN_S = 0.05


def new_topic(address: str, partitions: int, cleanup: ExitStack) -> str:
    """Create a topic with a unique name and a leader for every partition; `cleanup` will delete it."""
    name = f"bench-{uuid.uuid4().hex[:12]}"
    create_topics(address, {name: partitions})
    cleanup.callback(delete_topic, address, name)
    return name


def create_topics(address: str, topics: Mapping[str, int]) -> float:
    """Request all at once and return when every partition has a leader; return the seconds until the broker agreed."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.list_topics(timeout=TIMEOUT_S)  # connected before the clock starts
    began = time.perf_counter()
    futures = admin.create_topics([NewTopic(name, count) for name, count in topics.items()], request_timeout=TIMEOUT_S)
    for created in futures.values():
        created.result(TIMEOUT_S)
    elapsed = time.perf_counter() - began
    deadline = time.perf_counter() + TIMEOUT_S
    while not _has_leaders(admin, topics):
        if time.perf_counter() > deadline:
            raise TimeoutError(f"{address}: the new topics have no leaders")
        time.sleep(LOOK_AGAIN_S)
    return elapsed


def delete_topic(address: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.delete_topics([name], request_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)


def _has_leaders(admin: AdminClient, topics: Mapping[str, int]) -> bool:
    known = admin.list_topics(timeout=TIMEOUT_S).topics
    return all(
        name in known
        and len(known[name].partitions) == count
        and all(partition.leader >= 0 for partition in known[name].partitions.values())
        for name, count in topics.items()
    )
