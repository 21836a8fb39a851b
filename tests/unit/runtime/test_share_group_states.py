"""What becomes of the states of share groups' partitions: made, not made, deleted; and of coordinators that go away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from harness.fake_share_states import FakeShareStates
from harness.in_memory_group_shard import InMemoryGroupShard
from harness.raised_faults import own_work

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.base.turns import CHANGES_A_TURN
from moldau.coordinator.group.groups import Groups
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.group.share.heartbeat import find_share_group
from moldau.coordinator.group.share.offsets import Deletion, begin_group_deletion, begin_offset_deletion
from moldau.coordinator.machine import Outcome
from moldau.runtime.coordinators.share_group_states import ShareGroupStates
from moldau.share.ports import ShareKey
from moldau.testing.clock import FakeTimers
from moldau.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest


class Setup:
    """A shard of groups whose states are made by fake share coordinators."""

    def __init__(self) -> None:
        self.shard = InMemoryGroupShard(GroupSettings())
        self.states = FakeShareStates()
        self.timers = FakeTimers()
        self.error: KafkaError | None = None
        """What the group's coordinator refuses decisions with."""
        self.driver = ShareGroupStates(self.states, self._submit, own_work(self.timers))

    def _submit(self, group_id: str, decide: Callable[..., Outcome[Any]], *arguments: Any) -> Any:
        if self.error is not None:
            raise self.error
        return self.shard.submit(lambda groups: decide(groups, *arguments))

    def heartbeat(self, epoch: int, *names: str) -> dict[int, list[int]]:
        """Send a heartbeat of the only member, and have states made. Return what it is assigned."""
        self.shard.advance(1_000)
        request = ShareGroupHeartbeatRequest("g", "m", epoch, None, list(names) or None)
        response = self.shard.share_heartbeat(request)
        while self.shard.initializations:
            self.driver.initialize(self.shard.initializations.pop())
        self.timers.run_soon()
        assert response.assignment is not None or not names
        topics = [] if response.assignment is None else response.assignment.topic_partitions
        return {int.from_bytes(topic.topic_id): list(topic.partitions) for topic in topics}

    def leave(self) -> None:
        self.shard.share_heartbeat(ShareGroupHeartbeatRequest("g", "m", -1))

    def decide(self, decide: Callable[[Groups], Outcome[Any]]) -> Any:
        return self.shard.submit(decide).value()

    def result(self, promise: Promise[Any]) -> Any:
        while self.timers.run_soon():
            pass
        return promise.value()

    def key(self, partition: int) -> ShareKey:
        return ShareKey("g", self.topic_id, partition)

    @property
    def topic_id(self) -> bytes:
        return self.shard.current.image.topics["a"].id


@pytest.fixture
def setup() -> Setup:
    setup = Setup()
    setup.shard.create_topic("a", 3)
    return setup


def test_states_are_made_in_the_epoch_of_the_group(setup: Setup) -> None:
    assert setup.heartbeat(0, "a") == {}
    assert setup.states.start_offsets == dict.fromkeys(map(setup.key, range(3)), -1)
    assert set(setup.states.epochs.values()) == {2}
    assert setup.heartbeat(2) == {1: [0, 1, 2]}


def test_a_state_that_cannot_be_made_keeps_back_no_other_and_is_tried_again(setup: Setup) -> None:
    setup.states.errors["initialize", 1] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    setup.heartbeat(0, "a")
    assert setup.heartbeat(2) == {1: [0, 2]}
    del setup.states.errors["initialize", 1]
    setup.heartbeat(3)
    assert setup.key(1) in setup.states.start_offsets
    assert setup.heartbeat(3) == {1: [0, 1, 2]}


def test_states_are_not_asked_for_twice_while_they_are_made(setup: Setup) -> None:
    setup.states.is_held = True
    setup.heartbeat(0, "a")
    setup.heartbeat(2)
    setup.states.is_held = False
    setup.states.release()
    assert setup.heartbeat(2) == {1: [0, 1, 2]}
    assert set(setup.states.epochs.values()) == {2}


