"""Hostile clients of the transaction coordinator, and of those who carry out what it decides.

After every siege producers of both versions must be served, no transaction may be left that nobody ends, nobody may
wait in vain, and nothing may have grown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from besieged import Sent
from besieged_transactions import ODD_IDS, Producer, Transacting, TransactionalPoison, is_refused

from moldau.base.errors import ErrorCode
from moldau.base.later import Later
from moldau.base.limits import TRANSACTION_REQUEST_BYTES_MAX
from moldau.runtime.coordinator_topic import _kept_hash
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

RANDOM_REQUESTS = 600
SILENCE_MS = 35_000
LONGEST_S = 4.0
"""Of processor time, on a machine that has other things to do; a broker that is silent for 9 s is thought dead."""
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


def adds(producer: Producer) -> Message:
    topics = [adding.AddPartitionsToTxnTopic("victim", [0])]
    one = adding.AddPartitionsToTxnTransaction("tx", *producer, False, topics)
    return adding.AddPartitionsToTxnRequest([one] * (FULL // 31))


def commits(producer: Producer) -> Message:
    parts = [offsets.TxnOffsetCommitRequestPartition(0, 1, -1, "")] * (FULL // 19)
    return offsets.TxnOffsetCommitRequest(
        "tx", "g", *producer, topics=[offsets.TxnOffsetCommitRequestTopic("victim", parts)]
    )


def ends(_: Producer) -> Message:
    """Of producers that there are not."""
    topics = [markers.WritableTxnMarkerTopic("victim", [0])]
    made_up = range(10**6, 10**6 + FULL // 34)
    return markers.WriteTxnMarkersRequest([markers.WritableTxnMarker(each, 0, True, topics, 0, 0) for each in made_up])


def keys(_: Producer) -> Message:
    return FindCoordinatorRequest(key_type=1, coordinator_keys=[f"{each:05x}" for each in range(FULL // 24)])


BOMBS: dict[str, tuple[ApiKey, int, Callable[[Producer], Message]]] = {
    "the same added": (ApiKey.ADD_PARTITIONS_TO_TXN, 5, adds),
    "offsets": (ApiKey.TXN_OFFSET_COMMIT, 5, commits),
    "markers": (ApiKey.WRITE_TXN_MARKERS, 2, ends),
    "the same id": (ApiKey.DESCRIBE_TRANSACTIONS, 0, lambda _: DescribeTransactionsRequest(["tx"] * (FULL // 12))),
    "coordinators": (ApiKey.FIND_COORDINATOR, 4, keys),
    "group": (ApiKey.ADD_OFFSETS_TO_TXN, 4, lambda producer: AddOffsetsToTxnRequest("tx", *producer, "g" * FULL)),
}
"""Requests as long as they may be, each made of what costs most."""


@pytest.mark.parametrize("bomb", BOMBS)
def test_the_longest_requests_are_answered_before_others_give_up(alone: Transacting, bomb: str) -> None:
    producer = alone.init("tx")
    api, version, made = BOMBS[bomb]
    frame = bytes(request_frame(api, version, 7, "besieger", made(producer)))
    router, replies = alone.besieged.routers[9001], []
    began = time.process_time()
    reply = router.answer("PLAINTEXT", "198.51.100.7:666", memoryview(bytearray(frame[4:])))
    if isinstance(reply, Later):
        reply.then(replies.append)
    else:
        replies.append(reply)
    assert time.process_time() - began < LONGEST_S
    alone.besieged.timers.advance(SILENCE_MS)
    assert replies


@pytest.mark.parametrize("api", [ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.FIND_COORDINATOR], ids=lambda api: api.name)
def test_ids_without_end_are_refused_unread(alone: Transacting, api: ApiKey) -> None:
    ids = [""] * (512 << 10)
    request: Message = DescribeTransactionsRequest(ids)
    if api is ApiKey.FIND_COORDINATOR:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=ids)
    assert is_refused(alone.ask(request, api, {ApiKey.FIND_COORDINATOR: 4}.get(api, 0), 1))


def test_an_id_without_end_is_refused_before_it_is_hashed(alone: Transacting) -> None:
    longest, too_long = "x" * 32_767, "x" * (8 << 20)
    producer = alone.init(longest)
    assert alone.write(longest, producer) == ErrorCode.NONE
    began = time.process_time()
    assert alone.write(too_long, (2**40, 0)) == ErrorCode.INVALID_REQUEST
    told = alone.ask(InitProducerIdRequest("x" * 32_768, 1000), ApiKey.INIT_PRODUCER_ID, 5, 1)
    assert told.error_code == ErrorCode.INVALID_REQUEST
    assert time.process_time() - began < LONGEST_S / 4


def test_ids_of_any_form_are_transactional_ids(cluster: Transacting) -> None:
    for odd in ODD_IDS[1:]:
        producer = cluster.init(odd)
        assert cluster.write(odd, producer) == ErrorCode.NONE
        assert cluster.end(odd, producer).error_code == ErrorCode.NONE
        assert odd in cluster.states(cluster.coordinator(odd))


def test_of_long_ids_that_are_only_asked_for_nothing_is_kept(alone: Transacting) -> None:
    known = _kept_hash.cache_info().currsize
    for kind in (0, 1):
        ask = FindCoordinatorRequest(key_type=kind, coordinator_keys=["long" * 8_000, "longer" * 30_000])
        assert not alone.ask(ask, ApiKey.FIND_COORDINATOR, 4, 1).coordinators[0].error_code
    assert _kept_hash.cache_info().currsize == known


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
