"""Fetches from one leader the partitions that this node follows: one request at a time, whose response is appended to
the logs before the next is sent.

An error of one partition pauses that partition, an error of the connection pauses all. If `flush.messages` is 1, the
next fetch is sent when the last response is on disk, because its offsets tell the leader that it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from moldau.base.clock import Clock, Timer
from moldau.base.cluster_settings import ReplicaFetchSettings
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.long_work import LongWork
from moldau.base.steps import Steps, TurnItems
from moldau.base.turns import CHANGES_A_TURN
from moldau.client.peers import Peers
from moldau.replica.follower_log import FollowerLog
from moldau.replica.partition import Partition
from moldau.replica.throttle import ThrottledReplicas
from moldau.runtime.own_work import OwnWork
from moldau.runtime.replication.fetch_session import Key, Position, ReplicaFetchSession
from moldau.runtime.replication.leader_offsets import ask_offsets
from moldau.wire.apis import ApiKey
from moldau.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData, ReplicaState

log = logging.getLogger("moldau.replication")
PURPOSE: Final = "replication"
FIRST_PAUSE_MS: Final = 20
CONNECTION_PAUSE_MAX_MS: Final = 1_000
THROTTLED_PAUSE_MS: Final = 100
TRUNCATION_COST: Final = CHANGES_A_TURN
"""A truncation ends the turn: it may write the recovery points of all logs, which takes 17 ms for 2,000."""
SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


@dataclass(frozen=True, slots=True)
class FetcherParts:
    """The parts that all fetchers of a node share."""

    node_id: int
    broker_epoch: Callable[[], int]
    """Returns the epoch of this broker's registration; below 0 while it is not registered."""
    address: Callable[[int], tuple[str, int] | None]
    """Returns host and port of a broker for other brokers."""
    peers: Peers
    follower: FollowerLog
    clock: Clock
    own_work: OwnWork
    settings: ReplicaFetchSettings
    throttled: ThrottledReplicas | None = None


class Followed:
    """The state of a partition in its fetcher."""

    __slots__ = ("failures", "key", "leader_epoch", "partition", "timer")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key: Key = (partition.topic_id, partition.name.partition)
        self.leader_epoch = partition.state.leader_epoch
        self.failures = 0
        self.timer: Timer | None = None


