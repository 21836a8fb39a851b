"""Hostile clients of the transaction coordinator, and of those who carry out what it decides.

After every siege producers of both versions must be served, no transaction may be left that nobody ends, nobody may
wait in vain, and nothing may have grown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from besieged import Sent
from besieged_transactions import ODD_IDS, Producer, Transacting, TransactionalPoison, is_refused
from depth import deep
from operations import operations_of

from moldau.base.errors import ErrorCode
from moldau.base.limits import TRANSACTION_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.runtime.coordinators import topic as coordinator_topic
from moldau.runtime.coordinators.topic import _cached_hash
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

RANDOM_REQUESTS = deep(200)
SILENCE_MS = 35_000
TRANSACTIONAL = (
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


@pytest.fixture(params=[1, 3], ids=["alone", "three"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Transacting]:
    found = Transacting(request.param)
    yield found
    found.is_well()


@pytest.fixture
def alone() -> Iterator[Transacting]:
    found = Transacting(1)
    yield found
    found.is_well()


@pytest.mark.parametrize("api", TRANSACTIONAL, ids=lambda api: api.name.lower())
def test_random_requests_are_answered_and_leave_nothing_open(cluster: Transacting, api: ApiKey) -> None:
    known = {name: cluster.init(name) for name in ("tx", "other", "third")}
    poison = TransactionalPoison(cluster, api, known)
    versions = cluster.besieged.routers[9001].served()[api]
    sent: list[Sent] = []
    for number, (request, version) in enumerate(poison.requests(api, versions, RANDOM_REQUESTS)):
        node = 1 + number % len(cluster.besieged.nodes)
        sent.append(cluster.post(request, api, version, node))
        if number % 20 == 0:
            cluster.besieged.timers.advance(1)
    cluster.besieged.timers.advance(SILENCE_MS)
    assert not [each for each in sent if each.is_waiting]
    refused = [each for each in sent if is_refused(each.outcome)]
    if api is not ApiKey.PRODUCE:
        assert all(each.size > TRANSACTION_REQUEST_BYTES_MAX for each in refused), "all but the longest can be read"


# --- bombs --------------------------------------------------------------------------------------------------------

FULL = TRANSACTION_REQUEST_BYTES_MAX - 200


def adds(producer: Producer, size: int) -> Message:
    topics = [adding.AddPartitionsToTxnTopic("victim", [0])]
    one = adding.AddPartitionsToTxnTransaction("tx", *producer, False, topics)
    return adding.AddPartitionsToTxnRequest([one] * (size // 31))


def commits(producer: Producer, size: int) -> Message:
    parts = [offsets.TxnOffsetCommitRequestPartition(0, 1, -1, "")] * (size // 19)
    return offsets.TxnOffsetCommitRequest(
        "tx", "g", *producer, topics=[offsets.TxnOffsetCommitRequestTopic("victim", parts)]
    )


def ends(_: Producer, size: int) -> Message:
    """Of producers that there are not."""
    topics = [markers.WritableTxnMarkerTopic("victim", [0])]
    made_up = range(10**6, 10**6 + size // 34)
    return markers.WriteTxnMarkersRequest([markers.WritableTxnMarker(each, 0, True, topics, 0, 0) for each in made_up])


def keys(_: Producer, size: int) -> Message:
    return FindCoordinatorRequest(key_type=1, coordinator_keys=[f"{each:05x}" for each in range(size // 24)])


def descriptions(_: Producer, size: int) -> Message:
    return DescribeTransactionsRequest(["tx"] * (size // 12))


BOMBS: dict[str, tuple[ApiKey, int, Callable[[Producer, int], Message]]] = {
    "the same added": (ApiKey.ADD_PARTITIONS_TO_TXN, 5, adds),
    "offsets": (ApiKey.TXN_OFFSET_COMMIT, 5, commits),
    "markers": (ApiKey.WRITE_TXN_MARKERS, 2, ends),
    "the same id": (
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        lambda _, size: DescribeTransactionsRequest(["tx"] * (size // 12)),
    ),
    "coordinators": (ApiKey.FIND_COORDINATOR, 4, keys),
    "group": (ApiKey.ADD_OFFSETS_TO_TXN, 4, lambda producer, size: AddOffsetsToTxnRequest("tx", *producer, "g" * size)),
}
"""Requests of any length, each made of what costs most."""


@pytest.mark.parametrize("bomb", BOMBS)
def test_the_longest_requests_are_answered(alone: Transacting, bomb: str) -> None:
    assert Explosion(alone, bomb, FULL).is_answered()


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_request_twice_as_long_costs_twice_as_much(alone: Transacting, bomb: str) -> None:
    """Not four times: what is bearable at a tenth of the longest is at most ten times as dear there."""
    costs = [operations_of(Explosion(alone, bomb, size).go_off) for size in (FULL // 20, FULL // 10)]
    assert costs[1] < 2.5 * costs[0]


class Explosion:
    """One of the bombs, and what is answered to it."""

    def __init__(self, alone: Transacting, bomb: str, size: int) -> None:
        api, version, made = BOMBS[bomb]
        self._frame = bytes(request_frame(api, version, 7, "besieger", made(alone.init("tx"), size)))
        self._alone = alone
        self._replies: list[object] = []

    def go_off(self) -> None:
        router = self._alone.besieged.routers[9001]
        reply = router.answer("PLAINTEXT", "198.51.100.7:666", memoryview(bytearray(self._frame[4:])))
        if isinstance(reply, Promise):
            reply.then(self._replies.append)
        else:
            self._replies.append(reply)

    def is_answered(self) -> bool:
        self.go_off()
        self._alone.besieged.timers.advance(SILENCE_MS)
        return bool(self._replies)


@pytest.mark.parametrize("api", [ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.FIND_COORDINATOR], ids=lambda api: api.name)
def test_ids_without_end_are_refused_unread(alone: Transacting, api: ApiKey) -> None:
    ids = [""] * (512 << 10)
    request: Message = DescribeTransactionsRequest(ids)
    if api is ApiKey.FIND_COORDINATOR:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=ids)
    assert is_refused(alone.ask(request, api, {ApiKey.FIND_COORDINATOR: 4}.get(api, 0), 1))


def test_an_id_without_end_is_refused_before_it_is_hashed(alone: Transacting, monkeypatch: pytest.MonkeyPatch) -> None:
    longest, too_long = "x" * 32_767, "x" * (8 << 20)
    producer = alone.init(longest)
    assert alone.write(longest, producer) == ErrorCode.NONE
    monkeypatch.setattr(coordinator_topic, "_hash", lambda text: pytest.fail(f"{len(text)} characters were hashed"))
    assert alone.write(too_long, (2**40, 0)) == ErrorCode.INVALID_REQUEST
    told = alone.ask(InitProducerIdRequest("x" * 32_768, 1000), ApiKey.INIT_PRODUCER_ID, 5, 1)
    assert told.error_code == ErrorCode.INVALID_REQUEST


def test_ids_of_any_form_are_transactional_ids(cluster: Transacting) -> None:
    for odd in ODD_IDS[1:]:
        producer = cluster.init(odd)
        assert cluster.write(odd, producer) == ErrorCode.NONE
        assert cluster.end(odd, producer).error_code == ErrorCode.NONE
        assert odd in cluster.states(cluster.coordinator(odd))


def test_of_long_ids_that_are_only_asked_for_nothing_is_kept(alone: Transacting) -> None:
    known = _cached_hash.cache_info().currsize
    for kind in (0, 1):
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["long" * 8_000, "longer" * 30_000])
        assert not alone.ask(request, ApiKey.FIND_COORDINATOR, 4, 1).coordinators[0].error_code
    assert _cached_hash.cache_info().currsize == known


@pytest.mark.needs_re2
def test_a_pattern_that_takes_long_lets_others_have_their_turn(alone: Transacting) -> None:
    names = [f"{number:03}" + "x" * 300 for number in range(60)]
    for name in names:
        alone.init(name)
    worst = ListTransactionsRequest(transactional_id_pattern="[0-4].*(((x{1,10}){1,10}){1,5})*")
    sent = alone.post(worst, ApiKey.LIST_TRANSACTIONS, 2, 1)
    assert sent.is_waiting, "it is matched piece by piece"
    alone.besieged.timers.advance(10)
    assert sorted(each.transactional_id for each in sent.outcome.transaction_states) == sorted(names)
    bad = alone.ask(ListTransactionsRequest(transactional_id_pattern="(x"), ApiKey.LIST_TRANSACTIONS, 2, 1)
    assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    huge = alone.ask(ListTransactionsRequest(transactional_id_pattern="(.?){900}"), ApiKey.LIST_TRANSACTIONS, 2, 1)
    assert huge.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
