"""Writes that claim to be part of a transaction, and those whose partition or coordinator is lost on the way.

What is refused leaves nothing behind, what one client does costs no other its transaction, and nobody waits for a
partition that is not theirs.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from besieged import Sent
from besieged_transactions import NAMED, Transacting, batch, produced

from moldau.base.errors import ErrorCode
from moldau.base.names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from moldau.base.promise import Promise
from moldau.runtime.coordinators.transaction import TransactionCoordinator
from moldau.runtime.coordinators.transaction_gate import TransactionGate
from moldau.server.handlers import produce
from moldau.server.handlers.transactions.write_markers import WriteTxnMarkers
from moldau.wire.apis import ApiKey
from moldau.wire.messages import add_partitions_to_txn as adding
from moldau.wire.messages import write_txn_markers as markers
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

STRANGERS = 200
QUESTION_LATE_MS = 11_000
"""Twice what a coordinator waits for its log, and some."""
MARKERS_LATE_MS = 12_000
"""Longer than a broker waits for the commit of a marker, and shorter than it takes to find a follower dead."""


@pytest.fixture
def alone() -> Iterator[Transacting]:
    found = Transacting(1)
    yield found
    found.is_well()


def codes(sent: Sent) -> list[ErrorCode]:
    return [ErrorCode(each.error_code) for topic in sent.outcome.responses for each in topic.partition_responses]


def guards(cluster: Transacting) -> int:
    side = cluster.besieged.nodes[1].broker_side
    assert side is not None
    return len(side.verifications._guards)


# --- batches that nobody may write ----------------------------------------------------------------------------------

FORGED = {
    "a control batch": (lambda producer: batch(producer, is_control=True), ErrorCode.INVALID_RECORD),
    "no sequence": (lambda producer: batch(producer, -1), ErrorCode.INVALID_RECORD),
    "no producer": (lambda _: batch((-1, -1), -1), None),
    "a producer below none": (lambda producer: batch((-(2**63), producer[1])), None),
    "the last producer": (lambda producer: batch((2**63 - 1, producer[1])), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    "no epoch": (lambda producer: batch((producer[0], -1)), None),
    "the last epoch": (lambda producer: batch((producer[0], 2**15 - 1)), ErrorCode.INVALID_PRODUCER_EPOCH),
    "another's producer": (lambda producer: batch((producer[0] + 1, 0)), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
}


@pytest.mark.parametrize("version", NAMED)
@pytest.mark.parametrize("forged", FORGED)
def test_forged_batches_are_refused_and_open_nothing(alone: Transacting, forged: str, version: int) -> None:
    producer, other = alone.init("tx"), alone.init("other")
    assert other[0] == producer[0] + 1
    make, code = FORGED[forged]
    sent = alone.post(produced("tx", ("victim", 0, make(producer))), ApiKey.PRODUCE, version, 1)
    alone.besieged.timers.advance(1_000)
    (told,) = codes(sent)
    assert told != ErrorCode.NONE
    if code is not None and (version >= 12 or forged not in ("a control batch", "no sequence")):
        assert told == code
    assert alone.partition().log.end_offset == 0


@pytest.mark.parametrize("version", NAMED)
@pytest.mark.parametrize("topic", [TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC])
def test_nobody_writes_what_coordinators_remember(alone: Transacting, topic: str, version: int) -> None:
    before = alone.partition(topic).log.end_offset
    producer = alone.init("tx")
    written = alone.partition(topic).log.end_offset
    sent = alone.post(produced("tx", (topic, 0, batch(producer))), ApiKey.PRODUCE, version, 1)
    alone.besieged.timers.advance(100)
    assert codes(sent) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert alone.partition(topic).log.end_offset - written <= 1, "the transaction it became part of, at most"
    assert before <= written


def test_two_producers_in_one_request_write_nothing(alone: Transacting) -> None:
    first, second = alone.init("tx"), alone.init("other")
    request = produced("tx", ("victim", 0, batch(first)), ("victim", 1, batch(second)))
    sent = alone.post(request, ApiKey.PRODUCE, 12, 1)
    alone.besieged.timers.advance(100)
    assert codes(sent) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert alone.partition().log.end_offset == 0


# --- producers of others --------------------------------------------------------------------------------------------


def test_of_producers_that_are_made_up_nothing_is_kept(alone: Transacting) -> None:
    alone.init("tx")
    for made_up in range(10**6, 10**6 + STRANGERS):
        assert alone.write("tx", (made_up, 0)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert alone.write("nobody", (made_up, 0), version=11) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert guards(alone) == 0


@pytest.mark.parametrize("version", [11, 12])
def test_who_names_anothers_producer_does_not_stand_in_its_way(alone: Transacting, version: int) -> None:
    """Of what a producer sent the lowest sequence is written first: nobody else may say what that is."""
    victim = alone.init("tx")
    alone.init("attacker")
    for sequence in (-1, 0, 5):
        alone.write("attacker", victim, sequence, 12)
        alone.write("attacker", (victim[0], victim[1] + 1), sequence, 11)
    if version < 12:
        assert alone.add("tx", victim) == ErrorCode.NONE
    request = produced("tx", ("victim", 0, batch(victim)))
    sent = alone.post(request, ApiKey.PRODUCE, version, 1)
    alone.write("attacker", victim, -1, 12)
    alone.besieged.timers.advance(100)
    assert codes(sent) == [ErrorCode.NONE]


def test_what_brokers_ask_each_other_is_believed_of_the_producer_alone(alone: Transacting) -> None:
    """AddPartitionsToTxn from version 4 on, sent by a client: it may add to what is open, and that ends with it."""
    producer = alone.init("tx")
    forged = [producer, (producer[0], producer[1] + 1), (producer[0] + 1, 0), (-1, -1), (2**63 - 1, 2**15 - 1)]
    topics = [adding.AddPartitionsToTxnTopic("victim", [0, 0]), adding.AddPartitionsToTxnTopic("victim", [0])]
    asked = [adding.AddPartitionsToTxnTransaction("tx", *each, verify_only=False, topics=topics) for each in forged]
    told = alone.ask(adding.AddPartitionsToTxnRequest([*asked, *asked]), ApiKey.ADD_PARTITIONS_TO_TXN, 5, 1)
    first = [each.topic_results[0].results_by_partition[0].partition_error_code for each in told.results_by_transaction]
    mapping, fenced = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED
    assert first == [ErrorCode.NONE, fenced, mapping, mapping, mapping] * 2
    assert alone.states(1)["tx"] == "Ongoing"


@pytest.mark.parametrize("epoch", [-(2**15), -1, 0, 2**15 - 1])
@pytest.mark.parametrize("producer_id", [-(2**63), -1, 10**9, 2**63 - 1])
def test_markers_of_nobody_change_nothing_that_is_there(alone: Transacting, producer_id: int, epoch: int) -> None:
    names = ("victim", TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC, "__cluster_metadata", "nobody")
    topics = [markers.WritableTxnMarkerTopic(name, [0, 0, -1, 2**31 - 1]) for name in names]
    for coordinator_epoch in (-1, 0, 2**31 - 1):
        marker = markers.WritableTxnMarker(producer_id, epoch, True, topics, coordinator_epoch, 2)
        told = alone.ask(markers.WriteTxnMarkersRequest([marker, marker]), ApiKey.WRITE_TXN_MARKERS, 2, 1)
        for result in told.markers:
            unknown = [each.error_code for each in result.topics[-1].partitions]
            assert unknown == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 4


# --- what is lost on the way ----------------------------------------------------------------------------------------


def test_a_topic_made_anew_while_the_coordinator_is_asked_takes_nothing_meant_for_the_old_one(
    alone: Transacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified: Promise[None] = Promise()
    alone.besieged.create("short-lived")
    producer = alone.init("tx")
    monkeypatch.setattr(TransactionGate, "verify", lambda *_: verified)
    sent = alone.begin_write("tx", producer, topic="short-lived")
    monkeypatch.undo()
    gone = DeleteTopicsRequest([DeleteTopicState("short-lived")], timeout_ms=5_000)
    assert not alone.ask(gone, ApiKey.DELETE_TOPICS, 6, 1).responses[0].error_code
    alone.until(lambda: "short-lived" not in alone.besieged.led().current.image.topics, "it is deleted")
    alone.besieged.create("short-lived")
    verified.complete(None)
    assert codes(sent) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_records_that_wait_for_their_coordinator_are_bounded(
    alone: Transacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "UNVERIFIED_BYTES_MAX", 250)
    producers = [alone.init(f"tx{number}") for number in range(5)]
    sent = [alone.begin_write(f"tx{number}", producer) for number, producer in enumerate(producers)]
    assert [each.is_waiting for each in sent] == [True] * 3 + [False] * 2
    alone.besieged.timers.advance(1_000)
    assert [codes(each) for each in sent] == [[ErrorCode.NONE]] * 3 + [[ErrorCode.NOT_ENOUGH_REPLICAS]] * 2
    assert alone.write("tx4", producers[4]) == ErrorCode.NONE, "what was refused is sent again"


@pytest.fixture
def split() -> Iterator[Transacting]:
    """Three nodes; transactions are coordinated by one replica each, other topics have three."""
    found = Transacting(
        3,
        transaction_state_log_replication_factor="1",
        transaction_state_log_min_isr="1",
        min_insync_replicas="2",
    )
    yield found
    found.besieged.heal()
    found.is_well()


def led_by(cluster: Transacting, name: str, node: int, replicas: int) -> str:
    """A topic of that many replicas that this node leads; there may be others."""
    for number in range(50):
        made = CreateTopicsRequest([CreatableTopic(f"{name}{number}", 1, replicas)], timeout_ms=5_000)
        cluster.ask(made, ApiKey.CREATE_TOPICS, 7, node)
        cluster.besieged.timers.advance(300)
        if cluster.leader(f"{name}{number}") == node:
            return f"{name}{number}"
    raise AssertionError("it leads none")


def test_a_partition_that_cannot_commit_its_marker_holds_up_no_other_transaction(split: Transacting) -> None:
    coordinator = split.coordinator("tx")
    stuck, free = led_by(split, "stuck", coordinator, 3), led_by(split, "free", coordinator, 1)
    held = split.init("tx")
    assert split.write("tx", held, topic=stuck) == ErrorCode.NONE
    split.besieged.cut_off(coordinator)
    split.end("tx", held)
    split.besieged.timers.advance(10)
    name = next(each for each in (f"other{number}" for number in range(50)) if split.coordinator(each) == coordinator)
    producer = split.init(name)
    assert split.write(name, producer, topic=free) == ErrorCode.NONE
    assert split.end(name, producer).error_code == ErrorCode.NONE
    split.besieged.timers.advance(MARKERS_LATE_MS)
    states = split.states(coordinator)
    assert (states["tx"], states[name]) == ("PrepareCommit", "CompleteCommit")


def test_a_transaction_that_just_fits_into_its_record_can_be_ended_too() -> None:
    """What is written of its end may be some bytes longer than what was written of the transaction."""
    cluster = Transacting(1, message_max_bytes="1000")
    cluster.besieged.create("wide", partitions=300)
    names = ["x" * length for length in range(1, 9)]
    for name in names:
        producer = cluster.init(name)
        told = [cluster.add(name, producer, "wide", index) for index in range(300)]
        assert told[0] == ErrorCode.NONE
        assert told[-1] != ErrorCode.NONE, "it does not fit"
    cluster.until(cluster.is_quiet, "all were aborted when their time was up")
    assert set(cluster.states(1).values()) == {"CompleteAbort"}


def test_a_shard_that_cannot_commit_holds_up_no_question_about_others(
    alone: Transacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers ask about many transactions at once, and ask no more before they are answered."""
    stuck, free = alone.init("stuck"), alone.init("free")
    submit = TransactionCoordinator.submit
    monkeypatch.setattr(
        TransactionCoordinator,
        "submit",
        lambda self, name, decide: Promise() if name == "stuck" else submit(self, name, decide),
    )
    sent = [alone.begin_write(name, producer) for name, producer in (("stuck", stuck), ("free", free))]
    alone.besieged.timers.advance(QUESTION_LATE_MS)
    assert [codes(each) for each in sent] == [[ErrorCode.NOT_ENOUGH_REPLICAS], [ErrorCode.NONE]]
    monkeypatch.undo()


