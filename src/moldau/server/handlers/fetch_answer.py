"""The response to one Fetch request that has a session, or has to wait. `collect` runs again each time there is more
data; a request of many partitions is answered in several turns of the loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from moldau.base.errors import ErrorCode
from moldau.base.ids import ZERO_UUID, Uuid
from moldau.base.promise import Promise
from moldau.base.steps import Steps, split
from moldau.base.turns import ITEMS_A_TURN
from moldau.replica.reading import EMPTY, NO_REPLICA, Reads
from moldau.replica.sessions import CONSUMER, NEVER_SENT, FetchedPartition, FetchSession
from moldau.replica.waiting import ParkedFetches
from moldau.runtime.internal_errors import closing_error
from moldau.server.handler import Caller
from moldau.wire.codec import size_of
from moldau.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

if TYPE_CHECKING:
    from moldau.replica.view_partition import ReadablePartition


class Fetched(Protocol):
    """What an answer needs of the handler `Fetch`: the partitions of the node, and who may read them."""

    bytes_max: int

    def may_read(self, topic: str | Uuid, caller: Caller) -> bool: ...

    def partition(self, topic: str | Uuid, index: int) -> ReadablePartition | None: ...

    def unknown(self, topic: str | Uuid, index: int) -> PartitionData: ...

    def add_leaders(self, response: FetchResponse, caller: Caller) -> None: ...


class FetchAnswer:
    """Builds the response to one request; `collect` runs again each time there is more data."""

    __slots__ = ("_caller", "_fetch", "_is_full", "_is_unrestricted", "_reads", "_request", "_session", "_size")

    def __init__(
        self, fetch: Fetched, session: FetchSession, request: FetchRequest, is_full: bool, reads: Reads, caller: Caller
    ) -> None:
        self._fetch = fetch
        self._session = session
        self._request = request
        self._is_full = is_full
        self._reads = reads
        self._caller = caller
        self._is_unrestricted = caller.is_unrestricted or reads.replica_id != CONSUMER
        self._size = 0

    def collect(self, is_last: bool = False) -> Steps[FetchResponse | None]:
        """Return the response, or None if there is too little data and there is time to wait for more. It takes one
        step, unless there are many partitions."""
        request, session = self._request, self._session
        bytes_left = min(request.max_bytes, self._fetch.bytes_max)
        results: list[tuple[FetchedPartition, PartitionData]] = []
        size, is_urgent, denied = 0, False, 0
        is_long = len(session.dirty) > ITEMS_A_TURN
        for entries in split(list(session.dirty), ITEMS_A_TURN) if is_long else (session.dirty,):
            if results:
                yield
            for entry in entries:
                if is_long and not session.take(entry):
                    continue
                data, length = self._read(entry, bytes_left, not size)
                results.append((entry, data))
                if session.reads_committed:
                    entry.seen_stable_offset = data.last_stable_offset
                    entry.is_held_back = data.last_stable_offset < data.high_watermark
                size += length
                bytes_left -= length
                denied += data.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
                is_urgent = is_urgent or ends_wait(data) or self._start_moved(entry, data)
        can_wait = request.max_wait_ms > 0 and denied < len(session.entries)
        enough = size >= request.min_bytes or is_urgent or is_last or not can_wait
        self._size = size
        if not enough:
            if is_long:
                session.dirty.update(dict.fromkeys(entry for entry, _ in results))
            return None
        topics: dict[str | Uuid, list[PartitionData]] = {}
        for some in split(results, ITEMS_A_TURN) if is_long else (results,):
            if session.id:
                self._rotate(some, is_long)
            self._add_results(topics, some)
            if is_long:
                yield
        response = self._response(topics)
        if is_urgent:
            self._fetch.add_leaders(response, self._caller)
        return response

    def _start_moved(self, entry: FetchedPartition, data: PartitionData) -> bool:
        """Return whether a follower must get the new log start offset at once: the client of DeleteRecords waits until
        all replicas have deleted the records."""
        is_follower = self._reads.replica_id != CONSUMER
        return is_follower and NEVER_SENT != entry.sent_log_start_offset != data.log_start_offset

    def _read(self, entry: FetchedPartition, bytes_left: int, is_first: bool) -> tuple[PartitionData, int]:
        """Read one partition. Look it up again if it was closed: the topic may have been deleted and created again."""
        if not self._is_unrestricted and not self._fetch.may_read(entry.topic, self._caller):
            return refuse_partition(entry.index), 0
        partition = entry.partition
        if partition is None or partition.is_closed:
            partition = self._fetch.partition(entry.topic, entry.index)
            self._session.rebind(entry, partition)
        if partition is None:
            return self._fetch.unknown(entry.topic, entry.index), 0
        return self._reads.read(partition, entry.index, entry, bytes_left, is_first)

    def _add_results(
        self, topics: dict[str | Uuid, list[PartitionData]], results: Sequence[tuple[FetchedPartition, PartitionData]]
    ) -> None:
        for entry, data in results:
            if not self._is_full and not _has_changed(entry, data):
                continue
            topics.setdefault(entry.topic, []).append(data)
            entry.sent_high_watermark = data.high_watermark
            entry.sent_log_start_offset = data.log_start_offset
            if data.records and entry.partition is not None:
                self._reads.sent(entry.partition, size_of(data.records))

    def _response(self, topics: Mapping[str | Uuid, Sequence[PartitionData]]) -> FetchResponse:
        return FetchResponse(
            session_id=self._session.id,
            responses=[
                FetchableTopicResponse(ZERO_UUID, topic, data)
                if isinstance(topic, str)
                else FetchableTopicResponse(topic, "", data)
                for topic, data in topics.items()
            ],
        )

    def _rotate(self, results: Sequence[tuple[FetchedPartition, PartitionData]], is_long: bool) -> None:
        """Move partitions that returned data to the end of the order. A partition whose data did not fit, or with an
        error, keeps its place. A partition without new data is removed until it changes; in a long fetch it was
        removed before it was read, and is there again if it has changed since."""
        dirty = self._session.dirty
        for entry, data in results:
            if data.records:
                dirty.pop(entry, None)
                dirty[entry] = None
            elif data.error_code or data.diverging_epoch is not None or not self._is_caught_up(entry, data):
                dirty[entry] = None
            elif not is_long:
                del dirty[entry]

    def _is_caught_up(self, entry: FetchedPartition, data: PartitionData) -> bool:
        partition = entry.partition
        return partition is None or self._reads.is_caught_up(entry, partition, data)

    def park(self, parked: ParkedFetches[FetchResponse], wait_ms: int) -> Promise[FetchResponse]:
        """Wait for data in any of the partitions, for the client's maximum wait, or for the server to stop."""
        return parked.park(self._session, lambda: self._request.min_bytes - self._size, wait_ms, self.collect, _failed)


def _failed(fault: Exception) -> Any:
    return closing_error(fault, "a waiting fetch failed")


def refuse_partition(index: int) -> PartitionData:
    return PartitionData(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, records=EMPTY)


def ends_wait(data: PartitionData) -> bool:
    """Return whether the response must be sent at once: an error, a divergence or another replica to read from.

    A denied partition is not urgent: its consumer would ask again at once, and wait for none of the others.
    """
    if data.error_code:
        return data.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return data.diverging_epoch is not None or data.preferred_read_replica != NO_REPLICA


def _has_changed(entry: FetchedPartition, data: PartitionData) -> bool:
    """Whether an incremental response must include this partition."""
    return bool(
        data.error_code
        or data.records
        or data.diverging_epoch is not None
        or data.preferred_read_replica != NO_REPLICA
        or data.high_watermark != entry.sent_high_watermark
        or data.log_start_offset != entry.sent_log_start_offset
    )
