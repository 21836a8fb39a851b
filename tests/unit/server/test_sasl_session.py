"""The session of a connection on a SASL listener, with a conversation but without a socket, in virtual time."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_conversation import frame

from moldau.base.connection_settings import ConnectionLimits
from moldau.base.errors import ErrorCode, MalformedData
from moldau.base.limits import AUTHENTICATION_MS_MAX
from moldau.base.limits import UNAUTHENTICATED_BUDGET_BYTES as STRANGERS_BYTES
from moldau.base.promise import Promise
from moldau.metadata.current import CurrentImage
from moldau.security.acls.access import Unrestricted
from moldau.security.principals import Principal
from moldau.security.sasl.client import ClientLogin
from moldau.security.sasl.exchange import Mechanism
from moldau.security.sasl.oauthbearer.messages import client_first
from moldau.security.sasl.oauthbearer.server import AccessToken, OAuthBearerServer, TokenRefused, Verdict
from moldau.security.sasl.plain import PlainServer
from moldau.security.sasl.scram import Credentials, ScramServer, ScramUsers
from moldau.security.sasl.scram_messages import ScramKeys
from moldau.security.scram_credentials import ScramMechanism
from moldau.server.conversation import ConnectionBudget, Conversation
from moldau.server.handlers.api_versions import ApiVersions
from moldau.server.handlers.sasl import SaslAuthenticate, SaslHandshake
from moldau.server.router import Caller, Router
from moldau.server.sasl_session import SaslServer, SaslSession
from moldau.testing.clock import FakeTimers
from moldau.testing.ports import at_once
from moldau.wire.apis import ApiKey, response_class
from moldau.wire.frames import read_response, request_frame
from moldau.wire.messages.api_versions import ApiVersionsRequest
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from moldau.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from moldau.wire.schema import Message

BUDGET_BYTES = 1 << 20
RECEIVE_BYTES_MAX = 2000
DELAY_MS = 100
LIFETIME_MS = 60_000
PLAIN_TOKEN = b"\0ann\0secret"
SHA_256 = ScramMechanism.SCRAM_SHA_256


@cache
def stored_credentials() -> Credentials:
    """Return what the server knows of ann's password. It takes thousands of hashes."""
    keys = ScramKeys(SHA_256)
    return {(int(SHA_256), "ann"): keys.credential(keys.salted_password("secret", b"salt", 4096), b"salt", 4096)}


class WhoAmI:
    """Answers a heartbeat; the test reads who asked."""

    api = ApiKey.HEARTBEAT
    versions = (0, 4)

    def __init__(self) -> None:
        self.callers: list[str] = []

    def answer(self, request: HeartbeatRequest, caller: Caller) -> HeartbeatResponse:
        self.callers.append(str(caller.access.principal))
        return HeartbeatResponse()


