"""Short functions for the requests that the protocol tests send most, and for their responses.

Each returns kio's response object for the one partition or topic. It contains no expectations.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from harness.patience import PATIENCE_S
from wire_client import Wire, message

PRODUCE_VERSION = 9
FETCH_VERSION = 12
NEVER_MS = int(2000 * PATIENCE_S)
"""A max_wait twice as long as a connection waits for a response: a response that comes has another cause."""


def produce_request(topic: Any, records: bytes | None, version: int = PRODUCE_VERSION, **fields: Any) -> Any:
    partition = fields.pop("partition", 0)
    name = "topic_id" if version >= 13 else "name"
    data = [{name: topic, "partition_data": [{"index": partition, "records": records}]}]
    return message("produce", version, **({"acks": -1, "timeout": 10_000, "topic_data": data} | fields))


def produce(wire: Wire, topic: Any, records: bytes | None, version: int = PRODUCE_VERSION, **fields: Any) -> Any:
    """Return the response for the one partition."""
    return wire.ask(produce_request(topic, records, version, **fields)).responses[0].partition_responses[0]


def fetch_request(topic: Any, offset: int, version: int = FETCH_VERSION, **fields: Any) -> Any:
    keys = ("partition", "current_leader_epoch", "partition_max_bytes", "last_fetched_epoch")
    partition = {key: fields.pop(key) for key in keys if key in fields}
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20} | partition
    name = "topic_id" if version >= 13 else "topic"
    topics = [{name: topic, "partitions": [partition]}]
    return message("fetch", version, **({"max_wait": 0, "min_bytes": 0, "topics": topics} | fields))


def fetch(wire: Wire, topic: Any, offset: int, version: int = FETCH_VERSION, **fields: Any) -> Any:
    """Return the response for the one partition."""
    return wire.ask(fetch_request(topic, offset, version, **fields)).responses[0].partitions[0]


def list_offset(wire: Wire, topic: str, timestamp: int, version: int = 7, **fields: Any) -> Any:
    partition = {"partition_index": 0, "timestamp": timestamp}
    for key in ("partition_index", "current_leader_epoch"):
        if key in fields:
            partition[key] = fields.pop(key)
    answer = wire.ask(
        message(
            "list_offsets",
            version,
            **(
                {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": [partition]}]}
                | fields
            ),
        )
    )
    return answer.topics[0].partitions[0]


def end_offset(wire: Wire, topic: str, partition: int = 0) -> int:
    return int(list_offset(wire, topic, -1, partition_index=partition).offset)


def metadata(wire: Wire, topics: list[dict[str, Any]] | None, auto_create: bool = False, version: int = 12) -> Any:
    fields: dict[str, Any] = {"topics": topics, "allow_auto_topic_creation": auto_create}
    if version >= 8:
        fields["include_topic_authorized_operations"] = False
    if 8 <= version <= 10:
        fields["include_cluster_authorized_operations"] = False
    return wire.ask(message("metadata", version, **fields))


def by_name(name: str) -> dict[str, Any]:
    return {"topic_id": None, "name": name}


def topic_id(wire: Wire, name: str) -> UUID:
    (shown,) = metadata(wire, [by_name(name)]).topics
    assert isinstance(shown.topic_id, UUID)
    return shown.topic_id


def new_producer(wire: Wire) -> tuple[int, int]:
    """Return a new producer id and its epoch."""
    answer = wire.ask(message("init_producer_id", 4, transactional_id=None, transaction_timeout=60_000))
    assert answer.error_code == 0
    return int(answer.producer_id), int(answer.producer_epoch)
