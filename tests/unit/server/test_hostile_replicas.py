"""Clients that claim to be replicas (CVE-2018-1288): what a follower says moves the high watermark, so nobody else may
say it, and even a follower cannot have what its leader has not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from besieged import Besieged, Refused, Sent
from depth import deep
from poisoned import STRANGER, Poison

from moldau.base.errors import ErrorCode
from moldau.replica.partition import Partition
from moldau.replica.sessions import CONSUMER
from moldau.wire.apis import ApiKey
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState

FETCHES = (4, 18)
REPLICA_EPOCH_FROM = 15
RANDOM_REQUESTS = deep(400)
CLIENTS_OF_REPLICAS = {ApiKey.FETCH: FETCHES, ApiKey.LIST_OFFSETS: (1, 10), ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4)}


@pytest.fixture
def three() -> Iterator[Besieged]:
    """A cluster whose topic `victim` has ten records everywhere."""
    found = Besieged(3)
    for _ in range(10):
        found.write("victim")
    found.until(lambda: high_watermarks(found) == [10] * 3, "all have it")
    yield found
    found.heal()
    is_well(found)


def is_well(besieged: Besieged) -> None:
    """Replication goes on: what is written is soon everywhere, and called committed there."""
    offset = besieged.write("victim")
    besieged.until(lambda: high_watermarks(besieged) == [offset + 1] * 3, "all have it")
    assert not besieged.faults


def partition(besieged: Besieged, node: int, topic: str = "victim") -> Partition:
    side = besieged.nodes[node].broker_side
    assert side is not None
    return side.partitions.get(topic, 0)


def high_watermarks(besieged: Besieged) -> list[int]:
    return [partition(besieged, node).high_watermark for node in besieged.nodes]


def leader_of(besieged: Besieged, topic: str = "victim") -> int:
    return besieged.led().current.image.topics[topic].partitions[0].leader


def fetch(
    besieged: Besieged,
    version: int,
    replica: int,
    replica_epoch: int,
    offset: int,
    *,
    topic: str = "victim",
    session: tuple[int, int] = (0, -1),
    **wanted: int,
) -> Any:
    """The response of the leader to a fetch that claims to be a replica's."""
    topic_id = besieged.led().current.image.topics[topic].id
    asked = FetchTopic(topic_id, topic, [FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20, **wanted)])
    state = ReplicaState(replica, replica_epoch) if version >= REPLICA_EPOCH_FROM else None
    request = FetchRequest(None, state, replica, 0, max_bytes=1 << 20, topics=[asked])
    request.session_id, request.session_epoch = session
    return besieged.ask(request, ApiKey.FETCH, version, leader_of(besieged, topic), to_controller=False)


def code_of(response: Any) -> ErrorCode:
    """Of the whole, or of the one partition."""
    if response.error_code or not response.responses:
        return ErrorCode(response.error_code)
    return ErrorCode(response.responses[0].partitions[0].error_code)


def hold_back_a_write(besieged: Besieged) -> Sent:
    """A record that the leader has and nobody else: its followers do not reach it."""
    besieged.cut_off(leader_of(besieged))
    besieged.timers.advance(50)
    sent = besieged.begin_write("victim")
    besieged.timers.advance(50)
    assert sent.is_waiting
    assert partition(besieged, leader_of(besieged)).high_watermark == 10
    return sent


@pytest.mark.parametrize("version", range(FETCHES[0], FETCHES[1] + 1))
def test_whoever_names_a_replica_without_its_epoch_moves_nothing(three: Besieged, version: int) -> None:
    waiting = hold_back_a_write(three)
    brokers = three.led().current.image.brokers
    for broker in brokers.values():
        for epoch in (-1, 0, broker.epoch - 1, broker.epoch + 1, 2**63 - 1):
            for offset in (10, 11):
                response = fetch(three, version, broker.id, epoch, offset)
                # The oldest versions have no place for an error but with a partition.
                assert not response.responses or code_of(response) != ErrorCode.NONE
    assert waiting.is_waiting
    assert partition(three, leader_of(three)).high_watermark == 10


