"""Hostile clients of the transaction coordinator, and of the partition leaders that write its markers.

After every attack, producers of both transaction versions must be served, every transaction must have ended, every
request must have been answered, and nothing may have grown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from attacked_cluster import ConnectionClosed, SentRequest
from depth import deep
from operations import operations_of
from transactional_cluster import ODD_IDS, HostileTransactionalRequests, Producer, TransactionalCluster, is_closed

from moldau.base.errors import ErrorCode
from moldau.base.limits import TRANSACTION_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.runtime.coordinators import topic as coordinator_topic
from moldau.runtime.coordinators.topic import _cached_hash
from moldau.security.acls.access import UNRESTRICTED
from moldau.wire.apis import ApiKey
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

RANDOM_REQUESTS = deep(100)
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


@pytest.mark.parametrize("api", TRANSACTIONAL_APIS, ids=lambda api: api.name.lower())
def test_random_requests_are_answered_and_leave_no_open_transaction(
    transactional: TransactionalCluster, api: ApiKey
) -> None:
    producers = {name: transactional.init(name) for name in ("tx", "other", "third")}
    hostile = HostileTransactionalRequests(transactional, api, producers)
    versions = transactional.cluster.routers[9001].served()[api]
    sent: list[SentRequest] = []
    for number, (request, version) in enumerate(hostile.requests(api, versions, RANDOM_REQUESTS)):
        node = 1 + number % len(transactional.cluster.nodes)
        sent.append(transactional.send(request, api, version, node))
        if number % 20 == 0:
            transactional.cluster.timers.advance(1)
    transactional.cluster.timers.advance(SILENCE_MS)
    assert not [each for each in sent if each.is_waiting]
    refused = [each for each in sent if is_closed(each.outcome)]
    if api is not ApiKey.PRODUCE:
        assert all(each.size > TRANSACTION_REQUEST_BYTES_MAX for each in refused), (
            "only requests that are too long may close the connection"
        )


# --- the longest requests -----------------------------------------------------------------------------------------

LONGEST_BYTES = TRANSACTION_REQUEST_BYTES_MAX - 200


def add_partitions_bomb(producer: Producer, size: int) -> Message:
    topics = [adding.AddPartitionsToTxnTopic("victim", [0])]
    one = adding.AddPartitionsToTxnTransaction("tx", *producer, False, topics)
    return adding.AddPartitionsToTxnRequest([one] * (size // 31))


def offset_commit_bomb(producer: Producer, size: int) -> Message:
    parts = [offsets.TxnOffsetCommitRequestPartition(0, 1, -1, "")] * (size // 19)
    return offsets.TxnOffsetCommitRequest(
        "tx", "g", *producer, topics=[offsets.TxnOffsetCommitRequestTopic("victim", parts)]
    )


def write_markers_bomb(_: Producer, size: int) -> Message:
    """Markers of producers that do not exist."""
    topics = [markers.WritableTxnMarkerTopic("victim", [0])]
    made_up = range(10**6, 10**6 + size // 34)
    return markers.WriteTxnMarkersRequest([markers.WritableTxnMarker(each, 0, True, topics, 0, 0) for each in made_up])


def find_coordinator_bomb(_: Producer, size: int) -> Message:
    return FindCoordinatorRequest(key_type=1, coordinator_keys=[f"{each:05x}" for each in range(size // 24)])


def describe_transactions_bomb(_: Producer, size: int) -> Message:
    return DescribeTransactionsRequest(["tx"] * (size // 12))


BOMBS: dict[str, tuple[ApiKey, int, Callable[[Producer, int], Message]]] = {
    "the same added": (ApiKey.ADD_PARTITIONS_TO_TXN, 5, add_partitions_bomb),
    "offsets": (ApiKey.TXN_OFFSET_COMMIT, 5, offset_commit_bomb),
    "markers": (ApiKey.WRITE_TXN_MARKERS, 2, write_markers_bomb),
    "the same id": (
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        lambda _, size: DescribeTransactionsRequest(["tx"] * (size // 12)),
    ),
    "coordinators": (ApiKey.FIND_COORDINATOR, 4, find_coordinator_bomb),
    "group": (ApiKey.ADD_OFFSETS_TO_TXN, 4, lambda producer, size: AddOffsetsToTxnRequest("tx", *producer, "g" * size)),
}
"""Requests of any length, each of the elements that cost the most."""


@pytest.mark.parametrize("bomb", BOMBS)
def test_the_longest_requests_are_answered(one_node: TransactionalCluster, bomb: str) -> None:
    assert SentBomb(one_node, bomb, LONGEST_BYTES).is_answered()


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_request_twice_as_long_costs_twice_as_much(one_node: TransactionalCluster, bomb: str) -> None:
    """Not four times: the cost grows linearly, so that the longest request costs ten times that of a tenth of it."""
    costs = [operations_of(SentBomb(one_node, bomb, size).send) for size in (LONGEST_BYTES // 20, LONGEST_BYTES // 10)]
    assert costs[1] < 2.5 * costs[0]


class SentBomb:
    """One of the bombs and the replies to it."""

    def __init__(self, one_node: TransactionalCluster, bomb: str, size: int) -> None:
        api, version, build = BOMBS[bomb]
        self._frame = bytes(request_frame(api, version, 7, "attacker", build(one_node.init("tx"), size)))
        self._one_node = one_node
        self._replies: list[object] = []

    def send(self) -> None:
        router = self._one_node.cluster.routers[9001]
        reply = router.answer("PLAINTEXT", "198.51.100.7:666", UNRESTRICTED, memoryview(bytearray(self._frame[4:])))
        if isinstance(reply, Promise):
            reply.then(self._replies.append)
        else:
            self._replies.append(reply)

    def is_answered(self) -> bool:
        self.send()
        self._one_node.cluster.timers.advance(SILENCE_MS)
        return bool(self._replies)


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
    one_node.until(lambda: not sent.is_waiting, "it is refused")
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