class Line:
    """One connection: what it receives, and what has been sent to it."""

    def __init__(
        self, lifetime_ms: int = 0, budget: ConnectionBudget | None = None, receive_bytes_max: int = RECEIVE_BYTES_MAX
    ) -> None:
        self.timers = FakeTimers()
        self.verdict: Promise[Verdict] = Promise()
        """On the token of OAUTHBEARER."""
        self.who = WhoAmI()
        router = Router(run_in_thread=at_once)
        router.serve(
            [self.who, ApiVersions(CurrentImage(), router.served, lambda: 1), SaslHandshake(), SaslAuthenticate()]
        )
        users = ScramUsers(SHA_256, stored_credentials, bytes)
        mechanisms = {
            "PLAIN": Mechanism(lambda: PlainServer({"ann": "secret", "bob": "secret"}), lifetime_ms),
            "SCRAM-SHA-256": Mechanism(lambda: ScramServer(users, lambda: "server"), lifetime_ms),
            "OAUTHBEARER": Mechanism(lambda: OAuthBearerServer(lambda _: self.verdict), lifetime_ms),
        }
        server = SaslServer(mechanisms, receive_bytes_max, DELAY_MS, self.timers.clock, self.timers)
        self.accesses: list[Unrestricted] = []
        self.session = SaslSession(server, router, "SASL_PLAINTEXT", "client:1", 1 << 20, self._access)
        self.budget = budget or ConnectionBudget(BUDGET_BYTES)
        self.conversation = Conversation(self.session, lambda: None, 1 << 20, self.budget)
        self.is_reading = True
        self.closed: str | None = None
        self.sent: list[bytes] = []
        self.session.begin(self)

    def _access(self, principal: Principal) -> Unrestricted:
        self.accesses.append(Unrestricted(principal))
        return self.accesses[-1]

    def limit_frames(self, bytes_max: int, trusted_bytes: int, is_stranger: bool) -> None:
        self.conversation.limit_frames(bytes_max, trusted_bytes, is_stranger)

    def stop_reading(self) -> None:
        self.is_reading = False

    def close(self, reason: str = "", closed_by: str = "") -> None:
        self._collect()
        self.conversation.close()
        if self.closed is None:
            self.closed = reason
            self.session.end()

    def _collect(self) -> None:
        while (reply := self.conversation.next_reply()) is not None:
            self.sent.append(bytes(reply))

    def feed(self, data: bytes) -> None:
        if self.closed is not None or not self.is_reading:
            return
        try:
            self.conversation.feed(memoryview(bytearray(data)))
        except MalformedData as error:
            self.close(str(error))
        self._collect()

    def send(self, api: ApiKey, request: Message, version: int) -> None:
        self.feed(bytes(request_frame(api, version, 1, "c", request)))

    def ask(self, api: ApiKey, request: Message, version: int) -> Message | None:
        """Return the response, or None if there is none yet."""
        self.sent.clear()
        self.send(api, request, version)
        return self.response(api, version)

    def response(self, api: ApiKey, version: int) -> Message | None:
        return read_response(response_class(api), self.sent.pop()[4:], api, version)[1] if self.sent else None

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> SaslHandshakeResponse:
        response = self.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism), version)
        assert isinstance(response, SaslHandshakeResponse)
        return response

    def token(self, token: bytes = PLAIN_TOKEN, version: int = 2) -> SaslAuthenticateResponse | None:
        response = self.ask(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(token), version)
        assert response is None or isinstance(response, SaslAuthenticateResponse)
        return response

    def heartbeat(self) -> bool:
        """Return whether an ordinary request is served."""
        return self.ask(ApiKey.HEARTBEAT, HeartbeatRequest("g", 1, "m"), 4) is not None

    def versions(self, version: int = 3, name: str = "test") -> int | None:
        response = self.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(name, "1"), version)
        return None if response is None else getattr(response, "error_code", None)

    def log_in(self) -> None:
        self.handshake()
        assert self.token() is not None