def test_a_topic_that_is_deleted_while_its_states_are_made_is_forgotten(setup: Setup) -> None:
    setup.states.is_held = True
    setup.heartbeat(0, "a")
    setup.shard.delete_topic("a")
    setup.states.release()
    assert not find_share_group(setup.shard.groups.state, "g").states
    setup.shard.check_replay()


def test_a_coordinator_that_lost_the_group_leaves_its_states_to_the_next_one(setup: Setup) -> None:
    setup.states.is_held = True
    setup.heartbeat(0, "a")
    setup.error = KafkaError(ErrorCode.NOT_COORDINATOR)
    setup.states.is_held = False
    setup.states.release()
    setup.error = None
    setup.shard.replay()
    setup.heartbeat(2)
    assert find_share_group(setup.shard.groups.state, "g").states.initializing
    setup.shard.advance(30_000)
    setup.heartbeat(2)
    assert setup.heartbeat(2) == {1: [0, 1, 2]}


def test_many_states_are_made_in_turns(setup: Setup) -> None:
    count = 2 * CHANGES_A_TURN + 1
    setup.shard.create_topic("b", count)
    setup.shard.share_heartbeat(ShareGroupHeartbeatRequest("g", "m", 0, None, ["b"]))
    made = setup.driver.make(setup.shard.initializations.pop())
    assert len(setup.states.start_offsets) == CHANGES_A_TURN
    assert not made.done
    assert len(setup.result(made)) == count == len(setup.states.start_offsets)


def test_a_group_is_deleted_with_its_states(setup: Setup) -> None:
    setup.heartbeat(0, "a")
    setup.leave()
    group = find_share_group(setup.shard.groups.state, "g")
    deletion = setup.decide(lambda groups: begin_group_deletion(groups.state, group))
    assert deletion == Deletion("g", {setup.topic_id: frozenset(range(3))})
    assert not group.states.initialized
    assert group.states.deleting == {setup.topic_id: "a"}
    setup.states.errors["delete", 2] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    codes = setup.result(setup.driver.delete(deletion))
    assert codes[setup.topic_id, 2] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    # A second try deletes what the first one could not delete.
    assert setup.decide(lambda groups: begin_group_deletion(groups.state, group)) == deletion
    setup.states.errors.clear()
    assert set(setup.result(setup.driver.delete(deletion)).values()) == {ErrorCode.NONE}
    assert setup.states.start_offsets == {}


def test_the_states_of_a_topic_stay_until_all_of_them_are_deleted(setup: Setup) -> None:
    setup.heartbeat(0, "a")
    setup.leave()
    setup.states.errors["delete", 0] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    states = find_share_group(setup.shard.groups.state, "g")

    def delete() -> Any:
        begun = setup.decide(lambda groups: begin_offset_deletion(groups.state, "g", ["a", "b"]))
        assert [each.topic_name for each in begun.errors] == ["b"]
        return setup.result(setup.driver.delete_offsets(begun.deletion))

    assert delete()[setup.topic_id, 0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert states.states.deleting == {setup.topic_id: "a"}
    setup.states.errors.clear()
    assert set(delete().values()) == {ErrorCode.NONE}
    assert not states.states
    setup.shard.check_replay()


def test_a_state_that_could_not_be_deleted_is_made_again_for_a_new_member(setup: Setup) -> None:
    setup.heartbeat(0, "a")
    setup.leave()
    setup.states.errors["delete", 0] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    begun = setup.decide(lambda groups: begin_offset_deletion(groups.state, "g", ["a"]))
    setup.result(setup.driver.delete_offsets(begun.deletion))
    setup.heartbeat(0, "a")
    group = find_share_group(setup.shard.groups.state, "g")
    assert not group.states.deleting
    assert group.states.initialized[setup.topic_id].partitions == {0, 1, 2}
    assert setup.states.epochs[setup.key(0)] == group.epoch


def test_an_error_of_the_groups_coordinator_is_that_of_all_partitions(setup: Setup) -> None:
    setup.heartbeat(0, "a")
    setup.leave()
    begun = setup.decide(lambda groups: begin_offset_deletion(groups.state, "g", ["a"]))
    setup.error = KafkaError(ErrorCode.NOT_COORDINATOR)
    assert set(setup.result(setup.driver.delete_offsets(begun.deletion)).values()) == {ErrorCode.NOT_COORDINATOR}
