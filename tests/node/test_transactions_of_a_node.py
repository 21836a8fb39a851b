"""Transactions on an in-memory node, from the first record to the marker, also across crashes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from logging import WARNING
from typing import Any

import pytest
from harness.in_memory_node import InMemoryNode

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import ZERO_UUID
from moldau.base.limits import COMMIT_WAIT_MS
from moldau.base.promise import Promise
from moldau.base.settings.transactions import TRANSACTION_PARTITION_VERIFICATION_ENABLE
from moldau.base.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from moldau.coordinator.transaction.markers import TransactionMarkers
from moldau.log.opening import RECORDS_AT_ONCE
from moldau.replica.partition import Partition
from moldau.runtime.coordinators.transaction import TransactionCoordinator
from moldau.server.conversation import LongReply
from moldau.server.handler import Caller, Handler
from moldau.wire.apis import ApiKey
from moldau.wire.codec import NO_REPLY
from moldau.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from moldau.wire.messages.end_txn import EndTxnRequest
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.init_producer_id import InitProducerIdRequest
from moldau.wire.messages.list_transactions import ListTransactionsRequest
from moldau.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from moldau.wire.records import NEXT_OFFSET, Record, build_batch, decode_records

TX = "tx"
SETTINGS = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}


class TransactionalNode:
    def __init__(self, in_memory: InMemoryNode) -> None:
        self.in_memory = in_memory
        broker = in_memory.assembly.broker_side
        assert broker is not None
        self._served: dict[ApiKey, Handler] = {handler.api: handler for handler in broker.handlers}
        self.broker = broker

    def begin(self, api: ApiKey, request: Any, version: int | None = None) -> Any:
        """Return the response or the promise of it; run nothing else yet."""
        handler = self._served[api]
        actual_version = handler.versions[1] if version is None else version
        return handler.answer(request, Caller("PLAINTEXT", "test:1", "test", actual_version))

    def ask(self, api: ApiKey, request: Any, version: int | None = None) -> Any:
        answer = self.begin(api, request, version)
        self.run_until_idle()
        return answer.value() if isinstance(answer, Promise) else answer

    def run_until_idle(self) -> None:
        """Run everything that can happen before the clock moves on."""
        self.in_memory.flush()
        while self.in_memory.timers.run_soon():
            self.in_memory.flush()

    def init(self, version: int = 5, **fields: int) -> tuple[int, int]:
        request = InitProducerIdRequest(TX, 60_000, **fields)
        response = self.ask(ApiKey.INIT_PRODUCER_ID, request, version)
        assert response.error_code == ErrorCode.NONE, ErrorCode(response.error_code)
        return response.producer_id, response.producer_epoch

    def end(self, producer: tuple[int, int], committed: bool, version: int = 5) -> Any:
        return self.ask(ApiKey.END_TXN, EndTxnRequest(TX, *producer, committed), version)

    def produce(self, request: ProduceRequest, version: int) -> ErrorCode:
        response = self.ask(ApiKey.PRODUCE, request, version)
        return ErrorCode(response.responses[0].partition_responses[0].error_code)

    def add(self, producer: tuple[int, int]) -> ErrorCode:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TX,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic("t", [0])],
        )
        response = self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, request, 3)
        return ErrorCode(response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def committed_offset(self, *, require_stable: bool) -> tuple[int, ErrorCode]:
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup("g", topics=topics)], require_stable=require_stable
        )
        response = self.ask(ApiKey.OFFSET_FETCH, request, 9).groups[0].topics[0].partitions[0]
        return response.committed_offset, ErrorCode(response.error_code)

    @property
    def last_stable_offset(self) -> int:
        return self.in_memory.partition("t").last_stable_offset

    @property
    def states(self) -> list[str]:
        response = self.ask(ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest())
        return [each.transaction_state for each in response.transaction_states]

    def record_values(self) -> list[str]:
        """Return the values of all data records in the log, committed or not."""
        log = self.in_memory.partition("t").log
        slice = log.read(0, 1 << 20, log.end_offset)
        assert slice is not None
        content, texts = slice.read(), []
        while content:
            size = 12 + int.from_bytes(content[8:12], "big")
            if not content[22] & 0x20:
                texts += [(each.value or b"").decode() for each in decode_records(content[:size])]
            content = content[size:]
        return texts


def records(producer: tuple[int, int], *texts: str, sequence: int = 0, now_ms: int = 1_700_000_000_000) -> bytearray:
    return build_batch(
        [Record(NEXT_OFFSET, now_ms, None, text.encode()) for text in texts],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        is_transactional=True,
    )


def produce_request(buffer: bytearray, transactional_id: str | None = TX) -> ProduceRequest:
    data = [TopicProduceData(ZERO_UUID, "t", [PartitionProduceData(0, memoryview(buffer))])]
    return ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=1000, topic_data=data)


@pytest.fixture
def node() -> TransactionalNode:
    node = TransactionalNode(InMemoryNode(static=SETTINGS).start())
    node.in_memory.create_topic("t")
    for kind in (0, 1):
        node.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key_type=kind, coordinator_keys=["x"]), 4)
    return node


def write(
    node: TransactionalNode, producer: tuple[int, int], *texts: str, sequence: int = 0, version: int = 12
) -> ErrorCode:
    """Produce; the default is the last version that names topics."""
    return node.produce(produce_request(records(producer, *texts, sequence=sequence)), version)


# --- the two protocols ------------------------------------------------------------------------------------------


def test_transaction_version_2_begins_with_a_write_and_ends_with_a_new_epoch(node: TransactionalNode) -> None:
    producer = node.init()
    assert write(node, producer, "a", "b") == ErrorCode.NONE
    assert (node.states, node.last_stable_offset) == (["Ongoing"], 0)
    response = node.end(producer, committed=True)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, producer[0], producer[1] + 1)
    assert (node.states, node.last_stable_offset) == (["CompleteCommit"], 3)
    assert write(node, producer, "late", sequence=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    next_producer = (response.producer_id, response.producer_epoch)
    assert write(node, next_producer, "c") == ErrorCode.NONE
    assert node.last_stable_offset == 3
    node.end(next_producer, committed=False)
    assert node.last_stable_offset == 5


def test_a_request_that_comes_a_transaction_too_late_does_not_hold_up_the_next(node: TransactionalNode) -> None:
    """The client gave up waiting and sent it again on another connection. librdkafka takes the error for fatal."""
    producer = node.init()
    node.add(producer)
    for sequence in range(7):
        assert write(node, producer, "a", sequence=sequence, version=11) == ErrorCode.NONE
    node.end(producer, committed=True, version=4)
    node.add(producer)
    assert write(node, producer, "a", version=11) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert write(node, producer, "b", sequence=7, version=11) == ErrorCode.NONE


def test_a_sequence_that_is_used_twice_does_not_count_as_written(node: TransactionalNode) -> None:
    """librdkafka throws records away at an abort and gives their sequences to the next ones, although a request of it
    has written them: those of the committed transaction would be lost without an error."""
    producer = node.init()
    node.add(producer)
    assert write(node, producer, "thrown away", version=11) == ErrorCode.NONE
    assert write(node, producer, "thrown away", version=11) == ErrorCode.NONE, (
        "within its transaction it is a repetition"
    )
    node.end(producer, committed=False, version=4)
    node.add(producer)
    assert write(node, producer, "another", version=11) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert write(node, producer, "another", sequence=1, version=11) == ErrorCode.NONE


def test_transaction_version_1_must_add_the_partition_before_it_writes(node: TransactionalNode) -> None:
    producer = node.init()
    assert write(node, producer, "a", version=11) == ErrorCode.TRANSACTION_ABORTABLE
    assert write(node, producer, "a", version=10) == ErrorCode.INVALID_TXN_STATE
    assert node.in_memory.partition("t").log.end_offset == 0
    assert node.add(producer) == ErrorCode.NONE
    assert write(node, producer, "a", version=11) == ErrorCode.NONE
    assert write(node, producer, "b", sequence=1, version=11) == ErrorCode.NONE
    assert node.end(producer, committed=True, version=4).error_code == 0
    assert (node.states, node.last_stable_offset, node.record_values()) == (["CompleteCommit"], 3, ["a", "b"])


def test_a_transactional_batch_without_a_transactional_id_is_refused(node: TransactionalNode) -> None:
    producer = node.init()
    refused = node.produce(produce_request(records(producer, "a"), transactional_id=None), 12)
    assert refused == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_second_producer_with_the_same_transactional_id_fences_the_first(node: TransactionalNode) -> None:
    first = node.init()
    assert write(node, first, "a") == ErrorCode.NONE
    early = node.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(TX, 60_000), 5)
    assert early.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    second = node.init()
    assert (second[0], second[1] > first[1], node.last_stable_offset) == (first[0], True, 2)
    assert write(node, first, "b", sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert node.end(first, committed=True).error_code == ErrorCode.PRODUCER_FENCED


def test_init_fails_only_for_a_new_id_when_the_controller_grants_no_producer_ids(node: TransactionalNode) -> None:
    """The error is retriable, whatever the controller answered."""
    producer = node.init()

    def refuse() -> Promise[range | KafkaError]:
        refused: Promise[range | KafkaError] = Promise()
        refused.complete(KafkaError(ErrorCode.STALE_BROKER_EPOCH))
        return refused

    node.broker.producer_ids._block = range(0)
    node.broker.producer_ids._allocate = refuse
    assert node.init() == (producer[0], producer[1] + 1)
    other = node.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("another", 60_000), 5)
    assert other.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_dead_producer_holds_the_last_stable_offset_only_until_its_timeout(node: TransactionalNode) -> None:
    producer = node.init()
    write(node, producer, "a")
    node.in_memory.timers.advance(59_000)
    node.run_until_idle()
    assert node.last_stable_offset == 0
    node.in_memory.timers.advance(2_000)
    node.run_until_idle()
    assert (node.last_stable_offset, node.states) == (2, ["CompleteAbort"])
    assert write(node, producer, "b", sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_transaction_is_completed_once_there_are_enough_replicas_again(
    node: TransactionalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its markers are written while the coordinator's partition has too few in-sync replicas."""
    producer = node.init()
    write(node, producer, "a")
    written = TransactionCoordinator._on_markers_written
    with monkeypatch.context() as patched:

        def while_few(self: TransactionCoordinator, markers: TransactionMarkers) -> None:
            patched.setattr(Partition, "has_enough_replicas", property(lambda _: False))
            written(self, markers)

        patched.setattr(node.broker.transactions._markers, "_on_written", partial(while_few, node.broker.transactions))
        node.end(producer, committed=True)
        node.in_memory.timers.advance(5_000)
        node.run_until_idle()
        assert node.states == ["PrepareCommit"]
    node.in_memory.timers.advance(5_000)
    node.run_until_idle()
    assert node.states == ["CompleteCommit"]


