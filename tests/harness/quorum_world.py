"""A quorum in virtual time: real drivers and machines over logs in memory, with a faulty network and faulty disks.

The invariants are checked at every step: an epoch has one leader; committed records are the same on all nodes, in the
same order, for ever; a high watermark never decreases. `Broken` says which one was violated.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from harness.memory_raft_log import MemoryRaftLog, MemoryStateStore
from harness.raised_faults import raise_fault
from moldau.base.errors import ErrorCode, KafkaError, StorageFault
from moldau.base.promise import Promise
from moldau.raft.machine import Quorum
from moldau.raft.member import Member, RaftSettings
from moldau.raft.snapshots import BOOTSTRAP, SnapshotId, bootstrap_snapshot
from moldau.raft.voters import SUPPORTED_KRAFT_VERSIONS, Endpoint, ReplicaKey, Voter, VoterSet, static_voters
from moldau.runtime.quorum.driver import QuorumDriver
from moldau.runtime.running_clock import RunningClock
from moldau.testing.clock import FakeTimer, FakeTimers
from moldau.wire.apis import ApiKey
from moldau.wire.messages.api_versions import ApiVersionsResponse, SupportedFeatureKey
from moldau.wire.records import decode_records

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
LISTENER = "CONTROLLER"
SETTINGS = RaftSettings(
    election_timeout_ms=500,
    election_backoff_max_ms=200,
    fetch_timeout_ms=1_000,
    request_timeout_ms=1_000,
    fetch_bytes_max=700,
    snapshot_piece_bytes_max=300,
)


class Broken(AssertionError):
    """An invariant of the quorum was violated."""


def host_of(node_id: int) -> str:
    return f"node{node_id}"


def directory_of(node_id: int) -> bytes:
    return max(node_id, 0).to_bytes(16, "big")


class Truth:
    """All committed records and all leaders, over all nodes."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        self.values: list[tuple[int, bytes]] = []
        """(offset, value) of every data record that any node committed."""
        self.end_offset = 0

    def leads(self, node_id: int, epoch: int) -> None:
        other = self.leaders.setdefault(epoch, node_id)
        if other != node_id:
            raise Broken(f"nodes {other} and {node_id} both lead epoch {epoch}")

    def applies(self, node: Node, applied: list[tuple[int, bytes]], up_to: int) -> None:
        common = min(len(applied), len(self.values))
        if applied[:common] != self.values[:common]:
            raise Broken(f"node {node.id} committed other records than the other nodes, below {up_to}")
        missing = [offset for offset, _ in self.values[common:] if offset < up_to]
        if missing:
            raise Broken(f"node {node.id} lacks the committed record at {missing[0]}")
        if up_to > self.end_offset:
            if applied[common:] and applied[common][0] < self.end_offset:
                raise Broken(f"node {node.id} has a record at {applied[common][0]} that others did not commit there")
            self.values = list(applied)
            self.end_offset = up_to


