"""The deadlines of a classic group whose rebalance timeout is 0."""

from __future__ import annotations

from random import Random

from moldau.base.promise import Promise
from moldau.coordinator.group.classic.group import ClassicGroup, State
from moldau.coordinator.group.groups import Groups
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.machine import Client, Outcome
from moldau.metadata.current import CurrentImage
from moldau.testing.clock import FakeClock
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from moldau.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.wire.messages.sync_group import SyncGroupRequest

CLIENT = Client("client", "/here", 9)


class Shard:
    """Groups whose records are applied at once."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.groups = Groups(GroupSettings(initial_rebalance_delay_ms=0), CurrentImage(), self.clock, Random(1))

    def execute(self, outcome: Outcome[object]) -> object:
        self.groups.apply_all(outcome.records)
        for waiting, response in outcome.answers:
            waiting.complete(response)
        return outcome.response

    def run_due(self) -> int:
        """Run the actions that are due, as one call of the timer does, and return their number."""
        actions = self.groups.deadlines.due(self.clock.monotonic_ms())
        return sum(1 for action in actions if self.execute(action()) is None)

    def join(self, instance_id: str) -> Promise[JoinGroupResponse]:
        protocols = [JoinGroupRequestProtocol("range", b"")]
        request = JoinGroupRequest("g", 60_000, 0, "", instance_id, "consumer", protocols)
        waiting = self.execute(self.groups.join(request, CLIENT))
        assert isinstance(waiting, Promise)
        return waiting


def test_a_rebalance_timeout_of_zero_runs_its_deadline_once() -> None:
    shard = Shard()
    joins = [shard.join("one"), shard.join("two")]
    shard.run_due()
    one, two = (join.value().member_id for join in joins)
    for member_id in (two, one):
        shard.execute(shard.groups.sync(SyncGroupRequest("g", 1, member_id, None, "consumer", "range"), CLIENT))
    shard.execute(shard.groups.leave(LeaveGroupRequest("g", [MemberIdentity("", "two")]), CLIENT))
    group = shard.groups.state.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert group.state is State.PREPARING_REBALANCE
    runs = 0
    for _ in range(100):
        runs += shard.run_due()
    assert runs == 1, "the static member that does not rejoin must not set the same deadline again and again"
    assert list(group.members) == [one]
