"""Sets of voters, their records in the log, and the counting of votes and offsets."""

from __future__ import annotations

from random import Random

import pytest
from harness.memory_raft_log import MemoryRaftLog

from moldau.base.ids import ZERO_UUID
from moldau.raft.control_records import kraft_version_record, leader_change, read_voters, voters_record
from moldau.raft.election import Tally, election_timeout_ms, lost_election_backoff_ms, successor_delay_ms
from moldau.raft.history import VoterHistory
from moldau.raft.member import RaftSettings
from moldau.raft.progress import Progress
from moldau.raft.snapshots import SnapshotId, snapshot_batches
from moldau.raft.voters import SUPPORTED_KRAFT_VERSIONS, Endpoint, ReplicaKey, Voter, VoterSet, static_voters
from moldau.wire.records import Record, build_batch

STATIC = static_voters({1: ("a", 1), 2: ("b", 2), 3: ("c", 3)}, "CONTROLLER")


def voter(node_id: int, directory: int | None = None, port: int = 9093) -> Voter:
    key = ReplicaKey(node_id, (directory or node_id).to_bytes(16, "big"))
    return Voter(key, (Endpoint("CONTROLLER", f"node{node_id}", port),), SUPPORTED_KRAFT_VERSIONS)


def voters(*ids: int) -> VoterSet:
    return VoterSet(voter(each) for each in ids)


# --- sets


def test_static_voters_are_identified_by_node_id_and_others_by_directory_id_too() -> None:
    assert ReplicaKey(1, b"x" * 16) in STATIC
    assert ReplicaKey(4, b"x" * 16) not in STATIC
    assert voter(1).key in voters(1, 2)
    assert ReplicaKey(1, b"x" * 16) not in voters(1, 2), "the node restarted with another disk"
    assert ReplicaKey(1, ZERO_UUID) not in voters(1, 2)


def test_a_voter_is_added_once_and_removed_by_its_exact_key() -> None:
    two = voters(1, 2)
    assert two.add(voter(3)) == voters(1, 2, 3)
    assert two.add(voter(2, directory=9)) is None
    assert two.remove(voter(2).key) == voters(1)
    assert two.remove(voter(2, directory=9).key) is None
    assert two.remove(voter(7).key) is None
    assert voters(1).remove(voter(1).key) is None, "the last one stays"
    assert two == voters(2, 1), "the set was not changed in place"


def test_a_voter_with_a_new_endpoint_is_updated() -> None:
    moved = voter(2, port=9999)
    assert voters(1, 2).needs_update(moved)
    assert not voters(1, 2).needs_update(voter(2))
    assert not voters(1, 2).needs_update(voter(2, directory=9, port=9999)), "that is another replica"
    updated = voters(1, 2).update(moved)
    assert updated is not None
    assert updated.endpoint(2, "controller") == Endpoint("CONTROLLER", "node2", 9999)
    assert voters(1).update(moved) is None


def test_a_voters_record_is_read_as_it_was_written() -> None:
    assert read_voters(voters_record(voters(1, 2, 3), 0)) == voters(1, 2, 3)
    assert read_voters(voters_record(STATIC, 0)) == STATIC


def test_a_leader_change_record_is_in_apaches_format() -> None:
    # version 0, leader 4, one voter 4, one granting voter 4; each struct with its empty tags
    one_voter = b"\x02" + b"\0\0\0\x04" + b"\0"
    assert leader_change(4, [4], [4], 0).value == b"\0\0" + b"\0\0\0\x04" + one_voter + one_voter + b"\0"


# --- voters in the log


def append(log: MemoryRaftLog, history: VoterHistory, *records: Record) -> None:
    log.append(build_batch(records, is_control=True), 1, 0)
    history.read_batch(log.headers[-1], memoryview(log.content[-1]))


