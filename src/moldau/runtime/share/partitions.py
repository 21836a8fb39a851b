"""The share partitions of a node: made when a group first reads a partition here, and dropped when the node no longer
leads it or the group has no member left here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from moldau.base.clock import Clock
from moldau.base.durations import duration_ns
from moldau.base.errors import ErrorCode, KafkaError, MalformedData, StorageFault
from moldau.base.group_configs import BY_DURATION_PREFIX, EARLIEST, LATEST
from moldau.base.ports import RunInThread
from moldau.base.promise import Promise, resolved
from moldau.base.steps import WaitingSteps, checking
from moldau.metadata.controller.features import DEAD_LETTERS_LEVEL, SHARE_VERSION
from moldau.metadata.current import CurrentImage
from moldau.replica.partition import Partition
from moldau.replica.partitions import Partitions
from moldau.runtime.own_work import OwnWork
from moldau.runtime.share.dead_letters import DeadLetters
from moldau.runtime.thread_work import in_thread
from moldau.share.limits import ShareLimits
from moldau.share.partition import SharePartition
from moldau.share.ports import ShareKey, ShareStates
from moldau.share.sessions import ShareSession, ShareSessions
from moldau.share.traffic import ShareTraffic
from moldau.share.window import Acknowledged

_NS_A_MS: Final = 1_000_000


class LocalSharePartition:
    """A share partition with the partition whose records it gives out, and the fetches that wait for them."""

    __slots__ = ("_held_up", "_is_reading", "partition", "share", "waiting")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.share: SharePartition
        self.waiting: dict[Callable[[], None], None] = {}
        """Called when records may have become available."""
        self._is_reading = False
        self._held_up: list[Callable[[], None]] = []

    def begin_reading(self, held_up: Callable[[], None]) -> bool:
        """Return whether a fetch may read for it now. If another one does, `held_up` is called when that has ended."""
        if self._is_reading:
            self._held_up.append(held_up)
            return False
        self._is_reading = True
        return True

    def end_reading(self) -> None:
        self._is_reading = False
        held_up, self._held_up = self._held_up, []
        for call in held_up:
            call()

    def wake(self) -> None:
        for call in list(self.waiting):
            call()

    @property
    def is_led_here(self) -> bool:
        partition = self.partition
        return (
            partition.is_leader and not partition.is_closed and partition.state.leader_epoch == self.share.leader_epoch
        )


class SharePartitions:
    """`limits_of` returns what a group may hold."""

    def __init__(
        self,
        partitions: Partitions,
        current: CurrentImage,
        states: ShareStates,
        limits_of: Callable[[str], ShareLimits],
        dead_letters: DeadLetters,
        sessions: ShareSessions,
        clock: Clock,
        own_work: OwnWork,
        run_in_thread: RunInThread,
    ) -> None:
        self._partitions = partitions
        self._current = current
        self._states = states
        self._limits_of = limits_of
        self._dead_letters = dead_letters
        self.sessions = sessions
        self._clock = clock
        self._own_work = own_work
        self._run_in_thread = run_in_thread
        self._local: dict[ShareKey, LocalSharePartition] = {}
        self.traffic = ShareTraffic()

    def __len__(self) -> int:
        return len(self._local)

    def limits_of(self, group_id: str) -> ShareLimits:
        limits = self._limits_of(group_id)
        has_level = self._current.image.features.get(SHARE_VERSION, 0) >= DEAD_LETTERS_LEVEL
        return limits if has_level or not limits.dead_letter_topic else limits._replace(dead_letter_topic="")

    def ready(self) -> list[LocalSharePartition]:
        return [local for local in self._local.values() if local.share.is_ready]

    def find(self, key: ShareKey) -> LocalSharePartition | None:
        """Return the share partition, if a group has begun to read it and this node still leads it."""
        local = self._local.get(key)
        if local is not None and not local.is_led_here:
            local.share.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return None
        return local

    def get(self, key: ShareKey) -> LocalSharePartition:
        """Return the share partition, which begins to load if it is new. Raise KafkaError if this node does not lead
        it."""
        local = self.find(key)
        return self._load(key) if local is None else local

    def _load(self, key: ShareKey) -> LocalSharePartition:
        local = self._local[key] = self._new(key)
        local.share.load(lambda limits: self._find_start(local.partition, limits))
        return local

    def _new(self, key: ShareKey) -> LocalSharePartition:
        topic = self._current.image.topic_names.get(key.topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = self._partitions.get(topic, key.partition)
        if partition.topic_id != key.topic_id:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition.check_certain()
        local = LocalSharePartition(partition)
        local.share = SharePartition(
            key,
            partition.state.leader_epoch,
            self._states,
            partial(self.limits_of, key.group_id),
            self._clock,
            self._own_work,
            self.traffic,
            lambda letters: self._dead_letters.write(key, partition, self.limits_of(key.group_id), letters),
            lambda: self._on_free(local),
            lambda: self._forget(key, local),
        )
        return local

    def _forget(self, key: ShareKey, local: LocalSharePartition) -> None:
        if self._local.get(key) is local:
            del self._local[key]

    # --- where a group begins -----------------------------------------------------------------------------------

    def _find_start(self, partition: Partition, limits: ShareLimits) -> Promise[int | KafkaError]:
        reset = limits.auto_offset_reset
        if reset == EARLIEST:
            return resolved(partition.log.start_offset)
        if partition.epoch_start_offset > partition.high_watermark:
            return resolved(KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE))
        if reset == LATEST:
            return resolved(partition.high_watermark)
        found: Promise[int | KafkaError] = Promise()
        age_ms = duration_ns(reset.removeprefix(BY_DURATION_PREFIX)) // _NS_A_MS
        search = self._search(partition, self._clock.now_ms() - age_ms)
        self._own_work.long_work(search, found.complete)()
        return found

    def _search(self, partition: Partition, time_ms: int) -> WaitingSteps[int | KafkaError]:
        """Return the offset of the first record that is not older; the end without one."""

        def check() -> None:
            if partition.is_closed:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

        try:
            search = partition.log.search_time(max(0, time_ms), partial(in_thread, self._run_in_thread))
            record = yield from checking(search, check)
        except KafkaError as error:
            return error
        except MalformedData as error:
            return KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error))
        except StorageFault as fault:
            partition.report_fault(f"{partition.name}: offsets cannot be looked up", fault)
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        return partition.high_watermark if record is None else min(record.offset, partition.high_watermark)

    # --- members ------------------------------------------------------------------------------------------------

    def acknowledge(self, key: ShareKey, member_id: str, said: list[Acknowledged]) -> Promise[KafkaError | None]:
        local = self.find(key)
        if local is None:
            return resolved(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        return local.share.acknowledge(member_id, said)

    def end_session(self, session: ShareSession) -> None:
        """Release what a member holds. Without members here, nothing is kept of its group."""
        self.sessions.close(session)
        for place in session.places:
            local = self.find(ShareKey(session.group_id, *place))
            if local is not None:
                local.share.release(session.member_id)
        if not self.sessions.has_members(session.group_id):
            self._forget_group(session.group_id)

    def _forget_group(self, group_id: str) -> None:
        for local in [local for key, local in self._local.items() if key.group_id == group_id]:
            self._end_if_unused(local.share)

    def _on_free(self, local: LocalSharePartition) -> None:
        local.wake()
        self._end_if_unused(local.share)

    def _end_if_unused(self, share: SharePartition) -> None:
        """Without members here, nothing is kept of a group, but for what is being written: a member that comes
        meanwhile would get records that were accepted."""
        if not share.is_writing and not self.sessions.has_members(share.key.group_id):
            share.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def on_partitions_changed(self) -> None:
        """Drop what this node no longer leads: fetches that wait there are answered."""
        for local in list(self._local.values()):
            if not local.is_led_here:
                local.share.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def close(self) -> None:
        for local in list(self._local.values()):
            local.share.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
