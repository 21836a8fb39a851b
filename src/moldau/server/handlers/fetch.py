"""Fetch v4–18. A plan of slices, nothing read: the records leave their files when the reply is sent.

v7: incremental sessions (KIP-227); v12: divergence by epoch; v13: topic ids. The first batch of the first partition
that has data is always sent whole, however large (KIP-74). With too little to tell, the answer waits for more.
"""

from __future__ import annotations

from moldau.base.clock import Clock
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import ZERO_UUID, Uuid
from moldau.base.later import Later
from moldau.metadata.current import CurrentImage
from moldau.replica.partition import Partition
from moldau.replica.partitions import Partitions
from moldau.replica.sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchedPartition, FetchSession, SessionCache
from moldau.replica.waiting import ParkedFetches
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

READ_COMMITTED = 1
TOPIC_ID_FROM_VERSION = 13
EMPTY = b""


class Fetch:
    api = ApiKey.FETCH
    versions = (4, 18)

    def __init__(
        self,
        current: CurrentImage,
        partitions: Partitions,
        sessions: SessionCache,
        parked: ParkedFetches[FetchResponse],
        clock: Clock,
        fetch_bytes_max: int,
    ) -> None:
        self._current = current
        self._partitions = partitions
        self._sessions = sessions
        self._parked = parked
        self._clock = clock
        self.bytes_max = fetch_bytes_max

    def answer(self, ask: FetchRequest, caller: Caller) -> FetchResponse | Later[FetchResponse]:
        replica_id = ask.replica_id if ask.replica_state is None else ask.replica_state.replica_id
        if replica_id >= 0:
            return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
        uses_topic_ids = caller.version >= TOPIC_ID_FROM_VERSION
        if ask.session_epoch == FINAL_EPOCH and not ask.session_id:
            at_once = self._answer_at_once(ask, uses_topic_ids)
            if at_once is not None:
                return at_once
        try:
            session = self._session(ask, uses_topic_ids)
        except KafkaError as refused:
            return FetchResponse(error_code=refused.code)
        is_full = ask.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)
        self._update(session, ask)
        answer = _Answer(self, session, ask, is_full)
        response = answer.collect()
        if response is not None:
            return response
        return answer.park(self._parked)

    def _answer_at_once(self, ask: FetchRequest, uses_topic_ids: bool) -> FetchResponse | None:
        """A fetch without a session (librdkafka's are all so) that need not wait: nothing is remembered of it. None if
        it must wait after all, or names a topic twice."""
        if len(ask.topics) > 1 and len({topic.topic or topic.topic_id for topic in ask.topics}) < len(ask.topics):
            return None
        left = min(ask.max_bytes, self.bytes_max)
        committed = ask.isolation_level == READ_COMMITTED
        size, is_urgent = 0, ask.max_wait_ms <= 0
        topics = []
        for topic in ask.topics:
            key: str | Uuid = topic.topic_id if uses_topic_ids else topic.topic
            found = []
            for wanted in topic.partitions:
                partition = self.partition(key, wanted.partition)
                if partition is None:
                    data, length = _unknown(key, wanted.partition), 0
                else:
                    data, length = _read(partition, wanted.partition, wanted, left, not size, committed)
                found.append(data)
                size += length
                left -= length
                is_urgent = is_urgent or data.error_code != 0 or data.diverging_epoch is not None
            topics.append(FetchableTopicResponse(topic.topic_id, topic.topic, found))
        return FetchResponse(responses=topics) if size >= ask.min_bytes or is_urgent or not topics else None

    def _session(self, ask: FetchRequest, uses_topic_ids: bool) -> FetchSession:
        """The session this request belongs to: a new one, one without a name, or one of those we hold."""
        if ask.session_epoch == FINAL_EPOCH:
            if ask.session_id:
                self._sessions.remove(ask.session_id)
            return FetchSession(0, uses_topic_ids)
        now_ms = self._clock.elapsed_ms()
        if ask.session_epoch == INITIAL_EPOCH:
            if ask.session_id:
                self._sessions.remove(ask.session_id)
            return self._sessions.create(uses_topic_ids, now_ms)
        return self._sessions.resume(ask.session_id, ask.session_epoch, uses_topic_ids, now_ms)

    def _update(self, session: FetchSession, ask: FetchRequest) -> None:
        by_id = session.uses_topic_ids
        for topic in ask.topics:
            key: str | Uuid = topic.topic_id if by_id else topic.topic
            for wanted in topic.partitions:
                entry = session.put(key, wanted.partition, self.partition(key, wanted.partition))
                entry.fetch_offset = wanted.fetch_offset
                entry.partition_max_bytes = wanted.partition_max_bytes
                entry.current_leader_epoch = wanted.current_leader_epoch
                entry.last_fetched_epoch = wanted.last_fetched_epoch
        for forgotten in ask.forgotten_topics_data:
            key = forgotten.topic_id if by_id else forgotten.topic
            for index in forgotten.partitions:
                session.forget(key, index)

    def partition(self, topic: str | Uuid, index: int) -> Partition | None:
        name = topic if isinstance(topic, str) else self._current.image.topic_names.get(topic)
        return None if name is None else self._partitions.find(name, index)


