"""Transactions on a node in memory: from the first record to the marker, with the lights going out in between."""

from __future__ import annotations

from logging import WARNING
from typing import Any

import pytest
from rooms import Rooms

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import ZERO_UUID
from moldau.base.names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from moldau.base.promise import Promise
from moldau.server.router import Caller, Handler
from moldau.wire.apis import ApiKey
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
from moldau.wire.records import IN_LINE, Record, build_batch, decode_records

TX = "tx"
SETTINGS = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}


class Node:
    def __init__(self, rooms: Rooms) -> None:
        self.rooms = rooms
        broker = rooms.assembly.broker_side
        assert broker is not None
        self._served: dict[ApiKey, Handler] = {handler.api: handler for handler in broker.handlers}
        self.broker = broker

    def begin(self, api: ApiKey, request: Any, version: int | None = None) -> Any:
        """The answer, or the promise of one; nothing else happens yet."""
        handler = self._served[api]
        used = handler.versions[1] if version is None else version
        return handler.answer(request, Caller("PLAINTEXT", "test:1", "test", used))

    def ask(self, api: ApiKey, request: Any, version: int | None = None) -> Any:
        answer = self.begin(api, request, version)
        self.settle()
        return answer.value() if isinstance(answer, Promise) else answer

    def settle(self) -> None:
        """All that can happen without a step of the clock."""
        self.rooms.flush()
        while self.rooms.timers.run_soon():
            self.rooms.flush()

    def init(self, version: int = 5, **said: int) -> tuple[int, int]:
        request = InitProducerIdRequest(TX, 60_000, **said)
        told = self.ask(ApiKey.INIT_PRODUCER_ID, request, version)
        assert told.error_code == ErrorCode.NONE, ErrorCode(told.error_code)
        return told.producer_id, told.producer_epoch

    def end(self, producer: tuple[int, int], committed: bool, version: int = 5) -> Any:
        return self.ask(ApiKey.END_TXN, EndTxnRequest(TX, *producer, committed), version)

    def produce(self, request: ProduceRequest, version: int) -> ErrorCode:
        told = self.ask(ApiKey.PRODUCE, request, version)
        return ErrorCode(told.responses[0].partition_responses[0].error_code)

    def add(self, producer: tuple[int, int]) -> ErrorCode:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TX,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic("t", [0])],
        )
        told = self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, request, 3)
        return ErrorCode(told.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def committed(self, *, require_stable: bool) -> tuple[int, ErrorCode]:
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup("g", topics=topics)], require_stable=require_stable
        )
        told = self.ask(ApiKey.OFFSET_FETCH, request, 9).groups[0].topics[0].partitions[0]
        return told.committed_offset, ErrorCode(told.error_code)

    @property
    def stable(self) -> int:
        return self.rooms.partition("t").last_stable_offset

    @property
    def states(self) -> list[str]:
        told = self.ask(ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest())
        return [each.transaction_state for each in told.transaction_states]

    def texts(self) -> list[str]:
        """All data in the log, committed or not."""
        log = self.rooms.partition("t").log
        found = log.read(0, 1 << 20, log.end_offset)
        assert found is not None
        content, texts = found.read(), []
        while content:
            size = 12 + int.from_bytes(content[8:12], "big")
            if not content[22] & 0x20:
                texts += [(each.value or b"").decode() for each in decode_records(content[:size])]
            content = content[size:]
        return texts


def records(producer: tuple[int, int], *texts: str, sequence: int = 0, now_ms: int = 1_700_000_000_000) -> bytearray:
    return build_batch(
        [Record(IN_LINE, now_ms, None, text.encode()) for text in texts],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        is_transactional=True,
    )


def produced(buffer: bytearray, transactional_id: str | None = TX) -> ProduceRequest:
    data = [TopicProduceData(ZERO_UUID, "t", [PartitionProduceData(0, memoryview(buffer))])]
    return ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=1000, topic_data=data)


@pytest.fixture
def node() -> Node:
    node = Node(Rooms(static=SETTINGS).start())
    node.rooms.create_topic("t")
    for kind in (0, 1):
        node.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key_type=kind, coordinator_keys=["x"]), 4)
    return node


def write(node: Node, producer: tuple[int, int], *texts: str, sequence: int = 0, version: int = 12) -> ErrorCode:
    """By name, in the last version that names topics."""
    return node.produce(produced(records(producer, *texts, sequence=sequence)), version)


# --- the two protocols ------------------------------------------------------------------------------------------