class ReplicaFetcher:
    def __init__(self, leader_id: int, parts: FetcherParts) -> None:
        self.leader_id = leader_id
        self._parts = parts
        self._session = ReplicaFetchSession(parts.settings.max_bytes)
        self._session_epoch = parts.broker_epoch()
        self._followed: dict[Key, Followed] = {}
        self._out_of_range: dict[Key, Followed] = {}
        self._waiting_for_disk: dict[Partition, None] = {}
        self._is_request_pending = False
        self._is_scheduled = False
        self._is_closed = False
        self._failures = 0
        self._pause: Timer | None = None
        self._handling: LongWork[None] | None = None
        """The last response, which may take several turns to handle."""

    def __len__(self) -> int:
        return len(self._followed)

    # --- the fetched partitions ---------------------------------------------------------------------------------

    def add(self, partition: Partition) -> None:
        """Begin to fetch a partition; begin again if its leader epoch changed."""
        previous = self._followed.get((partition.topic_id, partition.name.partition))
        if previous is not None:
            if previous.partition is partition and previous.leader_epoch == partition.state.leader_epoch:
                return
            self.remove(previous.partition)
        followed = Followed(partition)
        self._followed[followed.key] = followed
        partition.on_durable = self._on_disk
        self._await_disk(partition)
        self._fetch_from_end(followed)

    def remove(self, partition: Partition) -> None:
        followed = self._followed.pop((partition.topic_id, partition.name.partition), None)
        if followed is None:
            return
        if followed.timer is not None:
            followed.timer.cancel()
        self._session.drop(followed.key)
        self._out_of_range.pop(followed.key, None)
        partition.on_durable = None
        self._waiting_for_disk.pop(partition, None)
        self._schedule()

    def retry_now(self) -> None:
        """End a pause: the leader is back, or has a new address."""
        if self._pause is not None:
            self._pause.cancel()
            self._end_pause()

    def close(self) -> None:
        self._is_closed = True
        if self._handling is not None:
            self._handling.cancel()
        for followed in list(self._followed.values()):
            self.remove(followed.partition)
        if self._pause is not None:
            self._pause.cancel()
        address = self._parts.address(self.leader_id)
        if address is not None:
            self._parts.peers.to(*address, PURPOSE).close()

    def _set_position(self, followed: Followed) -> None:
        log = followed.partition.log
        position = Position(log.end_offset, log.epochs.latest_epoch, log.start_offset, followed.leader_epoch)
        self._session.set_position(followed.key, position)

    def _fetch_from_end(self, followed: Followed) -> None:
        """Fetch what follows the log; if the disk lost records, from there on."""
        try:
            self._parts.follower.drop_incomplete(followed.partition)
        except KafkaError as error:
            self._fail(followed, error.code)
            return
        self._set_position(followed)
        self._schedule()

    def _pause_partition(self, followed: Followed, pause_ms: int) -> None:
        """Do not fetch this partition for a while."""
        self._session.drop(followed.key)
        if followed.timer is not None:
            followed.timer.cancel()
        followed.timer = self._parts.own_work.after_ms(pause_ms, partial(self._resume_partition, followed))

    def _resume_partition(self, followed: Followed) -> None:
        followed.timer = None
        partition = followed.partition
        if self._is_throttled(partition):
            self._pause_partition(followed, THROTTLED_PAUSE_MS)
        elif partition.durable_offset < partition.log.end_offset and partition.log.fault is None:
            # A full disk ended an append after some batches: the next fetch would acknowledge them.
            partition.request_flush()
            self._pause_partition(followed, self._parts.settings.backoff_ms)
        else:
            self._fetch_from_end(followed)

    def _fail(self, followed: Followed, code: ErrorCode) -> None:
        """Pause a partition, at first briefly: most errors are due to an election that one side does not know yet."""
        log.debug("%s: fetch from leader %d failed: %s", followed.partition.name, self.leader_id, code.name)
        pause_ms = _pause_ms(followed.failures, self._parts.settings.backoff_ms)
        followed.failures += 1
        self._pause_partition(followed, pause_ms)

    # --- requests -----------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Send the next request at the end of this turn, so that it includes all changes of the turn."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._parts.own_work.soon(self._send_next)

    def _send_next(self) -> None:
        self._is_scheduled = False
        if self._is_request_pending or self._is_closed or self._pause is not None or self._waits_for_disk:
            return
        if not self._session and not self._out_of_range:
            return
        parts, own_work = self._parts, self._parts.own_work
        address, broker_epoch = parts.address(self.leader_id), parts.broker_epoch()
        if address is None or broker_epoch < 0:
            self._fail_all(ErrorCode.BROKER_NOT_AVAILABLE)
            return
        self._is_request_pending = True
        peer = parts.peers.to(*address, PURPOSE)
        if self._out_of_range:
            partitions = [followed.partition for followed in self._out_of_range.values()]
            ask_offsets(peer, parts.node_id, partitions, parts.settings.timeout_ms).then(
                own_work.guard(self._on_leader_offsets)
            )
            return
        if broker_epoch != self._session_epoch:
            self._session_epoch = broker_epoch
            self._session.start_over()
        timeout_ms = parts.settings.wait_max_ms + parts.settings.timeout_ms
        peer.ask(ApiKey.FETCH, self._request(broker_epoch), timeout_ms).then(own_work.guard(self._on_response))

    def _request(self, broker_epoch: int) -> FetchRequest:
        settings = self._parts.settings
        request = FetchRequest(
            replica_state=ReplicaState(self._parts.node_id, broker_epoch),
            max_wait_ms=settings.wait_max_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
        )
        self._session.fill(request)
        return request

    def _on_response(self, response: FetchResponse | KafkaError) -> None:
        if self._is_closed:
            return
        code = response.code if isinstance(response, KafkaError) else ErrorCode(response.error_code)
        if isinstance(response, KafkaError) or code is not ErrorCode.NONE:
            self._is_request_pending = False
            self._session.start_over()
            if code in SESSION_ERRORS and not self._failures:
                self._failures = 1
                self._send_next()
            else:
                self._fail_all(code)
            return
        self._failures = 0
        self._session.on_response(response.session_id)
        self._handle_in_turns(self._handle_all(response))

    def _handle_in_turns(self, steps: Steps[None]) -> None:
        """Handle a response, and send the next request at the end: until then, this one is pending."""
        if not self._is_closed:
            self._handling = self._parts.own_work.long_work(steps, self._on_handled)
            self._handling()

    def _on_handled(self, _: None) -> None:
        self._is_request_pending = False
        self._send_next()

    def _handle_all(self, response: FetchResponse) -> Steps[None]:
        turn = TurnItems(CHANGES_A_TURN)
        for topic in response.responses:
            for data in topic.partitions:
                if turn.is_over():
                    yield
                followed = self._followed.get((topic.topic_id, data.partition_index))
                if followed is not None and self._is_current(followed):
                    self._handle(followed, data)
                turn.count(1 if data.diverging_epoch is None else TRUNCATION_COST)

    def _is_current(self, followed: Followed) -> bool:
        """Whether the response is for the partition's present position: its log may have been truncated meanwhile."""
        sent = self._session.sent.get(followed.key)
        return (
            sent is not None
            and sent.leader_epoch == followed.leader_epoch
            and sent.fetch_offset == followed.partition.log.end_offset
            and followed.timer is None
        )

    def _fail_all(self, code: ErrorCode) -> None:
        if not self._failures:
            log.info("fetch from leader %d failed, to be retried: %s", self.leader_id, code.name)
        pause_ms = _pause_ms(self._failures, CONNECTION_PAUSE_MAX_MS)
        self._failures += 1
        self._pause = self._parts.own_work.after_ms(pause_ms, self._end_pause)

    def _end_pause(self) -> None:
        self._pause = None
        self._send_next()

    # --- responses ----------------------------------------------------------------------------------------------

    def _handle(self, followed: Followed, data: PartitionData) -> None:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range[followed.key] = followed
            return
        try:
            if data.error_code:
                raise KafkaError(ErrorCode(data.error_code))
            if data.diverging_epoch is not None:
                diverging = data.diverging_epoch
                self._parts.follower.truncate_to_divergence(followed.partition, diverging.epoch, diverging.end_offset)
            else:
                self._append(followed, data)
        except KafkaError as failure:
            if failure.code is ErrorCode.CORRUPT_MESSAGE:  # a fault of the disk is reported where it occurs
                log.error("%s: cannot follow leader %d, retrying: %s", followed.partition.name, self.leader_id, failure)
            self._fail(followed, failure.code)
            return
        followed.failures = 0
        if followed.timer is None:
            self._set_position(followed)

    def _append(self, followed: Followed, data: PartitionData) -> None:
        partition, records = followed.partition, data.records
        size = 0
        if records:
            assert isinstance(records, bytes | bytearray | memoryview), "a response contains its records"
            size = len(records)
            self._parts.follower.append_from_leader(partition, memoryview(records), self._parts.clock.now_ms())
            self._await_disk(partition)
        partition.update_from_leader(data.high_watermark, data.log_start_offset)
        throttled = self._parts.throttled
        if throttled is not None and size and throttled.includes(partition.name):
            throttled.limit.spend(size)
            if self._is_throttled(partition):
                self._pause_partition(followed, THROTTLED_PAUSE_MS)

    def _is_throttled(self, partition: Partition) -> bool:
        """Whether the throttle applies now. It never applies to an in-sync replica, which would fall out of sync."""
        throttled = self._parts.throttled
        is_in_sync = self._parts.node_id in partition.state.isr
        return throttled is not None and not is_in_sync and throttled.is_throttled(partition.name)

    @property
    def _waits_for_disk(self) -> bool:
        """Whether records must be flushed before the next fetch. A log that refuses writes is not flushed: the next
        fetch may complete the truncation that it lacks."""
        return any(partition.log.fault is None for partition in self._waiting_for_disk)

    def _await_disk(self, partition: Partition) -> None:
        if partition.durable_offset < partition.log.end_offset:
            self._waiting_for_disk[partition] = None
            partition.request_flush()

    def _on_disk(self, partition: Partition) -> None:
        if partition.durable_offset >= partition.log.end_offset and partition in self._waiting_for_disk:
            self._waiting_for_disk.pop(partition, None)
            self._send_next()

    # --- out of range -------------------------------------------------------------------------------------------

    def _on_leader_offsets(self, leader_offsets: dict[Partition, tuple[int, int] | KafkaError]) -> None:
        """Handle the (start, end) of the leader's log for each partition that was out of range."""
        self._handle_in_turns(self._reset_all(leader_offsets))

    def _reset_all(self, leader_offsets: dict[Partition, tuple[int, int] | KafkaError]) -> Steps[None]:
        while self._out_of_range:
            followed = self._out_of_range.pop(next(iter(self._out_of_range)))
            offsets = leader_offsets.get(followed.partition, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
            try:
                if isinstance(offsets, KafkaError):
                    raise offsets
                self._reset(followed, *offsets)
            except KafkaError as failure:
                self._fail(followed, failure.code)
            if self._out_of_range:
                yield  # like every truncation

    def _reset(self, followed: Followed, leader_start: int, leader_end: int) -> None:
        partition, follower = followed.partition, self._parts.follower
        end_offset = partition.log.end_offset
        if end_offset < leader_start:
            log.warning(
                "%s: the follower's log restarts at offset %d, because leader %d has no older records",
                partition.name,
                leader_start,
                self.leader_id,
            )
            follower.restart_at(partition, leader_start)
        elif end_offset > leader_end:
            follower.truncate(partition, leader_end)
        else:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        self._set_position(followed)


def _pause_ms(failures: int, pause_max_ms: int) -> int:
    return int(min(FIRST_PAUSE_MS << min(failures, 16), pause_max_ms))