def test_voters_count_from_their_record_on_until_it_is_truncated() -> None:
    log, history = MemoryRaftLog(), VoterHistory(STATIC)
    assert (history.voters, history.voters_offset, history.can_change) == (STATIC, None, False)
    append(log, history, kraft_version_record(1, 0), voters_record(voters(1), 0))
    append(log, history, voters_record(voters(1, 2), 0))
    assert (history.voters, history.voters_offset, history.can_change) == (voters(1, 2), 2, True)
    assert (history.voters_at(1), history.voters_at(0), history.kraft_version_at(0)) == (voters(1), None, 1)
    history.truncate(2)
    assert history.voters == voters(1)
    history.truncate(0)
    assert (history.voters, history.can_change) == (STATIC, False)


def test_the_voters_of_the_log_follow_those_of_the_snapshot() -> None:
    log = MemoryRaftLog()
    content = snapshot_batches(1, [], last_contained_ms=0, now_ms=0, kraft_version=1, voters=voters(1, 2))
    log.snapshots[SnapshotId(10, 1)] = b"".join(content)
    log.truncate_to_snapshot()
    log.append(build_batch([voters_record(voters(1, 2, 3), 0)], is_control=True), 1, 0)
    history = VoterHistory(VoterSet())
    history.load(log)
    assert (history.voters, history.voters_at(9), history.kraft_version) == (voters(1, 2, 3), voters(1, 2), 1)


# --- votes


def test_a_majority_elects_and_a_later_vote_replaces_an_earlier_one() -> None:
    tally = Tally(voters(1, 2, 3, 4), 1)
    tally.record(2, True)
    assert not tally.is_won, "two of four are no majority"
    tally.record(3, False)
    tally.record(9, True)
    assert (tally.is_won, tally.is_lost) == (False, False)
    tally.record(4, False)
    assert tally.is_lost
    tally.record(3, True)
    assert (tally.is_won, tally.granting) == (True, [1, 2, 3])


def test_a_removed_voter_does_not_count_its_own_vote() -> None:
    tally = Tally(voters(2), 1)
    assert not tally.is_won
    tally.record(2, True)
    assert tally.is_won


def test_an_election_that_needs_unreachable_voters_is_hopeless_but_not_lost() -> None:
    tally = Tally(voters(1, 2, 3), 1)
    tally.record(2, False)
    assert not tally.is_hopeless
    tally.unreachable.add(3)
    assert (tally.is_hopeless, tally.is_lost) == (True, False)


def test_timeouts_are_random_and_bounded() -> None:
    settings, rng = RaftSettings(), Random(1)
    timeouts = {election_timeout_ms(settings, rng) for _ in range(500)}
    assert min(timeouts) >= 1_000
    assert max(timeouts) < 2_000
    assert len(timeouts) > 200
    assert max(lost_election_backoff_ms(settings, rng, 1) for _ in range(200)) <= 40
    assert 500 < max(lost_election_backoff_ms(settings, rng, 30) for _ in range(200)) <= 1_000


@pytest.mark.parametrize(("position", "delay_ms"), [(0, 0), (1, 250), (2, 500), (3, 1_000), (-1, 1_000)])
def test_each_successor_waits_longer_than_the_one_before(position: int, delay_ms: int) -> None:
    assert successor_delay_ms(RaftSettings(), position, 3) == delay_ms


# --- the high watermark


def progress_of(epoch_start_offset: int, *ids: int) -> Progress:
    return Progress(voter(1).key, voters(*ids), epoch_start_offset, 1_500, 0)


def fetch(progress: Progress, node_id: int, offset: int, at_ms: int = 0) -> bool:
    return progress.on_fetch(voter(node_id).key, offset, 100, at_ms, at_ms)


def test_records_on_a_majority_are_committed() -> None:
    progress = progress_of(0, 1, 2, 3, 4, 5)
    progress.on_own_flush(50)
    assert not fetch(progress, 2, 40)
    assert fetch(progress, 3, 30)
    assert progress.high_watermark == 30
    assert fetch(progress, 4, 60)
    assert progress.high_watermark == 40
    assert not fetch(progress, 4, 10), "the high watermark never decreases"
    assert progress.high_watermark == 40


