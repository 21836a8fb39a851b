"""Fetches what one leader has for the partitions that follow it here: one request under way, each answer taken into the
logs before the next.

What is wrong with one partition lets that one rest, what is wrong with the connection all of them. Where
`flush.messages` is 1, the next fetch goes out when what the last one brought is on disk: it tells the leader so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from moldau.base.clock import Clock, Timer, Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.client.peers import Peers
from moldau.replica.follower_log import FollowerLog
from moldau.replica.partition import Partition
from moldau.replica.throttle import ThrottledReplicas
from moldau.runtime.replication.fetch_session import Key, Position, ReplicaFetchSession
from moldau.runtime.replication.leader_offsets import ask_offsets
from moldau.wire.apis import ApiKey
from moldau.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData, ReplicaState

log = logging.getLogger("moldau.replication")
PURPOSE: Final = "replication"
FIRST_PAUSE_MS: Final = 20
CONNECTION_PAUSE_MAX_MS: Final = 1_000
THROTTLED_PAUSE_MS: Final = 100
SESSION_IS_OVER: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


@dataclass(frozen=True, slots=True)
class ReplicaFetchSettings:
    """`replica.fetch.*`, and `replica.socket.timeout.ms` as the time an answer may take."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1_048_576
    response_max_bytes: int = 10_485_760
    backoff_ms: int = 1_000
    timeout_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class FetcherParts:
    """What every fetcher of a node needs."""

    node_id: int
    broker_epoch: Callable[[], int]
    """Under which this broker is registered; below 0 while it is not."""
    address: Callable[[int], tuple[str, int] | None]
    """Where brokers reach a broker."""
    peers: Peers
    follower: FollowerLog
    clock: Clock
    timers: Timers
    settings: ReplicaFetchSettings
    throttled: ThrottledReplicas | None = None


