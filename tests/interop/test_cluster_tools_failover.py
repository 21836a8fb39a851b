"""The output of the tools while a node of the cluster is dead, and the election that returns its leadership."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import PATIENCE_S, wait_until
from kafka_tools import Outcome, Tools

from moldau.cli.cluster.describe import describe
from moldau.testing import TestCluster, cluster

pytestmark = pytest.mark.moldau_only
TOPIC = "orders"


@pytest.fixture(scope="module")
def three() -> Iterator[TestCluster]:
    # Leaders return when the test requests it, not automatically.
    with cluster(offsets_topic_num_partitions=4, auto_leader_rebalance_enable="false") as running:
        yield running


@pytest.fixture(scope="module")
def bootstrap(three: TestCluster) -> str:
    return three.bootstrap_servers


@pytest.fixture(scope="module")
def topic(three: TestCluster, admin: AdminClient) -> str:  # type: ignore[override]
    """Three partitions with three replicas each, led by nodes 1, 2 and 3."""
    turns = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
    admin.create_topics([NewTopic(TOPIC, 3, replica_assignment=turns)], operation_timeout=PATIENCE_S)[TOPIC].result(
        PATIENCE_S
    )
    for index in range(3):
        three.wait_for_isr(TOPIC, index, {1, 2, 3})
    return TOPIC


def run_describe(three: TestCluster, *words: str) -> Result:
    return CliRunner().invoke(describe, ["-b", three.bootstrap_servers, "-t", TOPIC, *words], catch_exceptions=False)


def describe_output(three: TestCluster, *words: str) -> str:
    result = run_describe(three, *words)
    assert result.exit_code == 0, result.output
    return str(result.output)


def under_replicated(three: TestCluster) -> int:
    """Return the number of under-replicated partitions; during an election a broker may not know the newest topic
    yet."""
    result = run_describe(three, "--format", "json")
    return int(json.loads(result.output)["under_replicated"]) if result.exit_code == 0 else 0


def test_describe_shows_a_dead_broker_and_an_election_restores_its_leadership(
    three: TestCluster, topic: str, tools: Tools
) -> None:
    three.kill(3)
    wait_until(lambda: under_replicated(three) == 3, "node 3 is missing from all in-sync replicas")
    lines = describe_output(three).splitlines()
    assert "2 of 3 brokers up" in lines[0]
    assert lines[0].endswith("; 3 under-replicated")
    assert "fenced" in next(line for line in lines if line.split()[:1] == ["3"])
    grid = [line.split()[2:6] for line in lines if line.startswith(TOPIC)]
    assert [row[2:] for row in grid] == [["x", "2/3"]] * 3
    assert [row[:2].count("L") for row in grid] == [1, 1, 1]
    three.restart(3)
    for index in range(3):
        three.wait_for_isr(topic, index, {1, 2, 3})
    assert three.leader_of(topic, 2) != 3
    assert "preferred leader: 3" in describe_output(three)
    elected = tools("leader_election", "--election-type", "preferred", "--all-topic-partitions")
    assert elected == Outcome(0, f"Successfully completed leader election (PREFERRED) for partitions {topic}-2\n", "")
    wait_until(lambda: three.leader_of(topic, 2) == 3, "node 3 leads again")
    assert describe_output(three).splitlines()[0].endswith("; all in sync")


def test_metadata_quorum_shows_the_new_leader_after_a_failover(three: TestCluster, topic: str, tools: Tools) -> None:
    def status() -> tuple[int, int] | None:
        status_output = tools("metadata_quorum", "describe", "--status").out
        found = re.search(r"LeaderId: +(\d+)\nLeaderEpoch: +(\d+)\n", status_output)
        return (int(found[1]), int(found[2])) if found else None

    before = status()
    assert before is not None
    three.kill(before[0])
    try:

        def has_moved() -> bool:
            now = status()
            return now is not None and now[0] != before[0] and now[1] > before[1]

        wait_until(has_moved, "another controller leads, in a later epoch")
        lag = re.search(r"MaxFollowerLag: +(\d+)\n", tools("metadata_quorum", "describe", "--status").out)
        assert lag is not None
    finally:
        three.restart(before[0])
