"""A partition with followers, as its leader sees it: who has what, who is in sync, who waits for whom.

The followers are driven by hand: a fetch of theirs says how far they are.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from rooms import HeldFlusher, batch

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
SAFE = LogConfig(flush_messages=1)


class Controller:
    """Remembers what it was asked; a test answers for it."""

    def __init__(self) -> None:
        self.asked: list[tuple[IsrProposal, Promise[IsrDecision | KafkaError]]] = []

    def propose(self, proposal: IsrProposal) -> Promise[IsrDecision | KafkaError]:
        promise: Promise[IsrDecision | KafkaError] = Promise()
        self.asked.append((proposal, promise))
        return promise

    @property
    def wanted(self) -> list[tuple[int, ...]]:
        return [proposal.isr for proposal, _ in self.asked]

    def agree(self) -> None:
        proposal, promise = self.asked.pop(0)
        promise.complete(IsrDecision(proposal.leader_epoch, proposal.partition_epoch + 1, proposal.isr))

    def refuse(self, code: ErrorCode) -> None:
        self.asked.pop(0)[1].complete(KafkaError(code))


def broker(broker_id: int, epoch: int = 100) -> BrokerImage:
    return BrokerImage(broker_id, epoch + broker_id, bytes(16), (), None, fenced=False)


class Room:
    """A leader, what stands around it, and the words to speak of it."""

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

    def fetched(self, replica_id: int, offset: int, start_offset: int = 0) -> None:
        epoch = self.replication.brokers[replica_id].epoch
        self.partition.check_replica(replica_id, epoch, self.partition.state.leader_epoch)
        self.partition.replica_fetched(replica_id, epoch, offset, start_offset)

    def both_fetched(self, offset: int) -> None:
        self.fetched(ONE, offset)
        self.fetched(TWO, offset)

    def pass_by(self, ms: int) -> None:
        self.clock.move(ms)
        self.partition.reevaluate_isr(looks_for_laggards=True)

    def change_broker(self, broker_id: int, **fields: object) -> None:
        changed = replace(self.replication.brokers[broker_id], **fields)  # type: ignore[arg-type]
        self.replication.brokers = {**self.replication.brokers, broker_id: changed}
        self.partition.reevaluate_isr()

    @property
    def high_watermark(self) -> int:
        return self.partition.high_watermark


def waits(promise: Promise[ErrorCode] | None) -> Promise[ErrorCode]:
    assert promise is not None
    assert not promise.done
    return promise


def refusal(deed: object, *arguments: object) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        deed(*arguments)  # type: ignore[operator]
    return refused.value.code


# --- the high watermark and acknowledgements


def test_the_high_watermark_is_what_all_in_sync_replicas_have() -> None:
    room = Room()
    room.append(5)
    assert room.high_watermark == 0
    room.fetched(ONE, 5)
    assert room.high_watermark == 0, "the other is in sync too, and has nothing yet"
    room.fetched(TWO, 3)
    assert room.high_watermark == 3
    room.fetched(TWO, 5)
    assert room.high_watermark == 5


def test_who_was_never_heard_of_holds_the_high_watermark_back() -> None:
    room = Room()
    room.append(5)
    room.fetched(ONE, 5)
    room.pass_by(LAG_MS)
    assert room.high_watermark == 0
    assert room.controller.asked == []


def test_acks_all_waits_for_everybody_and_acks_1_for_nobody_else() -> None:
    room = Room()
    last = room.append(3)
    assert room.partition.acknowledged(last, 1) is None
    promise = waits(room.partition.acknowledged(last))
    room.fetched(ONE, 3)
    waits(promise)
    room.fetched(TWO, 3)
    assert promise.value() is ErrorCode.NONE


def test_with_flush_messages_1_the_leaders_own_part_is_what_it_has_on_disk() -> None:
    room = Room(config=SAFE)
    last = room.append(3)
    room.both_fetched(3)
    promises = [waits(room.partition.acknowledged(last, acks)) for acks in (1, -1)]
    assert room.high_watermark == 0
    room.flusher.flush()
    assert room.high_watermark == 3
    assert [promise.value() for promise in promises] == [ErrorCode.NONE] * 2


def test_with_flush_messages_1_acks_1_is_told_when_its_own_disk_has_it() -> None:
    room = Room(config=SAFE)
    last = room.append(3)
    alone, everybody = waits(room.partition.acknowledged(last, 1)), waits(room.partition.acknowledged(last))
    room.flusher.flush()
    assert alone.done
    waits(everybody)


def test_too_few_in_sync_refuses_acks_all_and_hides_the_rest() -> None:
    room = Room(replace(STATE, isr=(LEADER,)), min_insync=2)
    assert refusal(room.append) is ErrorCode.NOT_ENOUGH_REPLICAS
    room.append(acks=1)
    assert room.high_watermark == 0, "what only one has may be lost with it: nobody reads it (KIP-966)"
    room.partition.min_insync_replicas = 1
    room.partition.reevaluate_isr()
    assert room.high_watermark == 1


def test_a_high_watermark_never_goes_back() -> None:
    room = Room()
    room.append(5)
    room.both_fetched(5)
    room.fetched(ONE, 2)
    assert room.high_watermark == 5
    room.append(1)
    room.fetched(TWO, 6)
    assert room.high_watermark == 5


# --- who is in sync


def test_who_lags_is_proposed_away_and_counts_until_the_controller_agrees() -> None:
    room = Room()
    room.both_fetched(0)
    room.append(4)
    room.fetched(ONE, 4)
    room.pass_by(LAG_MS)
    assert room.controller.wanted == []
    room.pass_by(1)
    assert room.controller.wanted == [(LEADER, ONE)]
    assert room.high_watermark == 0, "nobody knows yet whether it is in sync"
    room.controller.agree()
    assert room.high_watermark == 4
    assert (room.partition.state.isr, room.partition.state.partition_epoch) == ((LEADER, ONE), 11)


def test_a_proposal_names_epochs_and_brokers() -> None:
    room = Room()
    room.append(4)
    room.fetched(ONE, 4)
    room.pass_by(LAG_MS + 1)
    proposal, _ = room.controller.asked[0]
    assert (proposal.topic_id, proposal.partition_index) == (bytes(16), 0)
    assert (proposal.leader_epoch, proposal.partition_epoch) == (5, 10)
    assert proposal.members == ((LEADER, 101), (ONE, 102))


def test_a_partition_at_rest_loses_nobody() -> None:
    """Its followers have no reason to speak of it, however long that lasts."""
    room = Room()
    room.append(4)
    room.both_fetched(4)
    for _ in range(5):
        room.pass_by(LAG_MS)
    room.append(1)
    room.pass_by(LAG_MS)
    assert room.controller.asked == []
    room.pass_by(1)
    assert room.controller.wanted == [(LEADER,)]


def test_a_follower_on_the_heels_of_a_busy_leader_is_in_sync() -> None:
    """It never has all there is, but always what there was when it asked before."""
    room = Room()
    for _ in range(20):
        room.append(1)
        end = room.partition.log.end_offset
        room.both_fetched(end - 1)
        room.pass_by(LAG_MS // 2)
    assert room.controller.asked == []


def test_who_catches_up_is_proposed_and_counts_from_then_on() -> None:
    room = Room(replace(STATE, isr=(LEADER, ONE)))
    room.append(4)
    room.fetched(ONE, 4)
    assert room.high_watermark == 4
    room.fetched(TWO, 3)
    assert room.controller.wanted == []
    room.fetched(TWO, 4)
    assert room.controller.wanted == [(LEADER, ONE, TWO)]
    last = room.append(2)
    promise = waits(room.partition.acknowledged(last))
    room.fetched(ONE, 6)
    waits(promise)
    room.controller.agree()
    waits(promise)
    room.fetched(TWO, 6)
    assert promise.value() is ErrorCode.NONE


def test_the_high_watermark_waits_for_who_is_about_to_join() -> None:
    """While another change is under way it cannot be proposed, and must not be left behind again meanwhile."""
    room = Room(replace(STATE, isr=(LEADER,)))
    room.fetched(ONE, 0)
    assert room.controller.wanted == [(LEADER, ONE)]
    room.append(2)
    room.fetched(TWO, 2)
    room.fetched(ONE, 2)
    room.append(1)
    room.fetched(ONE, 3)
    assert room.high_watermark == 2, "the other was caught up a moment ago"
    room.clock.move(LAG_MS + 1)
    room.fetched(ONE, 3)
    room.partition.reevaluate_isr()
    assert room.high_watermark == 3, "and is no more"


@pytest.mark.parametrize("change", [{"fenced": True}, {"in_controlled_shutdown": True}, {"epoch": 999}])
def test_who_may_not_join_is_not_proposed_until_it_may(change: dict[str, object]) -> None:
    room = Room(replace(STATE, isr=(LEADER, ONE)))
    was = room.replication.brokers[TWO]
    room.fetched(TWO, 0)
    room.controller.refuse(ErrorCode.INELIGIBLE_REPLICA)
    room.clock.move(LAG_MS)
    room.change_broker(TWO, **change)
    assert room.controller.wanted == []
    room.change_broker(TWO, fenced=False, in_controlled_shutdown=False, epoch=was.epoch)
    assert room.controller.wanted == [(LEADER, ONE, TWO)], "at rest it does not fetch: the image must be reason enough"


def test_who_has_not_reached_where_the_epoch_began_may_lack_what_is_committed() -> None:
    room = Room()
    room.append(4)
    room.both_fetched(2)
    assert room.high_watermark == 2
    room.partition.lead(replace(STATE, isr=(LEADER, ONE), leader_epoch=6, partition_epoch=11))
    room.fetched(TWO, 3)
    assert room.controller.wanted == [], "above the high watermark that is known here, below what another knew"
    room.fetched(TWO, 4)
    assert room.controller.wanted == [(LEADER, ONE, TWO)]
    room.controller.refuse(ErrorCode.INELIGIBLE_REPLICA)
    room.clock.move(LAG_MS - 1)
    room.fetched(TWO, 3)
    assert room.controller.wanted == [], "it had all a moment ago, and has lost some of it"


def test_the_dead_do_not_come_back_by_themselves() -> None:
    room = Room()
    room.both_fetched(0)
    room.append(1)
    room.fetched(ONE, 1)
    room.pass_by(LAG_MS + 1)
    room.controller.agree()
    for _ in range(3):
        room.pass_by(LAG_MS)
    assert room.controller.wanted == []


@pytest.mark.parametrize("code", [ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH])
def test_after_an_answer_that_tells_nothing_the_proposed_count_until_the_image_speaks(code: ErrorCode) -> None:
    room = Room(replace(STATE, isr=(LEADER, ONE)))
    room.fetched(TWO, 0)
    room.controller.refuse(code)
    room.append(1)
    room.fetched(ONE, 1)
    assert room.high_watermark == 0
    room.pass_by(5 * LAG_MS)
    assert room.controller.wanted == []
    room.partition.lead(replace(STATE, isr=(LEADER, ONE), partition_epoch=11))
    room.clock.move(5 * LAG_MS)
    room.partition.reevaluate_isr()
    assert room.high_watermark == 1


def test_an_ineligible_follower_is_not_proposed_again_at_once() -> None:
    room = Room(replace(STATE, isr=(LEADER, ONE)))
    room.fetched(TWO, 0)
    room.controller.refuse(ErrorCode.INELIGIBLE_REPLICA)
    room.fetched(TWO, 0)
    assert room.controller.wanted == []
    room.clock.move(LAG_MS)
    room.fetched(TWO, 0)
    assert room.controller.wanted == [(LEADER, ONE, TWO)]


def test_an_answer_to_what_is_over_is_passed_by() -> None:
    room = Room(replace(STATE, isr=(LEADER, ONE)))
    room.fetched(TWO, 0)
    room.partition.lead(replace(STATE, isr=(LEADER,), partition_epoch=12))
    room.controller.agree()
    assert (room.partition.state.isr, room.partition.state.partition_epoch) == ((LEADER,), 12)


def test_an_image_that_is_behind_the_controllers_answer_changes_nothing() -> None:
    room = Room(replace(STATE, isr=(LEADER, ONE)))
    room.fetched(TWO, 0)
    room.controller.agree()
    assert room.partition.state.isr == (LEADER, ONE, TWO)
    room.partition.lead(replace(STATE, isr=(LEADER, ONE)))
    room.partition.become_follower(replace(STATE, leader=ONE, leader_epoch=4, partition_epoch=9))
    assert room.partition.state.isr == (LEADER, ONE, TWO)
    assert room.partition.is_leader
    room.partition.lead(replace(STATE, replicas=(LEADER, ONE), isr=(LEADER, ONE), partition_epoch=11))
    assert room.partition.state.replicas == (LEADER, ONE), "the same change may have ended a reassignment"


# --- who leads


def test_who_leads_no_more_tells_all_who_wait() -> None:
    room = Room()
    last = room.append(1)
    promise = waits(room.partition.acknowledged(last))
    room.partition.become_follower(replace(STATE, leader=ONE, leader_epoch=6, partition_epoch=11))
    assert promise.value() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(room.append) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(room.fetched, TWO, 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_who_is_elected_again_keeps_those_who_wait_and_forgets_what_followers_said() -> None:
    """Somebody else may have led between the two epochs, and followers have cut their logs for it."""
    room = Room()
    last = room.append(2)
    promise = waits(room.partition.acknowledged(last))
    room.fetched(ONE, 2)
    room.partition.lead(replace(STATE, leader_epoch=7, partition_epoch=12))
    room.fetched(TWO, 2)
    waits(promise)
    room.fetched(ONE, 2)
    assert promise.value() is ErrorCode.NONE


def test_a_leader_alone_again_needs_nobody() -> None:
    room = Room()
    promise = waits(room.partition.acknowledged(room.append(2)))
    room.partition.lead(replace(STATE, isr=(LEADER,), partition_epoch=11))
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
def test_only_a_replica_under_its_own_epoch_is_believed(
    replica_id: int, broker_epoch: int, leader_epoch: int, code: ErrorCode
) -> None:
    room = Room()
    assert refusal(room.partition.check_replica, replica_id, broker_epoch, leader_epoch) is code


# --- deleting records


def test_records_are_deleted_when_every_live_replica_has_deleted_them() -> None:
    room = Room()
    room.append(5)
    room.both_fetched(5)
    room.partition.delete_records(3)
    leadership = room.partition.leadership
    assert leadership is not None
    promise = waits(leadership.deleted_below(3, room.partition.log.start_offset))
    room.fetched(ONE, 5, start_offset=3)
    waits(promise)
    room.change_broker(TWO, fenced=True)
    assert promise.value() is ErrorCode.NONE, "the dead need not be waited for"
    assert leadership.deleted_below(3, 3) is None


def test_who_waits_for_a_deletion_is_told_when_the_leader_goes() -> None:
    room = Room()
    room.append(5)
    room.both_fetched(5)
    room.partition.delete_records(3)
    leadership = room.partition.leadership
    assert leadership is not None
    promise = waits(leadership.deleted_below(3, 3))
    room.partition.lead(replace(STATE, leader_epoch=6, partition_epoch=11))
    waits(promise)
    room.partition.become_follower(replace(STATE, leader=ONE, leader_epoch=7, partition_epoch=12))
    assert promise.value() is ErrorCode.NOT_LEADER_OR_FOLLOWER
