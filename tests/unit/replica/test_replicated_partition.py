"""A partition with followers, on its leader: high watermark, in-sync replicas, acknowledgements.

The tests call the followers' fetches directly: the fetch offset says how far a follower is.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from harness.in_memory_node import HeldFlusher, batch, error_of

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.promise import Promise
from moldau.log.config import LogConfig
from moldau.log.store import LogStore
from moldau.metadata.image import BrokerImage, PartitionState
from moldau.replica.partition import Partition
from moldau.replica.replication import IsrDecision, IsrProposal, Replication
from moldau.testing.clock import START_MS, FakeClock
from moldau.testing.files import MemoryFiles

NAME = TopicPartition("a", 0)
LEADER, ONE, TWO = 1, 2, 3
EVERYONE = (LEADER, ONE, TWO)
STATE = PartitionState(replicas=EVERYONE, isr=EVERYONE, leader=LEADER, leader_epoch=5, partition_epoch=10)
LAG_MS = 1_000
FLUSH_EACH_MESSAGE = LogConfig(flush_messages=1)


class Controller:
    """Collects the proposals; a test answers them."""

    def __init__(self) -> None:
        self.proposals: list[tuple[IsrProposal, Promise[IsrDecision | KafkaError]]] = []

    def propose(self, proposal: IsrProposal) -> Promise[IsrDecision | KafkaError]:
        promise: Promise[IsrDecision | KafkaError] = Promise()
        self.proposals.append((proposal, promise))
        return promise

    @property
    def proposed_isrs(self) -> list[tuple[int, ...]]:
        return [proposal.isr for proposal, _ in self.proposals]

    def agree(self) -> None:
        proposal, promise = self.proposals.pop(0)
        promise.complete(IsrDecision(proposal.leader_epoch, proposal.partition_epoch + 1, proposal.isr))

    def refuse(self, code: ErrorCode) -> None:
        self.proposals.pop(0)[1].complete(KafkaError(code))


def broker(broker_id: int, epoch: int = 100) -> BrokerImage:
    return BrokerImage(broker_id, epoch + broker_id, bytes(16), (), None, fenced=False)


class LeaderSetup:
    """A partition on its leader, with a controller, a flusher and a clock that the test drives."""

    def __init__(self, state: PartitionState = STATE, config: LogConfig | None = None, min_insync: int = 1) -> None:
        self.clock = FakeClock()
        self.controller = Controller()
        self.flusher = HeldFlusher()
        self.replication = Replication(self.clock, self.controller, LAG_MS)
        self.replication.brokers = {broker_id: broker(broker_id) for broker_id in EVERYONE}
        log = LogStore(MemoryFiles(), "data").create(NAME, bytes(16), config or LogConfig(), START_MS)
        self.partition = Partition(NAME, bytes(16), log, state, LEADER, min_insync, 0, self.flusher, self.replication)
        self.partition.lead(state)

    def append(self, count: int = 1, acks: int = -1) -> int:
        return self.partition.append(batch(count), acks, START_MS).last_offset

    def fetch_as(self, replica_id: int, offset: int, start_offset: int = 0) -> None:
        epoch = self.replication.brokers[replica_id].epoch
        self.partition.check_replica(replica_id, epoch, self.partition.state.leader_epoch)
        self.partition.replica_fetched(replica_id, epoch, offset, start_offset)

    def fetch_as_both(self, offset: int) -> None:
        self.fetch_as(ONE, offset)
        self.fetch_as(TWO, offset)

    def advance(self, ms: int) -> None:
        self.clock.move(ms)
        self.partition.reevaluate_isr(looks_for_laggards=True)

    def change_broker(self, broker_id: int, **fields: object) -> None:
        changed = replace(self.replication.brokers[broker_id], **fields)  # type: ignore[arg-type]
        self.replication.brokers = {**self.replication.brokers, broker_id: changed}
        self.partition.reevaluate_isr()

    @property
    def high_watermark(self) -> int:
        return self.partition.high_watermark


def still_waiting(promise: Promise[ErrorCode] | None) -> Promise[ErrorCode]:
    assert promise is not None
    assert not promise.done
    return promise


# --- the high watermark and acknowledgements


def test_the_high_watermark_is_the_lowest_end_of_all_in_sync_replicas() -> None:
    leader = LeaderSetup()
    leader.append(5)
    assert leader.high_watermark == 0
    leader.fetch_as(ONE, 5)
    assert leader.high_watermark == 0, "the other follower is in sync too, and has nothing yet"
    leader.fetch_as(TWO, 3)
    assert leader.high_watermark == 3
    leader.fetch_as(TWO, 5)
    assert leader.high_watermark == 5


def test_an_in_sync_follower_that_never_fetched_holds_the_high_watermark_back() -> None:
    leader = LeaderSetup()
    leader.append(5)
    leader.fetch_as(ONE, 5)
    leader.advance(LAG_MS)
    assert leader.high_watermark == 0
    assert leader.controller.proposals == []


def test_acks_all_waits_for_all_in_sync_replicas_and_acks_1_for_the_leader_only() -> None:
    leader = LeaderSetup()
    last = leader.append(3)
    assert leader.partition.acknowledged(last, 1) is None
    promise = still_waiting(leader.partition.acknowledged(last))
    leader.fetch_as(ONE, 3)
    still_waiting(promise)
    leader.fetch_as(TWO, 3)
    assert promise.value() is ErrorCode.NONE


def test_with_flush_messages_1_the_leader_counts_only_what_it_has_on_disk() -> None:
    leader = LeaderSetup(config=FLUSH_EACH_MESSAGE)
    last = leader.append(3)
    leader.fetch_as_both(3)
    promises = [still_waiting(leader.partition.acknowledged(last, acks)) for acks in (1, -1)]
    assert leader.high_watermark == 0
    leader.flusher.flush()
    assert leader.high_watermark == 3
    assert [promise.value() for promise in promises] == [ErrorCode.NONE] * 2


def test_with_flush_messages_1_acks_1_waits_for_the_leaders_flush() -> None:
    leader = LeaderSetup(config=FLUSH_EACH_MESSAGE)
    last = leader.append(3)
    alone, everybody = (
        still_waiting(leader.partition.acknowledged(last, 1)),
        still_waiting(leader.partition.acknowledged(last)),
    )
    leader.flusher.flush()
    assert alone.done
    still_waiting(everybody)


def test_too_few_in_sync_replicas_refuse_acks_all_and_hold_the_high_watermark() -> None:
    leader = LeaderSetup(replace(STATE, isr=(LEADER,)), min_insync=2)
    assert error_of(leader.append) is ErrorCode.NOT_ENOUGH_REPLICAS
    leader.append(acks=1)
    assert leader.high_watermark == 0, (
        "a record on too few replicas may be lost, so consumers must not read it (KIP-966)"
    )
    leader.partition.min_insync_replicas = 1
    leader.partition.reevaluate_isr()
    assert leader.high_watermark == 1


def test_a_high_watermark_never_goes_back() -> None:
    leader = LeaderSetup()
    leader.append(5)
    leader.fetch_as_both(5)
    leader.fetch_as(ONE, 2)
    assert leader.high_watermark == 5
    leader.append(1)
    leader.fetch_as(TWO, 6)
    assert leader.high_watermark == 5


# --- in-sync replicas


def test_a_lagging_follower_counts_until_the_controller_agrees_to_remove_it() -> None:
    leader = LeaderSetup()
    leader.fetch_as_both(0)
    leader.append(4)
    leader.fetch_as(ONE, 4)
    leader.advance(LAG_MS)
    assert leader.controller.proposed_isrs == []
    leader.advance(1)
    assert leader.controller.proposed_isrs == [(LEADER, ONE)]
    assert leader.high_watermark == 0, "the follower may still be in the ISR"
    leader.controller.agree()
    assert leader.high_watermark == 4
    assert (leader.partition.state.isr, leader.partition.state.partition_epoch) == ((LEADER, ONE), 11)


def test_a_proposal_has_epochs_and_brokers() -> None:
    leader = LeaderSetup()
    leader.append(4)
    leader.fetch_as(ONE, 4)
    leader.advance(LAG_MS + 1)
    proposal, _ = leader.controller.proposals[0]
    assert (proposal.topic_id, proposal.partition_index) == (bytes(16), 0)
    assert (proposal.leader_epoch, proposal.partition_epoch) == (5, 10)
    assert proposal.members == ((LEADER, 101), (ONE, 102))


def test_followers_of_an_idle_partition_stay_in_sync() -> None:
    """Their fetch sessions do not include a partition without changes, however long it is idle."""
    leader = LeaderSetup()
    leader.append(4)
    leader.fetch_as_both(4)
    for _ in range(5):
        leader.advance(LAG_MS)
    leader.append(1)
    leader.advance(LAG_MS)
    assert leader.controller.proposals == []
    leader.advance(1)
    assert leader.controller.proposed_isrs == [(LEADER,)]


def test_a_follower_that_is_one_record_behind_a_busy_leader_is_in_sync() -> None:
    """It never reaches the log end offset, but always the log end offset at its previous fetch."""
    leader = LeaderSetup()
    for _ in range(20):
        leader.append(1)
        end = leader.partition.log.end_offset
        leader.fetch_as_both(end - 1)
        leader.advance(LAG_MS // 2)
    assert leader.controller.proposals == []


def test_a_follower_that_catches_up_is_proposed_and_counts_from_then_on() -> None:
    leader = LeaderSetup(replace(STATE, isr=(LEADER, ONE)))
    leader.append(4)
    leader.fetch_as(ONE, 4)
    assert leader.high_watermark == 4
    leader.fetch_as(TWO, 3)
    assert leader.controller.proposed_isrs == []
    leader.fetch_as(TWO, 4)
    assert leader.controller.proposed_isrs == [(LEADER, ONE, TWO)]
    last = leader.append(2)
    promise = still_waiting(leader.partition.acknowledged(last))
    leader.fetch_as(ONE, 6)
    still_waiting(promise)
    leader.controller.agree()
    still_waiting(promise)
    leader.fetch_as(TWO, 6)
    assert promise.value() is ErrorCode.NONE


def test_the_high_watermark_waits_for_a_follower_that_is_about_to_join() -> None:
    """It cannot be proposed while another change is in flight; the high watermark must not move beyond it meanwhile."""
    leader = LeaderSetup(replace(STATE, isr=(LEADER,)))
    leader.fetch_as(ONE, 0)
    assert leader.controller.proposed_isrs == [(LEADER, ONE)]
    leader.append(2)
    leader.fetch_as(TWO, 2)
    leader.fetch_as(ONE, 2)
    leader.append(1)
    leader.fetch_as(ONE, 3)
    assert leader.high_watermark == 2, "the other follower was caught up within the lag time"
    leader.clock.move(LAG_MS + 1)
    leader.fetch_as(ONE, 3)
    leader.partition.reevaluate_isr()
    assert leader.high_watermark == 3, "the other follower is no longer caught up"


@pytest.mark.parametrize(
    "change", [{"fenced": True}, {"in_controlled_shutdown": True}, {"cannot_write": True}, {"epoch": 999}]
)
def test_an_ineligible_broker_is_not_proposed_until_it_is_eligible(change: dict[str, object]) -> None:
    leader = LeaderSetup(replace(STATE, isr=(LEADER, ONE)))
    before = leader.replication.brokers[TWO]
    leader.fetch_as(TWO, 0)
    leader.controller.refuse(ErrorCode.INELIGIBLE_REPLICA)
    leader.clock.move(LAG_MS)
    leader.change_broker(TWO, **change)
    assert leader.controller.proposed_isrs == []
    leader.change_broker(TWO, **{name: getattr(before, name) for name in change})
    assert leader.controller.proposed_isrs == [(LEADER, ONE, TWO)], (
        "an idle follower does not fetch, so the new image must cause the proposal"
    )


def test_a_follower_below_the_start_of_the_leader_epoch_is_not_proposed() -> None:
    leader = LeaderSetup()
    leader.append(4)
    leader.fetch_as_both(2)
    assert leader.high_watermark == 2
    leader.partition.lead(replace(STATE, isr=(LEADER, ONE), leader_epoch=6, partition_epoch=11))
    leader.fetch_as(TWO, 3)
    assert leader.controller.proposed_isrs == [], (
        "above the high watermark of this leader, but perhaps below that of the previous one"
    )
    leader.fetch_as(TWO, 4)
    assert leader.controller.proposed_isrs == [(LEADER, ONE, TWO)]
    leader.controller.refuse(ErrorCode.INELIGIBLE_REPLICA)
    leader.clock.move(LAG_MS - 1)
    leader.fetch_as(TWO, 3)
    assert leader.controller.proposed_isrs == [], "it was caught up before, and has lost records since"


def test_a_removed_follower_that_does_not_fetch_is_not_proposed_again() -> None:
    leader = LeaderSetup()
    leader.fetch_as_both(0)
    leader.append(1)
    leader.fetch_as(ONE, 1)
    leader.advance(LAG_MS + 1)
    leader.controller.agree()
    for _ in range(3):
        leader.advance(LAG_MS)
    assert leader.controller.proposed_isrs == []


@pytest.mark.parametrize("code", [ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH])
def test_after_an_inconclusive_error_the_proposed_isr_counts_until_the_next_image(code: ErrorCode) -> None:
    leader = LeaderSetup(replace(STATE, isr=(LEADER, ONE)))
    leader.fetch_as(TWO, 0)
    leader.controller.refuse(code)
    leader.append(1)
    leader.fetch_as(ONE, 1)
    assert leader.high_watermark == 0
    leader.advance(5 * LAG_MS)
    assert leader.controller.proposed_isrs == []
    leader.partition.lead(replace(STATE, isr=(LEADER, ONE), partition_epoch=11))
    leader.clock.move(5 * LAG_MS)
    leader.partition.reevaluate_isr()
    assert leader.high_watermark == 1


def test_an_ineligible_follower_is_not_proposed_again_at_once() -> None:
    leader = LeaderSetup(replace(STATE, isr=(LEADER, ONE)))
    leader.fetch_as(TWO, 0)
    leader.controller.refuse(ErrorCode.INELIGIBLE_REPLICA)
    leader.fetch_as(TWO, 0)
    assert leader.controller.proposed_isrs == []
    leader.clock.move(LAG_MS)
    leader.fetch_as(TWO, 0)
    assert leader.controller.proposed_isrs == [(LEADER, ONE, TWO)]


def test_an_answer_to_an_outdated_proposal_is_ignored() -> None:
    leader = LeaderSetup(replace(STATE, isr=(LEADER, ONE)))
    leader.fetch_as(TWO, 0)
    leader.partition.lead(replace(STATE, isr=(LEADER,), partition_epoch=12))
    leader.controller.agree()
    assert (leader.partition.state.isr, leader.partition.state.partition_epoch) == ((LEADER,), 12)


def test_an_image_that_is_behind_the_controllers_answer_changes_nothing() -> None:
    leader = LeaderSetup(replace(STATE, isr=(LEADER, ONE)))
    leader.fetch_as(TWO, 0)
    leader.controller.agree()
    assert leader.partition.state.isr == (LEADER, ONE, TWO)
    leader.partition.lead(replace(STATE, isr=(LEADER, ONE)))
    leader.partition.become_follower(replace(STATE, leader=ONE, leader_epoch=4, partition_epoch=9))
    assert leader.partition.state.isr == (LEADER, ONE, TWO)
    assert leader.partition.is_leader
    leader.partition.lead(replace(STATE, replicas=(LEADER, ONE), isr=(LEADER, ONE), partition_epoch=11))
    assert leader.partition.state.replicas == (LEADER, ONE), "the same change may have ended a reassignment"


# --- leadership


def test_a_leader_that_becomes_follower_fails_the_waiting_acknowledgements() -> None:
    leader = LeaderSetup()
    last = leader.append(1)
    promise = still_waiting(leader.partition.acknowledged(last))
    leader.partition.become_follower(replace(STATE, leader=ONE, leader_epoch=6, partition_epoch=11))
    assert promise.value() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_of(leader.append) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_of(leader.fetch_as, TWO, 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_reelected_leader_keeps_waiting_acknowledgements_and_forgets_followers_offsets() -> None:
    """Another broker may have led between the two epochs, and followers may have truncated their logs."""
    leader = LeaderSetup()
    last = leader.append(2)
    promise = still_waiting(leader.partition.acknowledged(last))
    leader.fetch_as(ONE, 2)
    leader.partition.lead(replace(STATE, leader_epoch=7, partition_epoch=12))
    leader.fetch_as(TWO, 2)
    still_waiting(promise)
    leader.fetch_as(ONE, 2)
    assert promise.value() is ErrorCode.NONE


def test_a_leader_that_becomes_the_only_in_sync_replica_acknowledges_at_once() -> None:
    leader = LeaderSetup()
    promise = still_waiting(leader.partition.acknowledged(leader.append(2)))
    leader.partition.lead(replace(STATE, isr=(LEADER,), partition_epoch=11))
    assert promise.value() is ErrorCode.NONE


@pytest.mark.parametrize(
    ("replica_id", "broker_epoch", "leader_epoch", "code"),
    [
        (9, 109, 5, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (9, 109, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (LEADER, 101, 5, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (ONE, 101, 5, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ONE, 2**62, 5, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ONE, -1, 5, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ONE, 102, 4, ErrorCode.FENCED_LEADER_EPOCH),
        (ONE, 102, 6, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_only_a_replica_with_its_current_broker_epoch_is_accepted(
    replica_id: int, broker_epoch: int, leader_epoch: int, code: ErrorCode
) -> None:
    leader = LeaderSetup()
    assert error_of(leader.partition.check_replica, replica_id, broker_epoch, leader_epoch) is code


# --- deleting records


def test_records_are_deleted_when_every_live_replica_has_deleted_them() -> None:
    leader = LeaderSetup()
    leader.append(5)
    leader.fetch_as_both(5)
    leader.partition.delete_records(3)
    leadership = leader.partition.leadership
    assert leadership is not None
    promise = still_waiting(leadership.deleted_below(3, leader.partition.log.start_offset))
    leader.fetch_as(ONE, 5, start_offset=3)
    still_waiting(promise)
    leader.change_broker(TWO, fenced=True)
    assert promise.value() is ErrorCode.NONE, "a fenced broker is not waited for"
    assert leadership.deleted_below(3, 3) is None


def test_a_waiting_deletion_fails_when_the_leader_changes() -> None:
    leader = LeaderSetup()
    leader.append(5)
    leader.fetch_as_both(5)
    leader.partition.delete_records(3)
    leadership = leader.partition.leadership
    assert leadership is not None
    promise = still_waiting(leadership.deleted_below(3, 3))
    leader.partition.lead(replace(STATE, leader_epoch=6, partition_epoch=11))
    still_waiting(promise)
    leader.partition.become_follower(replace(STATE, leader=ONE, leader_epoch=7, partition_epoch=12))
    assert promise.value() is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_leader_does_not_drop_what_follows_a_gap_when_it_follows_later() -> None:
    """Its disk had lost older records; since it leads, records are acknowledged that a truncation would remove."""
    leader = LeaderSetup()
    leader.partition.log.whole_below = 0
    leader.partition.lead(replace(STATE, leader_epoch=6, partition_epoch=11))
    assert leader.partition.log.whole_below is None