def test_records_of_earlier_epochs_are_committed_only_with_one_of_this_epoch() -> None:
    progress = progress_of(10, 1, 2, 3)
    progress.on_own_flush(11)
    assert not fetch(progress, 2, 10)
    assert not fetch(progress, 3, 10)
    assert progress.high_watermark is None
    assert fetch(progress, 3, 11)
    assert progress.high_watermark == 11


def test_the_leader_counts_only_what_it_has_flushed() -> None:
    progress = progress_of(0, 1, 2)
    assert not fetch(progress, 2, 50)
    assert progress.on_own_flush(20)
    assert progress.high_watermark == 20


def test_observers_and_voters_with_another_disk_do_not_count() -> None:
    progress = progress_of(0, 1, 2)
    progress.on_own_flush(50)
    assert not fetch(progress, 9, 50)
    assert not progress.on_fetch(voter(2, directory=9).key, 50, 100, 0, 0)
    assert {key.id for key in progress.observers} == {9, 2}
    assert progress.high_watermark is None


def test_a_new_voter_keeps_its_progress_as_an_observer() -> None:
    progress = progress_of(0, 1)
    assert progress.on_own_flush(50)
    fetch(progress, 2, 30)
    progress.update_voters(voters(1, 2))
    assert progress.voters[2].end_offset == 30
    assert progress.high_watermark == 50, "the high watermark never decreases, although a voter is behind it"
    assert fetch(progress, 2, 60) is False
    assert progress.on_own_flush(70)
    assert progress.high_watermark == 60


def test_a_leader_that_was_removed_does_not_count_itself() -> None:
    progress = progress_of(0, 1, 2, 3)
    progress.on_own_flush(90)
    progress.update_voters(voters(2, 3))
    fetch(progress, 2, 50)
    assert progress.high_watermark is None
    assert fetch(progress, 3, 40)
    assert progress.high_watermark == 40


def test_only_an_observer_that_reached_the_end_of_the_log_is_caught_up() -> None:
    progress = progress_of(0, 1)
    fetch(progress, 2, 60)
    assert not progress.is_caught_up(voter(2).key, 1)
    fetch(progress, 2, 100)
    assert progress.is_caught_up(voter(2).key, 1)
    assert not progress.is_caught_up(voter(2).key, 3_600_001)
    assert not progress.is_caught_up(voter(3).key, 1)


def test_check_quorum_needs_a_majority_to_fetch_repeatedly() -> None:
    progress = progress_of(0, 1, 2, 3, 4, 5)
    fetch(progress, 2, 0, at_ms=1_000)
    assert progress.check_quorum_at_ms == 1_500, "two of the other four are needed"
    fetch(progress, 2, 0, at_ms=1_100)
    fetch(progress, 9, 0, at_ms=1_100)
    assert progress.check_quorum_at_ms == 1_500
    fetch(progress, 5, 0, at_ms=1_400)
    assert progress.check_quorum_at_ms == 2_900
    assert progress_of(0, 1).check_quorum_at_ms > 1 << 60, "a single voter needs no fetches"


def test_successors_with_the_highest_end_offset_come_first() -> None:
    progress = progress_of(0, 1, 2, 3, 4)
    fetch(progress, 4, 5)
    fetch(progress, 3, 9)
    assert [key.id for key in progress.successors()] == [3, 4, 2]
    assert progress.silent_voters(10, 5) == [2, 3, 4]
    assert progress.silent_voters(4, 5) == [2]


def test_silent_observers_are_forgotten() -> None:
    progress = progress_of(0, 1)
    fetch(progress, 7, 0, at_ms=0)
    fetch(progress, 8, 0, at_ms=200_000)
    progress.forget_silent_observers(300_000)
    assert [key.id for key in progress.observers] == [8]
