"""The broker's rooms put together in memory, on virtual time: a node without a socket, a disk or a loop.

Nothing reaches the disk, and so nothing is committed, until a test says `flush`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TypeVar

from moldau.base.errors import ErrorCode
from moldau.base.ids import METADATA_TOPIC_UUID, TopicPartition
from moldau.base.later import Later
from moldau.base.names import METADATA_TOPIC
from moldau.base.topic_configs import topic_config_texts
from moldau.log.config import LogConfig
from moldau.log.store import LogStore
from moldau.metadata.controller.brokers import decide_register_broker
from moldau.metadata.controller.configs import broker_layers
from moldau.metadata.controller.features import SUPPORTED, decide_bootstrap
from moldau.metadata.controller.topics import new_uuid
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import Endpoint, MetadataImage
from moldau.raft.quorum import Quorum
from moldau.replica.flushing import Flushable
from moldau.replica.partition import Partition
from moldau.replica.partitions import Partitions
from moldau.replica.sessions import SessionCache
from moldau.replica.waiting import ParkedFetches
from moldau.runtime.admin import Admin
from moldau.runtime.controller_loop import Controller, MetadataLog
from moldau.runtime.quorum_state_file import QuorumStateFile
from moldau.server.handlers.fetch import Fetch
from moldau.server.handlers.produce import Produce
from moldau.testing.clock import FakeClock, FakeTimers
from moldau.testing.files import MemoryFiles
from moldau.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.wire.messages.delete_topics import DeleteTopicsRequest
from moldau.wire.messages.fetch import FetchResponse
from moldau.wire.records import IN_LINE, Record, build_batch

NODE_ID = 1
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
METADATA = TopicPartition(METADATA_TOPIC, 0)
FETCH_BYTES_MAX = 57_671_680
SESSION_EVICTION_MS = 120_000
R = TypeVar("R")


def batch(count: int = 1, size: int = 10, *, timestamp: int | None = None, **header: int) -> memoryview:
    """A batch of so many records, each with a value of that size. `header` may name a producer and its sequence."""
    stamp = FakeClock().now_ms() if timestamp is None else timestamp
    records = [Record(IN_LINE, stamp, None, b"v" * size) for _ in range(count)]
    return memoryview(build_batch(records, **header))  # type: ignore[arg-type]


class HeldFlusher:
    """Remembers who wants to be on disk, and brings them there when it is told."""

    def __init__(self) -> None:
        self.asked: dict[Flushable, None] = {}

    def request(self, log: Flushable) -> None:
        self.asked[log] = None

    def flush(self, only: Callable[[Flushable], bool] = lambda _: True) -> None:
        for each in [asked for asked in self.asked if only(asked)]:
            del self.asked[each]
            each.log.flush()
            each.flushed()


class Rooms:
    def __init__(
        self,
        files: MemoryFiles | None = None,
        *,
        seed: int = 1,
        session_slots: int = 1000,
        static: Mapping[str, str] | None = None,
    ) -> None:
        self.files = files or MemoryFiles()
        self.rng = Random(seed)
        self.clock = FakeClock()
        self.timers = FakeTimers(self.clock)
        self.flusher = HeldFlusher()
        self.current = CurrentImage()
        self.published: list[MetadataImage] = []
        self._static = static or {}
        self.store = LogStore(self.files, "data")
        self.store.load(lambda _: LogConfig(), self.clock.now_ms())
        self.controller = self._controller()
        self.reports: list[str] = []
        self.partitions = Partitions(NODE_ID, self.store, self.flusher, self._effective, self.rng, self.reports.append)
        self.current.follow(lambda image, changes: self.partitions.follow(image, changes, self.clock.now_ms()))
        self.current.follow(lambda image, _: self.published.append(image))
        self.admin = Admin(self.controller, NODE_ID, self._static, 1, 1, True, self.rng)
        self.sessions = SessionCache(session_slots, SESSION_EVICTION_MS, self.rng)
        self.parked: ParkedFetches[FetchResponse] = ParkedFetches(self.timers)
        self.fetch = Fetch(self.current, self.partitions, self.sessions, self.parked, self.clock, FETCH_BYTES_MAX)
        self.produce = Produce(self.current, self.partitions, self.clock, self.timers)

    def _controller(self) -> Controller:
        found = self.store.get(METADATA)
        log = found or self.store.create(METADATA, METADATA_TOPIC_UUID, LogConfig(), self.clock.now_ms())
        raft_log = MetadataLog(log)
        quorum = Quorum(NODE_ID, [NODE_ID], CLUSTER_ID, raft_log, QuorumStateFile(self.files, log.directory))
        return Controller(quorum, raft_log, self.flusher, self.current, self.clock)

    def _effective(self, image: MetadataImage, overrides: Mapping[str, str]) -> Mapping[str, str]:
        return topic_config_texts(overrides, broker_layers(image, NODE_ID, self._static))

    def start(self) -> Rooms:
        self.controller.start()
        self.controller.submit(decide_bootstrap)
        endpoints = [Endpoint("PLAINTEXT", "localhost", 9092, 0)]
        self.controller.submit(
            lambda image: decide_register_broker(
                image, NODE_ID, new_uuid(self.rng), endpoints, None, [bytes(range(16))], SUPPORTED
            )
        )
        self.flush()
        return self

    def flush(self) -> None:
        """Everything that waits for the disk gets there."""
        while self.flusher.asked:
            self.flusher.flush()

    def crash(self, rng: Random | None = None) -> Rooms:
        """The machine loses its power, and the node starts again on what is left."""
        return Rooms(self.files.crash(rng or Random(0)), seed=self.rng.randrange(1 << 30)).start()

    def restart(self) -> Rooms:
        """The process dies and starts again; what was written is still there."""
        return Rooms(self.files.restart(), seed=self.rng.randrange(1 << 30)).start()

    # --- what a client would do, and have done ------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        """Makes a topic; `flush_messages="1"` is the config `flush.messages`. Gives its id."""
        given = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
        ask = CreateTopicsRequest([CreatableTopic(name, partitions, 1, configs=given)])
        made = self.committed(self.admin.create_topics(ask)).topics[0]
        assert made.error_code == ErrorCode.NONE, made.error_message
        return bytes(made.topic_id)

    def delete_topic(self, name: str) -> None:
        deleted = self.committed(self.admin.delete_topics(DeleteTopicsRequest(topic_names=[name]))).responses[0]
        assert deleted.error_code == ErrorCode.NONE

    def grow_topic(self, name: str, count: int) -> None:
        ask = CreatePartitionsRequest([CreatePartitionsTopic(name, count, None)])
        grown = self.committed(self.admin.create_partitions(ask)).results[0]
        assert grown.error_code == ErrorCode.NONE, grown.error_message

    def committed(self, answer: Later[R]) -> R:
        self.flush()
        return answer.value()

    def partition(self, topic: str, index: int = 0) -> Partition:
        return self.partitions.get(topic, index)

    def append(self, topic: str, index: int = 0, count: int = 1, size: int = 10, acks: int = -1) -> int:
        """Appends a batch; gives its size in bytes."""
        data = batch(count, size, timestamp=self.clock.now_ms())
        self.partition(topic, index).append(data, acks, self.clock.now_ms())
        return len(data)