def test_version_2_begins_by_writing_and_ends_with_a_new_epoch(node: Node) -> None:
    producer = node.init()
    assert write(node, producer, "a", "b") == ErrorCode.NONE
    assert (node.states, node.stable) == (["Ongoing"], 0)
    told = node.end(producer, committed=True)
    assert (told.error_code, told.producer_id, told.producer_epoch) == (0, producer[0], producer[1] + 1)
    assert (node.states, node.stable) == (["CompleteCommit"], 3)
    assert write(node, producer, "late", sequence=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    following = (told.producer_id, told.producer_epoch)
    assert write(node, following, "c") == ErrorCode.NONE
    assert node.stable == 3
    node.end(following, committed=False)
    assert node.stable == 5


def test_version_1_adds_first_and_is_verified(node: Node) -> None:
    producer = node.init()
    assert write(node, producer, "a", version=11) == ErrorCode.TRANSACTION_ABORTABLE
    assert write(node, producer, "a", version=10) == ErrorCode.INVALID_TXN_STATE
    assert node.rooms.partition("t").log.end_offset == 0
    assert node.add(producer) == ErrorCode.NONE
    assert write(node, producer, "a", version=11) == ErrorCode.NONE
    assert write(node, producer, "b", sequence=1, version=11) == ErrorCode.NONE
    assert node.end(producer, committed=True, version=4).error_code == 0
    assert (node.states, node.stable, node.texts()) == (["CompleteCommit"], 3, ["a", "b"])


def test_who_says_nothing_of_a_transaction_may_not_write_in_one(node: Node) -> None:
    producer = node.init()
    refused = node.produce(produced(records(producer, "a"), transactional_id=None), 12)
    assert refused == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_another_who_takes_the_id_fences_the_first(node: Node) -> None:
    first = node.init()
    assert write(node, first, "a") == ErrorCode.NONE
    early = node.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(TX, 60_000), 5)
    assert early.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    second = node.init()
    assert (second[0], second[1] > first[1], node.stable) == (first[0], True, 2)
    assert write(node, first, "b", sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert node.end(first, committed=True).error_code == ErrorCode.PRODUCER_FENCED


def test_only_who_needs_a_producer_id_waits_for_the_controller_to_grant_one(node: Node) -> None:
    """And is told to try again, whatever the controller said."""
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


def test_a_producer_that_died_holds_readers_up_no_longer_than_it_asked_for(node: Node) -> None:
    producer = node.init()
    write(node, producer, "a")
    node.rooms.timers.advance(59_000)
    node.settle()
    assert node.stable == 0
    node.rooms.timers.advance(2_000)
    node.settle()
    assert (node.stable, node.states) == (2, ["CompleteAbort"])
    assert write(node, producer, "b", sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH


# --- while the coordinator is asked -----------------------------------------------------------------------------


def test_records_that_wait_do_not_lie_in_the_buffer_of_the_connection(node: Node) -> None:
    producer = node.init()
    buffer = records(producer, "mine")
    answer = node.begin(ApiKey.PRODUCE, produced(buffer), 12)
    assert not answer.done
    other = records((99, 0), "else")
    assert len(buffer) == len(other)
    buffer[:] = other
    node.settle()
    assert answer.value().responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert node.texts() == ["mine"]


def test_what_is_acknowledged_by_nobody_is_verified_all_the_same(node: Node) -> None:
    producer = node.init()
    request = produced(records(producer, "a"))
    request.acks = 0
    assert node.ask(ApiKey.PRODUCE, request, 12) is None
    assert (node.texts(), node.states) == (["a"], ["Ongoing"])
    stranger = produced(records((77, 0), "b"))
    stranger.acks = 0
    assert node.ask(ApiKey.PRODUCE, stranger, 11) is None
    assert node.texts() == ["a"]


# --- offsets ----------------------------------------------------------------------------------------------------


def commit(node: Node, producer: tuple[int, int], offset: int, version: int = 5) -> ErrorCode:
    topics = [TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, offset, -1, "")])]
    request = TxnOffsetCommitRequest(TX, "g", *producer, topics=topics)
    told = node.ask(ApiKey.TXN_OFFSET_COMMIT, request, version)
    return ErrorCode(told.topics[0].partitions[0].error_code)


