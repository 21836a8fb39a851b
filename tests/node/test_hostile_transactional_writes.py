"""Produce requests with forged transactions, and writes whose partition or coordinator is lost meanwhile.

A refused write leaves nothing behind, no client harms another's transaction, and no transaction waits for a partition
that is not part of it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness.attacked_cluster import SentRequest
from harness.transactional_cluster import VERSIONS_WITH_TOPIC_NAMES, TransactionalCluster, batch, produce_request

from moldau.base.errors import ErrorCode
from moldau.base.promise import Promise
from moldau.base.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from moldau.runtime.coordinators.transaction import TransactionCoordinator
from moldau.runtime.coordinators.transaction_gate import TransactionGate
from moldau.server.handlers import produce
from moldau.wire.apis import ApiKey
from moldau.wire.messages import add_partitions_to_txn as adding
from moldau.wire.messages import write_txn_markers as markers
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

INVENTED_PRODUCERS = 200
VERIFICATION_LATE_MS = 11_000
"""A little more than twice the time that a coordinator waits for its log."""
MARKERS_LATE_MS = 12_000
"""Longer than a broker waits for the commit of a marker, but too short for a dead follower to be noticed."""


@pytest.fixture
def one_node() -> Iterator[TransactionalCluster]:
    transactional = TransactionalCluster(1)
    yield transactional
    transactional.check_health()


def error_codes(sent: SentRequest) -> list[ErrorCode]:
    return [ErrorCode(each.error_code) for topic in sent.outcome.responses for each in topic.partition_responses]


def guard_count(transactional: TransactionalCluster) -> int:
    side = transactional.cluster.nodes[1].broker_side
    assert side is not None
    return len(side.verifications._guards)


# --- batches that are never valid ---------------------------------------------------------------------------------

FORGED = {
    "a control batch": (lambda producer: batch(producer, is_control=True), ErrorCode.INVALID_RECORD),
    "no sequence": (lambda producer: batch(producer, -1), ErrorCode.INVALID_RECORD),
    "no producer id": (lambda _: batch((-1, -1), -1), None),
    "the smallest producer id": (lambda producer: batch((-(2**63), producer[1])), None),
    "the largest producer id": (
        lambda producer: batch((2**63 - 1, producer[1])),
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ),
    "no epoch": (lambda producer: batch((producer[0], -1)), None),
    "the largest epoch": (lambda producer: batch((producer[0], 2**15 - 1)), ErrorCode.INVALID_PRODUCER_EPOCH),
    "another client's producer id": (
        lambda producer: batch((producer[0] + 1, 0)),
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ),
}
"""How each batch is made, and the expected error; None: any error."""


@pytest.mark.parametrize("version", VERSIONS_WITH_TOPIC_NAMES)
@pytest.mark.parametrize("forged", FORGED)
def test_forged_batches_are_refused_and_not_appended(one_node: TransactionalCluster, forged: str, version: int) -> None:
    producer, other = one_node.init("tx"), one_node.init("other")
    assert other[0] == producer[0] + 1
    make, code = FORGED[forged]
    sent = one_node.send(produce_request("tx", ("victim", 0, make(producer))), ApiKey.PRODUCE, version, 1)
    one_node.cluster.timers.advance(1_000)
    (error,) = error_codes(sent)
    assert error != ErrorCode.NONE
    if code is not None and (version >= 12 or forged not in ("a control batch", "no sequence")):
        assert error == code
    assert one_node.partition().log.end_offset == 0


@pytest.mark.parametrize("version", VERSIONS_WITH_TOPIC_NAMES)
@pytest.mark.parametrize("topic", [TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC])
def test_clients_cannot_write_to_internal_topics(one_node: TransactionalCluster, topic: str, version: int) -> None:
    producer = one_node.init("tx")
    written = one_node.partition(topic).log.end_offset
    sent = one_node.send(produce_request("tx", (topic, 0, batch(producer))), ApiKey.PRODUCE, version, 1)
    one_node.cluster.timers.advance(100)
    assert error_codes(sent) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert one_node.partition(topic).log.end_offset - written <= 1, (
        "at most the record that the partition was added to the transaction"
    )


def test_a_produce_request_with_two_producers_is_refused(one_node: TransactionalCluster) -> None:
    first, second = one_node.init("tx"), one_node.init("other")
    request = produce_request("tx", ("victim", 0, batch(first)), ("victim", 1, batch(second)))
    sent = one_node.send(request, ApiKey.PRODUCE, 12, 1)
    one_node.cluster.timers.advance(100)
    assert error_codes(sent) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert [one_node.partition("victim", index).log.end_offset for index in range(2)] == [0, 0]


# --- forged producer ids ------------------------------------------------------------------------------------------


def test_invented_producer_ids_leave_no_verification_state(one_node: TransactionalCluster) -> None:
    one_node.init("tx")
    for made_up in range(10**6, 10**6 + INVENTED_PRODUCERS):
        assert one_node.write("tx", (made_up, 0)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert one_node.write("nobody", (made_up, 0), version=11) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert guard_count(one_node) == 0


@pytest.mark.parametrize("version", [11, 12])
def test_a_write_with_another_clients_producer_id_does_not_block_that_producer(
    one_node: TransactionalCluster, version: int
) -> None:
    """Batches of a producer are written in the order of their sequences; no other client may influence that order."""
    victim = one_node.init("tx")
    one_node.init("attacker")
    for sequence in (-1, 0, 5):
        one_node.write("attacker", victim, sequence, 12)
        one_node.write("attacker", (victim[0], victim[1] + 1), sequence, 11)
    if version < 12:
        assert one_node.add("tx", victim) == ErrorCode.NONE
    request = produce_request("tx", ("victim", 0, batch(victim)))
    sent = one_node.send(request, ApiKey.PRODUCE, version, 1)
    one_node.write("attacker", victim, -1, 12)
    one_node.cluster.timers.advance(100)
    assert error_codes(sent) == [ErrorCode.NONE]


def test_add_partitions_in_the_version_for_brokers_needs_the_right_producer(
    one_node: TransactionalCluster,
) -> None:
    """A client may send AddPartitionsToTxn of version 4 or later: what it adds becomes part of the open
    transaction and gets its marker."""
    producer = one_node.init("tx")
    forged = [producer, (producer[0], producer[1] + 1), (producer[0] + 1, 0), (-1, -1), (2**63 - 1, 2**15 - 1)]
    topics = [adding.AddPartitionsToTxnTopic("victim", [0, 0]), adding.AddPartitionsToTxnTopic("victim", [0])]
    asked = [adding.AddPartitionsToTxnTransaction("tx", *each, verify_only=False, topics=topics) for each in forged]
    response = one_node.ask(adding.AddPartitionsToTxnRequest([*asked, *asked]), ApiKey.ADD_PARTITIONS_TO_TXN, 5, 1)
    first = [
        each.topic_results[0].results_by_partition[0].partition_error_code for each in response.results_by_transaction
    ]
    mapping, fenced = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED
    assert first == [ErrorCode.NONE, fenced, mapping, mapping, mapping] * 2
    assert one_node.states(1)["tx"] == "Ongoing"


@pytest.mark.parametrize("epoch", [-(2**15), -1, 0, 2**15 - 1])
@pytest.mark.parametrize("producer_id", [-(2**63), -1, 10**9, 2**63 - 1])
def test_markers_of_unknown_producers_are_harmless(
    one_node: TransactionalCluster, producer_id: int, epoch: int
) -> None:
    names = ("victim", TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC, "__cluster_metadata", "nobody")
    topics = [markers.WritableTxnMarkerTopic(name, [0, 0, -1, 2**31 - 1]) for name in names]
    for coordinator_epoch in (-1, 0, 2**31 - 1):
        marker = markers.WritableTxnMarker(producer_id, epoch, True, topics, coordinator_epoch, 2)
        response = one_node.ask(markers.WriteTxnMarkersRequest([marker, marker]), ApiKey.WRITE_TXN_MARKERS, 2, 1)
        for result in response.markers:
            unknown = [each.error_code for each in result.topics[-1].partitions]
            assert unknown == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 4


# --- lost partitions and coordinators -----------------------------------------------------------------------------


def test_a_write_waiting_for_the_coordinator_is_not_appended_to_a_recreated_topic(
    one_node: TransactionalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified: Promise[None] = Promise()
    one_node.cluster.create("short-lived")
    producer = one_node.init("tx")
    monkeypatch.setattr(TransactionGate, "verify", lambda *_: verified)
    sent = one_node.begin_write("tx", producer, topic="short-lived")
    monkeypatch.undo()
    deletion = DeleteTopicsRequest([DeleteTopicState("short-lived")], timeout_ms=5_000)
    assert not one_node.ask(deletion, ApiKey.DELETE_TOPICS, 6, 1).responses[0].error_code
    one_node.until(
        lambda: "short-lived" not in one_node.cluster.wait_for_leader().current.image.topics, "the topic is deleted"
    )
    one_node.cluster.create("short-lived")
    verified.complete(None)
    assert error_codes(sent) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.parametrize("is_long", [False, True], ids=["short", "long"])
def test_a_verified_write_that_fails_here_closes_its_connection_and_no_other(
    one_node: TransactionalCluster, monkeypatch: pytest.MonkeyPatch, is_long: bool
) -> None:
    """The coordinator answers for several writes at once: the others get their answers, and none waits forever."""

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    verified: Promise[None] = Promise()
    producer = one_node.init("tx")
    monkeypatch.setattr(TransactionGate, "verify", lambda *_: verified)
    monkeypatch.setattr(produce, "is_long", lambda _: is_long)
    sent = one_node.begin_write("tx", producer)
    monkeypatch.setattr(produce.Produce, "_append", fail)
    with pytest.raises(AssertionError, match="failed here"):  # so the harness reports what it closes
        verified.complete(None)
    assert sent.is_waiting


def test_the_bytes_of_writes_that_wait_for_their_coordinator_are_bounded(
    one_node: TransactionalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "UNVERIFIED_BYTES_MAX", 250)
    producers = [one_node.init(f"tx{number}") for number in range(5)]
    sent = [one_node.begin_write(f"tx{number}", producer) for number, producer in enumerate(producers)]
    assert [each.is_waiting for each in sent] == [True] * 3 + [False] * 2
    one_node.cluster.timers.advance(1_000)
    assert [error_codes(each) for each in sent] == [[ErrorCode.NONE]] * 3 + [[ErrorCode.NOT_ENOUGH_REPLICAS]] * 2
    assert one_node.write("tx4", producers[4]) == ErrorCode.NONE, "a refused write can be sent again"


@pytest.fixture
def split_cluster() -> Iterator[TransactionalCluster]:
    """Three nodes; the transaction state topic has one replica, other topics have three."""
    transactional = TransactionalCluster(
        3,
        transaction_state_log_replication_factor="1",
        transaction_state_log_min_isr="1",
        min_insync_replicas="2",
    )
    yield transactional
    transactional.cluster.heal()
    transactional.check_health()


def topic_led_by(transactional: TransactionalCluster, name: str, node: int, replicas: int) -> str:
    """Create topics with this many replicas until this node leads one; return its name."""
    for number in range(50):
        made = CreateTopicsRequest([CreatableTopic(f"{name}{number}", 1, replicas)], timeout_ms=5_000)
        transactional.ask(made, ApiKey.CREATE_TOPICS, 7, node)
        transactional.cluster.timers.advance(300)
        if transactional.leader(f"{name}{number}") == node:
            return f"{name}{number}"
    raise AssertionError("the node leads none of the topics")


def test_a_partition_that_cannot_commit_its_marker_blocks_no_other_transaction(
    split_cluster: TransactionalCluster,
) -> None:
    coordinator = split_cluster.coordinator("tx")
    stuck, free = (
        topic_led_by(split_cluster, "stuck", coordinator, 3),
        topic_led_by(split_cluster, "free", coordinator, 1),
    )
    stuck_producer = split_cluster.init("tx")
    assert split_cluster.write("tx", stuck_producer, topic=stuck) == ErrorCode.NONE
    split_cluster.cluster.cut_off(coordinator)
    split_cluster.end("tx", stuck_producer)
    split_cluster.cluster.timers.advance(10)
    name = next(
        each for each in (f"other{number}" for number in range(50)) if split_cluster.coordinator(each) == coordinator
    )
    producer = split_cluster.init(name)
    assert split_cluster.write(name, producer, topic=free) == ErrorCode.NONE
    assert split_cluster.end(name, producer).error_code == ErrorCode.NONE
    split_cluster.cluster.timers.advance(MARKERS_LATE_MS)
    states = split_cluster.states(coordinator)
    assert (states["tx"], states[name]) == ("PrepareCommit", "CompleteCommit")


def test_a_transaction_that_just_fits_into_its_record_can_be_ended() -> None:
    """The record of its end may be some bytes longer than the record of the open transaction."""
    transactional = TransactionalCluster(1, message_max_bytes="1000")
    transactional.cluster.create("wide", partitions=300)
    names = ["x" * length for length in range(1, 9)]
    for name in names:
        producer = transactional.init(name)
        errors = [transactional.add(name, producer, "wide", index) for index in range(300)]
        assert errors[0] == ErrorCode.NONE
        assert errors[-1] != ErrorCode.NONE, "the transaction does not fit into its record"
    transactional.until(transactional.is_quiet, "all transactions were aborted at their timeout")
    assert set(transactional.states(1).values()) == {"CompleteAbort"}


def test_a_stuck_coordinator_shard_does_not_block_verification_at_others(
    one_node: TransactionalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker verifies many transactions with one request and sends the next one after the response."""
    stuck, free = one_node.init("stuck"), one_node.init("free")
    submit = TransactionCoordinator.submit
    monkeypatch.setattr(
        TransactionCoordinator,
        "submit",
        lambda self, name, decide: Promise() if name == "stuck" else submit(self, name, decide),
    )
    sent = [one_node.begin_write(name, producer) for name, producer in (("stuck", stuck), ("free", free))]
    one_node.cluster.timers.advance(VERIFICATION_LATE_MS)
    assert [error_codes(each) for each in sent] == [[ErrorCode.NOT_ENOUGH_REPLICAS], [ErrorCode.NONE]]
    monkeypatch.undo()


