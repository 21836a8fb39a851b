"""AlterPartition: how a leader may change its ISR, and based on which state."""

from __future__ import annotations

import pytest
from harness.controlled_cluster import ControlledCluster

from moldau.base.errors import ErrorCode as E
from moldau.base.steps import finish
from moldau.base.turns import CHANGES_A_TURN
from moldau.metadata.controller.alter_partition import decide_alter_partition
from moldau.wire.messages.alter_partition import AlterPartitionRequest, RequestPartitionData, RequestTopicData


def three_brokers() -> ControlledCluster:
    cluster = ControlledCluster([1, 2, 3])
    cluster.create("a", [1, 2, 3])
    return cluster


def test_shrinking_and_growing_keep_the_leader_epoch_and_raise_the_partition_epoch() -> None:
    cluster = three_brokers()
    shrunk = cluster.alter("a", [1, 3])
    assert (shrunk.error_code, shrunk.leader_id, shrunk.leader_epoch) == (0, 1, 0)
    assert (list(shrunk.isr), shrunk.partition_epoch) == ([1, 3], 1)
    grown = cluster.alter("a", [1, 2, 3], version=2)
    assert (list(grown.isr), grown.partition_epoch) == ([1, 2, 3], 2)
    assert (cluster.summary("a"), cluster.state("a").partition_epoch) == ("1:1,2,3 of 1,2,3 @0", 2)


def test_an_unchanged_isr_writes_no_record() -> None:
    cluster = three_brokers()
    response = cluster.alter("a", [1, 2, 3])
    assert (response.error_code, response.partition_epoch, cluster.records) == (0, 0, ())


@pytest.mark.parametrize(
    ("proposal", "code"),
    [
        ({"leader_epoch": 6}, E.NOT_CONTROLLER),
        ({"partition_epoch": 9}, E.NOT_CONTROLLER),
        ({"leader_epoch": 0}, E.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 0, "sender": 3}, E.FENCED_LEADER_EPOCH),
        ({"sender": 3}, E.INVALID_REQUEST),
        ({"partition_epoch": 0}, E.INVALID_UPDATE_VERSION),
        ({"isr": [2, 2]}, E.INVALID_REQUEST),
        ({"isr": [2, 9]}, E.INVALID_REQUEST),
        ({"isr": [3]}, E.INVALID_REQUEST),
        ({"isr": []}, E.INVALID_REQUEST),
        ({"recovery_state": 1}, E.INVALID_REQUEST),
        ({"recovery_state": 1, "isr": [2]}, E.INVALID_REQUEST),
        ({"recovery_state": 7, "isr": [2]}, E.INVALID_REQUEST),
        ({"isr": [2, 3, 1]}, E.INELIGIBLE_REPLICA),
        ({"isr": [2, 3, 1], "version": 2}, E.INELIGIBLE_REPLICA),
        ({"broker_epochs": {3: 1}}, E.INELIGIBLE_REPLICA),
    ],
)
def test_an_invalid_proposal_is_refused(proposal: dict[str, object], code: E) -> None:
    """Broker 1 is fenced; since then broker 2 leads in epoch 1."""
    cluster = three_brokers()
    cluster.die(1)
    before = cluster.image
    response = cluster.alter("a", **{"isr": [2, 3], **proposal})  # type: ignore[arg-type]
    assert response.error_code == code, E(response.error_code).name
    assert cluster.image is before


def test_a_broker_that_restarted_since_its_last_fetch_does_not_join_the_isr() -> None:
    """KIP-903: the leader saw the previous process fetching."""
    cluster = three_brokers()
    old_epoch = cluster.image.brokers[3].epoch
    cluster.die(3)
    cluster.join(3, incarnation=2)
    assert cluster.alter("a", [1, 2, 3], broker_epochs={3: old_epoch}).error_code == E.INELIGIBLE_REPLICA
    assert cluster.alter("a", [1, 2, 3], broker_epochs={3: -1}).error_code == 0, "-1 means unknown"


def test_unknown_topics_partitions_and_brokers_are_refused() -> None:
    cluster = three_brokers()
    topic = cluster.image.topics["a"]
    topics = [
        RequestTopicData(bytes(16), [RequestPartitionData(0)]),
        RequestTopicData(topic.id, [RequestPartitionData(1), RequestPartitionData(-1)]),
    ]
    request = AlterPartitionRequest(1, cluster.image.brokers[1].epoch, topics)
    decision = finish(decide_alter_partition(cluster.image, request, cluster.layers))
    assert [[each.error_code for each in response.partitions] for response in decision.response.topics] == [
        [E.UNKNOWN_TOPIC_ID],
        [E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_OR_PARTITION],
    ]
    for unknown in (AlterPartitionRequest(9, 1, topics), AlterPartitionRequest(1, 1, topics)):
        refused = finish(decide_alter_partition(cluster.image, unknown, cluster.layers))
        assert (refused.response.error_code, refused.records) == (E.STALE_BROKER_EPOCH, ())


def test_of_two_proposals_for_one_partition_the_first_counts() -> None:
    cluster = three_brokers()
    proposals = [RequestPartitionData(0, new_isr=isr, partition_epoch=0) for isr in ([1, 2], [1, 3])]
    topic = RequestTopicData(cluster.image.topics["a"].id, proposals)
    request = AlterPartitionRequest(1, cluster.image.brokers[1].epoch, [topic])
    response = cluster.do(finish(decide_alter_partition(cluster.image, request, cluster.layers)))
    assert [each.error_code for each in response.topics[0].partitions] == [0, E.INVALID_UPDATE_VERSION]
    assert cluster.summary("a") == "1:1,2 of 1,2,3 @0"


def test_thousands_of_proposals_are_decided_in_steps() -> None:
    cluster = ControlledCluster([1, 2])
    cluster.create("a", *[[1, 2]] * (3 * CHANGES_A_TURN))
    proposals = [RequestPartitionData(index, new_isr=[1]) for index in range(3 * CHANGES_A_TURN)]
    topic = RequestTopicData(cluster.image.topics["a"].id, proposals)
    request = AlterPartitionRequest(1, cluster.image.brokers[1].epoch, [topic])
    steps = decide_alter_partition(cluster.image, request, cluster.layers)
    for _ in range(3):
        next(steps)
    assert len(finish(steps).records) == len(proposals)
