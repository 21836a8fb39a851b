"""Has the share coordinators make and delete the states of share groups' partitions, as the group coordinator decides,
and tells it what became of them. A state that could not be made is tried again with a later heartbeat of a member.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.base.promise import Promise, resolved
from moldau.base.steps import Steps, TurnItems
from moldau.base.turns import CHANGES_A_TURN
from moldau.coordinator.group.groups import Groups
from moldau.coordinator.group.share import initializing, offsets
from moldau.coordinator.group.share.initializing import Initialization
from moldau.coordinator.group.share.member import PartitionsByTopicId
from moldau.coordinator.group.share.offsets import Deletion
from moldau.coordinator.machine import Outcome
from moldau.runtime.own_work import OwnWork
from moldau.share.ports import ShareKey, ShareStates

log = logging.getLogger("moldau.coordinator")
Codes = dict[tuple[Uuid, int], ErrorCode]
"""What became of each partition's state."""


class Submit(Protocol):
    def __call__(self, group_id: str, decide: Callable[..., Outcome[Any]], *arguments: Any) -> Any: ...


class ShareGroupStates:
    """`submit` submits a decision to the machine of a group, as `GroupCoordinator.submit` does."""

    def __init__(self, states: ShareStates, submit: Submit, own_work: OwnWork) -> None:
        self._states = states
        self._submit = submit
        self._own_work = own_work

    def initialize(self, initialization: Initialization) -> None:
        """Have states made. Nobody waits for it."""
        self.make(initialization).then(self._own_work.guard(_ignore))

    def make(self, initialization: Initialization) -> Promise[Codes]:
        """Have states made. The promise is completed when it is written down which of them were."""
        group_id, state_epoch, start_offsets = initialization
        keys = _keys(group_id, start_offsets)

        def make(key: ShareKey) -> Promise[ErrorCode]:
            return self._states.initialize(key, state_epoch, start_offsets[key.topic_id][key.partition])

        return self._for_each(keys, make).and_then(partial(self._on_made, group_id))

    def _on_made(self, group_id: str, codes: Codes) -> Promise[Codes]:
        failed = {place: code for place, code in codes.items() if code}
        if failed:
            (topic_id, index), code = next(iter(failed.items()))
            log.warning(
                "share group %s: %d states could not be made, such as that of partition %d of topic %s: %s",
                group_id,
                len(failed),
                index,
                topic_id.hex(),
                code.name,
            )
        made = _by_topic(place for place, code in codes.items() if not code)
        return self._write_down(group_id, codes, initializing.on_made, made, _by_topic(failed))

    def delete(self, deletion: Deletion) -> Promise[Codes]:
        """Have states deleted. That they are is not written down."""
        return self._for_each(_keys(*deletion), self._states.delete)

    def delete_offsets(self, deletion: Deletion) -> Promise[Codes]:
        """Have the states of topics deleted. The promise is completed when it is written down."""
        return self.delete(deletion).and_then(partial(self._on_deleted, deletion.group_id))

    def _on_deleted(self, group_id: str, codes: Codes) -> Promise[Codes]:
        failed = {topic_id for (topic_id, _), code in codes.items() if code}
        deleted = {topic_id for topic_id, _ in codes} - failed
        return self._write_down(group_id, codes, offsets.on_deleted, deleted)

    def _write_down(
        self, group_id: str, codes: Codes, decide: Callable[..., Outcome[None]], *arguments: Any
    ) -> Promise[Codes]:
        """Submit what became of states. If that fails, the group's coordinator has changed, or cannot write: it then
        has these states made or deleted once more."""

        def on_written(result: Any) -> Codes:
            if isinstance(result, KafkaError):
                log.info("share group %s: that states were made or deleted is not written: %s", group_id, result)
                return dict.fromkeys(codes, result.code)
            return codes

        def decide_about(groups: Groups) -> Outcome[None]:
            return decide(groups.state, group_id, *arguments)

        try:
            return resolved(self._submit(group_id, decide_about)).map(on_written)
        except KafkaError as error:
            return resolved(on_written(error))

    def _for_each(self, keys: Sequence[ShareKey], call: Callable[[ShareKey], Promise[ErrorCode]]) -> Promise[Codes]:
        """Call it for each key, in turns of the loop, and return a promise of all results."""
        results: Promise[Codes] = Promise()
        codes: Codes = {}

        def on_code(key: ShareKey, code: ErrorCode) -> None:
            codes[key.topic_id, key.partition] = code
            if len(codes) == len(keys):
                results.complete(codes)

        def steps() -> Steps[None]:
            turn = TurnItems(CHANGES_A_TURN)
            for key in keys:
                call(key).then(partial(on_code, key))
                if turn.ends_after(1):
                    yield

        if not keys:
            return resolved({})
        self._own_work.long_work(steps())()
        return results


def _keys(group_id: str, partitions: Mapping[Uuid, Iterable[int]]) -> list[ShareKey]:
    return [
        ShareKey(group_id, topic_id, index) for topic_id, indexes in partitions.items() for index in sorted(indexes)
    ]


def _by_topic(places: Iterable[tuple[Uuid, int]]) -> PartitionsByTopicId:
    found: dict[Uuid, set[int]] = {}
    for topic_id, index in places:
        found.setdefault(topic_id, set()).add(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in found.items()}


def _ignore(_: Codes) -> None:
    """The group's coordinator knows what became of the states."""