@pytest.mark.parametrize("replica", [STRANGER, 2**31 - 1, 0])
def test_a_replica_that_nobody_knows_is_refused(three: Besieged, replica: int) -> None:
    waiting = hold_back_a_write(three)
    for epoch in (0, 5, 2**63 - 1):
        assert code_of(fetch(three, 17, replica, epoch, 11)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert waiting.is_waiting


def test_a_broker_that_is_no_replica_of_the_partition_is_refused(three: Besieged) -> None:
    asked = CreateTopicsRequest([CreatableTopic("narrow", 1, 1)], timeout_ms=5_000)
    three.ask(asked, ApiKey.CREATE_TOPICS, 7, node=1, to_controller=False)
    three.until(lambda: "narrow" in three.led().current.image.topics, "it is there")
    three.timers.advance(100)
    for broker in three.led().current.image.brokers.values():
        code = code_of(fetch(three, 17, broker.id, broker.epoch, 0, topic="narrow"))
        assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("offset", [-(2**63), -1, 12, 1 << 40, 2**63 - 1])
@pytest.mark.parametrize("last_epoch", [-1, 0, 2**31 - 1])
def test_no_follower_has_more_than_its_leader(three: Besieged, offset: int, last_epoch: int) -> None:
    """Not even under its true epoch: the high watermark stays within what all in sync really fetched."""
    waiting = hold_back_a_write(three)
    leader = leader_of(three)
    for broker in three.led().current.image.brokers.values():
        if broker.id != leader:
            response = fetch(three, 17, broker.id, broker.epoch, offset, last_fetched_epoch=last_epoch)
            found = response.responses[0].partitions[0]
            assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE or found.diverging_epoch is not None
    assert waiting.is_waiting
    assert partition(three, leader).high_watermark == 10


def test_a_follower_that_goes_back_does_not_take_the_high_watermark_with_it(three: Besieged) -> None:
    leader = leader_of(three)
    for broker in three.led().current.image.brokers.values():
        if broker.id != leader:
            assert code_of(fetch(three, 17, broker.id, broker.epoch, 3)) == ErrorCode.NONE
    assert partition(three, leader).high_watermark == 10


@pytest.mark.parametrize("api", CLIENTS_OF_REPLICAS, ids=lambda api: api.name.lower())
def test_random_requests_to_brokers_move_nothing(three: Besieged, api: ApiKey) -> None:
    waiting = hold_back_a_write(three)
    leader, sent = leader_of(three), []
    served = three.routers[9001].served()[api]
    for number, (request, version) in enumerate(
        Poison(three, api, of_quorum=False).requests(api, served, RANDOM_REQUESTS)
    ):
        node = leader if number % 2 else 1 + number % 3
        if hasattr(request, "max_wait_ms"):
            request.max_wait_ms = min(request.max_wait_ms, 100)
        sent.append(three.post(request, api, version, node, to_controller=False))
        if number % 50 == 0:
            three.timers.advance(1)
    three.timers.advance(200)
    assert not [each for each in sent if each.is_waiting]
    assert not [each for each in sent if isinstance(each.outcome, Refused)]
    assert partition(three, leader).high_watermark == 10
    assert waiting.is_waiting


# --- sessions -----------------------------------------------------------------------------------------------------


@pytest.fixture
def crowded() -> Iterator[Besieged]:
    """With room for four fetch sessions, two of which the followers have."""
    found = Besieged(3, max_incremental_fetch_session_cache_slots="4")
    found.write("victim")
    yield found
    is_well(found)


def test_who_only_claims_to_be_a_replica_takes_no_consumers_session(crowded: Besieged) -> None:
    consumers = [fetch(crowded, 17, CONSUMER, -1, 0, session=(0, 0)).session_id for _ in range(2)]
    assert all(consumers)
    for replica in range(100, 150):
        assert fetch(crowded, 17, replica, 5, 0, session=(0, 0)).session_id == 0
    for broker in crowded.led().current.image.brokers.values():
        assert fetch(crowded, 17, broker.id, broker.epoch + 1, 0, session=(0, 0)).session_id == 0
    for session_id in consumers:
        assert code_of(fetch(crowded, 17, CONSUMER, -1, 1, session=(session_id, 1))) == ErrorCode.NONE


def test_a_consumer_cannot_go_on_with_a_followers_session_nor_a_follower_with_a_consumers(crowded: Besieged) -> None:
    side = crowded.nodes[leader_of(crowded)].broker_side
    assert side is not None
    followers = [held for held, _ in side.sessions._sessions.values() if held.replica_id != CONSUMER]
    assert len(followers) == 2
    for held in followers:
        for replica, epoch in ((CONSUMER, -1), (STRANGER, 5)):
            found = fetch(crowded, 17, replica, epoch, 0, session=(held.id, held.epoch))
            assert found.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    own = fetch(crowded, 17, CONSUMER, -1, 0, session=(0, 0)).session_id
    for broker in crowded.led().current.image.brokers.values():
        found = fetch(crowded, 17, broker.id, broker.epoch, 0, session=(own, 1))
        assert found.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
