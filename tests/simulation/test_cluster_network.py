"""The network of the cluster simulation keeps the promises of `client.peers`, and fails as TCP does."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from cluster_connection import Listening
from cluster_life import RATE_ONE, Life, LifeTimers, MachineClock
from cluster_network import Network, SimulatedPeers

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.server.router import Router
from moldau.testing.clock import FakeTimers
from moldau.wire.apis import ApiKey
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

TIMEOUT_MS = 1_000


class Echo:
    """Answers with the generation it is told, or keeps the asker waiting."""

    api = ApiKey.HEARTBEAT
    versions = (0, 4)

    def __init__(self) -> None:
        self.heard: list[int] = []
        self.waiting: list[Promise[HeartbeatResponse]] = []

    def answer(self, request: Any, caller: Any) -> HeartbeatResponse | Promise[HeartbeatResponse]:
        self.heard.append(request.generation_id)
        if request.group_id == "wait":
            later: Promise[HeartbeatResponse] = Promise()
            self.waiting.append(later)
            return later
        return HeartbeatResponse(error_code=request.generation_id)


class Street:
    """Two houses and what is between them."""

    def __init__(self) -> None:
        self.timers = FakeTimers()
        self.clock = self.timers.clock
        self.network = Network(self, Random(1))  # type: ignore[arg-type]
        self.network.loss = 0.0
        self.here, self.there = Life("here"), Life("there")
        self.echo = Echo()
        router = Router()
        router.serve([self.echo])
        self.network.listen("there", 9092, Listening(self.there, router, "PLAINTEXT", lambda address: None))
        self.peer = SimulatedPeers(self.network, self.here, self.timers.after_ms).to("there", 9092, "test")
        self.answers: list[Any] = []

    def ask(self, number: int, group_id: str = "") -> None:
        asked = self.peer.ask(ApiKey.HEARTBEAT, HeartbeatRequest(group_id, number), TIMEOUT_MS)
        assert not asked.done, "an answer inside the call"
        asked.then(lambda answer: self.answers.append(_shown(answer)))

    def violated(self, what: str) -> None:
        raise AssertionError(what)


def _shown(answer: Any) -> Any:
    return answer.code if isinstance(answer, KafkaError) else answer.error_code


@pytest.fixture
def street() -> Street:
    return Street()


def test_answers_come_in_the_order_of_their_questions(street: Street) -> None:
    street.ask(1)
    street.ask(2, "wait")
    street.ask(3)
    street.timers.advance(500)
    assert street.echo.heard == [1, 2, 3]
    assert street.answers == [1], "what stands behind a late answer waits for it"
    street.echo.waiting[0].complete(HeartbeatResponse(error_code=2))
    street.timers.advance(500)
    assert street.answers == [1, 2, 3]


def test_a_process_that_dies_is_missed_at_once(street: Street) -> None:
    street.ask(1, "wait")
    street.timers.advance(500)
    street.there.end()
    street.network.process_died(street.there)
    street.timers.advance(450)
    assert street.answers == [ErrorCode.NETWORK_EXCEPTION]
    street.ask(2)
    street.timers.advance(450)
    assert street.answers == [ErrorCode.NETWORK_EXCEPTION] * 2, "a connection is refused"


def test_a_host_without_power_says_nothing(street: Street) -> None:
    street.ask(1)
    street.timers.advance(500)
    street.there.end()
    street.network.power_lost(street.there)
    street.network.darken("there")
    street.ask(2)
    street.timers.advance(TIMEOUT_MS - 1)
    assert street.answers == [1]
    street.timers.advance(1)
    assert street.answers == [1, ErrorCode.REQUEST_TIMED_OUT]


def test_what_is_cut_off_arrives_when_the_way_is_free(street: Street) -> None:
    street.network.cut("here", "there")
    street.ask(1)
    street.timers.advance(500)
    assert street.echo.heard == []
    street.network.mend("here", "there")
    street.timers.advance(450)
    assert street.answers == [1]


def test_a_request_may_arrive_after_its_sender_has_given_up(street: Street) -> None:
    street.ask(1)
    street.timers.advance(500)
    heard = []
    for number in range(2, 12):
        street.network.cut("here", "there")
        street.ask(number)
        street.timers.advance(TIMEOUT_MS + 1)
        street.network.mend("here", "there")
        street.timers.advance(500)
        heard.append(number in street.echo.heard)
        street.ask(100)
        street.timers.advance(500)
    assert set(heard) == {True, False}
    assert street.answers.count(ErrorCode.REQUEST_TIMED_OUT) == 10


def test_one_direction_can_be_cut_alone(street: Street) -> None:
    street.ask(1)
    street.timers.advance(500)
    street.network.cut("there", "here")
    street.ask(2)
    street.timers.advance(TIMEOUT_MS + 1)
    assert street.echo.heard == [1, 2]
    assert street.answers == [1, ErrorCode.REQUEST_TIMED_OUT]


def test_a_process_that_is_stopped_does_everything_when_it_goes_on(street: Street) -> None:
    street.ask(1)
    street.timers.advance(500)
    street.there.stop()
    street.ask(2)
    street.ask(3)
    street.timers.advance(500)
    assert street.echo.heard == [1]
    street.there.go_on()
    street.timers.advance(500)
    assert street.answers == [1, 2, 3]


def test_one_failure_fails_all_that_is_under_way(street: Street) -> None:
    street.ask(1, "wait")
    street.timers.advance(500)
    street.ask(2, "wait")
    street.timers.advance(600)
    assert sorted(street.answers) == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION]


def test_a_version_nobody_serves_is_said_to_be_so(street: Street) -> None:
    asked = street.peer.ask(ApiKey.SYNC_GROUP, HeartbeatRequest(), TIMEOUT_MS)
    street.timers.advance(500)
    assert asked.value().code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("rate", [RATE_ONE - 137, RATE_ONE, RATE_ONE + 211])
def test_a_timer_never_beats_before_its_own_clock_says_so(rate: int) -> None:
    timers = FakeTimers()
    clock = MachineClock(timers, rate)
    life_timers = LifeTimers(timers, Life("here"), clock)
    late = []
    for delay_ms in (0, 1, 7, 99, 1_000, 12_345):
        due_ms = clock.elapsed_ms() + delay_ms
        life_timers.after_ms(delay_ms, lambda due_ms=due_ms: late.append(clock.elapsed_ms() - due_ms))  # type: ignore[misc]
        timers.advance(333)
    timers.advance(20_000)
    assert len(late) == 6
    assert all(0 <= each <= 1 for each in late)
