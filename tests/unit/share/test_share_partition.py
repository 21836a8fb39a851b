"""A share partition at its leader: loading, writes that take their time or fail, timers, and its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import ZERO_UUID
from moldau.base.promise import Promise, resolved
from moldau.share.dead_letters import DeadLetter
from moldau.share.limits import ShareLimits
from moldau.share.partition import NO_START_OFFSET, SharePartition
from moldau.share.ports import ShareKey
from moldau.share.runs import RecordState
from moldau.share.traffic import ShareTraffic
from moldau.share.window import ACCEPT, REJECT, RELEASE, RENEW, Acknowledged, RecordBatch, Wanted
from moldau.testing.clock import FakeTimers
from moldau.wire.messages import read_share_group_state, read_share_group_state_summary, write_share_group_state

KEY = ShareKey("group", ZERO_UUID, 3)
LEADER_EPOCH, STATE_EPOCH = 7, 4
LOCK_MS = 1_000
PASSING = [
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
]
FENCED = [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH]
GONE = [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
OTHER = [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION]
TOLD = [
    *((code, ErrorCode.COORDINATOR_NOT_AVAILABLE) for code in PASSING),
    *((code, ErrorCode.NOT_LEADER_OR_FOLLOWER) for code in FENCED),
    *((code, code) for code in GONE),
    *((code, ErrorCode.UNKNOWN_SERVER_ERROR) for code in OTHER),
]
"""What the coordinator says, and what a client is told."""


class ManualStates:
    """A share coordinator that answers when the test says so."""

    def __init__(self) -> None:
        self.reads: list[Promise[read_share_group_state.PartitionResult]] = []
        self.writes: list[tuple[write_share_group_state.PartitionData, Promise[ErrorCode]]] = []

    def read(self, key: ShareKey, leader_epoch: int) -> Promise[read_share_group_state.PartitionResult]:
        assert (key, leader_epoch) == (KEY, LEADER_EPOCH)
        self.reads.append(Promise())
        return self.reads[-1]

    def write(self, key: ShareKey, data: write_share_group_state.PartitionData) -> Promise[ErrorCode]:
        assert key == KEY
        self.writes.append((data, Promise()))
        return self.writes[-1][1]

    def answer(self, code: ErrorCode = ErrorCode.NONE) -> str:
        """Answer the first write with it. Return what was to be written."""
        data, promise = self.writes.pop(0)
        assert (data.partition, data.leader_epoch, data.state_epoch) == (3, LEADER_EPOCH, STATE_EPOCH)
        promise.complete(code)
        states = (
            f"{each.first_offset}-{each.last_offset} {RecordState(each.delivery_state).name} x{each.delivery_count}"
            for each in data.state_batches
        )
        return f"{data.start_offset}, {data.delivery_complete_count} done: {', '.join(states)}"

    def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> Promise[ErrorCode]:
        raise AssertionError("the group coordinator does that")

    def delete(self, key: ShareKey) -> Promise[ErrorCode]:
        raise AssertionError("the group coordinator does that")

    def read_summary(self, key: ShareKey, leader_epoch: int) -> Promise[read_share_group_state_summary.PartitionResult]:
        raise AssertionError("the group coordinator does that")


class Leader:
    """A share partition and what it is made of."""

    def __init__(self) -> None:
        self.limits = ShareLimits(LOCK_MS, delivery_count_limit=3, partition_max_record_locks=100)
        self.states = ManualStates()
        self.timers = FakeTimers()
        self.traffic = ShareTraffic()
        self.letters: list[tuple[Sequence[DeadLetter], Promise[None]]] = []
        self.events: list[str] = []
        """`free` and `end`, since they were last asked for."""
        self.share = SharePartition(
            KEY,
            LEADER_EPOCH,
            self.states,
            lambda: self.limits,
            self.timers.clock,
            self.timers,
            self.traffic,
            self._write_dead_letters,
            lambda: self.events.append("free"),
            lambda: self.events.append("end"),
        )

    def _write_dead_letters(self, letters: Sequence[DeadLetter]) -> Promise[None]:
        self.letters.append((letters, Promise()))
        return self.letters[-1][1]

    def load(self, *batches: tuple[int, int, int, int], start: int = 0, code: ErrorCode = ErrorCode.NONE) -> Leader:
        self.begin_loading()
        self.answer_read(*batches, start=start, code=code)
        return self

    def begin_loading(self, find_start: Callable[[ShareLimits], Promise[int | KafkaError]] | None = None) -> None:
        self.share.load(find_start or _no_search)

    def answer_read(
        self, *batches: tuple[int, int, int, int], start: int = 0, code: ErrorCode = ErrorCode.NONE
    ) -> None:
        states = [read_share_group_state.StateBatch(*each) for each in batches]
        result = read_share_group_state.PartitionResult(
            3, code, state_epoch=STATE_EPOCH, start_offset=start, state_batches=states
        )
        self.states.reads.pop().complete(result)

    def fetch(self, member: str = "a", last: int = 9) -> str:
        """Acquire the records of one batch up to this offset."""
        offset = self.share.window.next_fetch_offset
        acquired = self.share.acquire(Wanted(member, 100, 100, False), offset, [RecordBatch(offset, last)])
        return " ".join(f"{each.first_offset}-{each.last_offset}x{each.delivery_count}" for each in acquired)

    def acknowledge(self, first: int, last: int, kind: int = ACCEPT, member: str = "a") -> Promise[KafkaError | None]:
        return self.share.acknowledge(member, [Acknowledged(first, last, [kind])])

    @property
    def new_events(self) -> list[str]:
        events, self.events = self.events, []
        return events


@pytest.fixture
def leader() -> Leader:
    """One that is ready, without a state."""
    leader = Leader().load()
    assert leader.new_events == ["free"]
    return leader


def _no_search(limits: ShareLimits) -> Promise[int | KafkaError]:
    raise AssertionError("the state has a start offset")


def code_of(promise: Promise[KafkaError | None]) -> ErrorCode:
    error = promise.value()
    return error.code if error is not None else ErrorCode.NONE


def failure_of(leader: Leader) -> ErrorCode:
    assert leader.share.failure is not None
    return leader.share.failure.code


# --- loading ----------------------------------------------------------------------------------------------------------


def test_it_is_ready_when_its_state_is_read() -> None:
    leader = Leader()
    leader.begin_loading()
    assert not leader.share.is_ready
    assert code_of(leader.acknowledge(0, 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of(leader.share.release("a")) is ErrorCode.NONE
    assert leader.new_events == []
    leader.answer_read((6, 7, RecordState.AVAILABLE, 2), start=5)
    assert leader.share.is_ready
    assert leader.new_events == ["free"]
    assert leader.share.window.start_offset == 5
    assert leader.fetch(last=5) == "5-5x1"
    assert leader.fetch(last=7) == "6-6x3", "the last delivery comes alone"


def test_a_group_that_has_not_read_yet_begins_where_its_policy_says() -> None:
    leader = Leader()
    start: Promise[int | KafkaError] = Promise()
    asked: list[ShareLimits] = []

    def find_start(limits: ShareLimits) -> Promise[int | KafkaError]:
        asked.append(limits)
        return start

    leader.begin_loading(find_start)
    leader.answer_read(start=NO_START_OFFSET)
    assert asked == [leader.limits]
    assert not leader.share.is_ready
    start.complete(42)
    assert leader.share.window.next_fetch_offset == 42
    assert leader.states.writes == [], "the start is written with the first acknowledgement"


def test_it_fails_if_the_start_cannot_be_found() -> None:
    leader = Leader()
    leader.begin_loading(lambda _: resolved(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)))
    leader.answer_read(start=NO_START_OFFSET)
    assert failure_of(leader) is ErrorCode.KAFKA_STORAGE_ERROR
    assert leader.new_events == ["end", "free"]


@pytest.mark.parametrize(("code", "told"), TOLD)
def test_it_fails_if_the_coordinator_refuses(code: ErrorCode, told: ErrorCode) -> None:
    leader = Leader().load(code=code)
    assert failure_of(leader) is told
    assert leader.new_events == ["end", "free"]
    assert not leader.share.is_ready
    assert code_of(leader.acknowledge(0, 0)) is told


@pytest.mark.parametrize(
    "batch",
    [
        (3, 4, RecordState.AVAILABLE, 1),
        (6, 5, RecordState.ARCHIVED, 1),
        (5, 6, RecordState.ACQUIRED, 1),
        (5, 6, 9, 1),
    ],
)
def test_a_damaged_state_is_not_used(batch: tuple[int, int, int, int]) -> None:
    leader = Leader().load(batch, start=5)
    assert failure_of(leader) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "is damaged" in str(leader.share.failure)
    assert leader.new_events == ["end", "free"]


def test_what_ends_while_it_loads_does_not_begin() -> None:
    leader = Leader()
    leader.begin_loading()
    leader.share.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert leader.new_events == ["end", "free"]
    leader.answer_read(start=NO_START_OFFSET)  # which would be looked for
    assert not leader.share.is_ready
    assert leader.new_events == []


@pytest.mark.parametrize("found", [42, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)])
def test_what_ends_while_its_start_is_looked_for_does_not_begin(found: int | KafkaError) -> None:
    leader = Leader()
    start: Promise[int | KafkaError] = Promise()
    leader.begin_loading(lambda _: start)
    leader.answer_read(start=NO_START_OFFSET)
    leader.share.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    start.complete(found)
    assert failure_of(leader) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not leader.share.is_ready
    assert leader.new_events == ["end", "free"]


# --- writes -----------------------------------------------------------------------------------------------------------


def test_an_acknowledgement_is_answered_when_it_is_written(leader: Leader) -> None:
    leader.fetch()
    answer = leader.acknowledge(2, 4)
    assert not answer.done
    assert leader.new_events == []
    assert leader.states.answer() == "0, 3 done: 2-4 ACKNOWLEDGED x1"
    assert code_of(answer) is ErrorCode.NONE
    assert leader.new_events == ["free"]
    leader.acknowledge(0, 1)
    assert leader.states.answer() == "0, 5 done: 0-1 ACKNOWLEDGED x1"
    leader.acknowledge(6, 6, RELEASE)
    assert leader.states.answer() == "5, 0 done: 6-6 AVAILABLE x1", "the start has moved since"


def test_what_a_member_may_not_say_is_not_written(leader: Leader) -> None:
    leader.fetch()
    assert code_of(leader.acknowledge(0, 4, member="b")) is ErrorCode.INVALID_RECORD_STATE
    assert code_of(leader.acknowledge(8, 12)) is ErrorCode.INVALID_REQUEST
    assert leader.states.writes == []


def test_what_changes_nothing_is_answered_at_once(leader: Leader) -> None:
    leader.fetch()
    assert code_of(leader.acknowledge(0, 9, RENEW)) is ErrorCode.NONE
    assert code_of(leader.share.release("b")) is ErrorCode.NONE
    assert leader.states.writes == []


def test_several_writes_may_be_on_their_way(leader: Leader) -> None:
    leader.fetch()
    first, second = leader.acknowledge(0, 4), leader.acknowledge(5, 9, RELEASE)
    assert leader.states.answer() == "0, 5 done: 0-4 ACKNOWLEDGED x1"
    assert (first.done, second.done) == (True, False)
    assert leader.states.answer() == "0, 5 done: 5-9 AVAILABLE x1"
    assert leader.fetch("b") == "5-9x2"


@pytest.mark.parametrize(("code", "told"), [each for each in TOLD if each[0] not in (*FENCED, *GONE)])
def test_records_stay_acquired_if_they_cannot_be_written(leader: Leader, code: ErrorCode, told: ErrorCode) -> None:
    leader.fetch()
    answer = leader.acknowledge(0, 9)
    leader.states.answer(code)
    assert code_of(answer) is told
    assert leader.share.is_ready
    again = leader.acknowledge(0, 9)
    leader.states.answer()
    assert code_of(again) is ErrorCode.NONE


@pytest.mark.parametrize(("code", "told"), [each for each in TOLD if each[0] in (*FENCED, *GONE)])
def test_it_ends_if_its_state_belongs_to_somebody_else(leader: Leader, code: ErrorCode, told: ErrorCode) -> None:
    leader.fetch()
    first, second = leader.acknowledge(0, 4), leader.acknowledge(5, 9)
    leader.states.answer(code)
    assert code_of(first) is told
    assert failure_of(leader) is told
    assert leader.new_events == ["end", "free"]
    assert leader.timers.pending == 0
    leader.states.answer(code)
    assert code_of(second) is told
    assert leader.new_events == [], "it ends once"
    assert code_of(leader.acknowledge(0, 4)) is told


def test_a_write_that_succeeds_after_the_end_is_answered(leader: Leader) -> None:
    leader.fetch()
    accepted, released = leader.acknowledge(0, 4), leader.share.release("a")
    leader.share.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert leader.new_events == ["end", "free"]
    leader.states.answer()
    leader.states.answer()
    assert (code_of(accepted), code_of(released)) == (ErrorCode.NONE, ErrorCode.NONE)
    assert leader.new_events == []
    assert leader.timers.pending == 0
    assert code_of(leader.share.release("a")) is ErrorCode.NONE
    assert leader.states.writes == []


def test_release_is_written(leader: Leader) -> None:
    leader.fetch("a", last=4)
    leader.fetch("b", last=9)
    leader.share.release("a")
    assert leader.fetch("c") == "", "not before that"
    assert leader.states.answer() == "0, 0 done: 0-4 AVAILABLE x1"
    assert leader.new_events == ["free"]
    assert leader.fetch("c") == "0-4x2"


# --- locks ------------------------------------------------------------------------------------------------------------


def test_locks_end_by_a_timer(leader: Leader) -> None:
    leader.fetch(last=4)
    leader.timers.advance(LOCK_MS // 2)
    leader.fetch(last=9)
    assert leader.timers.pending == 1
    leader.timers.advance(LOCK_MS // 2)
    assert leader.new_events == ["free"]
    assert leader.states.answer() == "0, 0 done: 0-4 AVAILABLE x1"
    assert leader.share.window.next_fetch_offset == 0
    leader.timers.advance(LOCK_MS // 2)
    assert leader.states.answer() == "0, 0 done: 5-9 AVAILABLE x1"
    assert leader.timers.pending == 0
    assert leader.traffic.timed_out == 10


def test_records_are_available_before_it_is_written_that_their_lock_ended(leader: Leader) -> None:
    leader.fetch()
    leader.timers.advance(LOCK_MS)
    assert leader.fetch("b") == "0-9x2"
    leader.states.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    leader.acknowledge(0, 9, member="b")
    assert leader.states.answer() == "0, 10 done: 0-9 ACKNOWLEDGED x2"


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_old_acknowledgements_wait_until_the_start_is_written(leader: Leader, code: ErrorCode) -> None:
    """They are of records that were given up when their lock ended. Until that is written, another leader would deliver
    them again."""
    leader.limits = leader.limits._replace(delivery_count_limit=1)
    assert leader.fetch() == "0-9x1"
    leader.timers.advance(LOCK_MS)
    assert leader.share.window.start_offset == 10
    late = leader.acknowledge(0, 9)
    assert not late.done
    assert leader.states.answer() == "10, 0 done: 0-9 ARCHIVED x1"
    assert leader.states.answer(code) == "10, 0 done: "
    assert code_of(late) is code


def test_it_ends_if_the_end_of_a_lock_may_not_be_written(leader: Leader) -> None:
    leader.fetch()
    leader.timers.advance(LOCK_MS)
    leader.states.answer(ErrorCode.FENCED_STATE_EPOCH)
    assert failure_of(leader) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.timers.pending == 0


def test_acknowledged_records_need_no_timer_any_more(leader: Leader) -> None:
    leader.fetch()
    leader.acknowledge(0, 9)
    leader.states.answer()
    leader.timers.advance(LOCK_MS)
    assert leader.states.writes == []
    assert leader.timers.pending == 0


def test_renewed_locks_end_later(leader: Leader) -> None:
    leader.fetch()
    leader.timers.advance(LOCK_MS - 1)
    leader.acknowledge(0, 4, RENEW)
    leader.timers.advance(1)
    assert leader.states.answer() == "0, 0 done: 5-9 AVAILABLE x1"
    leader.timers.advance(LOCK_MS - 2)
    assert leader.states.writes == []
    leader.timers.advance(1)
    assert leader.states.answer() == "0, 0 done: 0-4 AVAILABLE x1"


def test_a_shorter_duration_holds_for_the_next_lock(leader: Leader) -> None:
    leader.fetch(last=4)
    leader.limits = leader.limits._replace(record_lock_duration_ms=LOCK_MS // 4)
    leader.fetch(last=9)
    leader.timers.advance(LOCK_MS // 4)
    assert leader.states.answer() == "0, 0 done: 5-9 AVAILABLE x1"
    leader.timers.advance(LOCK_MS)
    assert leader.states.answer() == "0, 0 done: 0-4 AVAILABLE x1"
    assert leader.timers.pending == 0


def test_a_lock_that_ended_while_its_acknowledgement_failed(leader: Leader) -> None:
    leader.fetch()
    answer = leader.acknowledge(0, 9)
    leader.timers.advance(LOCK_MS)
    assert leader.new_events == []
    leader.states.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert code_of(answer) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert leader.new_events == ["free"]
    assert leader.fetch("b") == "0-9x2"


def test_a_timer_that_comes_late_finds_what_a_refused_request_left(leader: Leader) -> None:
    """Whoever waits for records is told, although they were refused after the lock ended."""
    leader.fetch()
    leader.timers.clock.move(LOCK_MS)
    leader.share.acknowledge("a", [Acknowledged(0, 4, [ACCEPT]), Acknowledged(20, 20, [ACCEPT])])
    leader.timers.advance(0)
    assert leader.new_events == ["free"]
    assert leader.states.answer() == "0, 0 done: 0-9 AVAILABLE x1"


# --- dead letters -----------------------------------------------------------------------------------------------------


def test_records_are_done_when_their_dead_letters_are_written(leader: Leader) -> None:
    leader.limits = leader.limits._replace(dead_letter_topic="dead-letters")
    leader.fetch()
    leader.acknowledge(0, 9, REJECT)
    assert leader.letters == [], "not before it is written that they are given up"
    assert leader.states.answer() == "0, 0 done: 0-9 ARCHIVING x1"
    ((letters, written),) = leader.letters
    assert [each.last_offset for each in letters] == [9]
    assert leader.share.window.start_offset == 0
    written.complete(None)
    assert leader.states.answer() == "10, 0 done: 0-9 ARCHIVED x1"
    assert leader.traffic.dead_letters == 10


def test_dead_letters_that_are_written_after_the_end_change_nothing(leader: Leader) -> None:
    leader.limits = leader.limits._replace(dead_letter_topic="dead-letters")
    leader.fetch()
    leader.acknowledge(0, 9, REJECT)
    leader.states.answer()
    leader.share.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    leader.letters[0][1].complete(None)
    assert leader.states.writes == []


# --- what it counts ---------------------------------------------------------------------------------------------------


def test_only_what_is_written_counts_as_acknowledged(leader: Leader) -> None:
    leader.fetch()
    leader.acknowledge(0, 4)
    leader.states.answer()
    leader.acknowledge(5, 9)
    leader.states.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    leader.acknowledge(5, 6, RENEW)
    assert leader.traffic.acquired == 10
    assert leader.traffic.acknowledged == {ACCEPT: 5, RENEW: 2}