def test_markers_are_sent_again_after_the_nodes_own_handler_failed(
    one_node: TransactionalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise markers to this node would stay in flight for ever."""
    producer = one_node.init("tx")
    assert one_node.write("tx", producer) == ErrorCode.NONE

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setitem(one_node.cluster.routers[9001]._answers, ApiKey.WRITE_TXN_MARKERS, broken)
    assert one_node.end("tx", producer).error_code == ErrorCode.NONE
    one_node.cluster.timers.advance(500)
    assert one_node.states(1)["tx"] == "PrepareCommit"
    monkeypatch.undo()
    one_node.until(lambda: one_node.states(1)["tx"] == "CompleteCommit", "the markers are sent again")


@pytest.mark.parametrize("level", [0, 1])
def test_transactions_end_after_a_downgrade_of_the_transaction_version(
    one_node: TransactionalCluster, level: int
) -> None:
    ended, left = one_node.init("ended"), one_node.init("left")
    assert one_node.write("ended", ended) == ErrorCode.NONE
    assert one_node.write("left", left) == ErrorCode.NONE
    downgrade = UpdateFeaturesRequest(5_000, [FeatureUpdateKey("transaction.version", level, upgrade_type=2)])
    assert one_node.ask(downgrade, ApiKey.UPDATE_FEATURES, 1, 1).error_code == ErrorCode.NONE
    one_node.cluster.timers.advance(100)
    response = one_node.end("ended", ended)
    assert response.error_code == ErrorCode.NONE
    assert one_node.write("ended", (response.producer_id, response.producer_epoch)) == ErrorCode.NONE
    one_node.until(one_node.is_quiet, "the other transactions are aborted at their timeout", patience_ms=15_000)
    assert one_node.write("left", left, 1) == ErrorCode.INVALID_PRODUCER_EPOCH
