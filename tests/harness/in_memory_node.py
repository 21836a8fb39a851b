"""A whole node, broker and controller, in memory and in virtual time: it has no sockets, no disk and no event loop.

Nothing reaches the disk, and so nothing is committed, until a test calls `flush`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, TypeVar

import pytest

from moldau.assembly import Assembly, World
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.log.log import Log
from moldau.metadata.image import MetadataImage
from moldau.replica.flushing import Flushable
from moldau.replica.partition import Partition
from moldau.runtime.broker.producer_ids import controller_allocator
from moldau.settings import Settings, from_properties
from moldau.testing.clock import FakeClock, FakeTimers
from moldau.testing.files import MemoryFiles
from moldau.testing.ports import NoPeers, at_once
from moldau.wire.apis import ApiKey
from moldau.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.wire.messages.delete_topics import DeleteTopicsRequest
from moldau.wire.records import NEXT_OFFSET, Record, build_batch
from moldau.wire.schema import Message

NODE_ID = 1
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
R = TypeVar("R")


def batch(count: int = 1, size: int = 10, *, timestamp: int | None = None, **header: int) -> memoryview:
    """Return a batch of `count` records with values of `size` bytes. `header` may name a producer and its sequence."""
    stamp = FakeClock().now_ms() if timestamp is None else timestamp
    records = [Record(NEXT_OFFSET, stamp, None, b"v" * size) for _ in range(count)]
    return memoryview(build_batch(records, **header))  # type: ignore[arg-type]


def error_of(action: Callable[..., object], *arguments: object) -> ErrorCode:
    """Call the function and return the code of the KafkaError that it raises."""
    with pytest.raises(KafkaError) as raised:
        action(*arguments)
    return raised.value.code


class HeldFlusher:
    """Collects the logs that ask for a flush, and flushes them when a test calls `flush`."""

    def __init__(self) -> None:
        self.requested: dict[Flushable, None] = {}

    def request(self, log: Flushable) -> None:
        self.requested[log] = None

    def flush(self, only: Callable[[Flushable], bool] = lambda _: True) -> None:
        for each in [log for log in self.requested if only(log)]:
            del self.requested[each]
            each.log.flush()
            each.flushed()


class InMemoryNode:
    def __init__(
        self,
        files: MemoryFiles | None = None,
        *,
        seed: int = 1,
        session_slots: int = 1000,
        static: Mapping[str, str] | None = None,
        boot_id: str = "",
    ) -> None:
        self.files = files or MemoryFiles()
        self._boot_id = boot_id
        self.rng = Random(seed)
        self.clock = FakeClock()
        self.timers = FakeTimers(self.clock)
        self.flusher = HeldFlusher()
        self.faults: list[Exception] = []
        self.published: list[MetadataImage] = []
        self.assembly = Assembly(self._settings(session_slots, static or {}), self._world())
        self.current = self.assembly.current
        self.current.add_listener(lambda image, _: self.published.append(image))
        self.store = self.assembly.store
        controller, broker = self.assembly.controller_side, self.assembly.broker_side
        assert controller is not None
        assert broker is not None
        self.controller = controller.controller
        self.partitions, self.parked, self.sessions = broker.partitions, broker.parked, broker.sessions
        self.allocate_producer_ids = controller_allocator(
            self.assembly.channel, NODE_ID, lambda: broker.lifecycle.epoch
        )
        served = {handler.api: handler for handler in broker.handlers}
        self.fetch, self.produce = served[ApiKey.FETCH], served[ApiKey.PRODUCE]

    def _settings(self, session_slots: int, static: Mapping[str, str]) -> Settings:
        properties = {
            "listeners": "PLAINTEXT://localhost:9092",
            "log.dirs": "data",
            "max.incremental.fetch.session.cache.slots": str(session_slots),
            **static,
        }
        return from_properties(properties, CLUSTER_ID)

    def _world(self) -> World:
        return World(
            clock=self.clock,
            timers=self.timers,
            files=self.files,
            rng=self.rng,
            flusher=self.flusher,
            peers=NoPeers(),
            run_in_thread=at_once,
            disk_space=lambda: (0, 0),
            on_fault=self.faults.append,
            boot_id=self._boot_id,
        )

    @property
    def metadata_log(self) -> Log:
        return self.assembly.driver.log

    def start(self) -> InMemoryNode:
        serving = self.assembly.start(self.assembly.settings.advertised_listeners)
        while not serving.done:
            self.flush()
            assert self.timers.run_soon(), "the node does not start"
        self._idle_timers = self.timers.pending
        return self

    @property
    def waiting(self) -> int:
        """Number of pending timers besides those of an idle node."""
        return self.timers.pending - self._idle_timers

    def flush(self) -> None:
        """Flush everything that waits for the disk."""
        while self.flusher.requested:
            self.flusher.flush()

    def crash(self, rng: Random | None = None) -> InMemoryNode:
        """Return a node started on the files that a power failure left."""
        return InMemoryNode(self.files.crash(rng or Random(0)), seed=self.rng.randrange(1 << 30)).start()

    def restart(self) -> InMemoryNode:
        """Return a node started after a process crash; everything that was written is still there."""
        return InMemoryNode(self.files.restart(), seed=self.rng.randrange(1 << 30)).start()

    def ask_controller(self, api: ApiKey, request: Message) -> Promise[Any]:
        """Send a request of this node to the controller."""
        assert self.assembly.controller_side is not None
        return self.assembly.controller_side.ask(api, request, version=0)

    # --- what clients do ----------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        """Create a topic and return its id; `flush_messages="1"` is the config `flush.messages`."""
        topic_configs = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
        request = CreateTopicsRequest([CreatableTopic(name, partitions, 1, configs=topic_configs)])
        created = self.committed(self.ask_controller(ApiKey.CREATE_TOPICS, request)).topics[0]
        assert created.error_code == ErrorCode.NONE, created.error_message
        self._wait_until_laid_out(name, partitions)
        return bytes(created.topic_id)

    def delete_topic(self, name: str) -> None:
        response = self.committed(
            self.ask_controller(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topic_names=[name]))
        ).responses[0]
        assert response.error_code == ErrorCode.NONE

    def grow_topic(self, name: str, count: int) -> None:
        request = CreatePartitionsRequest([CreatePartitionsTopic(name, count, None)])
        response = self.committed(self.ask_controller(ApiKey.CREATE_PARTITIONS, request)).results[0]
        assert response.error_code == ErrorCode.NONE, response.error_message
        self._wait_until_laid_out(name, count)

    def _wait_until_laid_out(self, topic: str, partitions: int) -> None:
        while self.partitions.find(topic, partitions - 1) is None and self.timers.run_one_soon():
            pass

    def committed(self, answer: Promise[R]) -> R:
        self.flush()
        while not answer.done and self.timers.run_one_soon():  # a long decision takes several turns
            self.flush()
        return answer.value()

    def settle(self) -> None:
        """Run everything that needs no more time."""
        self.flush()
        while self.timers.run_soon():
            self.flush()

    def partition(self, topic: str, index: int = 0) -> Partition:
        return self.partitions.get(topic, index)

    def append(self, topic: str, index: int = 0, count: int = 1, size: int = 10, acks: int = -1) -> int:
        """Append a batch and return its size in bytes."""
        data = batch(count, size, timestamp=self.clock.now_ms())
        self.partition(topic, index).append(data, acks, self.clock.now_ms())
        return len(data)
