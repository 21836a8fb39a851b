"""What a voter remembers across restarts, in the two versions of Apache's file."""

from __future__ import annotations

import pytest

from moldau.base.errors import MalformedData
from moldau.raft.states import QuorumState

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


def test_version_1_is_apaches_too() -> None:
    assert QuorumState("", 1, 7, 3, (), bytes(range(16)), 1).encode() == (
        b'{"leaderId":1,"leaderEpoch":7,"votedId":3,"votedDirectoryId":"AAECAwQFBgcICQoLDA0ODw","data_version":1}'
    )


def test_the_file_is_apaches() -> None:
    assert QuorumState(CLUSTER_ID, 1, 7, 1, (1,)).encode() == (
        b'{"clusterId":"MkU3OEVBNTcwNTJENDM2Qg","leaderId":1,"leaderEpoch":7,"votedId":1,'
        b'"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}'
    )


@pytest.mark.parametrize(
    "state",
    [
        QuorumState("", -1, 0, -1, ()),
        QuorumState(CLUSTER_ID, 3, 2**31 - 1, 3, (1, 2, 3)),
        QuorumState("", 2, 5, 2, (), b"x" * 16, 1),
    ],
)
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
        b'{"clusterId":"x","leaderId":1,"leaderEpoch":"seven","votedId":1,"currentVoters":[],"data_version":0}',
        b'{"clusterId":"x","leaderId":1,"leaderEpoch":7,"votedId":1,"currentVoters":[],"data_version":2}',
        b'{"leaderId":1,"leaderEpoch":7,"votedId":1,"votedDirectoryId":"short","data_version":1}',
    ],
)
def test_a_file_that_does_not_parse_is_malformed_not_a_new_beginning(content: bytes) -> None:
    with pytest.raises(MalformedData):
        QuorumState.decode(content)