# --- while the coordinator is asked -----------------------------------------------------------------------------


def test_records_that_wait_are_copied_out_of_the_connections_buffer(node: TransactionalNode) -> None:
    producer = node.init()
    buffer = records(producer, "mine")
    answer = node.begin(ApiKey.PRODUCE, produce_request(buffer), 12)
    assert not answer.done
    other = records((99, 0), "else")
    assert len(buffer) == len(other)
    buffer[:] = other
    node.run_until_idle()
    assert answer.value().responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert node.record_values() == ["mine"]


def test_a_batch_that_takes_long_to_open_is_not_overtaken_by_the_next_one(node: TransactionalNode) -> None:
    log = node.in_memory.partition("t").log
    log.update_config(replace(log.config, compression_type="gzip"))
    producer, texts = node.init(), [str(number) for number in range(2 * RECORDS_AT_ONCE)]
    reply = node.begin(ApiKey.PRODUCE, produce_request(records(producer, *texts)), 12)
    assert isinstance(reply, LongReply)
    assert not reply.handled.done, "a later request of the connection waits"
    node.run_until_idle()
    assert reply.handled.done
    assert node.produce(produce_request(records(producer, "last", sequence=len(texts))), 12) is ErrorCode.NONE
    assert node.record_values() == [*texts, "last"]


