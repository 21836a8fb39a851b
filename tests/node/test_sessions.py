"""Fetch sessions: their cache, their epochs, and the cost of an incremental response."""

from __future__ import annotations

import gc
import weakref
from random import Random

import pytest
from harness.fetch_requests import BY_ID, BY_NAME, fetch, immediate, partition_results
from harness.in_memory_node import InMemoryNode

from moldau.base.errors import ErrorCode, KafkaError
from moldau.replica.sessions import CONSUMER, EPOCH_MAX, FetchedPartition, FetchSession, SessionCache
from moldau.server.handlers import fetch_answer

EVICT_AFTER_MS = 1000


def session_error(cache: SessionCache, session_id: int, epoch: int, by_id: bool = False) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        cache.resume(session_id, epoch, by_id, 0)
    return refused.value.code


# --- the cache


def test_ids_are_never_zero_and_never_used_twice_at_once() -> None:
    class FewIds(Random):
        def randint(self, a: int, b: int) -> int:
            assert a >= 1
            return self.choice([1, 2, 3])

    cache = SessionCache(3, EVICT_AFTER_MS, FewIds(4))
    assert {cache.create(False, 0).id for _ in range(3)} == {1, 2, 3}


def test_epochs_follow_each_other_and_wrap_to_one() -> None:
    cache = SessionCache(10, EVICT_AFTER_MS, Random(1))
    session = cache.create(False, 0)
    for epoch in (1, 2, 3):
        assert cache.resume(session.id, epoch, False, 0) is session
    assert session_error(cache, session.id, 3) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert session_error(cache, session.id, 5) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert session_error(cache, session.id, -2) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    session.epoch = EPOCH_MAX
    assert cache.resume(session.id, EPOCH_MAX, False, 0) is session
    assert session.epoch == 1, "0 opens and -1 closes: neither can be the next"
    assert cache.resume(session.id, 1, False, 0) is session


