"""Hostile clients of the transaction coordinator, and of the partition leaders that write its markers.

After every attack, producers of both transaction versions must be served, every transaction must have ended, every
request must have been answered, and nothing may have grown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from harness.attacked_cluster import ConnectionClosed, SentRequest
from harness.depth import deep, sample
from harness.operations import operations_of
from harness.transactional_cluster import (
    ODD_IDS,
    HostileTransactionalRequests,
    Producer,
    TransactionalCluster,
    is_closed,
)
from harness.turns_of_requests import turns_of

from moldau.base.errors import ErrorCode
from moldau.base.limits import TRANSACTION_REQUEST_BYTES_MAX
from moldau.runtime.coordinators import topic as coordinator_topic
from moldau.runtime.coordinators.topic import _cached_hash
from moldau.server.handler import ELEMENTS_MAX
from moldau.wire.apis import ApiKey
from moldau.wire.codec import Outgoing
from moldau.wire.frames import request_frame
from moldau.wire.messages import add_partitions_to_txn as adding
from moldau.wire.messages import txn_offset_commit as offsets
from moldau.wire.messages import write_txn_markers as markers
from moldau.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.wire.messages.describe_transactions import DescribeTransactionsRequest
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.init_producer_id import InitProducerIdRequest
from moldau.wire.messages.list_transactions import ListTransactionsRequest
from moldau.wire.schema import Message

RANDOM_REQUESTS = deep(35, quick=18)
SILENCE_MS = 35_000
TRANSACTIONAL_APIS = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.PRODUCE,
)


@pytest.fixture(params=[1, 3], ids=["one-node", "three-nodes"])
def transactional(request: pytest.FixtureRequest) -> Iterator[TransactionalCluster]:
    transactional = TransactionalCluster(request.param)
    yield transactional
    transactional.check_health()


@pytest.fixture
def one_node() -> Iterator[TransactionalCluster]:
    transactional = TransactionalCluster(1)
    yield transactional
    transactional.check_health()


@pytest.mark.parametrize(
    ("api", "nodes"),
    [
        pytest.param(api, nodes, id=f"{api.name.lower()}-{nodes}")
        for number, api in enumerate(TRANSACTIONAL_APIS)
        for nodes in sample((1, 3), 2, first=number)
    ],
)
def test_random_requests_are_answered_and_leave_no_open_transaction(api: ApiKey, nodes: int) -> None:
    """Without more depth by one node or by three, by turns."""
    transactional = TransactionalCluster(nodes)
    producers = {name: transactional.init(name) for name in ("tx", "other", "third")}
    hostile = HostileTransactionalRequests(transactional, api, producers)
    versions = transactional.cluster.routers[9001].served()[api]
    sent: list[SentRequest] = []
    for number, (request, version) in enumerate(hostile.requests(api, versions, RANDOM_REQUESTS)):
        node = 1 + number % len(transactional.cluster.nodes)
        sent.append(transactional.send(request, api, version, node))
        if number % 20 == 0:
            transactional.cluster.timers.advance(1)
    transactional.cluster.until(lambda: not any(each.is_waiting for each in sent), "all are answered", SILENCE_MS)
    refused = [each for each in sent if is_closed(each.outcome)]
    if api is not ApiKey.PRODUCE:
        assert all(each.size > TRANSACTION_REQUEST_BYTES_MAX for each in refused), (
            "only requests that are too long may close the connection"
        )
    transactional.check_health()


# --- the longest requests -----------------------------------------------------------------------------------------


def add_partitions_bomb(producer: Producer, count: int) -> Message:
    topics = [adding.AddPartitionsToTxnTopic("victim", [0])]
    one = adding.AddPartitionsToTxnTransaction("tx", *producer, False, topics)
    return adding.AddPartitionsToTxnRequest([one] * count)


def offset_commit_bomb(producer: Producer, count: int) -> Message:
    parts = [offsets.TxnOffsetCommitRequestPartition(0, 1, -1, "")] * count
    return offsets.TxnOffsetCommitRequest(
        "tx", "g", *producer, topics=[offsets.TxnOffsetCommitRequestTopic("victim", parts)]
    )


def write_markers_bomb(_: Producer, count: int) -> Message:
    """Markers of producers that do not exist."""
    topics = [markers.WritableTxnMarkerTopic("victim", [0])]
    made_up = range(10**6, 10**6 + count)
    return markers.WriteTxnMarkersRequest([markers.WritableTxnMarker(each, 0, True, topics, 0, 0) for each in made_up])


def find_coordinator_bomb(_: Producer, count: int) -> Message:
    return FindCoordinatorRequest(key_type=1, coordinator_keys=[f"{each:05x}" for each in range(count)])


def add_offsets_bomb(producer: Producer, count: int) -> Message:
    """The largest array allows ten thousand elements, and a string 32,767 characters."""
    return AddOffsetsToTxnRequest("tx", *producer, "g" * (3 * count))


def describe_transactions_bomb(_: Producer, count: int) -> Message:
    return DescribeTransactionsRequest(["tx"] * count)


BOMBS: dict[str, tuple[ApiKey, int, Callable[[Producer, int], Message]]] = {
    "AddPartitionsToTxn": (ApiKey.ADD_PARTITIONS_TO_TXN, 5, add_partitions_bomb),
    "TxnOffsetCommit": (ApiKey.TXN_OFFSET_COMMIT, 5, offset_commit_bomb),
    "WriteTxnMarkers": (ApiKey.WRITE_TXN_MARKERS, 2, write_markers_bomb),
    "DescribeTransactions": (ApiKey.DESCRIBE_TRANSACTIONS, 0, describe_transactions_bomb),
    "FindCoordinator": (ApiKey.FIND_COORDINATOR, 4, find_coordinator_bomb),
    "AddOffsetsToTxn": (ApiKey.ADD_OFFSETS_TO_TXN, 4, add_offsets_bomb),
}
"""Requests with so many elements, each as expensive as possible."""


@pytest.mark.parametrize("bomb", BOMBS)
def test_the_longest_requests_are_answered(one_node: TransactionalCluster, bomb: str) -> None:
    _, reply = send_bomb(one_node, bomb, ELEMENTS_MAX, operations_of=uncounted)
    assert reply, reply.refusal


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_request_twice_as_long_costs_twice_as_much(one_node: TransactionalCluster, bomb: str) -> None:
    """Not four times: the cost grows linearly with the length."""
    costs = [sum(send_bomb(one_node, bomb, count)[0]) for count in (ELEMENTS_MAX // 20, ELEMENTS_MAX // 10)]
    assert costs[1] < 2.5 * costs[0]


def uncounted(action: Callable[[], object]) -> int:
    action()
    return 0


def send_bomb(
    one_node: TransactionalCluster,
    bomb: str,
    count: int,
    operations_of: Callable[[Callable[[], object]], int] = operations_of,
) -> tuple[list[int], Outgoing]:
    """Send one of the bombs; return the lines of Python in each turn until it is answered, and the reply."""
    api, version, build = BOMBS[bomb]
    frame = bytes(request_frame(api, version, 7, "attacker", build(one_node.init("tx"), count)))
    router, timers = one_node.cluster.routers[9001], one_node.cluster.timers
    return turns_of(router, timers, frame, operations_of=operations_of)


@pytest.mark.parametrize("api", [ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.FIND_COORDINATOR], ids=lambda api: api.name)
def test_a_request_with_too_many_ids_closes_the_connection(one_node: TransactionalCluster, api: ApiKey) -> None:
    ids = [""] * (512 << 10)
    request: Message = DescribeTransactionsRequest(ids)
    if api is ApiKey.FIND_COORDINATOR:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=ids)
    assert is_closed(one_node.ask(request, api, {ApiKey.FIND_COORDINATOR: 4}.get(api, 0), 1))


def test_a_transactional_id_that_is_too_long_is_refused_before_it_is_hashed(
    one_node: TransactionalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest, too_long = "x" * 32_767, "x" * (8 << 20)
    producer = one_node.init(longest)
    assert one_node.write(longest, producer) == ErrorCode.NONE
    monkeypatch.setattr(coordinator_topic, "_hash", lambda text: pytest.fail(f"{len(text)} characters were hashed"))
    sent = one_node.begin_write(too_long, (2**40, 0))
    one_node.until(lambda: not sent.is_waiting, "the write is refused")
    refused = one_node.ask(InitProducerIdRequest("x" * 32_768, 1000), ApiKey.INIT_PRODUCER_ID, 5, 1)
    assert [type(each) for each in (sent.outcome, refused)] == [ConnectionClosed] * 2


def test_transactional_ids_may_contain_any_characters(transactional: TransactionalCluster) -> None:
    for odd in ODD_IDS[1:]:
        producer = transactional.init(odd)
        assert transactional.write(odd, producer) == ErrorCode.NONE
        assert transactional.end(odd, producer).error_code == ErrorCode.NONE
        assert odd in transactional.states(transactional.coordinator(odd))


def test_long_ids_in_find_coordinator_are_not_cached(one_node: TransactionalCluster) -> None:
    producers = _cached_hash.cache_info().currsize
    for kind in (0, 1):
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["long" * 8_000, "longer" * 5_000])
        assert not one_node.ask(request, ApiKey.FIND_COORDINATOR, 4, 1).coordinators[0].error_code
    assert _cached_hash.cache_info().currsize == producers


@pytest.mark.needs_re2
def test_a_slow_pattern_is_matched_in_steps(one_node: TransactionalCluster) -> None:
    names = [f"{number:03}" + "x" * 300 for number in range(60)]
    for name in names:
        one_node.init(name)
    worst = ListTransactionsRequest(transactional_id_pattern="[0-4].*(((x{1,10}){1,10}){1,5})*")
    sent = one_node.send(worst, ApiKey.LIST_TRANSACTIONS, 2, 1)
    assert sent.is_waiting, "the pattern is matched in several steps of the event loop"
    one_node.cluster.timers.advance(10)
    assert sorted(each.transactional_id for each in sent.outcome.transaction_states) == sorted(names)
    bad = one_node.ask(ListTransactionsRequest(transactional_id_pattern="(x"), ApiKey.LIST_TRANSACTIONS, 2, 1)
    assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    huge = one_node.ask(ListTransactionsRequest(transactional_id_pattern="(.?){900}"), ApiKey.LIST_TRANSACTIONS, 2, 1)
    assert huge.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