def test_writes_with_acks_0_are_verified_too(node: TransactionalNode) -> None:
    producer = node.init()
    request = produce_request(records(producer, "a"))
    request.acks = 0
    assert node.ask(ApiKey.PRODUCE, request, 12) is NO_REPLY
    assert (node.record_values(), node.states) == (["a"], ["Ongoing"])
    stranger = produce_request(records((77, 0), "b"))
    stranger.acks = 0
    assert node.ask(ApiKey.PRODUCE, stranger, 11) is NO_REPLY
    assert node.record_values() == ["a"]


# --- offsets ----------------------------------------------------------------------------------------------------


def commit(node: TransactionalNode, producer: tuple[int, int], offset: int, version: int = 5) -> ErrorCode:
    topics = [TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, offset, -1, "")])]
    request = TxnOffsetCommitRequest(TX, "g", *producer, topics=topics)
    response = node.ask(ApiKey.TXN_OFFSET_COMMIT, request, version)
    return ErrorCode(response.topics[0].partitions[0].error_code)


@pytest.mark.parametrize("committed", [True, False])
def test_offsets_are_committed_with_the_transaction_or_not_at_all(node: TransactionalNode, committed: bool) -> None:
    producer = node.init()
    assert commit(node, producer, 41) == ErrorCode.NONE
    assert node.committed_offset(require_stable=False) == (-1, ErrorCode.NONE)
    assert node.committed_offset(require_stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    node.end(producer, committed=committed)
    expected = 41 if committed else -1
    assert node.committed_offset(require_stable=True) == (expected, ErrorCode.NONE)
    restarted = TransactionalNode(node.in_memory.restart())
    restarted.run_until_idle()
    assert restarted.committed_offset(require_stable=True) == (expected, ErrorCode.NONE)


def test_transaction_version_1_must_add_the_group_before_it_commits_offsets(node: TransactionalNode) -> None:
    producer = node.init()
    assert commit(node, producer, 7, version=4) == ErrorCode.TRANSACTION_ABORTABLE
    assert commit(node, producer, 7, version=3) == ErrorCode.INVALID_TXN_STATE
    assert node.ask(ApiKey.ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest(TX, *producer, "g"), 3).error_code == 0
    assert commit(node, producer, 7, version=3) == ErrorCode.NONE
    node.end(producer, committed=True, version=3)
    assert node.committed_offset(require_stable=True) == (7, ErrorCode.NONE)


def test_a_group_can_be_added_before_the_offsets_topic_exists() -> None:
    node = TransactionalNode(InMemoryNode(static=SETTINGS).start())
    node.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 4)
    producer = node.init()
    assert node.ask(ApiKey.ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest(TX, *producer, "g"), 3).error_code == 0
    assert node.end(producer, committed=True, version=3).error_code == 0
    assert node.states == ["CompleteCommit"]