class Node:
    """One node over all its restarts; its log and its quorum state survive them."""

    def __init__(self, world: QuorumWorld, node_id: int) -> None:
        self.world = world
        self.id = node_id
        self.log = MemoryRaftLog()
        self.store = MemoryStateStore()
        self.driver: QuorumDriver | None = None
        self.run_number = 0
        self.paused_until_ms = 0
        self.applied: list[tuple[int, bytes]] = []
        self.applied_offset = 0
        self.high_watermark = 0
        self.leads: int | None = None
        self.known_leader: tuple[int, int] = (-1, 0)

    @property
    def is_up(self) -> bool:
        return self.driver is not None

    def start(self) -> None:
        world = self.world
        self.run_number += 1
        self.applied, self.applied_offset, self.high_watermark, self.leads = [], 0, 0, None
        endpoint = Endpoint(LISTENER, host_of(self.id), 9093)
        me = Member(self.id, directory_of(self.id), CLUSTER_ID, LISTENER, (endpoint,))
        bootstrap = [Endpoint(LISTENER, host_of(each), 9093) for each in world.voter_ids]
        node_timers = _NodeTimers(self)
        clock = RunningClock(world.timers.clock, node_timers)
        quorum = Quorum(
            me,
            world.static,
            bootstrap,
            self.log,
            self.store,
            Random(world.rng.random()),
            clock,
            world.settings,
        )
        disk = _Disk(self, node_timers)
        self.driver = QuorumDriver(
            quorum, _Peers(self, node_timers), clock, node_timers, disk, disk.run_in_thread, raise_fault
        )
        self.driver.add_listener(self)
        self.driver.start()

    def crash(self) -> None:
        self.driver = None
        self.leads = None
        self.log.crash(self.world.rng)
        if self.log.snapshots:
            # As the real log does when it is opened: a snapshot may be ahead of what is left of the log.
            self.log.truncate_to_snapshot()

    # --- the listener -----------------------------------------------------------------------------------------

    def leading(self, epoch: int) -> None:
        self.world.truth.leads(self.id, epoch)
        self.leads = epoch

    def no_longer_leading(self) -> None:
        self.leads = None

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        self.known_leader = leader_id, epoch

    def committed(self, high_watermark: int) -> None:
        if high_watermark <= self.high_watermark:
            raise Broken(f"the high watermark of node {self.id} went from {self.high_watermark} to {high_watermark}")
        self.high_watermark = high_watermark
        if self.log.start_offset > self.applied_offset:
            snapshot = self.log.latest_snapshot()
            assert snapshot is not None
            self.applied = [_decode(value) for value in self.log.read_snapshot(snapshot)]
            self.applied_offset = snapshot.end_offset
        for header, batch in self.log.batches(self.applied_offset, high_watermark):
            if not header.is_control:
                self.applied += [(record.offset, record.value or b"") for record in decode_records(batch, header)]
        self.applied_offset = max(self.applied_offset, high_watermark)
        self.world.truth.applies(self, self.applied, self.applied_offset)

    def snapshot(self) -> None:
        """Write everything that was applied as a snapshot, if its end is the end of a batch."""
        if self.driver is None or not self.applied_offset:
            return
        epoch = next((h.leader_epoch for h in self.log.headers if h.next_offset == self.applied_offset), None)
        if epoch is not None:
            values = [offset.to_bytes(8, "big") + value for offset, value in self.applied]
            snapshot = SnapshotId(self.applied_offset, epoch)
            kraft_version, voters = self.driver.quorum.voters_at(snapshot)
            self.log.write_snapshot(snapshot, values, 0, kraft_version=kraft_version, voters=voters)


def _decode(value: bytes) -> tuple[int, bytes]:
    return int.from_bytes(value[:8], "big"), value[8:]


