"""The quorum-state file, in the two versions of Apache's format."""

from __future__ import annotations

import pytest

from moldau.base.errors import MalformedData
from moldau.raft.quorum_state import QuorumState

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


def test_version_1_is_apaches_format() -> None:
    assert QuorumState("", 1, 7, 3, (), bytes(range(16)), 1).encode() == (
        b'{"leaderId":1,"leaderEpoch":7,"votedId":3,"votedDirectoryId":"AAECAwQFBgcICQoLDA0ODw","data_version":1}'
    )


def test_version_0_is_apaches_format() -> None:
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
def test_a_state_is_decoded_as_it_was_encoded(state: QuorumState) -> None:
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
def test_a_file_that_cannot_be_parsed_is_malformed(content: bytes) -> None:
    with pytest.raises(MalformedData):
        QuorumState.decode(content)