def test_a_fenced_producer_commits_no_offsets(node: TransactionalNode) -> None:
    first = node.init()
    assert commit(node, first, 1) == ErrorCode.NONE
    node.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(TX, 60_000), 5)
    node.init()
    assert commit(node, first, 2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert node.committed_offset(require_stable=True) == (-1, ErrorCode.NONE)


# --- crashes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("committed", [True, False])
def test_a_node_that_dies_between_the_decision_and_its_markers_writes_them_after_the_restart(
    node: TransactionalNode, committed: bool
) -> None:
    producer = node.init()
    write(node, producer, "a")
    answer = node.begin(ApiKey.END_TXN, EndTxnRequest(TX, *producer, committed), 5)
    while not (isinstance(answer, Promise) and answer.done):
        node.in_memory.flush()
        assert node.in_memory.timers.run_one_soon(), "the decision is never made"
    assert node.last_stable_offset == 0, "no marker is written yet"
    restarted = TransactionalNode(node.in_memory.restart())
    restarted.run_until_idle()
    assert restarted.states == ["CompleteCommit" if committed else "CompleteAbort"]
    assert restarted.last_stable_offset == 2


def test_an_open_transaction_survives_a_restart_and_can_be_ended(node: TransactionalNode) -> None:
    producer = node.init()
    write(node, producer, "a")
    restarted = TransactionalNode(node.in_memory.restart())
    restarted.run_until_idle()
    assert (restarted.states, restarted.last_stable_offset) == (["Ongoing"], 0)
    assert write(restarted, producer, "b", sequence=1) == ErrorCode.NONE
    assert restarted.end(producer, committed=True).error_code == 0
    assert (restarted.last_stable_offset, restarted.record_values()) == (3, ["a", "b"])


# --- changed internal topics ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        ("delete", "__transaction_state was deleted: transactions that are open may never end"),
        ("grow", "__transaction_state has 5 partitions instead of 2: transactions that are open may never end"),
    ],
    ids=["delete", "grow"],
)
def test_transactions_lost_with_the_state_topic_hang_until_they_are_aborted_by_hand(
    node: TransactionalNode, caplog: pytest.LogCaptureFixture, change: str, warning: str
) -> None:
    producer = node.init()
    write(node, producer, "a")
    if change == "delete":
        node.in_memory.delete_topic(TRANSACTION_STATE_TOPIC)
    else:
        node.in_memory.grow_topic(TRANSACTION_STATE_TOPIC, 5)
    node.run_until_idle()
    assert [each.getMessage().startswith(warning) for each in caplog.records if each.levelno == WARNING] == [True]
    assert "`moldau transaction abort` ends them" in caplog.text
    node.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key_type=1, coordinator_keys=[TX]), 4)
    assert node.end(producer, committed=True).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert node.last_stable_offset == 0
    # What `moldau transaction abort` and kafka-transactions.sh send.
    marker = WritableTxnMarker(*producer, False, [WritableTxnMarkerTopic("t", [0])], -1)
    answer = node.ask(ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest([marker]), 1)
    assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.NONE
    assert node.last_stable_offset == 2


