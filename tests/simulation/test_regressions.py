"""Bugs that the simulation has found, each as a short test."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from groups.coordinator import Coordinator
from machines.network import Network
from machines.world import World

from moldau.assembly import Assembly
from moldau.base.errors import ErrorCode
from moldau.base.ids import ZERO_UUID
from moldau.base.promise import Promise
from moldau.runtime.coordinators.shards import RELOAD_DELAY_MS
from moldau.server.handler import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.delete_topics import DeleteTopicsRequest
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

FLUSH_MS = 5
PATIENCE_MS = 60_000


class QuietWorld(World):
    """A world without clients and faults."""

    answers_early = False

    def __init__(self) -> None:
        super().__init__(seed=1, size_name="")
        self.network = Network(self, Random(1))


class Broker:
    """A node without faults: each request is answered before anything else happens."""

    def __init__(self) -> None:
        self.world = QuietWorld()
        self.machine = Coordinator(self.world, {}, Random(1))
        self.machine.flush_ms = FLUSH_MS
        self.machine.start_now()
        self._pass_until(lambda: self.machine.is_serving)
        self.answer(self.machine.side.groups.topic.create_if_missing())
        self._pass_until(self.machine.is_loaded)

    def restart(self) -> None:
        self.machine.end(0)
        self._pass_until(lambda: self.machine.is_serving and self.machine.is_loaded())

    def pass_ms(self, duration_ms: int) -> None:
        self.world.timers.advance(duration_ms)
        self.world.fail()

    def _pass_until(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            assert self.world.elapsed_ms < PATIENCE_MS
            self.pass_ms(FLUSH_MS)

    def answer(self, value: Any) -> Any:
        self.pass_ms(2 * FLUSH_MS)
        if not isinstance(value, Promise):
            return value
        self._pass_until(lambda: value.done)
        return value.value()

    def _handle(self, api: ApiKey, version: int, request: Any) -> Any:
        (handler,) = (each for each in self.machine.side.handlers if each.api == api)
        return handler.answer(request, Caller("PLAINTEXT", "h:1", "test", version))

    def ask(self, api: ApiKey, version: int, request: Any) -> Any:
        return self.answer(self._handle(api, version, request))

    @property
    def assembly(self) -> Assembly:
        assert self.machine.assembly is not None
        return self.machine.assembly

    def ask_controller(self, api: ApiKey, request: Any) -> Promise[Any]:
        assert self.assembly.controller_side is not None
        return self.assembly.controller_side.ask(api, request, version=0)

    def create(self, name: str) -> bytes:
        created = self.answer(
            self.ask_controller(ApiKey.CREATE_TOPICS, CreateTopicsRequest([CreatableTopic(name, 1, 1)]))
        )
        assert not created.topics[0].error_code
        return bytes(created.topics[0].topic_id)

    def delete(self, name: str) -> None:
        deleted = self.answer(self.ask_controller(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topic_names=[name])))
        assert not deleted.responses[0].error_code

    def commit(self, topic: str, offset: int, topic_id: bytes | None = None) -> None:
        answer = self.ask(ApiKey.OFFSET_COMMIT, 9 if topic_id is None else 10, _commit(topic, offset, topic_id))
        assert not answer.topics[0].partitions[0].error_code

    def try_to_commit(self, topic: str, offset: int) -> None:
        """Send a commit and do not wait for its response."""
        self._handle(ApiKey.OFFSET_COMMIT, 9, _commit(topic, offset))
        self.world.timers.run_soon()

    def committed(self, topic_id: bytes) -> int | ErrorCode:
        topics = [OffsetFetchRequestTopics(topic_id, "", [0])]
        answer = self.ask(
            ApiKey.OFFSET_FETCH, 10, OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics)])
        ).groups[0]
        if answer.error_code:
            return ErrorCode(answer.error_code)
        return int(answer.topics[0].partitions[0].committed_offset)


def _commit(topic: str, offset: int, topic_id: bytes | None = None) -> OffsetCommitRequest:
    topics = [OffsetCommitRequestTopic(topic_id or ZERO_UUID, topic, [OffsetCommitRequestPartition(0, offset)])]
    return OffsetCommitRequest("g", topics=topics)


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.mark.parametrize("by_id", [False, True])
def test_offsets_in_a_recreated_topic_survive_a_restart(broker: Broker, by_id: bool) -> None:
    broker.create("a")
    broker.delete("a")
    topic_id = broker.create("a")
    broker.commit("a", 5, topic_id if by_id else None)
    broker.restart()
    assert broker.committed(topic_id) == 5


def test_offsets_of_a_deleted_topic_stay_deleted_after_a_restart(broker: Broker) -> None:
    broker.create("a")
    broker.commit("a", 5)
    broker.delete("a")
    broker.restart()
    assert broker.committed(broker.create("a")) == -1


def test_a_recreated_topic_does_not_get_the_offsets_of_its_predecessor(broker: Broker) -> None:
    """The node stopped after the topic was deleted and before its offsets were."""
    first_id = broker.create("a")
    broker.commit("a", 5, first_id)
    requests = [DeleteTopicsRequest(topic_names=["a"]), CreateTopicsRequest([CreatableTopic("a", 1, 1)])]
    broker.ask_controller(ApiKey.DELETE_TOPICS, requests[0])
    broker.ask_controller(ApiKey.CREATE_TOPICS, requests[1])
    broker.assembly.driver.log.flush()
    broker.restart()
    second_id = broker.machine.current.image.topics["a"].id
    assert second_id != first_id
    assert broker.committed(second_id) == -1


def test_a_reloaded_coordinator_returns_no_offsets_that_are_not_on_disk(broker: Broker) -> None:
    """The disk is slow, then full: the coordinator is loaded again from a log whose end is not on disk yet."""
    topic_id = broker.create("a")
    broker.commit("a", 5)
    broker.machine.flush_ms = 5_000
    broker.try_to_commit("a", 9)
    broker.machine.files.bytes_left = 0
    broker.try_to_commit("a", 11)
    broker.machine.files.bytes_left = None
    broker.pass_ms(RELOAD_DELAY_MS)
    assert broker.committed(topic_id) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    broker.pass_ms(5_000)
    assert broker.committed(topic_id) == 9


def test_offsets_of_a_topic_deleted_while_the_coordinator_was_unavailable_are_removed(broker: Broker) -> None:
    broker.create("a")
    broker.commit("a", 5)
    broker.machine.files.bytes_left = 0
    broker.try_to_commit("a", 6)
    broker.machine.files.bytes_left = None
    broker.delete("a")
    broker.pass_ms(2 * RELOAD_DELAY_MS)
    broker.machine.side.groups.expire_offsets()
    broker.pass_ms(FLUSH_MS)
    assert broker.committed(broker.create("a")) == -1
