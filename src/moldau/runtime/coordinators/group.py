"""The group coordinator of a node: its shards and their topic. It passes changes of topics to the shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any, Final, TypeVar

from moldau.base.clock import Clock
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.base.settings import topics
from moldau.base.steps import TurnItems, WaitingSteps, checking
from moldau.base.topic_names import CONSUMER_OFFSETS_TOPIC
from moldau.base.turns import CHANGES_A_TURN
from moldau.coordinator.group.configs import GroupConfigs
from moldau.coordinator.group.consumer.patterns import PatternsNotMatched
from moldau.coordinator.group.groups import Groups
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.group.topic_changes import TopicChanges
from moldau.coordinator.machine import Outcome
from moldau.metadata.apply import Changes
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage
from moldau.replica.partitions import Partitions
from moldau.runtime.coordinators.new_topics import NewTopics
from moldau.runtime.coordinators.shards import Shards
from moldau.runtime.coordinators.share_group_states import ShareGroupStates
from moldau.runtime.coordinators.topic import CoordinatorTopic, topic_spec
from moldau.runtime.own_work import OwnWork
from moldau.share.ports import ShareStates
from moldau.wire.messages.create_topics import CreatableTopic

R = TypeVar("R")
Removals = Iterable[Outcome[None] | None]
"""Of offsets; each None ends a turn of the loop."""
GROUP_ID_BYTES_MAX = 2**15 - 1
"""The longest string that fits into a record's key."""
UNCHECKED_LENGTH_MAX = GROUP_ID_BYTES_MAX // 4
"""A group id of so many characters has at most GROUP_ID_BYTES_MAX bytes as UTF-8."""
LOSS: Final = "offsets that groups have committed are lost, and their members begin where they would without any"


class GroupCoordinator:
    def __init__(
        self,
        settings: GroupSettings,
        topic: CoordinatorTopic,
        node_id: int,
        partitions: Partitions,
        current: CurrentImage,
        clock: Clock,
        own_work: OwnWork,
        rng: Random,
        static_configs: Mapping[str, str],
        share_states: ShareStates,
    ) -> None:
        self.topic = topic
        self.configs = GroupConfigs(current, node_id, static_configs)
        self._clock = clock
        self._own_work = own_work
        self.share_states = ShareGroupStates(share_states, self.submit, own_work)
        self.shards: Shards[Groups] = Shards(
            topic,
            node_id,
            partitions,
            lambda _: Groups(settings, current, clock, rng, self.configs, self.share_states.initialize),
            clock,
            own_work,
            # The RegistrationGate has held back all older images: a topic that is unknown then does not exist.
            lambda groups: groups.remove_offsets_of_unknown_topics(TurnItems(CHANGES_A_TURN)),
        )
        self._new_topics = NewTopics(self.shards)
        self._is_matching = False
        self._waiting_to_match: list[Promise[float]] = []

    # --- requests -----------------------------------------------------------------------------------------------

    def submit(
        self, group_id: str, decide: Callable[..., Outcome[R]], *arguments: Any, allows_empty_group_id: bool = False
    ) -> R | Promise[R]:
        """Submit a request to the shard of its group, which calls `decide(groups, *arguments)`. Raise KafkaError if
        this node does not have the shard; a promise may also be completed with a KafkaError. After PatternsNotMatched,
        call `match` and submit it again."""
        if not group_id or len(group_id) > UNCHECKED_LENGTH_MAX:
            _check_group_id(group_id, allows_empty_group_id)
        return self.shards.submit(group_id, decide, *arguments)

    def match(self, group_id: str, unmatched: PatternsNotMatched) -> WaitingSteps[None]:
        """Match the patterns that a request of the group needs. A node matches those of one request at a time;
        others wait, as they may need the same ones. Raise KafkaError if this node no longer coordinates the group."""
        while self._is_matching:
            matched: Promise[float] = Promise()
            self._waiting_to_match.append(matched)
            yield matched
            self.shards.loaded_machine_of(group_id)
        self._is_matching = True
        try:
            yield from checking(unmatched.steps, lambda: self.shards.loaded_machine_of(group_id))
        finally:
            self._is_matching = False
            waiting, self._waiting_to_match = self._waiting_to_match, []
            for each in waiting:
                each.complete(0.0)

    def machine_to_read(self, group_id: str, allows_empty_group_id: bool = False) -> Groups:
        """Return the machine of a group, for a request that reads it in several turns and then calls `submit_read`.
        Raise KafkaError if this node does not have it, or has not loaded it."""
        _check_group_id(group_id, allows_empty_group_id)
        return self.shards.loaded_machine_of(group_id)

    def submit_read(
        self, group_id: str, machine: Groups, decide: Callable[..., Outcome[R]], *arguments: Any
    ) -> R | Promise[R]:
        """Like `submit`, but raise KafkaError if `machine` was dropped: what was read there may not be committed."""
        return self.shards.submit(group_id, _decide_if_same, machine, decide, *arguments)

    def find(self, group_id: str) -> int:
        """Return the node that coordinates the group. Raise KafkaError if there is none now."""
        return self.shards.node_of(group_id)

    # --- changes of metadata, expiration, shutdown --------------------------------------------------------------

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        self.topic.warn_of_loss(image, changes, LOSS)
        self.shards.on_image(image, changes)
        if changes.topics or changes.removed:
            # Groups look at their topics when they are loaded: what is loading needs to know only of deletions.
            submit = self.shards.submit_to_all if changes.removed else self.shards.submit_to_loaded
            # The machines read the current image, which is set only after all listeners were called.
            self._own_work.soon(lambda: _pass_on(TopicChanges.of(image, changes), submit))
            self._own_work.soon(lambda: self._new_topics.on_changes(changes))

    def expire_offsets(self) -> None:
        """Remove expired offsets and empty groups, in turns of the loop; nothing if the last removal is still going
        on."""
        now_ms = self._clock.now_ms()
        self.shards.submit_in_turns(lambda groups: groups.expire(now_ms))

    def close(self) -> None:
        """Fail all waiting requests because the node stops; members look for another coordinator then."""
        self.shards.close(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _pass_on(changes: TopicChanges, submit: Callable[[Callable[[Groups], Removals]], None]) -> None:
    turn = TurnItems(CHANGES_A_TURN)
    submit(lambda groups: groups.topics_changed(changes, turn))


def _check_group_id(group_id: str, allows_empty: bool) -> None:
    if (not group_id and not allows_empty) or len(group_id.encode()) > GROUP_ID_BYTES_MAX:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)


def _decide_if_same(current: Groups, read: Groups, decide: Callable[..., Outcome[R]], *arguments: Any) -> Outcome[R]:
    if current is not read:
        # The machine was loaded again meanwhile; with this code clients retry at the same node.
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return decide(current, *arguments)


def offsets_topic(partitions: int, replication_factor: int, segment_bytes: int) -> CreatableTopic:
    configs = {
        topics.CLEANUP_POLICY.name: "compact",
        topics.COMPRESSION_TYPE.name: "producer",
        topics.SEGMENT_BYTES.name: str(segment_bytes),
    }
    return topic_spec(CONSUMER_OFFSETS_TOPIC, partitions, replication_factor, configs)