class Followed:
    """A partition as its fetcher sees it."""

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
        self._is_asking = False
        self._is_going_on = False
        self._is_closed = False
        self._failures = 0
        self._pause: Timer | None = None

    def __len__(self) -> int:
        return len(self._followed)

    # --- what is fetched ----------------------------------------------------------------------------------------

    def add(self, partition: Partition) -> None:
        """Begins to fetch a partition, anew if its leader's epoch is another."""
        known = self._followed.get((partition.topic_id, partition.name.partition))
        if known is not None:
            if known.partition is partition and known.leader_epoch == partition.state.leader_epoch:
                return
            self.remove(known.partition)
        followed = Followed(partition)
        self._followed[followed.key] = followed
        partition.on_durable = self._on_disk
        self._await_disk(partition)
        self._want(followed)
        self._go_on_soon()

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
        self._go_on_soon()

    def retry_now(self) -> None:
        """The leader is back, or elsewhere: no reason to wait on."""
        if self._pause is not None:
            self._pause.cancel()
            self._end_pause()

    def close(self) -> None:
        self._is_closed = True
        for followed in list(self._followed.values()):
            self.remove(followed.partition)
        if self._pause is not None:
            self._pause.cancel()
        address = self._parts.address(self.leader_id)
        if address is not None:
            self._parts.peers.to(*address, PURPOSE).close()

    def _want(self, followed: Followed) -> None:
        log = followed.partition.log
        position = Position(log.end_offset, log.epochs.latest, log.start_offset, followed.leader_epoch)
        self._session.want(followed.key, position)

    def _rest(self, followed: Followed, pause_ms: int) -> None:
        """Lets one partition be for a while."""
        self._session.drop(followed.key)
        if followed.timer is not None:
            followed.timer.cancel()
        followed.timer = self._parts.timers.after_ms(pause_ms, partial(self._end_rest, followed))

    def _end_rest(self, followed: Followed) -> None:
        followed.timer = None
        if self._is_held_back(followed.partition):
            self._rest(followed, THROTTLED_PAUSE_MS)
        else:
            self._want(followed)
            self._go_on_soon()

    def _fail(self, followed: Followed, code: ErrorCode) -> None:
        """Most of what fails does so because one side has not heard of an election yet: that is over soon."""
        log.debug("%s from %d: %s", followed.partition.name, self.leader_id, code.name)
        pause_ms = _pause_ms(followed.failures, self._parts.settings.backoff_ms)
        followed.failures += 1
        self._rest(followed, pause_ms)

    # --- asking -------------------------------------------------------------------------------------------------

    def _go_on_soon(self) -> None:
        """When all that changes in this turn has changed: the next request speaks of all of it."""
        if not self._is_going_on:
            self._is_going_on = True
            self._parts.timers.soon(self._go_on)

    def _go_on(self) -> None:
        self._is_going_on = False
        if self._is_asking or self._is_closed or self._pause is not None or self._waiting_for_disk:
            return
        if not self._session and not self._out_of_range:
            return
        parts = self._parts
        address, broker_epoch = parts.address(self.leader_id), parts.broker_epoch()
        if address is None or broker_epoch < 0:
            self._fail_all(ErrorCode.BROKER_NOT_AVAILABLE)
            return
        self._is_asking = True
        peer = parts.peers.to(*address, PURPOSE)
        if self._out_of_range:
            lost = [each.partition for each in self._out_of_range.values()]
            ask_offsets(peer, parts.node_id, lost, parts.settings.timeout_ms).then(self._offsets_came)
            return
        if broker_epoch != self._session_epoch:
            self._session_epoch = broker_epoch
            self._session.start_over()
        timeout_ms = parts.settings.wait_max_ms + parts.settings.timeout_ms
        peer.ask(ApiKey.FETCH, self._request(broker_epoch), timeout_ms).then(self._answered)

    def _request(self, broker_epoch: int) -> FetchRequest:
        settings = self._parts.settings
        request = FetchRequest(
            replica_state=ReplicaState(self._parts.node_id, broker_epoch),
            max_wait_ms=settings.wait_max_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
        )
        self._session.speak(request)
        return request

    def _answered(self, response: FetchResponse | KafkaError) -> None:
        self._is_asking = False
        if self._is_closed:
            return
        code = response.code if isinstance(response, KafkaError) else ErrorCode(response.error_code)
        if isinstance(response, KafkaError) or code is not ErrorCode.NONE:
            self._session.start_over()
            if code in SESSION_IS_OVER and not self._failures:
                self._failures = 1
                self._go_on()
            else:
                self._fail_all(code)
            return
        self._failures = 0
        self._session.answered(response.session_id)
        for topic in response.responses:
            for data in topic.partitions:
                followed = self._followed.get((topic.topic_id, data.partition_index))
                if followed is not None and self._is_still_asked(followed):
                    self._take(followed, data)
        self._go_on()

    def _is_still_asked(self, followed: Followed) -> bool:
        """Whether the answer is to where the partition stands: it may have been cut or begun anew meanwhile."""
        told = self._session.told.get(followed.key)
        return (
            told is not None
            and told.leader_epoch == followed.leader_epoch
            and told.fetch_offset == followed.partition.log.end_offset
            and followed.timer is None
        )

    def _fail_all(self, code: ErrorCode) -> None:
        if not self._failures:
            log.info("fetching from leader %d fails, to be tried again: %s", self.leader_id, code.name)
        pause_ms = _pause_ms(self._failures, CONNECTION_PAUSE_MAX_MS)
        self._failures += 1
        self._pause = self._parts.timers.after_ms(pause_ms, self._end_pause)

    def _end_pause(self) -> None:
        self._pause = None
        self._go_on()

    # --- taking -------------------------------------------------------------------------------------------------

    def _take(self, followed: Followed, data: PartitionData) -> None:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range[followed.key] = followed
            return
        try:
            if data.error_code:
                raise KafkaError(ErrorCode(data.error_code))
            if data.diverging_epoch is not None:
                parted = data.diverging_epoch
                self._parts.follower.truncate_to_divergence(followed.partition, parted.epoch, parted.end_offset)
            else:
                self._append(followed, data)
        except KafkaError as failure:
            if failure.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR):
                log.error("%s cannot follow broker %d: %s", followed.partition.name, self.leader_id, failure)
            self._fail(followed, failure.code)
            return
        followed.failures = 0
        if followed.timer is None:
            self._want(followed)

    def _append(self, followed: Followed, data: PartitionData) -> None:
        partition, records = followed.partition, data.records
        size = 0
        if records:
            assert isinstance(records, bytes | bytearray | memoryview), "records come in the answer"
            size = len(records)
            self._parts.follower.take(partition, memoryview(records), self._parts.clock.now_ms())
            self._await_disk(partition)
        partition.update_from_leader(data.high_watermark, data.log_start_offset)
        throttled = self._parts.throttled
        if throttled is not None and size and throttled.includes(partition.name):
            throttled.limit.spend(size)
            if self._is_held_back(partition):
                self._rest(followed, THROTTLED_PAUSE_MS)

    def _is_held_back(self, partition: Partition) -> bool:
        """Who is in sync is not: it would fall out of sync by it."""
        throttled = self._parts.throttled
        is_in_sync = self._parts.node_id in partition.state.isr
        return throttled is not None and not is_in_sync and throttled.is_throttled(partition.name)

    def _await_disk(self, partition: Partition) -> None:
        if partition.durable_offset < partition.log.end_offset:
            self._waiting_for_disk[partition] = None
            partition.request_flush()

    def _on_disk(self, partition: Partition) -> None:
        if partition.durable_offset >= partition.log.end_offset and partition in self._waiting_for_disk:
            self._waiting_for_disk.pop(partition, None)
            self._go_on()

    # --- out of range -------------------------------------------------------------------------------------------

    def _offsets_came(self, found: dict[Partition, tuple[int, int] | KafkaError]) -> None:
        """(start, end) of the leader's log for each that was lost."""
        self._is_asking = False
        if self._is_closed:
            return
        lost, self._out_of_range = self._out_of_range, {}
        for followed in lost.values():
            offsets = found.get(followed.partition, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
            try:
                if isinstance(offsets, KafkaError):
                    raise offsets
                self._find_back(followed, *offsets)
            except KafkaError as failure:
                self._fail(followed, failure.code)
        self._go_on()

    def _find_back(self, followed: Followed, leader_start: int, leader_end: int) -> None:
        partition, follower = followed.partition, self._parts.follower
        end_offset = partition.log.end_offset
        if end_offset < leader_start:
            log.warning("%s begins anew at offset %d, its leader has nothing older", partition.name, leader_start)
            follower.truncate_fully(partition, leader_start)
        elif end_offset > leader_end:
            follower.truncate(partition, leader_end)
        else:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        self._want(followed)


def _pause_ms(failures: int, pause_max_ms: int) -> int:
    return int(min(FIRST_PAUSE_MS << min(failures, 16), pause_max_ms))
