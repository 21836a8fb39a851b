"""How `moldau cluster stop` finds the leader of the quorum, and stops nodes without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from moldau.base.errors import ErrorCode
from moldau.cli.cluster.directory import ClusterDirectory, Description
from moldau.cli.cluster.processes import NodeProcess, ProcessIdentity
from moldau.cli.cluster.stopping import leader_in, stop_all
from moldau.platforms.processes import PROCESSES
from moldau.wire.messages.describe_quorum import DescribeQuorumResponse, ResponsePartitionData, ResponseTopicData


def test_nodes_are_stopped_although_their_certificate_is_missing(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as child:
        identity = ProcessIdentity(child.pid, PROCESSES.start_time(child.pid) or "")
        process = NodeProcess(1, identity, tmp_path / "node.log", 0)
        printed: list[str] = []
        description = Description("abc", (), is_secure=True)
        assert stop_all(ClusterDirectory(tmp_path), description, [process], printed.append)
        assert child.wait() != 0
    (line,) = printed
    assert line.startswith("cannot ask for the leader of the quorum, so all nodes stop at once: ")


@pytest.mark.parametrize(
    ("partition_error", "leader", "found"),
    [(ErrorCode.NONE, 2, 2), (ErrorCode.NONE, -1, None), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, None)],
)
def test_the_leader_in_a_response(partition_error: ErrorCode, leader: int, found: int | None) -> None:
    partition = ResponsePartitionData(0, partition_error, leader_id=leader)
    assert leader_in(DescribeQuorumResponse(topics=[ResponseTopicData("__cluster_metadata", [partition])])) == found
    failed = DescribeQuorumResponse(
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED, topics=[ResponseTopicData("t", [partition])]
    )
    assert leader_in(failed) is None
