"""Fetch v4–18. Plans slices and reads nothing: the records leave their files when the reply is sent.

v7: incremental sessions (KIP-227); v11: replicas in a consumer's rack (KIP-392); v12: divergence by epoch; v13: topic
ids; v15: followers name their broker epoch (KIP-903); v16: the current leader, if it is another (KIP-951). The first
batch of the first partition with data is always sent whole (KIP-74). With too little data, the response waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.base.clock import Clock
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.base.limits import PARTITIONS_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems, finish, split
from moldau.base.turns import CHANGES_A_TURN, ITEMS_A_TURN
from moldau.metadata.current import CurrentImage
from moldau.replica.partitions import Partitions
from moldau.replica.reading import EMPTY, ConsumerReads, Reads, ReplicaReads, SameRack
from moldau.replica.replication import Replication
from moldau.replica.sessions import (
    CONSUMER,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchSession,
    SessionCache,
)
from moldau.replica.throttle import ThrottledReplicas
from moldau.replica.waiting import ParkedFetches
from moldau.security.acls.requirements import CLUSTER_ACTION, TOPIC_READ
from moldau.server.handler import LONG_ELEMENTS_MAX, Caller, Handler
from moldau.server.handlers.current_leaders import add_leaders_to_fetch
from moldau.server.handlers.fetch_answer import FetchAnswer, ends_wait, refuse_partition
from moldau.server.handlers.replies import item_count, partitions_in_turns, run_steps
from moldau.views.shown_runs import counted_size
from moldau.wire.apis import ApiKey
from moldau.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

if TYPE_CHECKING:
    from moldau.replica.view_partition import ReadablePartition

READ_COMMITTED = 1
RACK_MIN_VERSION = 11
TOPIC_ID_MIN_VERSION = 13
REPLICA_EPOCH_MIN_VERSION = 15
CURRENT_LEADER_MIN_VERSION = 16
NEW_FOLLOWERS_WAIT_MS = 50
"""The maximum wait of followers' fetches while new followers are expected: only their next fetch can name a partition
that this node has begun to lead."""


class Fetch(Handler):
    api = ApiKey.FETCH
    versions = (4, 18)
    needs = (TOPIC_READ, CLUSTER_ACTION)
    elements_max = LONG_ELEMENTS_MAX
    request_bytes_max = PARTITIONS_REQUEST_BYTES_MAX

    def __init__(
        self,
        current: CurrentImage,
        partitions: Partitions,
        sessions: SessionCache,
        parked: ParkedFetches[FetchResponse],
        clock: Clock,
        fetch_bytes_max: int,
        *,
        node_id: int,
        replication: Replication | None = None,
        throttled: ThrottledReplicas | None = None,
        rack_aware_reads: bool = False,
    ) -> None:
        """`throttled` are the replicas that the leader throttles; with `rack_aware_reads`, consumers are sent to
        replicas in their own rack."""
        self._current = current
        self._partitions = partitions
        self._sessions = sessions
        self._parked = parked
        self._clock = clock
        self.bytes_max = fetch_bytes_max
        self._node_id = node_id
        self._replication = replication
        if replication is not None:
            replication.on_expecting_followers = parked.release_followers
        self._throttled = throttled
        self._rack_aware_reads = rack_aware_reads
        self._plain_reads = {
            (is_committed, from_followers): ConsumerReads(is_committed, from_followers)
            for is_committed in (False, True)
            for from_followers in (False, True)
        }

    def answer(self, request: FetchRequest, caller: Caller) -> FetchResponse | Promise[FetchResponse]:
        uses_topic_ids = caller.version >= TOPIC_ID_MIN_VERSION
        try:
            reads = self._reads(request, caller)
            if reads.replica_id != CONSUMER and not caller.access.allows(CLUSTER_ACTION):
                return self._denied_follower(request)
            topics = request.topics
            is_small = len(topics) == 1 and len(topics[0].partitions) <= ITEMS_A_TURN
            is_long = not (is_small and not request.forgotten_topics_data) and _is_long(request)
            is_sessionless = request.session_epoch == FINAL_EPOCH and not request.session_id
            if is_sessionless and reads.replica_id == CONSUMER and not is_long:
                response = self._answer_without_session(request, uses_topic_ids, reads, caller)
                if response is not None:
                    return response
            session = self._session(request, uses_topic_ids, reads.replica_id)
        except KafkaError as error:
            return FetchResponse(error_code=error.code)
        if reads.replica_id != CONSUMER and self._replication is not None:
            session.fetched_ms = self._replication.lease_clock.monotonic_ms()
        is_full = request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)
        answer = FetchAnswer(self, session, request, is_full, reads, caller)
        if is_long or len(session.dirty) > ITEMS_A_TURN:
            return run_steps(self._parked.timers, self._steps(session, request, reads, answer))
        for topic in topics:
            self._update(session, topic, topic.partitions, reads)
        for forgotten in request.forgotten_topics_data:
            self._forget(session, forgotten, forgotten.partitions)
        response = finish(answer.collect())
        if response is not None:
            return response
        return answer.park(self._parked, self._wait_ms(request, reads))

    def _steps(
        self, session: FetchSession, request: FetchRequest, reads: Reads, answer: FetchAnswer
    ) -> Steps[FetchResponse | Promise[FetchResponse]]:
        """Answer a request of many partitions. They are watched from the beginning: records that come after a partition
        was read, and before the last one was, also end the wait."""
        is_touched, on_touch_before = False, session.on_touch

        def on_touch(size: int) -> None:
            nonlocal is_touched
            is_touched = True
            if on_touch_before is not None:
                on_touch_before(size)

        session.on_touch = on_touch
        may_wait = False
        try:
            yield from self._update_in_turns(session, request, reads)
            yield
            response = yield from answer.collect()
            may_wait = response is None
        finally:
            if not may_wait:
                session.on_touch = on_touch_before
                if not session.id:
                    session.close()
        if response is not None:
            return response
        parked = answer.park(self._parked, self._wait_ms(request, reads))
        if is_touched and session.on_touch is not None:
            session.on_touch(0)  # wakes the parked fetch: it reads the partitions again
        return parked

    def _update_in_turns(self, session: FetchSession, request: FetchRequest, reads: Reads) -> Steps[None]:
        turn = TurnItems(CHANGES_A_TURN)
        for topic in request.topics:
            for some in split(topic.partitions, CHANGES_A_TURN) if topic.partitions else ((),):
                self._update(session, topic, some, reads)
                if turn.ends_after(len(some)):
                    yield
        for forgotten in request.forgotten_topics_data:
            for some_indexes in split(forgotten.partitions, CHANGES_A_TURN) if forgotten.partitions else ((),):
                self._forget(session, forgotten, some_indexes)
                if turn.ends_after(len(some_indexes)):
                    yield

    def _denied_follower(self, request: FetchRequest) -> FetchResponse | Promise[FetchResponse]:
        """Return the error for every partition, without a session."""
        return partitions_in_turns(
            self._parked.timers,
            request.topics,
            lambda topic: (topic, topic.partitions),
            lambda topic, requested: refuse_partition(requested.partition),
            lambda results: FetchResponse(
                responses=[
                    FetchableTopicResponse(topic.topic_id, topic.topic, each)
                    for topic, each in zip(request.topics, results, strict=True)
                ]
            ),
            ITEMS_A_TURN,
            item_count(topic.partitions for topic in request.topics),
        )

    def _wait_ms(self, request: FetchRequest, reads: Reads) -> int:
        if reads.replica_id != CONSUMER and self._replication is not None and self._replication.expects_new_followers:
            return min(request.max_wait_ms, NEW_FOLLOWERS_WAIT_MS)
        return request.max_wait_ms

    def _reads(self, request: FetchRequest, caller: Caller) -> Reads:
        """Return how this client reads. A client that claims to be a replica must name its broker epoch: the offsets of
        a replica move the high watermark, and a client could send anything (CVE-2018-1288)."""
        replica_id = request.replica_id if request.replica_state is None else request.replica_state.replica_id
        if replica_id >= 0:
            replica_epoch = -1 if request.replica_state is None else request.replica_state.replica_epoch
            if caller.version < REPLICA_EPOCH_MIN_VERSION or replica_epoch < 0:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            return ReplicaReads(replica_id, replica_epoch, self._throttled)
        is_committed = request.isolation_level == READ_COMMITTED
        if self._rack_aware_reads and request.rack_id and caller.version >= RACK_MIN_VERSION:
            nearest = SameRack(self._current.image.brokers, self._node_id, request.rack_id, caller.listener)
            return ConsumerReads(is_committed, True, nearest)
        return self._plain_reads[is_committed, caller.version >= RACK_MIN_VERSION]

    def _answer_without_session(
        self, request: FetchRequest, uses_topic_ids: bool, reads: Reads, caller: Caller
    ) -> FetchResponse | None:
        """Answer a fetch without a session (librdkafka uses none) without storing state for it, which takes half the
        time. Return None if the fetch must wait, or names a topic twice: then `FetchAnswer` collects the response."""
        if len(request.topics) > 1 and len({topic.topic or topic.topic_id for topic in request.topics}) < len(
            request.topics
        ):
            return None
        bytes_left = min(request.max_bytes, self.bytes_max)
        size, is_urgent = 0, request.max_wait_ms <= 0
        topics = []
        for topic in request.topics:
            key: str | Uuid = topic.topic_id if uses_topic_ids else topic.topic
            if not caller.is_unrestricted and not self.may_read(key, caller):
                denied = [refuse_partition(requested.partition) for requested in topic.partitions]
                topics.append(FetchableTopicResponse(topic.topic_id, topic.topic, denied))
                continue
            results = []
            for requested in topic.partitions:
                index = requested.partition
                partition = (
                    self.partition(key, index) if uses_topic_ids else self._partitions.find_readable(topic.topic, index)
                )
                if partition is None:
                    data, length = self.unknown(key, index), 0
                else:
                    data, length = reads.read(partition, index, requested, bytes_left, not size)
                    partition.traffic.bytes_out += length
                results.append(data)
                if length:
                    size += length
                    bytes_left -= length
                else:
                    is_urgent = is_urgent or ends_wait(data)
            topics.append(FetchableTopicResponse(topic.topic_id, topic.topic, results))
        if size < request.min_bytes and not is_urgent and topics:
            if size:
                self._take_back(topics, uses_topic_ids)
            return None
        response = FetchResponse(responses=topics)
        if is_urgent:
            self.add_leaders(response, caller)
        return response

    def _take_back(self, topics: list[FetchableTopicResponse], uses_topic_ids: bool) -> None:
        """Do not count data that is not sent: the fetch waits for more, and is then counted."""
        for topic in topics:
            key: str | Uuid = topic.topic_id if uses_topic_ids else topic.topic
            for data in topic.partitions:
                partition = self.partition(key, data.partition_index)
                if partition is not None and data.records:
                    partition.traffic.bytes_out -= counted_size(data.records)

    def may_read(self, topic: str | Uuid, caller: Caller) -> bool:
        """Return whether a consumer may read the topic. Nobody is denied an unknown id: it is reported as unknown."""
        name = topic if isinstance(topic, str) else self._current.image.topic_names.get(topic)
        return name is None or caller.access.allows(TOPIC_READ, name)

    def add_leaders(self, response: FetchResponse, caller: Caller) -> None:
        if caller.version >= CURRENT_LEADER_MIN_VERSION:
            add_leaders_to_fetch(response, self._current.image, caller.listener, self._partitions.withheld)

    def _session(self, request: FetchRequest, uses_topic_ids: bool, replica_id: int) -> FetchSession:
        """Return the session of this request: a new one, one without an id, or a cached one."""
        now_ms = self._clock.monotonic_ms()
        replica_epoch = -1 if request.replica_state is None else request.replica_state.replica_epoch
        if request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            session = self._sessions.resume(
                request.session_id, request.session_epoch, uses_topic_ids, now_ms, replica_id
            )
            if request.topics:
                self._sessions.check_room(
                    session, _partition_count(request), lambda: _new_partition_count(session, request)
                )
            return session
        if request.session_id:
            self._sessions.remove(request.session_id)
        if request.session_epoch == FINAL_EPOCH:
            return FetchSession(0, uses_topic_ids, replica_id)
        if replica_id != CONSUMER and not self._is_broker(replica_id, replica_epoch):
            # Followers' sessions evict those of consumers: a client that only claims to be a follower gets none.
            return FetchSession(0, uses_topic_ids, replica_id)
        return self._sessions.create(uses_topic_ids, now_ms, replica_id, _partition_count(request))

    def _is_broker(self, replica_id: int, replica_epoch: int) -> bool:
        broker = self._current.image.brokers.get(replica_id)
        return broker is not None and broker.epoch == replica_epoch

    def _update(
        self, session: FetchSession, topic: FetchTopic, partitions: Sequence[FetchPartition], reads: Reads
    ) -> None:
        session.reads_committed = reads.is_committed
        key: str | Uuid = topic.topic_id if session.uses_topic_ids else topic.topic
        for requested in partitions:
            entry = session.put(key, requested.partition, self.partition(key, requested.partition))
            entry.fetch_offset = requested.fetch_offset
            entry.partition_max_bytes = requested.partition_max_bytes
            entry.current_leader_epoch = requested.current_leader_epoch
            entry.last_fetched_epoch = requested.last_fetched_epoch
            entry.log_start_offset = requested.log_start_offset
            if entry.partition is not None:
                reads.record_position(entry.partition, entry)

    def _forget(self, session: FetchSession, forgotten: ForgottenTopic, indexes: Sequence[int]) -> None:
        key: str | Uuid = forgotten.topic_id if session.uses_topic_ids else forgotten.topic
        for index in indexes:
            session.forget(key, index)

    def partition(self, topic: str | Uuid, index: int) -> ReadablePartition | None:
        name = topic if isinstance(topic, str) else self._current.image.topic_names.get(topic)
        return None if name is None else self._partitions.find_readable(name, index)

    def unknown(self, topic: str | Uuid, index: int) -> PartitionData:
        """Return the error for a partition that is not on this node: it is on another one, or does not exist."""
        name = topic if isinstance(topic, str) else self._current.image.topic_names.get(topic)
        if name is None:
            return PartitionData(index, ErrorCode.UNKNOWN_TOPIC_ID, -1, records=EMPTY)
        return PartitionData(index, self._partitions.absence(name, index), -1, records=EMPTY)

    @staticmethod
    def is_of_node(request: FetchRequest) -> bool:
        state = request.replica_state
        return (request.replica_id if state is None else state.replica_id) >= 0


def _partition_count(request: FetchRequest) -> int:
    return sum(map(len, [topic.partitions for topic in request.topics]))


def _new_partition_count(session: FetchSession, request: FetchRequest) -> int:
    """Return how many partitions the request names that the session does not have."""
    return sum(
        (topic.topic_id if session.uses_topic_ids else topic.topic, requested.partition) not in session.entries
        for topic in request.topics
        for requested in topic.partitions
    )


def _is_long(request: FetchRequest) -> bool:
    """Return whether the request names so many partitions that it takes several turns."""
    topics, forgotten = request.topics, request.forgotten_topics_data
    if len(topics) + len(forgotten) > ITEMS_A_TURN:
        return True
    named = item_count(topic.partitions for topic in topics)
    return named + item_count(topic.partitions for topic in forgotten) > ITEMS_A_TURN
