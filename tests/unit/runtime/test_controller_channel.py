"""The channel finds the active controller, follows it to another node, and gives up after the timeout."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import RETRY_DELAY_MS
from moldau.base.promise import Promise
from moldau.runtime.controller.channel import ControllerChannel
from moldau.runtime.internal_errors import INTERNAL_ERRORS
from moldau.runtime.own_work import OwnWork
from moldau.security.principals import Client, Principal
from moldau.server.apis import forwarded_handler
from moldau.server.handler import Caller
from moldau.server.handlers.controller.envelope import Envelope
from moldau.testing.clock import FakeTimers
from moldau.wire.apis import ApiKey
from moldau.wire.frames import request_frame
from moldau.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from moldau.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from moldau.wire.schema import Message

HERE, THERE = ("here", 1), ("there", 2)
CALLER = Caller("CONTROLLER", "1.2.3.4:5", None, 0)


class Sent:
    def __init__(self, address: tuple[str, int], purpose: str, api: ApiKey, request: Any) -> None:
        self.address, self.purpose, self.api, self.request = address, purpose, api, request
        self.answer: Promise[Any] = Promise()


class RecordingPeer:
    def __init__(self, address: tuple[str, int], purpose: str, sent: list[Sent]) -> None:
        self._address, self._purpose, self._sent = address, purpose, sent

    def ask(self, api: ApiKey, request: Message, timeout_ms: int, version: int | None = None) -> Promise[Any]:
        self._sent.append(Sent(self._address, self._purpose, api, request))
        return self._sent[-1].answer

    def close(self) -> None:
        for each in self._sent:
            if (each.address, each.purpose) == (self._address, self._purpose) and not each.answer.done:
                each.answer.complete(KafkaError(ErrorCode.NETWORK_EXCEPTION))


class ChannelHarness:
    """A channel, its view of the quorum, and the requests that it sent."""

    def __init__(self) -> None:
        self.timers = FakeTimers()
        self.sent: list[Sent] = []
        self.local_requests: list[ApiKey] = []
        self.is_leader = False
        self.address: tuple[str, int] | None = THERE
        self.faults: list[Exception] = []
        own_work = OwnWork(self.timers, self.faults.append)
        self.channel = ControllerChannel(self, self.local, self, self.timers.clock, own_work)

    def to(self, host: str, port: int, purpose: str) -> RecordingPeer:
        return RecordingPeer((host, port), purpose, self.sent)

    def leader_address(self) -> tuple[str, int] | None:
        return self.address

    def local(self, api: ApiKey, request: Message, version: int, client: Any = None) -> Promise[Any]:
        self.local_requests.append(api)
        answer: Promise[Any] = Promise()
        answer.complete(BrokerHeartbeatResponse())
        return answer

    def heartbeat(self, timeout_ms: int = 1_000) -> Promise[Any]:
        return self.channel.ask(ApiKey.BROKER_HEARTBEAT, BrokerHeartbeatRequest(), timeout_ms=timeout_ms)


@pytest.fixture
def harness() -> ChannelHarness:
    return ChannelHarness()


def test_a_local_leader_needs_no_connection(harness: ChannelHarness) -> None:
    harness.is_leader = True
    assert harness.heartbeat().done
    assert (harness.local_requests, harness.sent) == ([ApiKey.BROKER_HEARTBEAT], [])


def fail(_: object) -> None:
    raise RuntimeError("a fault of ours")


def test_a_fault_in_what_a_broker_does_with_its_own_answer_stops_it(harness: ChannelHarness) -> None:
    """The connection that brings the answer has no part in it, and the broker would send no further heartbeat."""
    harness.heartbeat().then(fail)
    harness.sent[0].answer.complete(BrokerHeartbeatResponse())
    assert [str(fault) for fault in harness.faults] == ["a fault of ours"]


@pytest.mark.parametrize("is_late", [False, True], ids=["answered", "given up"])
def test_a_fault_in_what_a_request_does_with_its_answer_concerns_that_request_alone(
    harness: ChannelHarness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    monkeypatch.setattr(INTERNAL_ERRORS, "_logged", {})
    harness.address = None if is_late else THERE
    harness.channel.forward(ApiKey.CREATE_TOPICS, CreateTopicsRequest(), 7, None, 10 * RETRY_DELAY_MS).then(fail)
    for sent in harness.sent:
        sent.answer.complete(KafkaError(ErrorCode.UNSUPPORTED_VERSION))
    harness.timers.advance(10 * RETRY_DELAY_MS)
    assert harness.faults == []
    assert "a request failed after the controller had answered" in caplog.text


def test_a_remote_leader_is_asked_over_a_connection(harness: ChannelHarness) -> None:
    answer = harness.heartbeat()
    (sent,) = harness.sent
    assert (sent.address, sent.api, answer.done) == (THERE, ApiKey.BROKER_HEARTBEAT, False)
    sent.answer.complete(BrokerHeartbeatResponse(is_fenced=False))
    assert not answer.value().is_fenced


@pytest.mark.parametrize(
    "failure",
    [
        KafkaError(ErrorCode.NETWORK_EXCEPTION),
        KafkaError(ErrorCode.REQUEST_TIMED_OUT),
        BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER),
    ],
)
def test_a_former_leader_is_given_up_for_the_new_one(harness: ChannelHarness, failure: Any) -> None:
    answer = harness.heartbeat()
    harness.address = HERE
    harness.sent[0].answer.complete(failure)
    assert not answer.done
    harness.timers.advance(RETRY_DELAY_MS)
    assert harness.sent[1].address == HERE
    harness.sent[1].answer.complete(BrokerHeartbeatResponse())
    assert answer.value().error_code == ErrorCode.NONE


def test_an_error_about_the_request_itself_is_not_retried(harness: ChannelHarness) -> None:
    answer = harness.heartbeat()
    harness.sent[0].answer.complete(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    assert answer.value().error_code == ErrorCode.STALE_BROKER_EPOCH


def test_without_a_leader_a_request_waits_until_its_timeout(harness: ChannelHarness) -> None:
    harness.address = None
    answer = harness.heartbeat(timeout_ms=1_000)
    harness.timers.advance(900)
    assert not answer.done
    harness.timers.advance(200)
    assert answer.value().code is ErrorCode.NOT_CONTROLLER
    assert not harness.sent
    assert harness.timers.pending == 0


def test_a_new_leader_gets_the_unanswered_requests_at_once(harness: ChannelHarness) -> None:
    harness.channel.leader_changed()
    answer = harness.heartbeat()
    harness.address = HERE
    harness.channel.leader_changed()
    harness.timers.advance(RETRY_DELAY_MS)
    assert [each.address for each in harness.sent] == [THERE, HERE]
    harness.sent[1].answer.complete(BrokerHeartbeatResponse())
    assert answer.done


def test_without_a_known_leader_the_old_one_may_still_respond(harness: ChannelHarness) -> None:
    harness.channel.leader_changed()
    answer = harness.heartbeat()
    harness.address = None
    harness.channel.leader_changed()
    harness.address = THERE
    harness.channel.leader_changed()
    harness.timers.advance(RETRY_DELAY_MS)
    assert len(harness.sent) == 1
    harness.sent[0].answer.complete(BrokerHeartbeatResponse())
    assert answer.done


# --- envelopes ----------------------------------------------------------------------------------------------------

ANN = Client(Principal("User", "ann", by_token=True), "app")
ASK = CreateTopicsRequest([CreatableTopic("a", 3, 2)])


def opened(
    envelope: EnvelopeRequest, given: Any
) -> tuple[EnvelopeResponse, list[tuple[ApiKey, Any, int, Client | None]]]:
    """Return the envelope's response when the other side's controller responds with `given`."""
    seen: list[tuple[ApiKey, Any, int, Client | None]] = []

    def ask(api: ApiKey, request: Message, version: int, client: Client | None = None) -> Promise[Any]:
        seen.append((api, request, version, client))
        answer: Promise[Any] = Promise()
        answer.complete(given)
        return answer

    answered = Envelope(ask, forwarded_handler).answer(envelope, CALLER)
    return (answered.value() if isinstance(answered, Promise) else answered), seen


def test_a_clients_request_is_forwarded_unchanged(harness: ChannelHarness) -> None:
    answer = harness.channel.forward(ApiKey.CREATE_TOPICS, ASK, 5, ANN)
    (sent,) = harness.sent
    assert (sent.api, sent.purpose) == (ApiKey.ENVELOPE, "forward")
    made = CreateTopicsResponse(topics=[CreatableTopicResult("a", num_partitions=3, replication_factor=2)])
    response, seen = opened(sent.request, made)
    assert [(api, request.topics[0].name, version, who) for api, request, version, who in seen] == [
        (ApiKey.CREATE_TOPICS, "a", 5, ANN)
    ]
    sent.answer.complete(response)
    assert answer.value().topics[0].num_partitions == 3


def test_a_refused_envelope_is_sent_again(harness: ChannelHarness) -> None:
    answer = harness.channel.forward(ApiKey.CREATE_TOPICS, ASK, 7)
    response, _ = opened(harness.sent[0].request, KafkaError(ErrorCode.NOT_CONTROLLER))
    assert response.error_code == ErrorCode.NOT_CONTROLLER
    harness.sent[0].answer.complete(response)
    harness.timers.advance(RETRY_DELAY_MS)
    assert len(harness.sent) == 2
    assert not answer.done


def test_a_broker_without_cluster_action_does_not_blame_the_client(harness: ChannelHarness) -> None:
    answer = harness.channel.forward(ApiKey.CREATE_TOPICS, ASK, 7)
    harness.sent[0].answer.complete(EnvelopeResponse(None, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    error = answer.value()
    assert (error.code, "CLUSTER_ACTION" in error.message) == (ErrorCode.UNKNOWN_SERVER_ERROR, True)


def test_an_unreadable_response_is_an_unknown_server_error(harness: ChannelHarness) -> None:
    answer = harness.channel.forward(ApiKey.CREATE_TOPICS, ASK, 7)
    harness.sent[0].answer.complete(EnvelopeResponse(b"\0\0\0\0\0\xff\xff"))
    assert answer.value().code is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", ErrorCode.INVALID_REQUEST),
        (b"\0\x13\0\x07\0\0\0\0\xff\xff\0", ErrorCode.INVALID_REQUEST),
        (b"\0\x13\0\x63\0\0\0\0\xff\xff\0", ErrorCode.UNSUPPORTED_VERSION),
        (b"\0\0\0\x09\0\0\0\0\xff\xff\0", ErrorCode.UNSUPPORTED_VERSION),
        (b"\x7f\xff\0\0\0\0\0\0\xff\xff", ErrorCode.UNSUPPORTED_VERSION),
    ],
    ids=["empty", "truncated body", "unknown version", "produce request", "unknown API key"],
)
def test_an_envelope_may_contain_only_forwarded_apis(data: bytes, code: ErrorCode) -> None:
    response, seen = opened(EnvelopeRequest(data, None), CreateTopicsResponse())
    assert (response.error_code, response.response_data, seen) == (code, None, [])


def enveloped(principal: bytes | None) -> EnvelopeRequest:
    return EnvelopeRequest(bytes(request_frame(ApiKey.CREATE_TOPICS, 7, 0, "app", ASK))[4:], principal)


def test_the_envelope_of_a_broker_itself_or_of_an_earlier_release_has_no_client() -> None:
    _, seen = opened(enveloped(None), CreateTopicsResponse())
    assert [client for *_, client in seen] == [None]


@pytest.mark.parametrize(
    "principal",
    [
        b"",
        b"\0",
        b"\0\0",
        b"\0\1\5User\4ann\0\0",
        b"\0\0\5User\4a",
        b"\0\0\1\4ann\0\0",
        b"\0\0\5User\1\0\0",
        b"\xff" * 40,
    ],
)
def test_an_unreadable_principal_is_refused(principal: bytes) -> None:
    response, seen = opened(enveloped(principal), CreateTopicsResponse())
    assert (response.error_code, seen) == (ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, [])


def test_an_envelope_carries_the_client_in_kafkas_format(harness: ChannelHarness) -> None:
    harness.channel.forward(ApiKey.CREATE_TOPICS, ASK, 7, ANN)
    harness.channel.create_topics(ASK)
    assert harness.sent[0].request.request_principal == b"\0\0\5User\4ann\1\0"
    assert [opened(each.request, CreateTopicsResponse())[1][0][3] for each in harness.sent] == [ANN, None]
