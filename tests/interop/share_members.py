"""Members of share groups: librdkafka's share consumer, and the configs and offsets of groups. It contains no
expectations.

A member holds the records of a poll until it acknowledges them; those of the next poll come after it.
"""

from __future__ import annotations

import signal
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Self

import pytest
from confluent_kafka import AcknowledgeType, Message, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from harness.patience import PATIENCE_S, wait_until

from moldau.client.cluster import Cluster
from moldau.wire.apis import ApiKey

POLL_S = 0.2
WITHOUT_LOG = {"log_level": 0}
"""librdkafka says of each share consumer that it is a preview."""
FROM_THE_START = {"share.auto.offset.reset": "earliest"}


class Delivery(NamedTuple):
    value: str
    partition: int
    offset: int
    count: int


def require_share_groups(bootstrap: str) -> None:
    """Skip the test if the broker has no share groups."""
    cluster = Cluster(bootstrap, {})
    try:
        (node, *_) = cluster.nodes()
        if not cluster.channel(node).offers(ApiKey.SHARE_FETCH):
            pytest.skip("this broker has no share groups: it does not offer ShareFetch, API 78")
    finally:
        cluster.close()


def unused_group(admin: AdminClient, configs: Mapping[str, str] = FROM_THE_START) -> str:
    """Return the name of a group that does not exist yet and has these configs."""
    group_id = f"it-share-{uuid.uuid4().hex[:12]}"
    configure(admin, group_id, configs)
    return group_id


def configure(admin: AdminClient, group_id: str, configs: Mapping[str, str]) -> None:
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()]
    if entries:
        resource = ConfigResource(ResourceType.GROUP, group_id, incremental_configs=entries)
        admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


class ShareMember:
    """A share consumer that acknowledges what it is told to."""

    def __init__(self, bootstrap: str, group_id: str, topics: Iterable[str], **config: Any) -> None:
        self.group_id = group_id
        self.consumer = ShareConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group_id,
                "share.acknowledgement.mode": "explicit",
                **WITHOUT_LOG,
                **{name.replace("_", "."): value for name, value in config.items()},
            }
        )
        self.consumer.subscribe(list(topics))
        self.held: dict[Delivery, Message] = {}
        """What it has received and not acknowledged."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the group. Records that are held are released by the broker."""
        self.consumer.close()

    def poll(self, wait_s: float = POLL_S) -> list[Delivery]:
        """Return the next records, which may be none. All held ones must have been acknowledged."""
        received = []
        for message in self.consumer.poll(wait_s):
            error = message.error()
            if error is not None:
                raise AssertionError(f"{self.group_id}: {error}")
            value, count = message.value(), message.delivery_count()
            partition, offset = message.partition(), message.offset()
            assert None not in (value, count, partition, offset)
            delivery = Delivery(value.decode(), partition, offset, count)  # type: ignore[union-attr, arg-type]
            received.append(delivery)
            self.held[delivery] = message
        return received

    def receive(self, wanted: Callable[[list[Delivery]], bool] = bool) -> list[Delivery]:
        """Poll and accept until what was received is wanted; keep the records of the last poll."""
        received: list[Delivery] = []

        def enough() -> bool:
            self.accept()
            received.extend(self.poll())
            return wanted(received)

        wait_until(enough, f"group {self.group_id} gives its records", progress=lambda: len(received))
        return received

    def take(self, count: int) -> list[Delivery]:
        """Receive this many records or more, and accept all."""
        received = self.receive(lambda found: len(found) >= count)
        self.accept()
        return received

    def accept(self, deliveries: Iterable[Delivery] | None = None) -> None:
        self.acknowledge(AcknowledgeType.ACCEPT, deliveries)

    def release(self, deliveries: Iterable[Delivery] | None = None) -> None:
        self.acknowledge(AcknowledgeType.RELEASE, deliveries)

    def reject(self, deliveries: Iterable[Delivery] | None = None) -> None:
        self.acknowledge(AcknowledgeType.REJECT, deliveries)

    def acknowledge(self, how: AcknowledgeType, deliveries: Iterable[Delivery] | None = None) -> None:
        """Acknowledge these records, or all that are held, and wait until the broker has confirmed it."""
        for delivery in list(self.held) if deliveries is None else deliveries:
            self.consumer.acknowledge(self.held.pop(delivery), how)
        for partition, error in self.consumer.commit_sync(PATIENCE_S).items():
            if error is not None:
                raise AssertionError(f"{self.group_id}: {partition}: {error}")


def main() -> None:
    """Hold so many records until this process is killed."""
    bootstrap, group_id, topic, count = sys.argv[1:]
    with ShareMember(bootstrap, group_id, [topic]) as member:
        member.receive(lambda found: len(found) == int(count))
        print("holding", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
