"""Nodes of a quorum on files in memory, with the real log and driver; messages are encoded and decoded on the way."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from harness.raised_faults import raise_fault
from moldau.base.errors import ErrorCode, KafkaError, StorageFault
from moldau.base.ids import METADATA_TOPIC_UUID, TopicPartition
from moldau.base.promise import Promise
from moldau.base.topic_names import METADATA_TOPIC
from moldau.log.config import LogConfig
from moldau.log.store import LogStore
from moldau.raft.machine import Quorum
from moldau.raft.member import Member, RaftSettings
from moldau.raft.snapshots import BOOTSTRAP, SnapshotId
from moldau.raft.voters import Endpoint, VoterSet, static_voters
from moldau.runtime.quorum.driver import QuorumDriver
from moldau.runtime.quorum.metadata_log import MetadataLog
from moldau.runtime.quorum.state_file import QuorumStateFile
from moldau.testing.clock import FakeTimers
from moldau.testing.files import MemoryFiles
from moldau.wire.apis import APIS, ApiKey, request_class, response_class
from moldau.wire.codec import Outgoing, decode, encode
from moldau.wire.messages.api_versions import ApiVersionsResponse, SupportedFeatureKey
from moldau.wire.records import decode_records

METADATA = TopicPartition(METADATA_TOPIC, 0)
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
LISTENER = "CONTROLLER"
SETTINGS = RaftSettings(election_timeout_ms=500, election_backoff_max_ms=200, fetch_timeout_ms=1_000)
SEGMENT_BYTES = 4_000


def over_the_wire(message: Any, cls: Any, version: int) -> Any:
    """Encode and decode a message as the other side reads it; records in a file are read from it."""
    out = Outgoing()
    encode(message, version, out)
    content, done = bytearray(), 0
    for position, records in out.slices:
        content += out[done:position] + records.read()
        done = position
    content += out[done:]
    return decode(cls, bytes(content), version)


class QuorumNode:
    """One node; after `crash`, `start` starts it again with what its disk has kept."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster = cluster
        self.id = node_id
        self.files = MemoryFiles()
        self.driver: QuorumDriver | None = None
        self.events: list[str] = []
        self.flush_delay_ms = 1
        self.held_work: list[Callable[[], None]] | None = None
        """Work of threads that the test runs itself; None to run it at once."""

    def prepare(self, snapshot: bytes) -> None:
        """Write what the storage tool writes before the first start."""
        self.files.mkdir(f"data/{METADATA}")
        self.files.open(f"data/{METADATA}/{BOOTSTRAP.file_name}", create=True).pwrite(snapshot, 0)

    def start(self) -> QuorumDriver:
        clock, timers = self.cluster.timers.clock, self.cluster.timers
        store = LogStore(self.files, "data")
        config = LogConfig(segment_bytes=SEGMENT_BYTES)
        store.load(lambda _: config, clock.now_ms())
        log = store.get(METADATA) or store.create(METADATA, METADATA_TOPIC_UUID, config, clock.now_ms())
        self.metadata_log = MetadataLog(log, store, self.files)
        endpoint = Endpoint(LISTENER, f"node{self.id}", 9093)
        me = Member(self.id, self.id.to_bytes(16, "big"), CLUSTER_ID, LISTENER, (endpoint,))
        bootstrap = [Endpoint(LISTENER, f"node{each}", 9093) for each in self.cluster.voter_ids]
        state = QuorumStateFile(self.files, log.directory)
        rng = Random(self.cluster.rng.random())
        quorum = Quorum(me, self.cluster.static, bootstrap, self.metadata_log, state, rng, clock, SETTINGS)
        self.driver = QuorumDriver(quorum, _Peers(self), clock, timers, self, self._run_in_thread, raise_fault)
        self.driver.add_listener(self)
        self.driver.start()
        return self.driver

    def crash(self) -> None:
        assert self.driver is not None
        self.driver._is_running = False
        self.driver = None
        self.files = self.files.crash(self.cluster.rng)
        self.cluster.break_connections(self.id)

    # --- the disk -----------------------------------------------------------------------------------------------

    def _run_in_thread(self, work: Callable[[], None]) -> Promise[StorageFault | None]:
        """Run the work at once, or append it to `held_work` for the test to run."""
        done: Promise[StorageFault | None] = Promise()

        def run() -> None:
            try:
                work()
            except StorageFault as fault:
                done.complete(fault)
            else:
                done.complete(None)

        if self.held_work is None:
            run()
        else:
            self.held_work.append(run)
        return done

    def request(self, log: Any) -> None:
        self.cluster.timers.after_ms(self.flush_delay_ms, lambda: self._flush(log))

    def _flush(self, log: Any) -> None:
        if log is not self.driver:
            return
        try:
            log.log.flush()
        except StorageFault as fault:
            if not fault.is_shortage:
                raise
            log.flush_postponed(fault)
        else:
            log.flushed()

    # --- calls of the quorum ------------------------------------------------------------------------------------

    def leading(self, epoch: int) -> None:
        self.events.append(f"leads {epoch}")

    def no_longer_leading(self) -> None:
        self.events.append("resigned")

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        self.events.append(f"leader {leader_id} in {epoch}")

    def committed(self, high_watermark: int) -> None:
        self.events.append(f"committed {high_watermark}")

    # --- committed values ---------------------------------------------------------------------------------------

    def values(self) -> list[bytes]:
        """Return all committed values: from the newest snapshot, then from the log."""
        assert self.driver is not None
        latest = self.metadata_log.latest_snapshot() or BOOTSTRAP
        found = [] if latest == BOOTSTRAP else list(self.metadata_log.read_snapshot(latest))
        for header, batch in self.metadata_log.batches(latest.end_offset, self.driver.high_watermark):
            if not header.is_control:
                found += [record.value or b"" for record in decode_records(batch, header)]
        return found

    def snapshot(self) -> bool:
        assert self.driver is not None
        end_offset = self.driver.high_watermark
        epoch = self.metadata_log.log.epochs.epoch_for_offset(end_offset - 1)
        work = self.driver.begin_snapshot(SnapshotId(end_offset, epoch), self.values())
        if work is None:
            return False
        work.run()
        return self.driver.finish_snapshot(work)


