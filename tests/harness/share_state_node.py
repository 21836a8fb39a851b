"""An in-memory node with a topic that share groups read, and its share coordinator."""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar

from harness.in_memory_node import InMemoryNode
from moldau.base.promise import Promise
from moldau.base.topic_names import SHARE_GROUP_STATE_TOPIC
from moldau.replica.partition import Partition
from moldau.server.handler import Caller, Handler
from moldau.share.ports import ShareKey
from moldau.wire.apis import ApiKey
from moldau.wire.messages.write_share_group_state import PartitionData, StateBatch
from moldau.wire.schema import Message

R = TypeVar("R")
SETTINGS = {"share.coordinator.state.topic.num.partitions": "2", "log.flush.interval.messages": "1"}


def write_data(*batches: tuple[int, int, int, int], **fields: int) -> PartitionData:
    """Return what a write changes: by default, of partition 0, whatever the epochs are."""
    values = {"partition": 0, "state_epoch": -1, "leader_epoch": -1, "start_offset": -1, **fields}
    return PartitionData(**values, state_batches=[StateBatch(*each) for each in batches])


class ShareStateNode:
    def __init__(self, in_memory: InMemoryNode | None = None, **static: str) -> None:
        self._static = {**SETTINGS, **{name.replace("_", "."): value for name, value in static.items()}}
        self.in_memory = in_memory or InMemoryNode(static=self._static).start()
        broker = self.in_memory.assembly.broker_side
        assert broker is not None
        self.states, self.coordinator = broker.share_states, broker.share_coordinator
        self._handlers: dict[ApiKey, Handler] = {handler.api: handler for handler in broker.handlers}
        self.topic_id = b""
        if "orders" not in self.in_memory.current.image.topics:
            self.in_memory.create_topic("orders", 3)
        self.topic_id = self.in_memory.current.image.topics["orders"].id

    def key(self, partition: int = 0, group_id: str = "g") -> ShareKey:
        return ShareKey(group_id, self.topic_id, partition)

    def result(self, promise: Promise[R]) -> R:
        """Let pass the time that a call needs, and return its result."""
        for _ in range(20):
            self.run_until_idle()
            if promise.done:
                return promise.value()
            self.in_memory.timers.advance(1_000)
        raise AssertionError("the call was not completed in 20 seconds")

    def run_until_idle(self) -> None:
        """Run everything that can happen before the clock moves on."""
        self.in_memory.flush()
        while self.in_memory.timers.run_soon():
            self.in_memory.flush()

    def ask(self, api: ApiKey, request: Message, version: int | None = None, **access: Any) -> Any:
        handler = self._handlers[api]
        caller = Caller("PLAINTEXT", "test:1", "test", handler.versions[1] if version is None else version, **access)
        answer = handler.answer(request, caller)
        return self.result(answer) if isinstance(answer, Promise) else answer

    def log_of(self, key: ShareKey) -> Partition:
        """Return the partition of the coordinator's topic that has the records of `key`."""
        index = self.coordinator.shards.partition_of(key.coordinator_key)
        return self.in_memory.partition(SHARE_GROUP_STATE_TOPIC, index)

    def crash(self) -> ShareStateNode:
        return ShareStateNode(InMemoryNode(self.in_memory.files.crash(Random(0)), static=self._static).start())
