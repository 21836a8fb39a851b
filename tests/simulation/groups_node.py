"""One life of a broker's process in virtual time: the real rooms over files in memory, from the log up to the router.

When the process dies, nothing of it happens any more; the next life begins with the files that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from moldau.base.errors import ErrorCode, StorageFault
from moldau.base.ids import METADATA_TOPIC_UUID, TopicPartition
from moldau.base.names import CONSUMER_OFFSETS_TOPIC, METADATA_TOPIC
from moldau.base.topic_configs import topic_config_texts
from moldau.coordinator.group.groups import Groups
from moldau.coordinator.group.settings import GroupSettings
from moldau.log.config import LogConfig
from moldau.log.flush import FlushWork
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
from moldau.runtime.admin import Admin
from moldau.runtime.controller_loop import Controller, MetadataLog
from moldau.runtime.group_coordinator import GroupCoordinator, offsets_topic
from moldau.runtime.quorum_state_file import QuorumStateFile
from moldau.runtime.shard import Shard
from moldau.server.handlers.groups.consumer import ConsumerGroupDescribe, ConsumerGroupHeartbeat
from moldau.server.handlers.groups.find_coordinator import FindCoordinator
from moldau.server.handlers.groups.listing import DeleteGroups, DescribeGroups, ListGroups
from moldau.server.handlers.groups.membership import Heartbeat, JoinGroup, LeaveGroup, SyncGroup
from moldau.server.handlers.groups.offsets import OffsetCommit, OffsetDelete, OffsetFetch
from moldau.server.router import Router
from moldau.testing.clock import FakeClock, FakeTimer, FakeTimers
from moldau.testing.files import MemoryFiles
from moldau.wire.messages.create_topics import CreatableTopicConfig

NODE_ID = 1
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
METADATA = TopicPartition(METADATA_TOPIC, 0)
OFFSETS_PARTITIONS = 4
SEGMENT_BYTES = 1 << 20
"""The least that may be."""
CHECKPOINT_MS = 5_000
EXPIRE_MS = 20_000
GROUP_APIS = (
    FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup, OffsetCommit, OffsetFetch, OffsetDelete,
    ListGroups, DescribeGroups, DeleteGroups, ConsumerGroupHeartbeat, ConsumerGroupDescribe,
)  # fmt: skip


class LifeTimers:
    """The world's timers as one process sees them: with its death, what it asked for is void."""

    def __init__(self, timers: FakeTimers) -> None:
        self._timers = timers
        self.is_alive = True

    def soon(self, call: Callable[[], None]) -> None:
        self._timers.soon(lambda: self._act(call))

    def after_ms(self, delay_ms: int, call: Callable[[], None]) -> FakeTimer:
        return self._timers.after_ms(delay_ms, lambda: self._act(call))

    def _act(self, call: Callable[[], None]) -> None:
        if self.is_alive:
            call()


class SlowFlusher:
    """Brings logs to disk as the broker's own flusher does, in a time that chance gives; at start, at once."""

    def __init__(
        self, timers: LifeTimers, delay_ms: Callable[[], int], on_fault: Callable[[StorageFault], None]
    ) -> None:
        self._timers = timers
        self._delay_ms = delay_ms
        self._on_fault = on_fault
        self._asked: dict[Flushable, None] = {}
        self._is_running = False
        self.is_starting = True

    def request(self, log: Flushable) -> None:
        self._asked[log] = None
        if not self._is_running and not self.is_starting:
            self._begin()

    def flush(self) -> None:
        while self._asked:
            asked, self._asked = list(self._asked), {}
            for each in asked:
                each.log.flush()
                each.flushed()

    def _begin(self) -> None:
        asked, self._asked = list(self._asked), {}
        able = [each for each in asked if each.log.fault is None]
        works = [(each, work) for each in able if (work := each.log.begin_flush()) is not None]
        if works:
            self._is_running = True
            self._timers.after_ms(self._delay_ms(), lambda: self._end(works))

    def _end(self, works: list[tuple[Flushable, FlushWork]]) -> None:
        self._is_running = False
        for each, work in works:
            try:
                work.sync()
            except StorageFault as fault:
                if each.log.fault is None:
                    self._on_fault(fault)
                    return
                continue
            if each.log.fault is None:
                each.log.finish_flush(work)
                each.flushed()
        if self._asked:
            self._begin()


