"""confluent_kafka's Consumer, as far as the tools use it. It works only while it is polled."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from moldau.base.errors import KafkaError as BrokerError
from moldau.base.ids import TopicPartition as PartitionId
from moldau.client.admin.group_coordinators import TRANSIENT
from moldau.client.cluster import BACKOFF_SECONDS_FIRST, BACKOFF_SECONDS_MAX, RETRIABLE
from moldau.client.requests.metadata import metadata
from moldau.client.stand_in.fetcher import AssignedPartition, Fetcher
from moldau.client.stand_in.member import GroupMember
from moldau.client.stand_in.settings import connect
from moldau.client.stand_in.values import (
    CLIENT_ERRORS,
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
    as_kafka_exceptions,
    to_kafka_error,
)

FETCH_WAIT_SECONDS: Final = 0.5
IDLE_SECONDS: Final = 0.05
"""The longest wait while nothing is assigned, or a leader must be found."""
COMMIT_MS: Final = 5_000
RESPONSE_SECONDS: Final = 30.0
RebalanceCallback = Callable[["Consumer", list[TopicPartition]], None]


class Consumer:
    def __init__(self, config: Mapping[str, Any]) -> None:
        def is_true(name: str, default: str) -> bool:
            return str(config.get(name, default)).lower() == "true"

        self._cluster = connect(config)
        weakref.finalize(self, self._cluster.close)
        self._on_error: Callable[[KafkaError], None] = config.get("error_cb") or (lambda error: None)
        self._creates_topics = is_true("allow.auto.create.topics", "false")
        self._auto_commits = is_true("enable.auto.commit", "true")
        self._auto_stores = is_true("enable.auto.offset.store", "true")
        self._fetcher = Fetcher(
            self._cluster,
            str(config.get("auto.offset.reset", "latest")),
            config.get("isolation.level", "read_committed") == "read_committed",
            is_true("enable.partition.eof", "false"),
        )
        self._group_id = str(config.get("group.id", ""))
        self._member: GroupMember | None = None
        self._callbacks: Mapping[str, RebalanceCallback | None] = {}
        self._queue: deque[Message] = deque()
        self._stored: dict[PartitionId, int] = {}
        self._commit_seconds = float(config.get("auto.commit.interval.ms", COMMIT_MS)) / 1000
        self._next_commit = 0.0
        self._next_fetch = 0.0
        self._backoff_seconds = BACKOFF_SECONDS_FIRST

    # --- assignment -------------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._fetcher.assigned.clear()
        self._queue.clear()
        self.incremental_assign(partitions)

    def incremental_assign(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            self._fetcher.assigned[PartitionId(each.topic, each.partition)] = AssignedPartition(each.offset)
        self._next_fetch = 0.0

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            self._fetcher.assigned[PartitionId(each.topic, each.partition)].is_paused = True

    def subscribe(
        self,
        topics: Iterable[str],
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        topics = list(topics)
        self._callbacks = {"assign": on_assign, "revoke": on_revoke, "lost": on_lost or on_revoke}
        if self._member is None:
            self._member = GroupMember(self._cluster, self._group_id)
        if self._creates_topics:
            with as_kafka_exceptions():
                self._cluster.retry(
                    lambda: metadata(self._cluster.ask_any, topics, create=True), RESPONSE_SECONDS * 1000
                )
        self._member.subscribe(topics)

    # --- reading ----------------------------------------------------------------------------------------------------

    def poll(self, timeout: float = -1) -> Message | None:
        deadline = None if timeout < 0 else time.monotonic() + timeout
        while True:
            self._maintain_membership()
            if self._queue:
                return self._take()
            remaining = FETCH_WAIT_SECONDS if deadline is None else deadline - time.monotonic()
            self._fetch(max(0.0, min(remaining, FETCH_WAIT_SECONDS)))
            if not self._queue and deadline is not None and time.monotonic() >= deadline:
                return None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return the messages that are available; wait for the first one only."""
        first = self.poll(timeout) if num_messages else None
        rest = min(num_messages - 1, len(self._queue))
        return [] if first is None else [first, *(self._take() for _ in range(rest))]

    def _take(self) -> Message:
        message = self._queue.popleft()
        if self._auto_stores and message.error() is None:
            self._store(message)
        return message

    def _fetch(self, wait_seconds: float) -> None:
        is_active = any(not each.is_paused for each in self._fetcher.assigned.values())
        if not is_active or time.monotonic() < self._next_fetch:
            time.sleep(min(wait_seconds, IDLE_SECONDS))
            return
        try:
            messages, failure = self._fetcher.fetch(int(wait_seconds * 1000))
        except CLIENT_ERRORS as error:
            messages, failure = [], error
        self._queue.extend(messages)
        if self._fetcher.found_leaders:
            self._backoff_seconds = BACKOFF_SECONDS_FIRST
        if failure is None:
            return
        if isinstance(failure, BrokerError) and failure.code not in RETRIABLE:
            raise KafkaException(to_kafka_error(failure)) from failure
        self._on_retriable(failure)
        if not self._fetcher.found_leaders:
            self._back_off()
        if not messages:
            time.sleep(min(wait_seconds, IDLE_SECONDS))

    def _back_off(self) -> None:
        """Ask for leaders less and less often: if all topics are deleted, there may never be any."""
        self._next_fetch = time.monotonic() + self._backoff_seconds
        self._backoff_seconds = min(BACKOFF_SECONDS_MAX, self._backoff_seconds * 2)

    def _on_retriable(self, error: Exception) -> None:
        """Look up the leaders again; call the error callback if no broker answers."""
        if isinstance(error, BrokerError):
            self._cluster.forget()
        else:
            self._cluster.close()
            self._on_error(to_kafka_error(error))

    # --- the group --------------------------------------------------------------------------------------------------

    def store_offsets(self, message: Message) -> None:
        topic_partition = PartitionId(message.topic(), message.partition())
        if topic_partition not in self._fetcher.assigned:
            raise KafkaException(KafkaError(KafkaError._STATE, f"{topic_partition} is not assigned to this consumer"))
        self._store(message)

    def _store(self, message: Message) -> None:
        self._stored[PartitionId(message.topic(), message.partition())] = (message.offset() or 0) + 1

    def close(self) -> None:
        try:
            if self._member is not None:
                self._commit_stored()
                self._member.leave()
        except CLIENT_ERRORS as error:
            self._on_error(to_kafka_error(error))
        finally:
            self._cluster.close()

    def _maintain_membership(self) -> None:
        """Do the duties of a group member, if there is one: heartbeats, commits, assignments."""
        if self._member is None:
            return
        try:
            self._update_membership(self._member, time.monotonic())
        except CLIENT_ERRORS as error:
            if isinstance(error, BrokerError) and error.code not in RETRIABLE | TRANSIENT:
                raise KafkaException(to_kafka_error(error)) from error
            self._on_retriable(error)

    def _update_membership(self, member: GroupMember, now: float) -> None:
        """The heartbeat comes first: it tells a member that slept past its session that it may no longer commit."""
        member.heartbeat(now)
        if not member.is_removed and (target := member.target_partitions(now)) is not None:
            self._reconcile(member, target)
        if not member.is_removed and now >= self._next_commit:
            self._next_commit = now + self._commit_seconds
            self._commit_stored()
        if member.is_removed:
            self._remove(member.owned, "lost")
            member.rejoin()

    def _reconcile(self, member: GroupMember, target: set[PartitionId]) -> None:
        """Take over the target assignment. After an error the next poll tries again: the member owns only what it
        reads."""
        revoked, added = member.owned - target, target - member.owned
        if revoked:
            self._commit_stored()
            member.owned -= revoked
            self._remove(revoked, "revoke")
        committed = member.committed() if added else {}
        assigned = [
            TopicPartition(*topic_partition, committed.get(topic_partition, OFFSET_INVALID))
            for topic_partition in sorted(added)
        ]
        self.incremental_assign(assigned)
        member.confirm_owned(target)
        self._call_back("assign", assigned)

    def _remove(self, partitions: Iterable[PartitionId], event: str) -> None:
        removed = set(partitions)
        for topic_partition in removed:
            self._fetcher.assigned.pop(topic_partition, None)
            self._stored.pop(topic_partition, None)
        self._queue = deque(each for each in self._queue if PartitionId(each.topic(), each.partition()) not in removed)
        self._call_back(event, [TopicPartition(*topic_partition) for topic_partition in sorted(removed)])

    def _call_back(self, event: str, partitions: list[TopicPartition]) -> None:
        callback = self._callbacks.get(event)
        if callback is not None:
            callback(self, partitions)

    def _commit_stored(self) -> None:
        if self._member is not None and self._auto_commits and self._stored and self._member.commit(self._stored):
            self._stored = {}