@pytest.mark.parametrize("committed", [True, False])
def test_offsets_count_with_the_transaction_or_not_at_all(node: Node, committed: bool) -> None:
    producer = node.init()
    assert commit(node, producer, 41) == ErrorCode.NONE
    assert node.committed(require_stable=False) == (-1, ErrorCode.NONE)
    assert node.committed(require_stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    node.end(producer, committed=committed)
    expected = 41 if committed else -1
    assert node.committed(require_stable=True) == (expected, ErrorCode.NONE)
    again = Node(node.rooms.restart())
    again.settle()
    assert again.committed(require_stable=True) == (expected, ErrorCode.NONE)


def test_version_1_says_beforehand_that_offsets_will_come(node: Node) -> None:
    producer = node.init()
    assert commit(node, producer, 7, version=4) == ErrorCode.TRANSACTION_ABORTABLE
    assert commit(node, producer, 7, version=3) == ErrorCode.INVALID_TXN_STATE
    assert node.ask(ApiKey.ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest(TX, *producer, "g"), 3).error_code == 0
    assert commit(node, producer, 7, version=3) == ErrorCode.NONE
    node.end(producer, committed=True, version=3)
    assert node.committed(require_stable=True) == (7, ErrorCode.NONE)


def test_offsets_may_be_announced_before_there_is_a_place_for_them() -> None:
    node = Node(Rooms(static=SETTINGS).start())
    node.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 4)
    producer = node.init()
    assert node.ask(ApiKey.ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest(TX, *producer, "g"), 3).error_code == 0
    assert node.end(producer, committed=True, version=3).error_code == 0
    assert node.states == ["CompleteCommit"]


def test_a_fenced_producer_commits_nothing_and_disturbs_nobody(node: Node) -> None:
    first = node.init()
    assert commit(node, first, 1) == ErrorCode.NONE
    node.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(TX, 60_000), 5)
    node.init()
    assert commit(node, first, 2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert node.committed(require_stable=True) == (-1, ErrorCode.NONE)


# --- the lights go out ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("committed", [True, False])
def test_a_node_that_dies_between_the_decision_and_its_markers_finishes_what_it_began(
    node: Node, committed: bool
) -> None:
    producer = node.init()
    write(node, producer, "a")
    answer = node.begin(ApiKey.END_TXN, EndTxnRequest(TX, *producer, committed), 5)
    while not (isinstance(answer, Promise) and answer.done):
        node.rooms.flush()
        assert node.rooms.timers.run_one_soon(), "the decision is never made"
    assert node.stable == 0, "no marker is written yet"
    again = Node(node.rooms.restart())
    again.settle()
    assert again.states == ["CompleteCommit" if committed else "CompleteAbort"]
    assert again.stable == 2


def test_an_open_transaction_survives_and_can_be_ended(node: Node) -> None:
    producer = node.init()
    write(node, producer, "a")
    again = Node(node.rooms.restart())
    again.settle()
    assert (again.states, again.stable) == (["Ongoing"], 0)
    assert write(again, producer, "b", sequence=1) == ErrorCode.NONE
    assert again.end(producer, committed=True).error_code == 0
    assert (again.stable, again.texts()) == (3, ["a", "b"])


# --- a topic that somebody lays hands on ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("delete", "__transaction_state was deleted: transactions that are open may never end"),
        ("grow", "__transaction_state has 5 partitions instead of 2: transactions that are open may never end"),
    ],
)
def test_transactions_that_their_coordinator_was_made_to_forget_hang_until_they_are_aborted_by_hand(
    node: Node, caplog: pytest.LogCaptureFixture, how: str, told: str
) -> None:
    producer = node.init()
    write(node, producer, "a")
    if how == "delete":
        node.rooms.delete_topic(TRANSACTION_STATE_TOPIC)
    else:
        node.rooms.grow_topic(TRANSACTION_STATE_TOPIC, 5)
    node.settle()
    assert [each.getMessage().startswith(told) for each in caplog.records if each.levelno == WARNING] == [True]
    assert "`moldau transaction abort` ends them" in caplog.text
    node.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key_type=1, coordinator_keys=[TX]), 4)
    assert node.end(producer, committed=True).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert node.stable == 0
    # What `moldau transaction abort` and kafka-transactions.sh ask for.
    marker = WritableTxnMarker(*producer, False, [WritableTxnMarkerTopic("t", [0])], -1)
    answer = node.ask(ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest([marker]), 1)
    assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.NONE
    assert node.stable == 2


def test_whoever_deletes_the_offsets_of_groups_is_told_what_that_means(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.rooms.create_topic("another")
    node.rooms.delete_topic("another")
    assert caplog.text == ""
    node.rooms.delete_topic(CONSUMER_OFFSETS_TOPIC)
    assert "__consumer_offsets was deleted: offsets that groups have committed are lost" in caplog.text
    assert caplog.text.count("\n") == 1