class Process:
    """`on_fault` is called if the disk fails in a way that stops the node."""

    def __init__(
        self,
        files: MemoryFiles,
        timers: FakeTimers,
        rng: Random,
        settings: GroupSettings,
        flush_delay_ms: Callable[[], int],
        on_fault: Callable[[StorageFault], None],
    ) -> None:
        self.files = files
        self.clock: FakeClock = timers.clock
        self.settings = settings
        self.life = LifeTimers(timers)
        self.rng = rng
        self._on_fault = on_fault
        self.flusher = SlowFlusher(self.life, flush_delay_ms, on_fault)
        self.current = CurrentImage()
        self.store = LogStore(files, "data")
        self.store.load(lambda _: LogConfig(), self.clock.now_ms())
        self.controller = self._controller()
        self.partitions = Partitions(NODE_ID, self.store, self.flusher, self._effective, rng, lambda text: None)
        self.current.follow(lambda image, changes: self.partitions.follow(image, changes, self.clock.now_ms()))
        self.admin = Admin(self.controller, NODE_ID, {}, 1, 1, True, rng)
        topic = offsets_topic(OFFSETS_PARTITIONS, 1, SEGMENT_BYTES)
        topic.configs = [*topic.configs, CreatableTopicConfig("flush.messages", "1")]
        self.groups = GroupCoordinator(
            settings, topic, NODE_ID, self.partitions, self.current, self.admin, self.clock, self.life, rng
        )
        self.current.follow(self.groups.follow)
        self.handlers: dict[int, Any] = {}
        for handler in GROUP_APIS:
            made = handler(self.current, self.groups) if handler is FindCoordinator else handler(self.groups)
            self.handlers[made.api] = made
        self.router = Router()
        self.router.serve(self.handlers.values())

    def _controller(self) -> Controller:
        found = self.store.get(METADATA)
        log = found or self.store.create(METADATA, METADATA_TOPIC_UUID, LogConfig(), self.clock.now_ms())
        raft_log = MetadataLog(log)
        quorum = Quorum(NODE_ID, [NODE_ID], CLUSTER_ID, raft_log, QuorumStateFile(self.files, log.directory))
        return Controller(quorum, raft_log, self.flusher, self.current, self.clock)

    def _effective(self, image: MetadataImage, overrides: Any) -> Any:
        return topic_config_texts(overrides, broker_layers(image, NODE_ID, {}))

    def start(self) -> None:
        """As the node does: everything that was found is on disk before anybody is served."""
        self.controller.start()
        self.controller.submit(decide_bootstrap)
        endpoints = [Endpoint("PLAINTEXT", "localhost", 9092, 0)]
        self.controller.submit(
            lambda image: decide_register_broker(
                image, NODE_ID, new_uuid(self.rng), endpoints, None, [bytes(range(16))], SUPPORTED
            )
        )
        self.flusher.flush()
        self.groups.open().then(_expect_made)
        self.flusher.flush()
        self.flusher.is_starting = False
        self.life.after_ms(1_000, self._retry)
        self.life.after_ms(CHECKPOINT_MS, self._checkpoint)
        self.life.after_ms(EXPIRE_MS, self._expire)

    def _retry(self) -> None:
        self.partitions.retry(self.current.image, self.clock.now_ms())
        self.life.after_ms(1_000, self._retry)

    def _checkpoint(self) -> None:
        self.life.after_ms(CHECKPOINT_MS, self._checkpoint)
        try:
            self.store.write_checkpoints({each.name: each.high_watermark for each in self.partitions})
            self.store.purge(self.clock.now_ms())
        except StorageFault as fault:
            self._on_fault(fault)

    def _expire(self) -> None:
        self.groups.expire_offsets()
        self.life.after_ms(EXPIRE_MS, self._expire)

    def die(self) -> None:
        self.life.is_alive = False

    # --- what is inside, for those who judge ----------------------------------------------------------------------

    def shards(self) -> Iterator[tuple[int, Shard, Groups]]:
        for index, (shard, machine) in self.groups._shards._shards.items():
            yield index, shard, machine

    def machine_of(self, group_id: str) -> Groups | None:
        """The machine that has the group, if it is ready."""
        found = self.groups._shards._shards.get(self.groups._shards.partition_of(group_id))
        return found[1] if found is not None and found[0].is_ready else None

    def offsets_partitions(self) -> list[Partition]:
        found = (self.partitions.find(CONSUMER_OFFSETS_TOPIC, index) for index in range(OFFSETS_PARTITIONS))
        return [each for each in found if each is not None]


def _expect_made(code: ErrorCode) -> None:
    assert code is ErrorCode.NONE, f"the offsets topic cannot be made: {code!r}"