def test_an_authenticated_client_is_served_as_its_principal() -> None:
    line = Line()
    assert line.versions() == 0
    handshake = line.handshake()
    assert (handshake.error_code, handshake.mechanisms) == (0, ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
    answer = line.token()
    assert answer is not None
    assert (answer.error_code, answer.error_message, answer.auth_bytes) == (0, "", b"")
    assert answer.session_lifetime_ms == 0
    assert line.heartbeat()
    assert line.who.callers == ["User:ann"]
    assert line.versions() == 0
    assert line.timers.pending == 0


def test_scram_needs_two_steps() -> None:
    line = Line()
    client = ClientLogin("SCRAM-SHA-256", "ann", "secret").begin("me")
    line.handshake("SCRAM-SHA-256")
    first = line.token(client.first())
    assert first is not None
    assert not line.who.callers
    final = line.token(client.respond(first.auth_bytes) or b"")
    assert final is not None
    assert client.respond(final.auth_bytes) is None
    assert line.heartbeat()


def test_raw_tokens_after_handshake_version_0() -> None:
    line = Line()
    line.handshake(version=0)
    line.feed(frame(PLAIN_TOKEN))
    assert line.sent == [bytes(4)]
    assert line.heartbeat()


def test_a_refused_raw_token_is_not_answered() -> None:
    line = Line()
    line.handshake(version=0)
    line.sent.clear()
    line.feed(frame(b"\0ann\0wrong"))
    line.timers.advance(DELAY_MS)
    assert not line.sent
    assert line.closed == "authentication failed: Authentication failed: Invalid username or password"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_refused_client_gets_its_answer_after_the_delay(version: int) -> None:
    line = Line()
    line.handshake()
    assert line.token(b"\0ann\0wrong", version) is None
    assert not line.is_reading
    line.timers.advance(DELAY_MS - 1)
    assert line.closed is None
    assert not line.sent
    line.timers.advance(1)
    answer = line.response(ApiKey.SASL_AUTHENTICATE, version)
    assert isinstance(answer, SaslAuthenticateResponse)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert line.closed is not None
    assert line.timers.pending == 0


def test_requests_behind_a_refused_token_are_dropped() -> None:
    line = Line()
    line.handshake()
    wrong = request_frame(ApiKey.SASL_AUTHENTICATE, 2, 2, "c", SaslAuthenticateRequest(b"\0ann\0wrong"))
    right = request_frame(ApiKey.SASL_AUTHENTICATE, 2, 3, "c", SaslAuthenticateRequest(PLAIN_TOKEN))
    beat = request_frame(ApiKey.HEARTBEAT, 4, 4, "c", HeartbeatRequest("g", 1, "m"))
    line.sent.clear()
    line.feed(bytes(wrong + right + beat))
    line.timers.advance(DELAY_MS)
    assert len(line.sent) == 1
    assert not line.who.callers


def test_an_unknown_mechanism_is_answered_after_the_delay() -> None:
    line = Line()
    assert line.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("GSSAPI"), 1) is None
    line.timers.advance(DELAY_MS)
    answer = line.response(ApiKey.SASL_HANDSHAKE, 1)
    assert isinstance(answer, SaslHandshakeResponse)
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"]
    assert line.closed is not None


def test_requests_before_authentication_close_the_connection() -> None:
    line = Line()
    assert not line.heartbeat()
    assert line.closed is not None
    assert line.closed.startswith("Heartbeat before authentication")
    early = Line()
    assert early.token() is None
    assert early.closed is not None


def test_requests_between_handshake_and_token_close_the_connection() -> None:
    line = Line()
    line.handshake()
    assert not line.heartbeat()
    line.timers.advance(DELAY_MS)
    assert line.closed == "authentication failed: Heartbeat during the authentication"
    assert not line.sent
    assert not line.who.callers


def test_versions_are_answered_once_also_to_a_large_request_that_a_thread_decodes() -> None:
    line = Line(receive_bytes_max=1 << 19)
    large = ApiVersionsRequest("n" * 30_000, "v" * 30_000)
    assert line.ask(ApiKey.API_VERSIONS, large, 3) is not None
    assert line.ask(ApiKey.API_VERSIONS, large, 3) is None
    assert line.closed is not None
    assert "ApiVersions before authentication" in line.closed


def test_versions_are_answered_once() -> None:
    line = Line()
    assert line.versions(version=0) == 0
    assert line.versions() is None
    assert line.closed is not None


def test_versions_are_answered_again_after_an_error() -> None:
    line = Line()
    assert line.versions(name="not valid") == ErrorCode.INVALID_REQUEST
    unknown = bytes(request_frame(ApiKey.API_VERSIONS, 3, 1, "c", ApiVersionsRequest("a", "1")))
    line.feed(unknown[:6] + b"\0\x63" + unknown[8:])
    assert line.sent.pop()[8:10] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
    assert line.versions() == 0
    line.log_in()


@pytest.mark.parametrize("api", [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE])
def test_unknown_versions_close_the_connection(api: ApiKey) -> None:
    line = Line()
    line.handshake()
    line.feed(frame(api.to_bytes(2, "big") + b"\0\x09" + bytes(40)))
    assert line.closed is not None


