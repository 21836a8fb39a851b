"""A quorum of one: an epoch is remembered before it is used, and what is on disk is committed."""

from __future__ import annotations

import pytest

from moldau.base.errors import MalformedData
from moldau.raft.quorum import Quorum
from moldau.raft.states import QuorumState
from moldau.wire.batch import BatchHeader, check_crc, read_header
from moldau.wire.records import ControlType, control_type, decode_records

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
NOW_MS = 1_700_000_000_000


class MemoryLog:
    """A log as the quorum sees it: what was appended, and how much of it is on disk."""

    def __init__(self, happened: list[str]) -> None:
        self.batches: list[bytes] = []
        self.end_offset = 0
        self.flushed_offset = 0
        self.last_epoch = -1
        self._happened = happened

    def append(self, batch: bytearray, epoch: int, now_ms: int) -> None:
        header = read_header(batch)
        assert check_crc(memoryview(batch))
        self.batches.append(bytes(batch))
        self.end_offset += header.record_count
        self.last_epoch = epoch
        self._happened.append(f"append epoch {epoch}")

    def header(self, place: int) -> BatchHeader:
        return read_header(self.batches[place])


class MemoryStore:
    def __init__(self, happened: list[str]) -> None:
        self.content: bytes | None = None
        self._happened = happened

    def read(self) -> QuorumState | None:
        return None if self.content is None else QuorumState.decode(self.content)

    def write(self, state: QuorumState) -> None:
        self.content = state.encode()
        self._happened.append(f"remember epoch {state.leader_epoch}")


class Voter:
    def __init__(self) -> None:
        self.happened: list[str] = []
        self.log = MemoryLog(self.happened)
        self.store = MemoryStore(self.happened)
        self.start()

    def start(self) -> None:
        self.quorum = Quorum(4, [4], CLUSTER_ID, self.log, self.store)


def test_the_epoch_is_remembered_before_anything_is_written_in_it() -> None:
    voter = Voter()
    assert voter.quorum.elect(NOW_MS) == 1
    assert voter.happened == ["remember epoch 1", "append epoch 1"]
    assert voter.store.read() == QuorumState(CLUSTER_ID, 4, 1, 4, (4,))


def test_every_election_is_in_a_new_epoch_even_after_a_crash_in_the_middle() -> None:
    voter = Voter()
    for epoch in (1, 2, 3):
        voter.start()
        assert voter.quorum.elect(NOW_MS) == epoch
    voter.log.batches.clear()
    voter.start()
    assert voter.quorum.elect(NOW_MS) == 4, "the log may have lost its tail, the vote is not forgotten"


def test_a_quorum_state_that_was_lost_does_not_bring_old_epochs_back() -> None:
    """Batches of an epoch below the log's last would be taken for stale ones by the next recovery, and cut off."""
    voter = Voter()
    for _ in range(3):
        voter.start()
        voter.quorum.elect(NOW_MS)
    voter.store.content = None
    voter.start()
    assert voter.quorum.elect(NOW_MS) == 4


def test_a_term_begins_with_a_leader_change_record() -> None:
    voter = Voter()
    voter.quorum.elect(NOW_MS)
    header = voter.log.header(0)
    assert (header.is_control, header.leader_epoch, header.record_count) == (True, 1, 1)
    record = decode_records(voter.log.batches[0])[0]
    assert control_type(record) == ControlType.LEADER_CHANGE
    # version 0, leader 4, one voter 4, one granting voter 4; each struct with its empty tags
    one_voter = b"\x02" + b"\0\0\0\x04" + b"\0"
    assert record.value == b"\0\0" + b"\0\0\0\x04" + one_voter + one_voter + b"\0"


def test_one_append_is_one_batch_and_gives_the_offset_behind_it() -> None:
    voter = Voter()
    voter.quorum.elect(NOW_MS)
    assert voter.quorum.append([b"a", b"b"], NOW_MS) == 3
    assert voter.quorum.append([b"c"], NOW_MS) == 4
    assert [record.value for record in decode_records(voter.log.batches[1])] == [b"a", b"b"]
    assert (voter.log.header(1).leader_epoch, voter.log.header(1).is_control) == (1, False)


def test_what_is_on_disk_is_committed_and_stays_so() -> None:
    voter = Voter()
    voter.quorum.elect(NOW_MS)
    voter.quorum.append([b"a"], NOW_MS)
    assert voter.quorum.high_watermark == 0
    voter.log.flushed_offset = 1
    assert voter.quorum.flushed() == voter.quorum.high_watermark == 1
    voter.log.flushed_offset = 2
    assert voter.quorum.flushed() == 2
    voter.log.flushed_offset = 1
    assert voter.quorum.flushed() == 2, "never back"


def test_other_voters_are_not_there_yet() -> None:
    voter = Voter()
    for voters in ([], [5], [4, 5]):
        with pytest.raises(AssertionError):
            Quorum(4, voters, CLUSTER_ID, voter.log, voter.store)


# --- what it remembers


def test_the_file_is_apaches() -> None:
    assert QuorumState(CLUSTER_ID, 1, 7, 1, (1,)).encode() == (
        b'{"clusterId":"MkU3OEVBNTcwNTJENDM2Qg","leaderId":1,"leaderEpoch":7,"votedId":1,'
        b'"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}'
    )


@pytest.mark.parametrize("state", [QuorumState("", -1, 0, -1, ()), QuorumState(CLUSTER_ID, 3, 2**31 - 1, 3, (1, 2, 3))])
def test_it_reads_what_it_wrote(state: QuorumState) -> None:
    assert QuorumState.decode(state.encode()) == state


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"3",
        b"{}",
        b'{"clusterId":"x","leaderId":1,"leaderEpoch":7,"votedId":1}',
        b'{"clusterId":"x","leaderId":1,"leaderEpoch":7,"votedId":1,"currentVoters":null}',
        b'{"clusterId":"x","leaderId":1,"leaderEpoch":7,"votedId":1,"currentVoters":[1]}',
        b'{"clusterId":"x","leaderId":1,"leaderEpoch":"seven","votedId":1,"currentVoters":[]}',
    ],
)
def test_a_file_that_does_not_parse_is_malformed_not_a_new_beginning(content: bytes) -> None:
    with pytest.raises(MalformedData):
        QuorumState.decode(content)