def test_a_handler_that_breaks_on_what_a_node_asks_itself_breaks_nothing_else(
    alone: Transacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else markers to this node would be under way for ever."""
    producer = alone.init("tx")
    assert alone.write("tx", producer) == ErrorCode.NONE

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(WriteTxnMarkers, "answer", broken)
    assert alone.end("tx", producer).error_code == ErrorCode.NONE
    alone.besieged.timers.advance(500)
    assert alone.states(1)["tx"] == "PrepareCommit"
    monkeypatch.undo()
    alone.until(lambda: alone.states(1)["tx"] == "CompleteCommit", "the markers are sent again")


@pytest.mark.parametrize("level", [0, 1])
def test_transactions_end_also_if_their_version_is_taken_back_meanwhile(alone: Transacting, level: int) -> None:
    ended, left = alone.init("ended"), alone.init("left")
    assert alone.write("ended", ended) == ErrorCode.NONE
    assert alone.write("left", left) == ErrorCode.NONE
    downgrade = UpdateFeaturesRequest(5_000, [FeatureUpdateKey("transaction.version", level, upgrade_type=2)])
    assert alone.ask(downgrade, ApiKey.UPDATE_FEATURES, 1, 1).error_code == ErrorCode.NONE
    alone.besieged.timers.advance(100)
    told = alone.end("ended", ended)
    assert told.error_code == ErrorCode.NONE
    assert alone.write("ended", (told.producer_id, told.producer_epoch)) == ErrorCode.NONE
    alone.until(alone.is_quiet, "the others are aborted when their time is up", patience_ms=15_000)
    assert alone.write("left", left, 1) == ErrorCode.INVALID_PRODUCER_EPOCH