class _Answer:
    """One request's answer in the making; asked again each time there is more."""

    __slots__ = ("_ask", "_fetch", "_is_full", "_session", "_size")

    def __init__(self, fetch: Fetch, session: FetchSession, ask: FetchRequest, is_full: bool) -> None:
        self._fetch = fetch
        self._session = session
        self._ask = ask
        self._is_full = is_full
        self._size = 0

    def collect(self, is_last: bool = False) -> FetchResponse | None:
        """The response, or None if there is too little to tell and there is time to wait for more."""
        ask, session = self._ask, self._session
        left = min(ask.max_bytes, self._fetch.bytes_max)
        found: list[tuple[FetchedPartition, PartitionData]] = []
        size, is_urgent = 0, False
        for entry in session.dirty:
            data, length = self._read(entry, left, not size)
            found.append((entry, data))
            size += length
            left -= length
            is_urgent = is_urgent or data.error_code != 0 or data.diverging_epoch is not None
        enough = size >= ask.min_bytes or is_urgent or is_last or ask.max_wait_ms <= 0 or not session.entries
        self._size = size
        if not enough:
            return None
        if session.id:
            self._rotate(found)
        if not self._is_full:
            found = [(entry, data) for entry, data in found if _is_news(entry, data)]
        return self._response(found)

    def _read(self, entry: FetchedPartition, left: int, is_first: bool) -> tuple[PartitionData, int]:
        """What one partition has for the client; its name may lead to another partition than last time."""
        partition = entry.partition
        if partition is None or partition.is_closed:
            partition = self._fetch.partition(entry.topic, entry.index)
            self._session.rebind(entry, partition)
        if partition is None:
            return _unknown(entry.topic, entry.index), 0
        return _read(partition, entry.index, entry, left, is_first, self._ask.isolation_level == READ_COMMITTED)

    def _response(self, found: list[tuple[FetchedPartition, PartitionData]]) -> FetchResponse:
        topics: dict[str | Uuid, list[PartitionData]] = {}
        for entry, data in found:
            topics.setdefault(entry.topic, []).append(data)
            entry.told_high_watermark = data.high_watermark
            entry.told_log_start_offset = data.log_start_offset
        return FetchResponse(
            session_id=self._session.id,
            responses=[
                FetchableTopicResponse(ZERO_UUID, topic, data)
                if isinstance(topic, str)
                else FetchableTopicResponse(topic, "", data)
                for topic, data in topics.items()
            ],
        )

    def _rotate(self, found: list[tuple[FetchedPartition, PartitionData]]) -> None:
        """What gave data goes to the end of the line. What has some that did not fit keeps its place, and so does what
        is wrong; what has none leaves, until it is touched."""
        dirty = self._session.dirty
        for entry, data in found:
            if data.records:
                del dirty[entry]
                dirty[entry] = None
            elif not data.error_code and data.diverging_epoch is None and self._is_read_up(entry, data):
                del dirty[entry]

    def _is_read_up(self, entry: FetchedPartition, data: PartitionData) -> bool:
        committed = self._ask.isolation_level == READ_COMMITTED
        return entry.fetch_offset >= (data.last_stable_offset if committed else data.high_watermark)

    def park(self, parked: ParkedFetches[FetchResponse]) -> Later[FetchResponse]:
        """Waits for data in any of the partitions, for the client's time to be up, or for the server to stop."""
        missing = self._ask.min_bytes - self._size
        return parked.park(self._session, missing, self._ask.max_wait_ms, self.collect)


def _unknown(topic: str | Uuid, index: int) -> PartitionData:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if isinstance(topic, str) else ErrorCode.UNKNOWN_TOPIC_ID
    return PartitionData(index, code, -1, records=EMPTY)


def _read(
    partition: Partition,
    index: int,
    wanted: FetchPartition | FetchedPartition,
    left: int,
    is_first: bool,
    committed: bool,
) -> tuple[PartitionData, int]:
    """What one partition has for the client, a slice or what is wrong, and the length of it."""
    try:
        partition.fence(wanted.current_leader_epoch)
        diverging = _divergence(partition, wanted) if wanted.last_fetched_epoch >= 0 else None
        high_watermark, last_stable_offset = partition.high_watermark, partition.last_stable_offset
        up_to = last_stable_offset if committed else high_watermark
        limit = min(left, wanted.partition_max_bytes)
        records = None if diverging else partition.read(wanted.fetch_offset, limit, up_to, is_first)
    except KafkaError as refused:
        return PartitionData(index, refused.code, -1, records=EMPTY), 0
    data = PartitionData(
        index,
        0,
        high_watermark,
        last_stable_offset,
        partition.log.start_offset,
        diverging,
        aborted_transactions=() if committed else None,
        records=EMPTY if records is None else records,
    )
    return data, 0 if records is None else records.length


def _is_news(entry: FetchedPartition, data: PartitionData) -> bool:
    """Whether an incremental answer must speak of this partition."""
    return bool(
        data.error_code
        or data.records
        or data.diverging_epoch is not None
        or data.high_watermark != entry.told_high_watermark
        or data.log_start_offset != entry.told_log_start_offset
    )


def _divergence(partition: Partition, wanted: FetchPartition | FetchedPartition) -> EpochEndOffset | None:
    """Whether the client's log has parted from ours before its fetch offset (KIP-595): where, by epoch."""
    epoch, end_offset = partition.log.epochs.end_offset_for(wanted.last_fetched_epoch, partition.log.end_offset)
    if end_offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        return EpochEndOffset(epoch, end_offset)
    return None