class _Peers:
    def __init__(self, node: QuorumNode) -> None:
        self._node = node

    def to(self, host: str, port: int, purpose: str) -> _Peer:
        return _Peer(self._node, int(host.removeprefix("node")))


class _Peer:
    def __init__(self, node: QuorumNode, other_id: int) -> None:
        self._node = node
        self._other_id = other_id

    def ask(self, api: ApiKey, request: Any, timeout_ms: int, version: int | None = None) -> Promise[Any]:
        answer: Promise[Any] = Promise()
        cluster = self._node.cluster
        spoken = APIS[api].highest if version is None else version
        arrived = over_the_wire(request, request_class(api), spoken)

        def settle(outcome: Any) -> None:
            cluster.open.discard((self._other_id, settle))
            if not answer.done:
                answer.complete(outcome)

        cluster.open.add((self._other_id, settle))
        cluster.timers.after_ms(timeout_ms, lambda: settle(KafkaError(ErrorCode.REQUEST_TIMED_OUT)))
        cluster.timers.after_ms(1, lambda: cluster.arrive(self._node.id, self._other_id, api, arrived, spoken, settle))
        return answer

    def close(self) -> None:
        pass


class Cluster:
    def __init__(self, voters: int, others: int = 0, *, seed: int = 1, is_dynamic: bool = False) -> None:
        self.rng = Random(seed)
        self.timers = FakeTimers()
        self.voter_ids = list(range(1, voters + 1))
        addresses = {each: (f"node{each}", 9093) for each in self.voter_ids}
        self.static = VoterSet() if is_dynamic else static_voters(addresses, LISTENER)
        self.nodes = {each: QuorumNode(self, each) for each in range(1, voters + others + 1)}
        self.isolated: set[int] = set()
        """Nodes without a connection to any other."""
        self.asked: list[tuple[int, int, str]] = []
        self.open: set[tuple[int, Callable[[Any], None]]] = set()
        """(node, callback with an error) of every request that has no response yet."""

    def start(self) -> Cluster:
        for node in self.nodes.values():
            node.start()
        return self

    def arrive(
        self, from_id: int, to_id: int, api: ApiKey, request: Any, version: int, settle: Callable[[Any], None]
    ) -> None:
        self.asked.append((from_id, to_id, api.name))
        if self.isolated & {from_id, to_id}:
            return
        driver = self.nodes[to_id].driver
        if driver is None:
            settle(KafkaError(ErrorCode.NETWORK_EXCEPTION))
            return
        if api is ApiKey.API_VERSIONS:
            answered: Any = ApiVersionsResponse(supported_features=[SupportedFeatureKey("kraft.version", 0, 1)])
        else:
            try:
                answered = driver.answer(request, version)
            except StorageFault:  # the listener closes the connection
                settle(KafkaError(ErrorCode.NETWORK_EXCEPTION))
                return

        def send_back(response: Any) -> None:
            arrived = over_the_wire(response, response_class(api), version)
            if not self.isolated & {from_id, to_id}:
                self.timers.after_ms(1, lambda: settle(arrived))

        if isinstance(answered, Promise):
            answered.then(send_back)
        else:
            send_back(answered)

    def break_connections(self, node_id: int) -> None:
        """End the process: its connections close, and requests that wait for its responses fail."""
        for other_id, settle in list(self.open):
            if other_id == node_id:
                self.timers.after_ms(1, partial(settle, KafkaError(ErrorCode.NETWORK_EXCEPTION)))

    def run(self, ms: int) -> None:
        self.timers.advance(ms)

    def until(self, condition: Callable[[], bool], within_ms: int = 10_000) -> int:
        """Advance the time until the condition holds, and return how long that took."""
        for elapsed_ms in range(within_ms):
            if condition():
                return elapsed_ms
            self.run(1)
        raise AssertionError(f"not within {within_ms} ms")

    @property
    def leader(self) -> QuorumNode | None:
        leading = [node for node in self.nodes.values() if node.driver is not None and node.driver.is_leader]
        return max(leading, key=lambda node: node.driver.leader_epoch if node.driver else 0, default=None)

    def elect(self) -> QuorumNode:
        self.until(lambda: self.leader is not None)
        assert self.leader is not None
        return self.leader

    def is_caught_up(self, *node_ids: int) -> bool:
        """Whether these nodes, or all running ones, have committed everything that the leader has."""
        leader = self.leader
        nodes = [self.nodes[each] for each in node_ids] or [n for n in self.nodes.values() if n.driver is not None]
        if leader is None:
            return False
        end_offset = leader.metadata_log.end_offset
        return all(node.driver is not None and node.driver.high_watermark == end_offset for node in nodes)