def test_unknown_sessions_and_sessions_with_the_other_topic_naming_are_refused() -> None:
    cache = SessionCache(10, EVICT_AFTER_MS, Random(1))
    session = cache.create(True, 0)
    assert session_error(cache, session.id + 1, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert session_error(cache, 0, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert session_error(cache, session.id, 1, by_id=False) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    cache.remove(session.id)
    cache.remove(session.id)
    assert session_error(cache, session.id, 1, by_id=True) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_full_cache_gives_no_session_until_one_is_stale() -> None:
    cache = SessionCache(2, EVICT_AFTER_MS, Random(1))
    first, second = cache.create(False, 0), cache.create(False, 10)
    assert cache.create(False, EVICT_AFTER_MS - 1).id == 0
    assert len(cache) == 2
    cache.resume(first.id, 1, False, 500)
    third = cache.create(False, 10 + EVICT_AFTER_MS)
    assert third.id > 0
    assert session_error(cache, second.id, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND, (
        "the least recently used session is evicted"
    )
    assert cache.resume(first.id, 2, False, 2000) is first


def test_a_cache_without_slots_gives_no_sessions() -> None:
    cache = SessionCache(0, EVICT_AFTER_MS, Random(1))
    assert cache.create(False, 10_000).id == 0
    node = InMemoryNode(session_slots=0).start()
    node.create_topic("a")
    response = immediate(fetch(node, {("a", 0): 0}, epoch=0))
    assert (response.error_code, response.session_id) == (0, 0)
    assert partition_results(response).keys() == {("a", 0)}


def test_an_evicted_session_watches_no_partition() -> None:
    node = InMemoryNode(session_slots=1).start()
    node.create_topic("a")
    first = immediate(fetch(node, {("a", 0): 0}, epoch=0)).session_id
    partition = node.partition("a")
    assert len(partition.watchers.consumers) == 1
    node.clock.move(120_000)
    second = immediate(fetch(node, {}, epoch=0)).session_id
    assert second not in (0, first)
    assert not partition.watchers.consumers
    assert immediate(fetch(node, session=first, epoch=1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_removed_while_its_request_is_handled_watches_no_partition() -> None:
    """Another connection may end a session between two turns of a long request."""
    node = InMemoryNode().start()
    node.create_topic("a")
    session = SessionCache(10, 120_000, Random(1)).create(False, 0)
    session.close()
    session.put("a", 0, node.partition("a"))
    assert session.id == 0
    assert not node.partition("a").watchers.consumers


def session_of(cache: SessionCache, count: int, now_ms: int = 0, replica_id: int = CONSUMER) -> FetchSession:
    session = cache.create(False, now_ms, replica_id, count)
    for index in range(count):
        session.put("a", index, None)
    return session


def test_all_sessions_together_have_a_limit_of_partitions() -> None:
    cache = SessionCache(10, EVICT_AFTER_MS, Random(1), partitions_max=100)
    first = session_of(cache, 60)
    assert session_of(cache, 41).id == 0
    assert session_of(cache, 40).id > 0
    assert session_of(cache, 1).id == 0
    first.forget("a", 0)
    assert session_of(cache, 1).id > 0
    assert len(cache) == 3
    later_ms = 2 * EVICT_AFTER_MS
    assert session_of(cache, 101, later_ms).id == 0
    assert len(cache) == 3, "no session is evicted for one that exceeds the limit alone"
    assert session_of(cache, 100, later_ms).id > 0
    assert len(cache) == 1
    assert session_of(cache, 500, later_ms, replica_id=3).id > 0, "a follower has as many as it follows"


def test_a_session_that_grows_too_large_is_removed() -> None:
    cache = SessionCache(10, EVICT_AFTER_MS, Random(1), partitions_max=100)
    session = session_of(cache, 60)
    session_id = session.id
    cache.check_room(session, 60, lambda: 40)
    with pytest.raises(KafkaError) as refused:
        cache.check_room(session, 60, lambda: 41)
    assert refused.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert session_error(cache, session_id, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    session.put("a", 0, None)
    assert session_of(cache, 100).id > 0, "partitions added to a removed session are not counted"


def test_fetches_of_unknown_partitions_get_no_session_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    node = InMemoryNode().start()
    monkeypatch.setattr(node.sessions, "_partitions_max", 1_000)
    opened = immediate(fetch(node, {("nobody", index): 0 for index in range(400)}, epoch=0)).session_id
    assert opened
    wanted = {("nobody", index): 0 for index in range(300, 450)}
    for epoch in (1, 2):
        assert immediate(fetch(node, wanted, session=opened, epoch=epoch)).error_code == 0
    node.sessions._room.used = 1_000
    grown = immediate(fetch(node, {("nobody", 999): 0}, session=opened, epoch=3))
    assert (grown.error_code, grown.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    node.sessions._room.used = 1_000
    answer = immediate(fetch(node, {("nobody", index): 0 for index in range(5)}, epoch=0))
    assert (answer.session_id, len(partition_results(answer))) == (0, 5)


# --- sessions in Fetch requests


def test_a_session_keeps_naming_topics_by_name_or_by_id() -> None:
    node = InMemoryNode().start()
    topic_id = node.create_topic("a")
    opened = immediate(fetch(node, {(topic_id, 0): 0}, epoch=0, version=BY_ID)).session_id
    mixed = immediate(fetch(node, session=opened, epoch=1, version=BY_NAME))
    assert (mixed.error_code, mixed.session_id) == (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 0)
    assert immediate(fetch(node, session=opened, epoch=1, version=BY_ID)).error_code == 0


def test_the_first_response_lists_every_partition_even_without_data() -> None:
    node = InMemoryNode().start()
    node.create_topic("a", 3)
    response = immediate(fetch(node, {("a", n): 0 for n in range(3)}, epoch=0))
    assert list(partition_results(response)) == [("a", 0), ("a", 1), ("a", 2)]
    assert partition_results(immediate(fetch(node, session=response.session_id, epoch=1))) == {}


def test_data_is_returned_again_until_the_client_advances_its_offset() -> None:
    node = InMemoryNode().start()
    node.create_topic("a", 2)
    size = node.append("a", 1)
    session = immediate(fetch(node, {("a", 0): 0, ("a", 1): 0}, epoch=0)).session_id
    for epoch in (1, 2):
        results = partition_results(immediate(fetch(node, session=session, epoch=epoch)))
        assert {key: each.size for key, each in results.items()} == {("a", 1): size}
    assert partition_results(immediate(fetch(node, {("a", 1): 1}, session=session, epoch=3))) == {}


def test_partitions_with_data_take_turns_when_not_all_fits() -> None:
    node = InMemoryNode().start()
    node.create_topic("a", 3)
    size = max(node.append("a", n, size=1000) for n in range(3))
    session = immediate(fetch(node, {("a", n): 0 for n in range(3)}, epoch=0, max_bytes=size)).session_id
    firsts = []
    for epoch in range(1, 4):
        results = partition_results(immediate(fetch(node, session=session, epoch=epoch, max_bytes=size)))
        firsts += [index for (_, index), each in results.items() if each.size]
    assert sorted(firsts) == [0, 1, 2], "each partition comes first once"


# --- cost


@pytest.fixture
def evaluations(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str | bytes, int]]:
    """Collect every evaluation of a partition of a session."""
    found: list[tuple[str | bytes, int]] = []
    real = fetch_answer.FetchAnswer._read

    def watched(self: object, entry: FetchedPartition, *rest: int | bool) -> object:
        found.append((entry.topic, entry.index))
        return real(self, entry, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(fetch_answer.FetchAnswer, "_read", watched)
    return found


def test_an_incremental_fetch_evaluates_only_changed_partitions(evaluations: list[tuple[str | bytes, int]]) -> None:
    node = InMemoryNode().start()
    many = 200
    node.create_topic("a", many)
    session = immediate(fetch(node, {("a", n): 0 for n in range(many)}, epoch=0)).session_id
    assert len(evaluations) == many
    evaluations.clear()
    immediate(fetch(node, session=session, epoch=1))
    assert evaluations == [], "without changes no partition is evaluated"
    for n in (7, 150, 7):
        node.append("a", n)
    assert partition_results(immediate(fetch(node, session=session, epoch=2))).keys() == {("a", 7), ("a", 150)}
    assert evaluations == [("a", 7), ("a", 150)]
    evaluations.clear()
    immediate(fetch(node, {("a", 7): 2, ("a", 150): 1}, session=session, epoch=3))
    immediate(fetch(node, session=session, epoch=4))
    assert sorted(evaluations) == [("a", 7), ("a", 150)]


def test_forgetting_and_closing_leave_no_watcher_behind() -> None:
    node = InMemoryNode().start()
    node.create_topic("a", 3)
    session = immediate(fetch(node, {("a", n): 0 for n in range(3)}, epoch=0)).session_id
    immediate(fetch(node, session=session, epoch=1, forget=[("a", 0), ("a", 9)]))
    assert [len(node.partition("a", n).watchers.consumers) for n in range(3)] == [0, 1, 1]
    immediate(fetch(node, session=session, epoch=-1))
    assert [len(node.partition("a", n).watchers.consumers) for n in range(3)] == [0, 0, 0]


def test_a_fetch_without_a_session_watches_a_partition_only_while_it_waits() -> None:
    node = InMemoryNode().start()
    node.create_topic("a")
    node.append("a")
    immediate(fetch(node, {("a", 0): 0}))
    assert not node.partition("a").watchers.consumers
    fetch(node, {("a", 0): 1}, wait_ms=100)
    assert len(node.partition("a").watchers.consumers) == 1
    node.timers.advance(100)
    assert not node.partition("a").watchers.consumers


def test_forgetting_an_unknown_partition_is_no_error() -> None:
    session = FetchSession(5)
    session.forget("nothing", 0)
    session.close()
    assert not session.entries


def test_a_session_drops_a_deleted_partition() -> None:
    """Otherwise the log's open files would keep their disk space until the next fetch of the client."""
    node = InMemoryNode().start()
    node.create_topic("a")
    immediate(fetch(node, {("a", 0): 0}, epoch=0))
    gone = weakref.ref(node.partition("a").log)
    node.delete_topic("a")
    node.timers.run_soon()
    gc.collect()
    assert gone() is None


def test_a_large_follower_session_takes_the_slot_of_a_consumer_session() -> None:
    cache = SessionCache(1, 1_000, Random(1), partitions_max=10)
    assert cache.create(True, 0, partition_count=1).id
    assert cache.create(True, 0, replica_id=2, partition_count=11).id
    assert len(cache) == 1