class _NodeTimers:
    """The timers of one run of a node; while the node is paused, they wait."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._number = node.run_number

    @property
    def is_over(self) -> bool:
        return self._node.run_number != self._number or not self._node.is_up

    def soon(self, call: Callable[[], None]) -> None:
        self.after_ms(0, call)

    def after_ms(self, delay_ms: int, call: Callable[[], None]) -> FakeTimer:
        return self._node.world.timers.after_ms(delay_ms, lambda: self.act(call))

    def act(self, call: Callable[[], None]) -> None:
        if self.is_over:
            return
        timers = self._node.world.timers
        wait_ms = self._node.paused_until_ms - timers.clock.monotonic_ms()
        if wait_ms > 0:
            timers.after_ms(wait_ms, lambda: self.act(call))
        else:
            call()


class _Disk:
    """A flusher and threads with a slow disk."""

    def __init__(self, node: Node, node_timers: _NodeTimers) -> None:
        self._node = node
        self._timers = node_timers
        self._is_requested = False

    def run_in_thread(self, work: Callable[[], None]) -> Promise[StorageFault | None]:
        done: Promise[StorageFault | None] = Promise()

        def run() -> None:
            work()
            done.complete(None)

        self._timers.after_ms(self._node.world.flush_delay_ms(), run)
        return done

    def request(self, log: Any) -> None:
        if not self._is_requested:
            self._is_requested = True
            self._timers.after_ms(self._node.world.rng.randint(0, 3), lambda: self._begin(log))

    def _begin(self, log: Any) -> None:
        self._is_requested = False
        # As with a real log, a flush has no effect if the log was truncated in between.
        up_to, end_before = self._node.log.end_offset, self._node.log.headers[-1:]
        delay_ms = self._node.world.flush_delay_ms()
        self._timers.after_ms(delay_ms, lambda: self._end(log, up_to, end_before))

    def _end(self, log: Any, up_to: int, end_before: Any) -> None:
        headers = self._node.log.headers
        if not end_before or end_before[0] in headers[-40:]:
            self._node.log.flush(up_to)
        log.flushed()


class _Peers:
    def __init__(self, node: Node, node_timers: _NodeTimers) -> None:
        self._node = node
        self._timers = node_timers

    def to(self, host: str, port: int, purpose: str) -> _Peer:
        return _Peer(self._node, self._timers, int(host.removeprefix("node")))


class _Peer:
    def __init__(self, node: Node, node_timers: _NodeTimers, other_id: int) -> None:
        self._node = node
        self._timers = node_timers
        self._other_id = other_id

    def ask(self, api: ApiKey, request: Any, timeout_ms: int, version: int | None = None) -> Promise[Any]:
        answer: Promise[Any] = Promise()
        self._node.world.carry(self._node, self._timers, self._other_id, request, self._settle_once(answer), timeout_ms)
        return answer

    def _settle_once(self, answer: Promise[Any]) -> Callable[[Any], None]:
        def settle(outcome: Any) -> None:
            if not answer.done:
                self._timers.act(lambda: None if answer.done else answer.complete(outcome))

        return settle

    def close(self) -> None:
        pass


class QuorumWorld:
    def __init__(self, seed: int, voters: int, observers: int, *, is_dynamic: bool = False) -> None:
        self.rng = Random(seed)
        self.timers = FakeTimers()
        self.truth = Truth()
        self.voter_ids = list(range(1, voters + 1))
        self.static = VoterSet()
        if not is_dynamic:
            self.static = static_voters({each: (host_of(each), 9093) for each in self.voter_ids}, LISTENER)
        self.nodes = {each: Node(self, each) for each in range(1, voters + observers + 1)}
        if is_dynamic:
            first = VoterSet(self.voter(each) for each in self.voter_ids)
            for each in self.voter_ids:
                self.nodes[each].log.snapshots[BOOTSTRAP] = bootstrap_snapshot([], first, 0)
        self.settings = SETTINGS
        self.loss = 0.0
        self.repetition = 0.0
        self.delay_max_ms = 5
        self.flush_max_ms = 5
        self.cut: set[tuple[int, int]] = set()
        """(from, to) of broken connections."""
        self.appended = 0
        self.happened: list[str] = []

    def voter(self, node_id: int) -> Voter:
        endpoint = Endpoint(LISTENER, host_of(node_id), 9093)
        return Voter(ReplicaKey(node_id, directory_of(node_id)), (endpoint,), SUPPORTED_KRAFT_VERSIONS)

    def flush_delay_ms(self) -> int:
        return self.rng.randint(0, self.flush_max_ms)

    # --- the network --------------------------------------------------------------------------------------------

    def carry(
        self,
        node: Node,
        node_timers: _NodeTimers,
        other_id: int,
        request: Any,
        settle: Callable[[Any], None],
        timeout_ms: int,
    ) -> None:
        rng = self.rng
        self.timers.after_ms(timeout_ms, lambda: settle(KafkaError(ErrorCode.REQUEST_TIMED_OUT)))
        if (node.id, other_id) in self.cut or rng.random() < self.loss:
            return
        for _ in range(2 if rng.random() < self.repetition else 1):
            self.timers.after_ms(self._delay_ms(), lambda: self._arrive(node.id, other_id, request, settle))

    def _delay_ms(self) -> int:
        return self.rng.randint(1, self.delay_max_ms)

    def _arrive(self, from_id: int, to_id: int, request: Any, settle: Callable[[Any], None]) -> None:
        other = self.nodes[to_id]
        if not other.is_up:
            settle(KafkaError(ErrorCode.NETWORK_EXCEPTION))
            return
        wait_ms = other.paused_until_ms - self.timers.clock.monotonic_ms()
        if wait_ms > 0:
            self.timers.after_ms(wait_ms, lambda: self._arrive(from_id, to_id, request, settle))
            return
        driver = other.driver
        assert driver is not None
        if type(request).__name__ == "ApiVersionsRequest":
            feature = SupportedFeatureKey("kraft.version", *SUPPORTED_KRAFT_VERSIONS)
            reply: Any = ApiVersionsResponse(supported_features=[feature])
        else:
            reply = driver.answer(request, 0)
        if isinstance(reply, Promise):
            reply.then(lambda response: self._return(from_id, to_id, response, settle))
        else:
            self._return(from_id, to_id, reply, settle)

    def _return(self, from_id: int, to_id: int, response: Any, settle: Callable[[Any], None]) -> None:
        if (to_id, from_id) not in self.cut and self.rng.random() >= self.loss:
            self.timers.after_ms(self._delay_ms(), lambda: settle(response))

    # --- actions of a test --------------------------------------------------------------------------------------

    def run(self, ms: int) -> None:
        self.timers.advance(ms)

    def append(self) -> None:
        for node in self.nodes.values():
            if node.driver is not None and node.driver.is_leader and self._is_awake(node):
                values = [f"{self.appended}.{each}".encode() for each in range(self.rng.randint(1, 3))]
                self.appended += 1
                node.driver.append(values)

    def _is_awake(self, node: Node) -> bool:
        return node.paused_until_ms <= self.timers.clock.monotonic_ms()

    def leaders(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.driver is not None and node.driver.is_leader]