def test_deleting_the_offsets_topic_logs_a_warning(node: TransactionalNode, caplog: pytest.LogCaptureFixture) -> None:
    node.in_memory.create_topic("another")
    node.in_memory.delete_topic("another")
    assert caplog.text == ""
    node.in_memory.delete_topic(CONSUMER_OFFSETS_TOPIC)
    assert "__consumer_offsets was deleted: offsets that groups have committed are lost" in caplog.text
    assert caplog.text.count("\n") == 1


def test_markers_of_thousands_of_partitions_are_written_in_turns_and_in_order(node: TransactionalNode) -> None:
    node.in_memory.create_topic("wide", 3_000, flush_messages="1")
    every = WritableTxnMarkerTopic("wide", list(range(3_000)))
    markers = [WritableTxnMarker(7, epoch, epoch == 2, [every, every], 0) for epoch in (1, 2)]
    answer = node.begin(ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest(markers), 1)
    assert isinstance(answer, LongReply)
    log = node.in_memory.partition("wide", 2_999).log
    end_offsets = []
    while not answer.handled.done:
        end_offsets.append(log.end_offset)
        assert node.in_memory.timers.run_one_soon()
    assert {0, 1} <= {*end_offsets}
    node.run_until_idle()
    results = [topic for marker in answer.value().markers for topic in marker.topics]
    assert len(results) == 4
    for topic in results:
        assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(i, 0) for i in range(3_000)]
    written = log.read(0, 1 << 20, log.end_offset)
    assert written is not None
    content = written.read()
    size = len(content) // 2
    kinds = [record.key for each in (content[:size], content[size:]) for record in decode_records(each)]
    assert kinds == [b"\0\0\0\0", b"\0\0\0\1"], "an abort, then a commit"


def test_only_the_marker_that_is_not_committed_in_time_is_reported(node: TransactionalNode) -> None:
    node.in_memory.create_topic("two", 2, flush_messages="1")
    marker = WritableTxnMarker(7, 1, True, [WritableTxnMarkerTopic("two", [0, 1])], 0)
    answer = node.begin(ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest([marker]), 1)
    assert not answer.done
    slow = node.in_memory.partition("two", 1).log
    node.in_memory.flusher.flush(lambda flushed: flushed.log is not slow)
    node.in_memory.timers.advance(COMMIT_WAIT_MS - 1)
    assert not answer.done
    node.in_memory.timers.advance(1)
    (topic,) = answer.value().markers[0].topics
    assert [each.error_code for each in topic.partitions] == [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]
    node.run_until_idle()


@pytest.mark.parametrize(("text", "is_enabled"), [("true", True), ("True ", True), ("false", False), (" FALSE", False)])
def test_the_verification_setting_accepts_any_spelling_of_true_and_false(text: str, is_enabled: bool) -> None:
    node = InMemoryNode(static={**SETTINGS, TRANSACTION_PARTITION_VERIFICATION_ENABLE.name: text}).start()
    broker = node.assembly.broker_side
    assert broker is not None
    assert bool(broker._number(TRANSACTION_PARTITION_VERIFICATION_ENABLE)) == is_enabled
