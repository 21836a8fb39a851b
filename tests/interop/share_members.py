"""Members of share groups, with librdkafka's share consumer or with Java's, and the configs of groups. It contains no
expectations.

A member holds the records of a poll until it acknowledges them; those of the next poll come after it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest
from confluent_kafka import AcknowledgeType, Message, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from harness.patience import PATIENCE_S, wait_until

from moldau.client.cluster import Cluster
from moldau.wire.apis import ApiKey

KAFKA_LIBS = os.environ.get("MOLDAU_TEST_KAFKA_LIBS")
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


class Member:
    """A member that acknowledges what it is told to: with librdkafka (ShareMember) or Java (JavaMember)."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def held(self) -> list[Delivery]:
        """Return what it has received and not acknowledged."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave the group. Records that are held are released by the broker."""
        raise NotImplementedError

    def poll(self, wait_s: float = POLL_S) -> list[Delivery]:
        """Return the next records, which may be none. All held ones must have been acknowledged."""
        raise NotImplementedError

    def refused(self, how: str, deliveries: Iterable[Delivery]) -> list[str]:
        """Acknowledge these records, and return the errors with which the broker refuses it."""
        raise NotImplementedError

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
        self.acknowledge("ACCEPT", deliveries)

    def release(self, deliveries: Iterable[Delivery] | None = None) -> None:
        self.acknowledge("RELEASE", deliveries)

    def reject(self, deliveries: Iterable[Delivery] | None = None) -> None:
        self.acknowledge("REJECT", deliveries)

    def acknowledge(self, how: str, deliveries: Iterable[Delivery] | None = None) -> None:
        """Acknowledge these records, or all that are held, and wait until the broker has confirmed it."""
        errors = self.refused(how, list(self.held) if deliveries is None else deliveries)
        if errors:
            raise AssertionError(f"{self.group_id}: {errors}")


class ShareMember(Member):
    def __init__(self, bootstrap: str, group_id: str, topics: Iterable[str], **config: Any) -> None:
        super().__init__(group_id)
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
        self.messages: dict[Delivery, Message] = {}

    @property
    def held(self) -> list[Delivery]:
        return list(self.messages)

    def close(self) -> None:
        self.consumer.close()

    def poll(self, wait_s: float = POLL_S) -> list[Delivery]:
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
            self.messages[delivery] = message
        return received

    def refused(self, how: str, deliveries: Iterable[Delivery]) -> list[str]:
        for delivery in deliveries:
            self.consumer.acknowledge(self.messages.pop(delivery), AcknowledgeType[how])
        results = self.consumer.commit_sync(PATIENCE_S).values()
        return [error.args[0].name() for error in results if error is not None]


class JavaMember(Member):
    """Apache Kafka's own client, in a process (ShareWorker.java). It can renew its locks too."""

    def __init__(self, bootstrap: str, group_id: str, topic: str) -> None:
        super().__init__(group_id)
        self._held: list[Delivery] = []
        words = [str(Path(__file__).with_name("ShareWorker.java")), bootstrap, group_id, topic]
        options = ["-Xmx192M", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        command = ["java", *options, "-cp", f"{KAFKA_LIBS}/*", *words]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    @property
    def held(self) -> list[Delivery]:
        return list(self._held)

    def close(self) -> None:
        try:
            self.process.communicate(timeout=PATIENCE_S)
        finally:
            self.process.kill()
            self.process.wait()

    def poll(self, wait_s: float = POLL_S) -> list[Delivery]:
        received = []
        for line in self._do("poll"):
            offset, partition, count, value = line.removeprefix("record ").split(" ", 3)
            received.append(Delivery(value, int(partition), int(offset), int(count)))
        self._held += received
        return received

    def refused(self, how: str, deliveries: Iterable[Delivery]) -> list[str]:
        deliveries = list(deliveries)
        self._held = [each for each in self._held if each not in deliveries]
        return self._do(how, *(f"{each.partition}:{each.offset}" for each in deliveries)) if deliveries else []

    def _do(self, *command: str) -> list[str]:
        """Return the lines it prints."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(*command, file=self.process.stdin, flush=True)
        lines = []
        while (line := self.process.stdout.readline()) != "done\n":
            if not line:
                raise AssertionError(f"{self.group_id}: the member has ended by itself")
            lines.append(line.rstrip())
        return lines


def main() -> None:
    """Hold so many records until this process is killed."""
    bootstrap, group_id, topic, count = sys.argv[1:]
    with ShareMember(bootstrap, group_id, [topic]) as member:
        member.receive(lambda found: len(found) == int(count))
        print("holding", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
