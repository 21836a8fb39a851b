"""One process of a broker in virtual time: a real node, from the log up to the router, on files in memory.

When the process dies, its timers are dropped; the next process starts with the files that are left.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

from moldau.assembly import Assembly, World
from moldau.base.errors import ErrorCode, StorageFault
from moldau.base.promise import Promise
from moldau.base.topic_names import CONSUMER_OFFSETS_TOPIC
from moldau.client.peers import Peer
from moldau.coordinator.group.groups import Groups
from moldau.coordinator.group.settings import GroupSettings
from moldau.log.flush import FlushWork
from moldau.replica.flushing import Flushable
from moldau.replica.partition import Partition
from moldau.runtime.coordinators.shard import Shard
from moldau.settings import Settings, from_properties
from moldau.testing.clock import FakeClock, FakeTimer, FakeTimers
from moldau.testing.files import MemoryFiles
from moldau.wire.apis import ApiKey
from moldau.wire.schema import Message

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
OFFSETS_PARTITIONS = 4
SEGMENT_BYTES = 1 << 20
"""The smallest allowed value."""
EXPIRY_CHECK_MS = 20_000


class ProcessTimers:
    """The simulation's timers as one process sees them: they are dropped when it dies."""

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
    """Flushes logs as the broker's own flusher does, after a random delay; during the start, at once."""

    def __init__(
        self, timers: ProcessTimers, delay_ms: Callable[[], int], on_fault: Callable[[StorageFault], None]
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


class NoPeers:
    """A single node has no peers."""

    def to(self, host: str, port: int, purpose: str) -> Peer:
        raise AssertionError(f"{host}:{port} was asked for {purpose}")


class Process:
    """Calls `on_fault` if a disk error stops the node; during the start, `start` raises instead."""

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
        self.timers = ProcessTimers(timers)
        self._simulation_timers = timers
        self._on_fault = on_fault
        self._fault: Exception | None = None
        self.flusher = SlowFlusher(self.timers, flush_delay_ms, self._failed)
        self.assembly = Assembly(_settings(settings), self._world(rng))
        broker, controller = self.assembly.broker_side, self.assembly.controller_side
        assert broker is not None
        assert controller is not None
        self.settings = settings
        self.store, self.current = self.assembly.store, self.assembly.current
        self.partitions, self.groups = broker.partitions, broker.groups
        self.router = broker.router
        self.handlers: dict[int, Any] = {handler.api: handler for handler in broker.handlers}

    def ask_controller(self, api: ApiKey, request: Message) -> Promise[Any]:
        """Send a request of this node to the controller."""
        assert self.assembly.controller_side is not None
        return self.assembly.controller_side.ask(api, request, version=0)

    def _world(self, rng: Random) -> World:
        return World(
            clock=self.clock,
            timers=self.timers,
            files=self.files,
            rng=rng,
            flusher=self.flusher,
            peers=NoPeers(),
            run_in_thread=_at_once,
            disk_space=lambda: (0, 0),
            on_fault=self._failed,
        )

    def _failed(self, fault: Exception) -> None:
        if not isinstance(fault, StorageFault):
            raise fault
        if self.flusher.is_starting:
            self._fault = fault
        else:
            self._on_fault(fault)

    def start(self) -> None:
        """Start as the node does: everything that was loaded is on disk before any client is served."""
        serving = self.assembly.start(self.assembly.settings.advertised_listeners)
        self._run_until(lambda: serving.done)
        made = self.groups.topic.create_if_missing()
        made.then(_expect_created)
        self._run_until(lambda: made.done)
        self.flusher.flush()
        self.flusher.is_starting = False

    def _run_until(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            self.flusher.flush()
            moved = self._simulation_timers.run_soon()
            if self._fault is not None:
                raise self._fault
            if not moved and not is_done():
                # The node would try again later: it has no disk space for the record of its registration.
                raise StorageFault("data", OSError(errno.ENOSPC, "the node waits for its disk"))

    def die(self) -> None:
        self.timers.is_alive = False

    # --- state for the checks -------------------------------------------------------------------------------------

    def shards(self) -> Iterator[tuple[int, Shard, Groups]]:
        for index, (shard, machine) in self.groups.shards._shards.items():
            yield index, shard, machine

    def machine_of(self, group_id: str) -> Groups | None:
        """Return the state machine of the shard that the group belongs to, if the shard is ready."""
        found = self.groups.shards._shards.get(self.groups.shards.partition_of(group_id))
        return found.machine if found is not None and found.shard.is_ready else None

    def offsets_partitions(self) -> list[Partition]:
        found = (self.partitions.find(CONSUMER_OFFSETS_TOPIC, index) for index in range(OFFSETS_PARTITIONS))
        return [each for each in found if each is not None]


def _expect_created(code: ErrorCode) -> None:
    assert code is ErrorCode.NONE, f"the offsets topic cannot be created: {code!r}"


def _at_once(work: Callable[[], None]) -> Promise[StorageFault | None]:
    done: Promise[StorageFault | None] = Promise()
    try:
        work()
    except StorageFault as fault:
        done.complete(fault)
    else:
        done.complete(None)
    return done


def _settings(groups: GroupSettings) -> Settings:
    properties = {
        "listeners": "PLAINTEXT://localhost:9092",
        "log.dirs": "data",
        "log.flush.interval.messages": "1",
        "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
        "offsets.topic.segment.bytes": str(SEGMENT_BYTES),
        "offsets.retention.check.interval.ms": str(EXPIRY_CHECK_MS),
    }
    return replace(from_properties(properties, CLUSTER_ID), groups=groups)