def test_sasl_requests_after_success_are_errors() -> None:
    line = Line()
    line.log_in()
    again = line.token()
    assert again is not None
    assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert again.error_message == "SaslAuthenticate request received after successful authentication"
    handshake = line.handshake()
    assert (handshake.error_code, handshake.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    assert line.heartbeat()


def test_a_refused_client_is_known_by_mechanism_and_name_but_not_by_password() -> None:
    line = Line()
    line.handshake("PLAIN")
    line.token(b"\0eve\0planted")
    assert line.session.tried == ("PLAIN", "eve")
    line = Line()
    line.handshake("PLAIN")
    line.token(b"planted")
    assert line.session.tried == ("PLAIN", ""), "which part would be the password?"
    line = Line()
    line.handshake("SCRAM-SHA-256")
    client = ClientLogin("SCRAM-SHA-256", "eve", "planted").begin("me")
    first = line.token(client.first())
    assert first is not None
    line.token(client.respond(first.auth_bytes) or b"")
    assert line.session.tried == ("SCRAM-SHA-256", "eve")
    line = Line()
    line.send(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("MADE-UP"), 1)
    assert line.session.tried == ("", "")


def test_a_large_frame_is_refused_before_it_has_arrived_and_allowed_afterwards() -> None:
    line = Line()
    line.feed((RECEIVE_BYTES_MAX + 1).to_bytes(4, "big"))
    assert line.closed == f"a frame of {RECEIVE_BYTES_MAX + 1} bytes; the limit is {RECEIVE_BYTES_MAX}"
    late = Line()
    late.log_in()
    late.feed((RECEIVE_BYTES_MAX + 1).to_bytes(4, "big"))
    assert late.closed is None


def test_a_claimed_size_costs_no_memory_before_authentication() -> None:
    line = Line()
    line.session._server = SaslServer({}, 500_000, 0, line.timers.clock, line.timers)
    line.limit_frames(500_000, 1024, is_stranger=True)
    line.feed((500_000).to_bytes(4, "big") + b"x")
    assert STRANGERS_BYTES - line.budget.of_strangers.free <= 1024


def test_strangers_use_up_only_their_own_memory_and_users_go_on() -> None:
    budget = ConnectionBudget(BUDGET_BYTES, ConnectionLimits(unauthenticated_budget_bytes=3 * RECEIVE_BYTES_MAX))
    user = Line(budget=budget)
    user.log_in()
    half = (RECEIVE_BYTES_MAX).to_bytes(4, "big") + b"x" * (RECEIVE_BYTES_MAX - 8)
    crowd = [Line(budget=budget) for _ in range(20)]
    for each in crowd:
        each.feed(half)
    assert [each.closed for each in crowd].count(None) == 2
    assert crowd[-1].closed == "the memory for requests of clients that have not authenticated is used up"
    assert budget.free == BUDGET_BYTES, "the memory of users is untouched"
    late = Line(budget=budget)
    late.log_in()
    assert late.heartbeat(), "a login that arrives whole needs no memory"
    frame_of_user = bytes(request_frame(ApiKey.HEARTBEAT, 4, 1, "c", HeartbeatRequest("g", 1, "m" * 2000)))
    user.feed(frame_of_user[:1000])
    assert budget.free < BUDGET_BYTES
    user.feed(frame_of_user[1000:])
    assert user.closed is None
    for each in crowd:
        each.close()
    assert (budget.free, budget.of_strangers.free) == (BUDGET_BYTES, 3 * RECEIVE_BYTES_MAX)


def test_the_memory_of_a_half_frame_moves_to_the_users_with_its_client() -> None:
    line = Line()
    line.handshake("OAUTHBEARER")
    line.send(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(FIRST), 1)
    line.feed((100).to_bytes(4, "big") + b"half")
    assert line.budget.of_strangers.free < STRANGERS_BYTES
    assert line.budget.free == BUDGET_BYTES
    line.verdict.complete(AccessToken("ann", 60_000))
    assert line.budget.of_strangers.free == STRANGERS_BYTES
    assert line.budget.free < BUDGET_BYTES
    line.close()
    assert (line.budget.free, line.budget.of_strangers.free) == (BUDGET_BYTES, STRANGERS_BYTES)


def test_who_authenticates_again_is_no_stranger() -> None:
    line = Line(LIFETIME_MS)
    line.log_in()
    line.handshake()
    line.feed((100).to_bytes(4, "big") + b"half")
    assert line.budget.of_strangers.free == STRANGERS_BYTES


def test_the_time_is_limited_however_slowly_a_client_sends() -> None:
    line = Line()
    data = bytes(request_frame(ApiKey.SASL_HANDSHAKE, 1, 1, "c", SaslHandshakeRequest("x" * 500)))
    for number in range(AUTHENTICATION_MS_MAX // 1000):
        assert line.closed is None
        line.feed(data[number : number + 1])
        line.timers.advance(1000)
    assert line.closed == f"it did not authenticate within {AUTHENTICATION_MS_MAX} ms"


def test_an_authenticated_client_may_be_idle() -> None:
    line = Line()
    line.log_in()
    line.timers.advance(10 * AUTHENTICATION_MS_MAX)
    assert line.heartbeat()


def test_a_closed_connection_leaves_no_timer() -> None:
    line = Line()
    line.close()
    assert line.timers.pending == 0


def test_a_session_with_a_lifetime_is_renewed_with_a_new_access() -> None:
    line = Line(LIFETIME_MS)
    line.handshake()
    answer = line.token()
    assert answer is not None
    assert answer.session_lifetime_ms == LIFETIME_MS
    line.timers.advance(LIFETIME_MS - 1)
    assert line.heartbeat()
    assert line.handshake().error_code == 0
    assert line.token() is not None
    assert len(line.accesses) == 3
    line.timers.advance(LIFETIME_MS - 1)
    assert line.heartbeat()
    line.timers.advance(1)
    assert not line.heartbeat()
    assert line.closed is not None
    assert "expired" in line.closed
    assert line.who.callers == ["User:ann"] * 2


def test_an_expired_session_may_still_begin_again() -> None:
    line = Line(LIFETIME_MS)
    line.log_in()
    line.timers.advance(10 * LIFETIME_MS)
    assert line.closed is None
    line.log_in()
    assert line.heartbeat()


def test_other_requests_wait_for_the_end_of_the_renewal() -> None:
    line = Line(LIFETIME_MS)
    line.log_in()
    line.handshake()
    assert not line.heartbeat()
    line.timers.advance(DELAY_MS)
    assert line.closed is not None


def test_renewal_as_another_user_or_with_another_mechanism_fails() -> None:
    line = Line(LIFETIME_MS)
    line.log_in()
    line.handshake()
    assert line.token(b"\0bob\0secret") is None
    line.timers.advance(DELAY_MS)
    answer = line.response(ApiKey.SASL_AUTHENTICATE, 2)
    assert isinstance(answer, SaslAuthenticateResponse)
    assert answer.error_message == "Cannot change principals during re-authentication from User.ann: User.bob"
    other = Line(LIFETIME_MS)
    other.log_in()
    assert other.handshake("SCRAM-SHA-256").error_code == 0
    assert other.token(b"n,,n=ann,r=x") is None
    other.timers.advance(DELAY_MS)
    assert not other.sent
    assert other.closed is not None


def test_the_renewal_has_a_limit_of_time_too() -> None:
    line = Line(LIFETIME_MS)
    line.log_in()
    line.handshake()
    line.timers.advance(AUTHENTICATION_MS_MAX)
    assert line.closed is not None


KEYS = st.sampled_from([ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS, ApiKey.HEARTBEAT])
FRAMES = st.one_of(
    st.binary(min_size=1, max_size=80),
    st.builds(lambda key, rest: key.to_bytes(2, "big") + b"\0\1" + rest, KEYS, st.binary(max_size=60)),
    st.just(bytes(request_frame(ApiKey.SASL_HANDSHAKE, 1, 1, "c", SaslHandshakeRequest("PLAIN")))[4:]),
    st.just(bytes(request_frame(ApiKey.SASL_HANDSHAKE, 0, 1, "c", SaslHandshakeRequest("SCRAM-SHA-256")))[4:]),
)


@given(st.lists(FRAMES, max_size=6))
def test_no_sequence_of_frames_gets_a_request_served(frames: list[bytes]) -> None:
    line = Line()
    for each in frames:
        line.feed(frame(each))
    line.timers.advance(AUTHENTICATION_MS_MAX)
    assert not line.who.callers
    assert line.closed is not None
    assert (line.budget.free, line.budget.of_strangers.free) == (BUDGET_BYTES, STRANGERS_BYTES)


# --- tokens that are verified elsewhere -------------------------------------------------------------------------

FIRST = client_first("t", {})


@pytest.mark.parametrize("version", [0, 1])
def test_a_token_is_answered_when_it_is_verified(version: int) -> None:
    line = Line()
    line.handshake("OAUTHBEARER", version)
    if version:
        assert line.token(FIRST) is None
    else:
        line.feed(len(FIRST).to_bytes(4, "big") + FIRST)
    assert not line.sent
    line.verdict.complete(AccessToken("ann", 5000))
    line._collect()
    assert len(line.sent) == 1
    if version:
        response = line.response(ApiKey.SASL_AUTHENTICATE, 2)
        assert isinstance(response, SaslAuthenticateResponse)
        assert (response.error_code, response.session_lifetime_ms) == (0, 5000)
    else:
        assert line.sent.pop() == bytes(4)
    assert line.heartbeat()
    assert line.who.callers == ["User:ann"]
    line.timers.advance(5000)
    assert not line.heartbeat()
    assert line.closed is not None
    assert "its session has expired" in line.closed


def test_a_refused_token_is_acknowledged_and_then_refused_after_the_delay() -> None:
    line = Line()
    line.handshake("OAUTHBEARER")
    line.verdict.complete(TokenRefused("it has expired"))
    answer = line.token(FIRST)
    assert answer is not None
    assert (answer.error_code, bytes(answer.auth_bytes)) == (0, b'{"status":"invalid_token"}')
    assert line.session.failure == "authentication failed: it has expired"
    assert line.token(b"\x01") is None
    line.timers.advance(DELAY_MS)
    response = line.response(ApiKey.SASL_AUTHENTICATE, 2)
    assert isinstance(response, SaslAuthenticateResponse)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert response.error_message == '{"status":"invalid_token"}'
    assert line.closed == "authentication failed: it has expired"


def test_a_client_that_ignores_the_refusal_is_refused_with_the_reason() -> None:
    line = Line()
    line.handshake("OAUTHBEARER")
    line.verdict.complete(TokenRefused("it has expired"))
    line.token(FIRST)
    assert not line.heartbeat()
    line.timers.advance(DELAY_MS)
    assert line.closed == "authentication failed: it has expired"


@pytest.mark.parametrize("verdict", [AccessToken("ann", 5000), TokenRefused("no")])
def test_a_connection_that_ends_before_its_token_is_verified(verdict: Verdict) -> None:
    line = Line()
    line.handshake("OAUTHBEARER")
    line.token(FIRST)
    line.timers.advance(AUTHENTICATION_MS_MAX)
    assert line.closed == f"it did not authenticate within {AUTHENTICATION_MS_MAX} ms"
    line.verdict.complete(verdict)
    assert not line.sent
    assert not line.accesses[1:]
    assert line.session.failure in ("", "authentication failed: no")


def test_a_request_while_its_token_is_verified_ends_the_connection() -> None:
    line = Line()
    line.handshake("OAUTHBEARER")
    line.token(FIRST)
    assert not line.heartbeat()
    assert line.closed == "a request before the answer to its token"
    line.verdict.complete(AccessToken("ann", 5000))
    assert line.who.callers == []
