"""Elections on request, and elections of preferred leaders."""

from __future__ import annotations

from harness.controlled_cluster import ControlledCluster

from moldau.base.errors import ErrorCode as E
from moldau.base.steps import finish
from moldau.base.turns import ITEMS_A_TURN
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.elections import (
    ELECTIONS_MAX,
    decide_balance,
    decide_elect_leaders,
    decide_unclean_elections,
)
from moldau.metadata.records import ConfigResource
from moldau.wire.log_records.metadata import ConfigRecord
from moldau.wire.messages.elect_leaders import ElectLeadersRequest

PREFERRED, UNCLEAN = 0, 1


def after_a_failure() -> ControlledCluster:
    """Broker 1 was fenced and is unfenced again, but not in sync yet."""
    cluster = ControlledCluster([1, 2, 3])
    cluster.create("a", [1, 2, 3], [2, 3, 1])
    cluster.die(1)
    cluster.beat(1)
    assert cluster.summary("a") == "2:2,3 of 1,2,3 @1"
    return cluster


def test_the_preferred_leader_leads_again_once_it_is_in_sync() -> None:
    cluster = after_a_failure()
    assert cluster.elect(PREFERRED, "a", 0, 1) == [E.PREFERRED_LEADER_NOT_AVAILABLE, E.ELECTION_NOT_NEEDED]
    cluster.alter("a", [2, 3, 1])
    assert cluster.elect(PREFERRED, "a", 0, 1) == [0, E.ELECTION_NOT_NEEDED]
    assert cluster.summary("a") == "1:2,3,1 of 1,2,3 @2"


def test_an_unclean_election_needs_a_partition_without_leader() -> None:
    cluster = after_a_failure()
    assert cluster.elect(UNCLEAN, "a", 0) == [E.ELECTION_NOT_NEEDED]
    cluster.alter("a", [2])
    cluster.die(2)
    assert cluster.summary("a") == "-1:2 of 1,2,3 @2"
    assert cluster.elect(PREFERRED, "a", 0) == [E.PREFERRED_LEADER_NOT_AVAILABLE]
    assert cluster.elect(UNCLEAN, "a", 0) == [0]
    assert cluster.summary("a") == "1:1 of 1,2,3 @3"


def test_without_active_brokers_no_leader_is_elected() -> None:
    cluster = after_a_failure()
    cluster.die(1, 2, 3)
    assert cluster.elect(UNCLEAN, "a", 0) == [E.ELIGIBLE_LEADERS_NOT_AVAILABLE]


def test_unknown_partitions_and_election_types_are_refused() -> None:
    cluster = after_a_failure()
    assert cluster.elect(PREFERRED, "nowhere", 0) == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert cluster.elect(PREFERRED, "a", 2, -1) == [E.UNKNOWN_TOPIC_OR_PARTITION] * 2
    refused = finish(decide_elect_leaders(cluster.image, ElectLeadersRequest(7, None)))
    assert (refused.response.error_code, refused.records) == (E.INVALID_REQUEST, ())
    results = refused.response.replica_election_results[0].partition_result
    assert [(each.error_code, each.error_message) for each in results] == [
        (E.INVALID_REQUEST, "Unknown election type 7")
    ] * 2


def test_an_election_of_all_partitions_reports_only_those_that_needed_one() -> None:
    cluster = after_a_failure()
    cluster.create("b", [3, 2])
    cluster.alter("a", [2, 3, 1])
    response = cluster.do(finish(decide_elect_leaders(cluster.image, ElectLeadersRequest(PREFERRED, None))))
    assert [
        (topic.topic, [(each.partition_id, each.error_code) for each in topic.partition_result])
        for topic in response.replica_election_results
    ] == [("a", [(0, 0)]), ("b", [])]
    assert cluster.state("a").leader == 1


def test_balance_returns_leaderships_to_the_preferred_leaders() -> None:
    cluster = ControlledCluster([1, 2])
    cluster.create("a", *[[1, 2]] * 10)
    cluster.die(1)
    cluster.beat(1)
    for index in range(10):
        cluster.alter("a", [2, 1], index)
    assert cluster.elect(PREFERRED, "a", *range(9)) == [0] * 9
    assert cluster.state("a", 9).leader == 2
    assert cluster.do(finish(decide_balance(cluster.image))) is False
    assert cluster.state("a", 9).leader == 1
    assert finish(decide_balance(cluster.image)).records == ()


def test_balance_does_not_elect_fenced_or_lagging_brokers() -> None:
    cluster = ControlledCluster([1, 2])
    cluster.create("a", [1, 2])
    cluster.die(1)
    assert finish(decide_balance(cluster.image)).records == ()
    cluster.beat(1)
    assert finish(decide_balance(cluster.image)).records == ()


def test_a_round_of_balancing_is_limited() -> None:
    cluster = ControlledCluster([1, 2])
    cluster.create("a", *[[1, 2]] * (ELECTIONS_MAX + 1))
    cluster.die(1)
    cluster.beat(1)
    for index in range(ELECTIONS_MAX + 1):
        cluster.alter("a", [2, 1], index)
    first = finish(decide_balance(cluster.image))
    assert (first.response, len(first.records)) == (True, ELECTIONS_MAX)
    cluster.do(first)
    last = finish(decide_balance(cluster.image))
    assert (last.response, len(last.records)) == (False, 1)


def test_elections_without_a_request_yield_after_some_partitions() -> None:
    cluster = ControlledCluster([1, 2])
    cluster.create("a", *[[1, 2]] * (3 * ITEMS_A_TURN))
    cluster.die(1)
    assert len(list(decide_balance(cluster.image))) == 3, "none of the preferred leaders is alive"
    cluster.die(2)
    assert len(list(decide_unclean_elections(cluster.image, cluster.layers))) == 3


def test_a_partition_gets_a_leader_once_unclean_elections_are_allowed() -> None:
    cluster = ControlledCluster([1, 2])
    cluster.create("a", [1, 2])
    cluster.create("b", [1, 2])
    for name in ("a", "b"):
        cluster.alter(name, [1])
    cluster.die(1)
    assert finish(decide_unclean_elections(cluster.image, cluster.layers)).records == ()
    cluster.do(Decision(None, (ConfigRecord(ConfigResource.TOPIC, "a", "unclean.leader.election.enable", "true"),)))
    assert cluster.do(finish(decide_unclean_elections(cluster.image, cluster.layers))) is False
    assert (cluster.summary("a"), cluster.summary("b")) == ("2:2 of 1,2 @2", "-1:1 of 1,2 @1")
