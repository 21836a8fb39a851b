"""The router: which requests are served, which close the connection, and how exceptions of handlers are reported."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from harness.in_memory_node import InMemoryNode

from moldau.base.counters import REQUESTS_FAILED, Counters
from moldau.base.errors import ErrorCode, KafkaError, MalformedData, StorageFault
from moldau.base.loop_watch import LOOP_WATCH
from moldau.base.promise import Promise
from moldau.security.acls.access import UNRESTRICTED
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.forwarded.create_topics import CreateTopics
from moldau.server.router import KNOWN_MAX, TIMED_EVERY, Router
from moldau.testing.ports import at_once
from moldau.wire.apis import ApiKey
from moldau.wire.codec import NO_REPLY, Outgoing
from moldau.wire.frames import read_response, request_frame
from moldau.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from moldau.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.wire.schema import Message


class ScriptedHandler(Handler):
    """A handler whose answer the test supplies."""

    def __init__(self, api: ApiKey, versions: tuple[int, int], answer: Callable[[Any, Caller], Any]) -> None:
        self.api = api
        self.versions = versions
        self._answer = answer
        self.callers: list[Caller] = []

    def answer(self, request: Any, caller: Caller) -> Any:
        self.callers.append(caller)
        return self._answer(request, caller)


def route(
    handler: ScriptedHandler, key: int, version: int, request: Message, tail: bytes = b"", header: bytes = b""
) -> Any:
    router = Router()
    router.serve([handler])
    frame = header or bytes(request_frame(key, version, 77, "me", request))[4:]
    return router.answer("PLAINTEXT", "1.2.3.4:5", UNRESTRICTED, memoryview(bytearray(frame + tail)))


def heartbeats(answer: Callable[[Any, Caller], Any], versions: tuple[int, int] = (0, 4)) -> ScriptedHandler:
    return ScriptedHandler(ApiKey.HEARTBEAT, versions, answer)


def echo(request: HeartbeatRequest, caller: Caller) -> HeartbeatResponse:
    return HeartbeatResponse(throttle_time_ms=request.generation_id, error_code=caller.version)


HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=5, member_id="m")


@pytest.mark.parametrize("version", [1, 3, 4])
def test_a_reply_carries_the_correlation_id_and_the_version(version: int) -> None:
    handler = heartbeats(echo)
    reply = route(handler, ApiKey.HEARTBEAT, version, HEARTBEAT)
    assert int.from_bytes(reply[:4], "big") == len(reply) - 4
    correlation_id, body = read_response(HeartbeatResponse, reply[4:], ApiKey.HEARTBEAT, version)
    assert (correlation_id, body.throttle_time_ms, body.error_code) == (77, 5, version)
    assert handler.callers == [Caller("PLAINTEXT", "1.2.3.4:5", "me", version)]


def test_a_connection_may_change_its_client_id_and_version() -> None:
    router, handler = Router(), heartbeats(echo)
    router.serve([handler])
    requests = router.for_connection("PLAINTEXT", "1.2.3.4:5", UNRESTRICTED)
    sent = [("me", 3), ("me", 3), ("you", 3), (None, 3), ("", 4), ("longer", 4), ("me", 3)]
    for number, (client_id, version) in enumerate(sent):
        frame = request_frame(ApiKey.HEARTBEAT, version, number, client_id, HEARTBEAT)
        reply = requests.answer(memoryview(frame)[4:])
        assert isinstance(reply, Outgoing)
        assert read_response(HeartbeatResponse, reply[4:], ApiKey.HEARTBEAT, version)[0] == number
    assert [(caller.client_id, caller.version) for caller in handler.callers] == sent
    assert handler.callers[0] is handler.callers[1], "a repeated header is decoded once"
    with pytest.raises(MalformedData, match="cut short"):
        requests.answer(memoryview(frame)[4:13])


def test_a_connection_caches_a_bounded_number_of_versions() -> None:
    router, handler = Router(), heartbeats(echo)
    router.serve([handler])
    requests = router.for_connection("PLAINTEXT", "1.2.3.4:5", UNRESTRICTED)
    for version in range(5):
        for key in range(KNOWN_MAX):
            requests._known[1000 + key, version] = None  # type: ignore[assignment]
        requests.answer(memoryview(request_frame(ApiKey.HEARTBEAT, version, 1, "me", HEARTBEAT))[4:])
        assert len(requests._known) == 1


def test_a_connection_does_not_cache_long_client_ids() -> None:
    router, handler = Router(), heartbeats(echo)
    router.serve([handler])
    requests = router.for_connection("PLAINTEXT", "1.2.3.4:5", UNRESTRICTED)
    for _ in range(2):
        frame = request_frame(ApiKey.HEARTBEAT, 3, 1, "x" * 32_000, HEARTBEAT)
        assert isinstance(requests.answer(memoryview(frame)[4:]), Outgoing)
    assert [caller.client_id for caller in handler.callers] == ["x" * 32_000] * 2
    assert not requests._known


def test_a_late_reply_is_encoded_when_its_promise_completes() -> None:
    later: Promise[HeartbeatResponse] = Promise()
    reply = route(heartbeats(lambda *_: later), ApiKey.HEARTBEAT, 4, HEARTBEAT)
    assert isinstance(reply, Promise)
    assert not reply.done
    later.complete(HeartbeatResponse(error_code=27))
    framed = reply.value()
    assert isinstance(framed, Outgoing)
    correlation_id, body = read_response(HeartbeatResponse, framed[4:], ApiKey.HEARTBEAT, 4)
    assert (correlation_id, body.error_code) == (77, 27)


def test_requests_are_counted_and_some_are_timed() -> None:
    router = Router()
    late: Promise[HeartbeatResponse] = Promise()
    router.serve([heartbeats(lambda request, _: late if request.generation_id == 1 else HeartbeatResponse())])

    def ask(generation_id: int) -> Any:
        request = HeartbeatRequest(generation_id=generation_id)
        frame = bytes(request_frame(ApiKey.HEARTBEAT, 4, 77, "me", request))[4:]
        return router.answer("PLAINTEXT", "1.2.3.4:5", UNRESTRICTED, memoryview(bytearray(frame)))

    ask(1)
    (counts,) = router.counts()
    assert (counts.key, counts.version, counts.requests, counts.timed) == (ApiKey.HEARTBEAT, 4, 1, 1)
    assert counts.total_s == 0 < counts.local_s  # the response still waits
    late.complete(HeartbeatResponse())
    assert counts.total_s >= counts.local_s
    for _ in range(TIMED_EVERY):
        ask(2)
    assert (counts.requests, counts.timed, counts.failures) == (1 + TIMED_EVERY, 2, 0)
    frame = bytes(request_frame(ApiKey.HEARTBEAT, 4, 77, "me", HeartbeatRequest()))[4:-8]
    with pytest.raises(MalformedData):
        router.answer("PLAINTEXT", "1.2.3.4:5", UNRESTRICTED, memoryview(bytearray(frame)))
    assert counts.failures == 1


def heartbeat_without_group() -> bytes:
    """Return a request whose group id is null, which the decoder refuses."""
    frame = bytes(request_frame(ApiKey.HEARTBEAT, 4, 77, "me", HEARTBEAT))[4:]
    assert frame.count(b"\2g") == 1
    return frame.replace(b"\2g", b"\0")


@pytest.mark.parametrize("decoded_on_loop_bytes", [0, 1000])
@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (bytes(request_frame(ApiKey.HEARTBEAT, 4, 77, "me", HEARTBEAT))[4:-4], "cut short"),
        (heartbeat_without_group(), "group_id is null"),
        (bytes(request_frame(ApiKey.HEARTBEAT, 4, 77, "me", HEARTBEAT))[4:] + bytes(1000), "the limit is 100"),
    ],
    ids=["cut short", "null group id", "too long"],
)
def test_a_refused_request_is_counted_as_a_failure_of_its_api(
    monkeypatch: pytest.MonkeyPatch, decoded_on_loop_bytes: int, frame: bytes, message: str
) -> None:
    monkeypatch.setattr(ScriptedHandler, "decoded_on_loop_bytes", decoded_on_loop_bytes)
    monkeypatch.setattr(ScriptedHandler, "request_bytes_max", 100)
    monkeypatch.setattr(LOOP_WATCH, "api", "Metadata")
    router = Router(run_in_thread=at_once)
    router.serve([heartbeats(echo)])
    try:
        reply = router.answer("PLAINTEXT", "1.2.3.4:5", UNRESTRICTED, memoryview(bytearray(frame)))
    except MalformedData as error:
        refusal = str(error)
    else:
        assert isinstance(reply, Promise)
        refusal = reply.value().refusal
    assert message in refusal
    (counts,) = router.counts()
    assert (counts.requests, counts.failures) == (0, 1)
    assert LOOP_WATCH.api == "Heartbeat", "a slow call is attributed to this request"


def test_a_handler_without_a_response_sends_no_bytes() -> None:
    assert route(heartbeats(lambda *_: NO_REPLY), ApiKey.HEARTBEAT, 4, HEARTBEAT) is NO_REPLY


@pytest.mark.parametrize("version", [-1, 0, 3, 5, 32767])
def test_versions_outside_the_handlers_range_close_the_connection(version: int) -> None:
    frame = bytearray(request_frame(ApiKey.HEARTBEAT, 4, 77, "me", HEARTBEAT)[4:])
    frame[2:4] = version.to_bytes(2, "big", signed=True)
    handler = heartbeats(echo, (1, 2))
    with pytest.raises(MalformedData, match="not served"):
        route(handler, 0, 0, HEARTBEAT, header=bytes(frame))
    assert not handler.callers


def test_unknown_api_keys_close_the_connection() -> None:
    for key in (ApiKey.PRODUCE, 9999, -1):
        with pytest.raises(MalformedData, match=f"{int(key)} is not served"):
            route(heartbeats(echo), 0, 0, HEARTBEAT, header=int(key).to_bytes(2, "big", signed=True) + bytes(8))


@pytest.mark.parametrize("version", [5, 99, -1])
def test_api_versions_answers_unknown_versions_in_version_0(version: int) -> None:
    def answer(request: ApiVersionsRequest, caller: Caller) -> ApiVersionsResponse:
        assert caller.version == version
        return ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, [ApiVersion(18, 0, 4)])

    header = (18).to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + (77).to_bytes(4, "big") + b"\xff\xff"
    tail = (b"\0" if version >= 0 else b"") + b"fields of a later version"

    class AnyVersion(ScriptedHandler):
        answers_unknown_versions = True

    handler = AnyVersion(ApiKey.API_VERSIONS, (0, 4), answer)
    reply = route(handler, 0, 0, HEARTBEAT, header=header, tail=tail)
    correlation_id, body = read_response(ApiVersionsResponse, reply[4:], ApiKey.API_VERSIONS, 0)
    assert (correlation_id, body.error_code) == (77, ErrorCode.UNSUPPORTED_VERSION)


def test_extra_bytes_after_a_request_are_ignored_and_missing_bytes_are_an_error() -> None:
    assert route(heartbeats(echo), ApiKey.HEARTBEAT, 4, HEARTBEAT, tail=b"more") is not None
    whole = bytes(request_frame(ApiKey.HEARTBEAT, 4, 77, "me", HEARTBEAT))[4:]
    for size in range(1, len(whole)):
        with pytest.raises(MalformedData):
            route(heartbeats(echo), 0, 0, HEARTBEAT, header=whole[:size])


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (MalformedData("no sense"), "HEARTBEAT: no sense"),
        (StorageFault("/data", OSError(28, "No space left")), "No space left"),
        (KafkaError(ErrorCode.INVALID_CONFIG, "forgotten"), "failed here"),
        (ZeroDivisionError("oops"), "failed here"),
        (AssertionError("ours"), "failed here"),
    ],
)
def test_an_exception_of_a_handler_closes_only_its_connection(
    fault: Exception, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(*_: object) -> None:
        raise fault

    with caplog.at_level(logging.ERROR), pytest.raises(MalformedData, match="(?i)" + message):
        route(heartbeats(answer), ApiKey.HEARTBEAT, 4, HEARTBEAT)
    assert bool(caplog.records) == ("failed here" in message), (
        "only the broker's own faults are logged with their traceback"
    )


def test_a_reply_that_cannot_be_encoded_closes_only_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    """A late one must not raise in the code that completes it, which may be serving other clients."""
    with pytest.raises(MalformedData, match="failed here"):
        route(heartbeats(lambda *_: HeartbeatResponse(error_code=1 << 20)), ApiKey.HEARTBEAT, 4, HEARTBEAT)
    later: Promise[HeartbeatResponse] = Promise()
    reply = route(heartbeats(lambda *_: later), ApiKey.HEARTBEAT, 4, HEARTBEAT)
    later.complete(HeartbeatResponse(error_code=1 << 20))
    assert reply.value() == Outgoing()
    assert len(caplog.records) == 2


def test_a_late_reply_that_cannot_be_encoded_is_counted_as_a_failure() -> None:
    router, later = Router(), Promise[HeartbeatResponse]()
    router.serve([heartbeats(lambda *_: later)])
    router.answer("", "", UNRESTRICTED, memoryview(request_frame(ApiKey.HEARTBEAT, 4, 77, "me", HEARTBEAT))[4:])
    later.complete(HeartbeatResponse(error_code=1 << 20))
    assert [counts.failures for counts in router.counts()] == [1]


def test_a_handler_exception_that_repeats_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def answer(*_: object) -> None:
        raise ZeroDivisionError

    counters = Counters()
    router = Router(counters=counters)
    router.serve([heartbeats(answer)])
    frame = bytes(request_frame(ApiKey.HEARTBEAT, 4, 77, "me", HEARTBEAT))[4:]
    for _ in range(500):
        with pytest.raises(MalformedData, match="failed here"):
            router.answer("PLAINTEXT", "1.2.3.4:5", UNRESTRICTED, memoryview(bytearray(frame)))
    assert len(caplog.records) == 1
    assert counters[REQUESTS_FAILED] == 500


@pytest.mark.parametrize("version", [2, 4, 5, 7])
def test_an_error_message_that_quotes_a_very_long_name_can_be_encoded(version: int) -> None:
    node = InMemoryNode().start()
    create = CreateTopics(
        lambda api, request, version, client=None: node.ask_controller(api, request), node.timers, lambda: None
    )
    configs = [CreatableTopicConfig("y" * 32_767, "1"), CreatableTopicConfig("retention.ms", "z" * 32_767)]
    topics = [
        CreatableTopic("x" * 32_767, 1, 1),
        *(CreatableTopic(f"t{n}", 1, 1, (), [c]) for n, c in enumerate(configs)),
    ]
    router = Router()
    router.serve([create])
    frame = request_frame(
        ApiKey.CREATE_TOPICS, version, 77, "me", CreateTopicsRequest([CreatableTopic("fine", 1, 1), *topics])
    )
    reply = router.answer("PLAINTEXT", "1.2.3.4:5", UNRESTRICTED, memoryview(frame)[4:])
    other = node.allocate_producer_ids()
    node.flush()
    assert other.done, "other requests are not blocked"
    assert isinstance(reply, Promise)
    _, body = read_response(CreateTopicsResponse, reply.value()[4:], ApiKey.CREATE_TOPICS, version)
    assert [each.error_code for each in body.topics] == [0, 17, 40, 40]
    assert all(len(each.error_message or "") <= 1000 for each in body.topics)


def test_a_handler_with_versions_that_do_not_exist_is_rejected() -> None:
    for versions in [(-1, 4), (0, 5)]:
        with pytest.raises(AssertionError):
            Router().serve([heartbeats(echo, versions)])


def test_served_apis_are_listed_in_order() -> None:
    router = Router()
    router.serve([heartbeats(echo, (1, 3)), ScriptedHandler(ApiKey.PRODUCE, (3, 5), echo)])
    assert router.served() == {0: (3, 5), 12: (1, 3)}
