"""The network between simulated machines behaves as `moldau.client.peers` requires, and fails as TCP does."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from machines.connection import Listening
from machines.network import Network, SimulatedPeers
from machines.process import RATE_ONE, MachineClock, Process, ProcessTimers
from machines.world import World

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.server.handler import Handler
from moldau.server.router import Router
from moldau.testing.clock import FakeTimers
from moldau.wire.apis import ApiKey
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

TIMEOUT_MS = 1_000


class Echo(Handler):
    """Answers with the generation of the request, or does not answer yet."""

    api = ApiKey.HEARTBEAT
    versions = (0, 4)

    def __init__(self) -> None:
        self.generations: list[int] = []
        self.waiting: list[Promise[HeartbeatResponse]] = []

    def answer(self, request: Any, caller: Any) -> HeartbeatResponse | Promise[HeartbeatResponse]:
        self.generations.append(request.generation_id)
        if request.group_id == "wait":
            later: Promise[HeartbeatResponse] = Promise()
            self.waiting.append(later)
            return later
        return HeartbeatResponse(error_code=request.generation_id)


class TwoProcesses(World):
    """Two processes and the network between them."""

    def __init__(self) -> None:
        super().__init__(seed=1, size_name="")
        self.network = Network(self, Random(1))
        self.client, self.server = Process("client"), Process("server")
        self.echo = Echo()
        router = Router()
        router.serve([self.echo])
        self.network.listen("server", 9092, Listening(self.server, router, "PLAINTEXT", lambda address: None))
        self.peer = SimulatedPeers(self.network, self.client, self.timers.after_ms).to("server", 9092, "test")
        self.answers: list[Any] = []

    def ask(self, number: int, group_id: str = "") -> None:
        promise = self.peer.ask(ApiKey.HEARTBEAT, HeartbeatRequest(group_id, number), TIMEOUT_MS)
        assert not promise.done, "the response came within the call"
        promise.then(lambda answer: self.answers.append(_code_of(answer)))

    def violated(self, what: str) -> None:
        raise AssertionError(what)


def _code_of(answer: Any) -> Any:
    return answer.code if isinstance(answer, KafkaError) else answer.error_code


@pytest.fixture
def processes() -> TwoProcesses:
    return TwoProcesses()


def test_responses_come_in_the_order_of_their_requests(processes: TwoProcesses) -> None:
    processes.ask(1)
    processes.ask(2, "wait")
    processes.ask(3)
    processes.timers.advance(500)
    assert processes.echo.generations == [1, 2, 3]
    assert processes.answers == [1], "a response waits for the responses before it"
    processes.echo.waiting[0].complete(HeartbeatResponse(error_code=2))
    processes.timers.advance(500)
    assert processes.answers == [1, 2, 3]


def test_the_death_of_a_process_is_noticed_at_once(processes: TwoProcesses) -> None:
    processes.ask(1, "wait")
    processes.timers.advance(500)
    processes.server.end()
    processes.network.process_died(processes.server)
    processes.timers.advance(450)
    assert processes.answers == [ErrorCode.NETWORK_EXCEPTION]
    processes.ask(2)
    processes.timers.advance(450)
    assert processes.answers == [ErrorCode.NETWORK_EXCEPTION] * 2, "a connection is refused"


def test_a_host_without_power_does_not_answer(processes: TwoProcesses) -> None:
    processes.ask(1)
    processes.timers.advance(500)
    processes.server.end()
    processes.network.power_lost(processes.server)
    processes.network.power_off("server")
    processes.ask(2)
    processes.timers.advance(TIMEOUT_MS - 1)
    assert processes.answers == [1]
    processes.timers.advance(1)
    assert processes.answers == [1, ErrorCode.REQUEST_TIMED_OUT]


def test_messages_over_a_cut_link_arrive_when_it_is_restored(processes: TwoProcesses) -> None:
    processes.network.cut("client", "server")
    processes.ask(1)
    processes.timers.advance(500)
    assert processes.echo.generations == []
    processes.network.restore("client", "server")
    processes.timers.advance(450)
    assert processes.answers == [1]


def test_a_request_may_arrive_after_its_sender_has_given_up(processes: TwoProcesses) -> None:
    processes.ask(1)
    processes.timers.advance(500)
    arrived = []
    for number in range(2, 12):
        processes.network.cut("client", "server")
        processes.ask(number)
        processes.timers.advance(TIMEOUT_MS + 1)
        processes.network.restore("client", "server")
        processes.timers.advance(500)
        arrived.append(number in processes.echo.generations)
        processes.ask(100)
        processes.timers.advance(500)
    assert set(arrived) == {True, False}
    assert processes.answers.count(ErrorCode.REQUEST_TIMED_OUT) == 10


def test_one_direction_can_be_cut_alone(processes: TwoProcesses) -> None:
    processes.ask(1)
    processes.timers.advance(500)
    processes.network.cut("server", "client")
    processes.ask(2)
    processes.timers.advance(TIMEOUT_MS + 1)
    assert processes.echo.generations == [1, 2]
    assert processes.answers == [1, ErrorCode.REQUEST_TIMED_OUT]


def test_a_suspended_process_handles_everything_when_it_is_resumed(processes: TwoProcesses) -> None:
    processes.ask(1)
    processes.timers.advance(500)
    processes.server.stop()
    processes.ask(2)
    processes.ask(3)
    processes.timers.advance(500)
    assert processes.echo.generations == [1]
    processes.server.resume()
    processes.timers.advance(500)
    assert processes.answers == [1, 2, 3]


def test_a_timeout_fails_all_requests_in_flight(processes: TwoProcesses) -> None:
    processes.ask(1, "wait")
    processes.timers.advance(500)
    processes.ask(2, "wait")
    processes.timers.advance(600)
    assert sorted(processes.answers) == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION]


def test_an_api_that_is_not_served_fails_with_unsupported_version(processes: TwoProcesses) -> None:
    promise = processes.peer.ask(ApiKey.SYNC_GROUP, HeartbeatRequest(), TIMEOUT_MS)
    processes.timers.advance(500)
    assert promise.value().code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("rate", [RATE_ONE - 137, RATE_ONE, RATE_ONE + 211])
def test_a_timer_never_fires_early_by_its_own_clock(rate: int) -> None:
    timers = FakeTimers()
    clock = MachineClock(timers, rate)
    process_timers = ProcessTimers(timers, Process("client"), clock)
    late = []
    for delay_ms in (0, 1, 7, 99, 1_000, 12_345):
        due_ms = clock.monotonic_ms() + delay_ms
        process_timers.after_ms(delay_ms, lambda due_ms=due_ms: late.append(clock.monotonic_ms() - due_ms))  # type: ignore[misc]
        timers.advance(333)
    timers.advance(20_000)
    assert len(late) == 6
    assert all(0 <= each <= 1 for each in late)
