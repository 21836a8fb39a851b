"""The session of a connection on a SASL listener, with a conversation but without a socket, in virtual time."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_conversation import frame

from moldau.base.connection_settings import ConnectionLimits
from moldau.base.errors import ErrorCode, MalformedData
from moldau.base.limits import AUTHENTICATION_MS_MAX, UNAUTHENTICATED_BUDGET_BYTES
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
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.api_versions import ApiVersions
from moldau.server.handlers.sasl import SaslAuthenticate, SaslHandshake
from moldau.server.router import Router
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


class Heartbeats(Handler):
    """Answers heartbeats and records the principals that sent them."""

    api = ApiKey.HEARTBEAT
    versions = (0, 4)

    def __init__(self) -> None:
        self.callers: list[str] = []

    def answer(self, request: HeartbeatRequest, caller: Caller) -> HeartbeatResponse:
        self.callers.append(str(caller.access.principal))
        return HeartbeatResponse()


class SaslConnection:
    """A SASL session with its conversation; the test sends requests and reads the replies in `sent`."""

    def __init__(
        self, lifetime_ms: int = 0, budget: ConnectionBudget | None = None, receive_bytes_max: int = RECEIVE_BYTES_MAX
    ) -> None:
        self.timers = FakeTimers()
        self.verdict: Promise[Verdict] = Promise()
        """The result of verifying an OAUTHBEARER token."""
        self.heartbeats = Heartbeats()
        router = Router(run_in_thread=at_once)
        router.serve(
            [
                self.heartbeats,
                ApiVersions(CurrentImage(), router.served, lambda: 1),
                SaslHandshake(),
                SaslAuthenticate(),
            ]
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

    def authenticate(self, token: bytes = PLAIN_TOKEN, version: int = 2) -> SaslAuthenticateResponse | None:
        response = self.ask(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(token), version)
        assert response is None or isinstance(response, SaslAuthenticateResponse)
        return response

    def heartbeat(self) -> bool:
        """Return whether an ordinary request is served."""
        return self.ask(ApiKey.HEARTBEAT, HeartbeatRequest("g", 1, "m"), 4) is not None

    def api_versions(self, version: int = 3, name: str = "test") -> int | None:
        response = self.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(name, "1"), version)
        return None if response is None else getattr(response, "error_code", None)

    def log_in(self) -> None:
        self.handshake()
        assert self.authenticate() is not None


def test_an_authenticated_client_is_served_as_its_principal() -> None:
    connection = SaslConnection()
    assert connection.api_versions() == 0
    handshake = connection.handshake()
    assert (handshake.error_code, handshake.mechanisms) == (0, ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
    answer = connection.authenticate()
    assert answer is not None
    assert (answer.error_code, answer.error_message, answer.auth_bytes) == (0, "", b"")
    assert answer.session_lifetime_ms == 0
    assert connection.heartbeat()
    assert connection.heartbeats.callers == ["User:ann"]
    assert connection.api_versions() == 0
    assert connection.timers.pending == 0


def test_scram_needs_two_steps() -> None:
    connection = SaslConnection()
    client = ClientLogin("SCRAM-SHA-256", "ann", "secret").begin("me")
    connection.handshake("SCRAM-SHA-256")
    first = connection.authenticate(client.first())
    assert first is not None
    final = connection.authenticate(client.respond(first.auth_bytes) or b"")
    assert final is not None
    assert client.respond(final.auth_bytes) is None
    assert connection.heartbeat()
    early = SaslConnection()
    early.handshake("SCRAM-SHA-256")
    assert early.authenticate(client.first()) is not None
    assert not early.heartbeat(), "the first step alone does not authenticate"
    assert early.heartbeats.callers == []


def test_raw_tokens_are_accepted_after_handshake_version_0() -> None:
    connection = SaslConnection()
    connection.handshake(version=0)
    connection.feed(frame(PLAIN_TOKEN))
    assert connection.sent == [bytes(4)]
    assert connection.heartbeat()


def test_a_refused_raw_token_closes_the_connection_without_an_answer() -> None:
    connection = SaslConnection()
    connection.handshake(version=0)
    connection.sent.clear()
    connection.feed(frame(b"\0ann\0wrong"))
    connection.timers.advance(DELAY_MS)
    assert not connection.sent
    assert connection.closed == "authentication failed: Authentication failed: Invalid username or password"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_failed_authentication_is_answered_after_the_delay(version: int) -> None:
    connection = SaslConnection()
    connection.handshake()
    assert connection.authenticate(b"\0ann\0wrong", version) is None
    assert not connection.is_reading
    connection.timers.advance(DELAY_MS - 1)
    assert connection.closed is None
    assert not connection.sent
    connection.timers.advance(1)
    answer = connection.response(ApiKey.SASL_AUTHENTICATE, version)
    assert isinstance(answer, SaslAuthenticateResponse)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert connection.closed is not None
    assert connection.timers.pending == 0


def test_requests_behind_a_refused_token_are_dropped() -> None:
    connection = SaslConnection()
    connection.handshake()
    wrong = request_frame(ApiKey.SASL_AUTHENTICATE, 2, 2, "c", SaslAuthenticateRequest(b"\0ann\0wrong"))
    right = request_frame(ApiKey.SASL_AUTHENTICATE, 2, 3, "c", SaslAuthenticateRequest(PLAIN_TOKEN))
    beat = request_frame(ApiKey.HEARTBEAT, 4, 4, "c", HeartbeatRequest("g", 1, "m"))
    connection.sent.clear()
    connection.feed(bytes(wrong + right + beat))
    connection.timers.advance(DELAY_MS)
    assert len(connection.sent) == 1
    assert not connection.heartbeats.callers


def test_an_unknown_mechanism_is_answered_after_the_delay() -> None:
    connection = SaslConnection()
    assert connection.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("GSSAPI"), 1) is None
    connection.timers.advance(DELAY_MS)
    answer = connection.response(ApiKey.SASL_HANDSHAKE, 1)
    assert isinstance(answer, SaslHandshakeResponse)
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"]
    assert connection.closed is not None


def test_requests_before_authentication_close_the_connection() -> None:
    connection = SaslConnection()
    assert not connection.heartbeat()
    assert connection.closed is not None
    assert connection.closed.startswith("Heartbeat before authentication")
    early = SaslConnection()
    assert early.authenticate() is None
    assert early.closed is not None


def test_requests_between_handshake_and_token_close_the_connection() -> None:
    connection = SaslConnection()
    connection.handshake()
    assert not connection.heartbeat()
    connection.timers.advance(DELAY_MS)
    assert connection.closed == "authentication failed: Heartbeat during the authentication"
    assert not connection.sent
    assert not connection.heartbeats.callers


def test_a_large_api_versions_request_is_also_answered_only_once() -> None:
    connection = SaslConnection(receive_bytes_max=1 << 19)
    large = ApiVersionsRequest("n" * 30_000, "v" * 30_000)
    assert connection.ask(ApiKey.API_VERSIONS, large, 3) is not None
    assert connection.ask(ApiKey.API_VERSIONS, large, 3) is None
    assert connection.closed is not None
    assert "ApiVersions before authentication" in connection.closed


def test_api_versions_is_answered_only_once_before_authentication() -> None:
    connection = SaslConnection()
    assert connection.api_versions(version=0) == 0
    assert connection.api_versions() is None
    assert connection.closed is not None


def test_api_versions_may_be_sent_again_after_an_error() -> None:
    connection = SaslConnection()
    assert connection.api_versions(name="not valid") == ErrorCode.INVALID_REQUEST
    unknown = bytes(request_frame(ApiKey.API_VERSIONS, 3, 1, "c", ApiVersionsRequest("a", "1")))
    connection.feed(unknown[:6] + b"\0\x63" + unknown[8:])
    assert connection.sent.pop()[8:10] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
    assert connection.api_versions() == 0
    connection.log_in()


@pytest.mark.parametrize("api", [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE])
def test_unknown_versions_of_sasl_requests_close_the_connection(api: ApiKey) -> None:
    connection = SaslConnection()
    connection.handshake()
    connection.feed(frame(api.to_bytes(2, "big") + b"\0\x09" + bytes(40)))
    assert connection.closed is not None


def test_sasl_requests_after_authentication_are_refused_with_illegal_sasl_state() -> None:
    connection = SaslConnection()
    connection.log_in()
    again = connection.authenticate()
    assert again is not None
    assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert again.error_message == "SaslAuthenticate request received after successful authentication"
    handshake = connection.handshake()
    assert (handshake.error_code, handshake.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    assert connection.heartbeat()


def test_a_failed_login_records_mechanism_and_user_but_no_password() -> None:
    connection = SaslConnection()
    connection.handshake("PLAIN")
    connection.authenticate(b"\0eve\0planted")
    assert connection.session.tried == ("PLAIN", "eve")
    connection = SaslConnection()
    connection.handshake("PLAIN")
    connection.authenticate(b"planted")
    assert connection.session.tried == ("PLAIN", ""), "a malformed token may contain the password anywhere"
    connection = SaslConnection()
    connection.handshake("SCRAM-SHA-256")
    client = ClientLogin("SCRAM-SHA-256", "eve", "planted").begin("me")
    first = connection.authenticate(client.first())
    assert first is not None
    connection.authenticate(client.respond(first.auth_bytes) or b"")
    assert connection.session.tried == ("SCRAM-SHA-256", "eve")
    connection = SaslConnection()
    connection.send(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("MADE-UP"), 1)
    assert connection.session.tried == ("", "")


def test_large_frames_are_refused_before_authentication_and_accepted_afterwards() -> None:
    connection = SaslConnection()
    connection.feed((RECEIVE_BYTES_MAX + 1).to_bytes(4, "big"))
    assert connection.closed == f"a frame of {RECEIVE_BYTES_MAX + 1} bytes; the limit is {RECEIVE_BYTES_MAX}"
    late = SaslConnection()
    late.log_in()
    late.feed((RECEIVE_BYTES_MAX + 1).to_bytes(4, "big"))
    assert late.closed is None


def test_a_claimed_size_costs_no_memory_before_authentication() -> None:
    connection = SaslConnection()
    connection.session._server = SaslServer({}, 500_000, 0, connection.timers.clock, connection.timers)
    connection.limit_frames(500_000, 1024, is_stranger=True)
    connection.feed((500_000).to_bytes(4, "big") + b"x")
    assert UNAUTHENTICATED_BUDGET_BYTES - connection.budget.of_strangers.free <= 1024


def test_unauthenticated_clients_cannot_use_the_memory_of_authenticated_ones() -> None:
    budget = ConnectionBudget(BUDGET_BYTES, ConnectionLimits(unauthenticated_budget_bytes=3 * RECEIVE_BYTES_MAX))
    user = SaslConnection(budget=budget)
    user.log_in()
    half = (RECEIVE_BYTES_MAX).to_bytes(4, "big") + b"x" * (RECEIVE_BYTES_MAX - 8)
    crowd = [SaslConnection(budget=budget) for _ in range(20)]
    for each in crowd:
        each.feed(half)
    assert [each.closed for each in crowd].count(None) == 2
    assert crowd[-1].closed == "the memory for requests of clients that have not authenticated is used up"
    assert budget.free == BUDGET_BYTES, "the memory of users is untouched"
    late = SaslConnection(budget=budget)
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


def test_memory_of_a_half_received_frame_moves_to_the_users_budget_after_login() -> None:
    connection = SaslConnection()
    connection.handshake("OAUTHBEARER")
    connection.send(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(OAUTH_TOKEN), 1)
    connection.feed((100).to_bytes(4, "big") + b"half")
    assert connection.budget.of_strangers.free < UNAUTHENTICATED_BUDGET_BYTES
    assert connection.budget.free == BUDGET_BYTES
    connection.verdict.complete(AccessToken("ann", 60_000))
    assert connection.budget.of_strangers.free == UNAUTHENTICATED_BUDGET_BYTES
    assert connection.budget.free < BUDGET_BYTES
    connection.close()
    assert (connection.budget.free, connection.budget.of_strangers.free) == (BUDGET_BYTES, UNAUTHENTICATED_BUDGET_BYTES)


def test_a_reauthenticating_client_uses_the_users_budget() -> None:
    connection = SaslConnection(LIFETIME_MS)
    connection.log_in()
    connection.handshake()
    connection.feed((100).to_bytes(4, "big") + b"half")
    assert connection.budget.of_strangers.free == UNAUTHENTICATED_BUDGET_BYTES


def test_authentication_has_a_time_limit_however_slowly_a_client_sends() -> None:
    connection = SaslConnection()
    data = bytes(request_frame(ApiKey.SASL_HANDSHAKE, 1, 1, "c", SaslHandshakeRequest("x" * 500)))
    for number in range(AUTHENTICATION_MS_MAX // 1000):
        assert connection.closed is None
        connection.feed(data[number : number + 1])
        connection.timers.advance(1000)
    assert connection.closed == f"it did not authenticate within {AUTHENTICATION_MS_MAX} ms"


def test_an_authenticated_client_may_be_idle() -> None:
    connection = SaslConnection()
    connection.log_in()
    connection.timers.advance(10 * AUTHENTICATION_MS_MAX)
    assert connection.heartbeat()


def test_a_closed_connection_leaves_no_timer() -> None:
    connection = SaslConnection()
    connection.close()
    assert connection.timers.pending == 0


def test_reauthentication_renews_the_session_lifetime_and_the_access() -> None:
    connection = SaslConnection(LIFETIME_MS)
    connection.handshake()
    answer = connection.authenticate()
    assert answer is not None
    assert answer.session_lifetime_ms == LIFETIME_MS
    connection.timers.advance(LIFETIME_MS - 1)
    assert connection.heartbeat()
    assert connection.handshake().error_code == 0
    assert connection.authenticate() is not None
    assert len(connection.accesses) == 3
    connection.timers.advance(LIFETIME_MS - 1)
    assert connection.heartbeat()
    connection.timers.advance(1)
    assert not connection.heartbeat()
    assert connection.closed is not None
    assert "expired" in connection.closed
    assert connection.heartbeats.callers == ["User:ann"] * 2


def test_an_expired_session_can_reauthenticate() -> None:
    connection = SaslConnection(LIFETIME_MS)
    connection.log_in()
    connection.timers.advance(10 * LIFETIME_MS)
    assert connection.closed is None
    connection.log_in()
    assert connection.heartbeat()


def test_a_user_who_was_removed_stays_until_the_next_authentication() -> None:
    connection = SaslConnection(LIFETIME_MS)
    connection.log_in()
    connection.session._server.mechanisms = {"PLAIN": Mechanism(lambda: PlainServer({"bob": "secret"}), LIFETIME_MS)}
    assert connection.heartbeat()
    connection.handshake()
    assert connection.authenticate(b"\0ann\0secret") is None
    connection.timers.advance(DELAY_MS)
    assert connection.closed == "authentication failed: Authentication failed: Invalid username or password"


def test_other_requests_during_reauthentication_close_the_connection() -> None:
    connection = SaslConnection(LIFETIME_MS)
    connection.log_in()
    connection.handshake()
    assert not connection.heartbeat()
    connection.timers.advance(DELAY_MS)
    assert connection.closed is not None


def test_reauthentication_as_another_user_or_with_another_mechanism_fails() -> None:
    connection = SaslConnection(LIFETIME_MS)
    connection.log_in()
    connection.handshake()
    assert connection.authenticate(b"\0bob\0secret") is None
    connection.timers.advance(DELAY_MS)
    answer = connection.response(ApiKey.SASL_AUTHENTICATE, 2)
    assert isinstance(answer, SaslAuthenticateResponse)
    assert answer.error_message == "Cannot change principals during re-authentication from User.ann: User.bob"
    other = SaslConnection(LIFETIME_MS)
    other.log_in()
    assert other.handshake("SCRAM-SHA-256").error_code == 0
    assert other.authenticate(b"n,,n=ann,r=x") is None
    other.timers.advance(DELAY_MS)
    assert not other.sent
    assert other.closed is not None


def test_reauthentication_has_a_time_limit() -> None:
    connection = SaslConnection(LIFETIME_MS)
    connection.log_in()
    connection.handshake()
    connection.timers.advance(AUTHENTICATION_MS_MAX)
    assert connection.closed is not None


KEYS = st.sampled_from([ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS, ApiKey.HEARTBEAT])
FRAMES = st.one_of(
    st.binary(min_size=1, max_size=80),
    st.builds(lambda key, rest: key.to_bytes(2, "big") + b"\0\1" + rest, KEYS, st.binary(max_size=60)),
    st.just(bytes(request_frame(ApiKey.SASL_HANDSHAKE, 1, 1, "c", SaslHandshakeRequest("PLAIN")))[4:]),
    st.just(bytes(request_frame(ApiKey.SASL_HANDSHAKE, 0, 1, "c", SaslHandshakeRequest("SCRAM-SHA-256")))[4:]),
)


@given(st.lists(FRAMES, max_size=6))
def test_no_sequence_of_frames_bypasses_authentication(frames: list[bytes]) -> None:
    connection = SaslConnection()
    for each in frames:
        connection.feed(frame(each))
    connection.timers.advance(AUTHENTICATION_MS_MAX)
    assert not connection.heartbeats.callers
    assert connection.closed is not None
    assert (connection.budget.free, connection.budget.of_strangers.free) == (BUDGET_BYTES, UNAUTHENTICATED_BUDGET_BYTES)


# --- OAuth tokens, verified asynchronously -----------------------------------------------------------------------

OAUTH_TOKEN = client_first("t", {})


@pytest.mark.parametrize("version", [0, 1])
def test_an_oauth_token_is_answered_after_it_is_verified(version: int) -> None:
    connection = SaslConnection()
    connection.handshake("OAUTHBEARER", version)
    if version:
        assert connection.authenticate(OAUTH_TOKEN) is None
    else:
        connection.feed(len(OAUTH_TOKEN).to_bytes(4, "big") + OAUTH_TOKEN)
    assert not connection.sent
    connection.verdict.complete(AccessToken("ann", 5000))
    connection._collect()
    assert len(connection.sent) == 1
    if version:
        response = connection.response(ApiKey.SASL_AUTHENTICATE, 2)
        assert isinstance(response, SaslAuthenticateResponse)
        assert (response.error_code, response.session_lifetime_ms) == (0, 5000)
    else:
        assert connection.sent.pop() == bytes(4)
    assert connection.heartbeat()
    assert connection.heartbeats.callers == ["User:ann"]
    connection.timers.advance(5000)
    assert not connection.heartbeat()
    assert connection.closed is not None
    assert "its session has expired" in connection.closed


def test_a_refused_oauth_token_is_answered_with_its_status_and_then_refused() -> None:
    connection = SaslConnection()
    connection.handshake("OAUTHBEARER")
    connection.verdict.complete(TokenRefused("it has expired"))
    answer = connection.authenticate(OAUTH_TOKEN)
    assert answer is not None
    assert (answer.error_code, bytes(answer.auth_bytes)) == (0, b'{"status":"invalid_token"}')
    assert connection.session.failure == "authentication failed: it has expired"
    assert connection.authenticate(b"\x01") is None
    connection.timers.advance(DELAY_MS)
    response = connection.response(ApiKey.SASL_AUTHENTICATE, 2)
    assert isinstance(response, SaslAuthenticateResponse)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert response.error_message == '{"status":"invalid_token"}'
    assert connection.closed == "authentication failed: it has expired"


def test_a_request_after_a_refused_oauth_token_closes_the_connection() -> None:
    connection = SaslConnection()
    connection.handshake("OAUTHBEARER")
    connection.verdict.complete(TokenRefused("it has expired"))
    connection.authenticate(OAUTH_TOKEN)
    assert not connection.heartbeat()
    connection.timers.advance(DELAY_MS)
    assert connection.closed == "authentication failed: it has expired"


@pytest.mark.parametrize("verdict", [AccessToken("ann", 5000), TokenRefused("no")])
def test_an_oauth_verdict_after_the_authentication_timeout_is_ignored(verdict: Verdict) -> None:
    connection = SaslConnection()
    connection.handshake("OAUTHBEARER")
    connection.authenticate(OAUTH_TOKEN)
    connection.timers.advance(AUTHENTICATION_MS_MAX)
    assert connection.closed == f"it did not authenticate within {AUTHENTICATION_MS_MAX} ms"
    connection.verdict.complete(verdict)
    assert not connection.sent
    assert not connection.accesses[1:]
    assert connection.session.failure in ("", "authentication failed: no")


def test_a_request_while_an_oauth_token_is_verified_closes_the_connection() -> None:
    connection = SaslConnection()
    connection.handshake("OAUTHBEARER")
    connection.authenticate(OAUTH_TOKEN)
    assert not connection.heartbeat()
    assert connection.closed == "a request before the answer to its token"
    connection.verdict.complete(AccessToken("ann", 5000))
    assert connection.heartbeats.callers == []
