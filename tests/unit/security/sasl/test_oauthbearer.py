"""OAUTHBEARER without I/O: messages, the exchange, when keys are read again, URLs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.base.errors import ErrorCode
from moldau.base.promise import Promise, resolved
from moldau.security.sasl.client import OAuthBearerClient
from moldau.security.sasl.exchange import Mechanism, NotAnswered, Phase, SaslExchange, TokenAnswer
from moldau.security.sasl.mechanism import SaslRefusal
from moldau.security.sasl.oauthbearer.messages import ClientFirst, client_first, parse_client_first
from moldau.security.sasl.oauthbearer.refresh import (
    FILE_CHECK_MS,
    UNKNOWN_KEY_INTERVAL_MS_MIN,
    RefreshSchedule,
)
from moldau.security.sasl.oauthbearer.server import AccessToken, OAuthBearerServer, TokenRefused, Verdict
from moldau.security.sasl.oauthbearer.urls import Endpoint, allowed_urls, is_exposed, parse_endpoint

INVALID = b'{"status":"invalid_token"}'
GENERIC = "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER"


# --- messages ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b"n,,\x01auth=Bearer a.b.c\x01\x01", ClientFirst("", "a.b.c", {})),
        (b"n,,\x01auth=bEARER   a.b.c==\x01\x01", ClientFirst("", "a.b.c==", {})),
        (b"n,a=ann,\x01auth=Bearer t\x01\x01", ClientFirst("ann", "t", {})),
        (b"n,a=a=2Cb=3D,\x01auth=Bearer t\x01\x01", ClientFirst("a,b=", "t", {})),
        (
            b"n,,\x01host=x y\x01auth=Bearer -_~+/.9\x01traceId=1=2\x01\x01",
            ClientFirst("", "-_~+/.9", {"host": "x y", "traceId": "1=2"}),
        ),
    ],
)
def test_first_messages_are_parsed(message: bytes, expected: ClientFirst) -> None:
    assert parse_client_first(message) == expected


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01\x01\x01",
        b"y,,\x01auth=Bearer t\x01\x01",
        b"p=x,,\x01auth=Bearer t\x01\x01",
        b"n,a=,\x01auth=Bearer t\x01\x01",
        b"n,a=x=2D,\x01auth=Bearer t\x01\x01",
        b"n,,\x01auth=Bearer t\x01",
        b"n,,\x01auth=Bearer t",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Basic t\x01\x01",
        b"n,,\x01auth=Bearer t t\x01\x01",
        b"n,,\x01auth=Bearer t!\x01\x01",
        b"n,,\x01auth=Bearer =\x01\x01",
        b"n,,\x01auth=Bearer t\x01auth=Bearer u\x01\x01",
        b"n,,\x01auth=Bearer t\x01a1=x\x01\x01",
        b"n,,\x01auth=Bearer t\x01key=\x01\x01",
        b"n,,\x01auth=Bearer t\x01key\x01\x01",
        b"n,,\x01auth=Bearer t\x01key=\x7f\x01\x01",
        b"n,,\x01auth=Bearer t\x01\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        "n,,\x01auth=Bearer t\u0661\x01\x01".encode(),
        b"\0ann\0secret",
        b"n,,n=ann,r=nonce",
    ],
)
def test_malformed_first_messages_are_refused(message: bytes) -> None:
    with pytest.raises(SaslRefusal) as refused:
        parse_client_first(message)
    assert refused.value.message is None
    assert "malformed" in str(refused.value)


KEYS = st.text("abcdefghijklmnopqrstuvwxyzABC", min_size=1).filter(lambda key: key != "auth")
VALUES = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1)


@given(st.from_regex(r"[-_~+/.a-zA-Z0-9]+=*", fullmatch=True), st.dictionaries(KEYS, VALUES))
def test_the_server_reads_what_our_client_sends(token: str, extensions: dict[str, str]) -> None:
    assert parse_client_first(client_first(token, extensions)) == ClientFirst("", token, extensions)


PIECES = [b"n,", b"n,a=ann,", b"\x01", b"\x01\x01", b"auth=", b"Bearer ", b"a.b.c", b"k=v", b"=", b",", b"\xff", b"=2C"]


@given(st.one_of(st.binary(), st.lists(st.sampled_from(PIECES)).map(b"".join)))
def test_any_bytes_are_a_message_or_refused(message: bytes) -> None:
    try:
        first = parse_client_first(message)
    except SaslRefusal:
        return
    assert first.token.encode() in message


# --- the exchange -----------------------------------------------------------------------------------------------


class Verifier:
    """Answers when the test calls `answer`."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Promise[Verdict]]] = []

    def __call__(self, token: str) -> Promise[Verdict]:
        promise: Promise[Verdict] = Promise()
        self.asked.append((token, promise))
        return promise

    def answer(self, verdict: Verdict) -> None:
        self.asked.pop()[1].complete(verdict)


def exchange_with(verifier: Any, lifetime_ms: int = 0) -> SaslExchange:
    exchange = SaslExchange({"OAUTHBEARER": Mechanism(lambda: OAuthBearerServer(verifier), lifetime_ms)})
    exchange.handshake("OAUTHBEARER", 1, 0)
    return exchange


def send(exchange: SaslExchange, message: bytes, now_ms: int = 0) -> TokenAnswer:
    answer = exchange.authenticate(message, now_ms)
    return answer.value() if isinstance(answer, Promise) else answer


def verifier_returning(verdict: Verdict) -> Any:
    return lambda token: resolved(verdict)


def test_a_valid_token_authenticates() -> None:
    verifier = Verifier()
    exchange = exchange_with(verifier)
    client = OAuthBearerClient("a.b.c", {"host": "x"})
    answer = exchange.authenticate(client.first(), 1000)
    assert isinstance(answer, Promise)
    assert exchange.phase is Phase.VERIFYING
    assert [token for token, _ in verifier.asked] == ["a.b.c"]
    verifier.answer(AccessToken("ann", 5000))
    assert answer.value() == TokenAnswer(ErrorCode.NONE, "", b"", 5000)
    assert str(exchange.principal) == "User:ann"
    assert client.respond(answer.value().token) is None
    assert (exchange.is_expired(5999), exchange.is_expired(6000)) == (False, True)


def test_an_invalid_token_is_reported_acknowledged_and_refused() -> None:
    exchange = exchange_with(verifier_returning(TokenRefused("it has expired")))
    client = OAuthBearerClient("a.b.c", {})
    answer = send(exchange, client.first())
    assert answer == TokenAnswer(ErrorCode.NONE, "", INVALID)
    assert exchange.failure == "it has expired"
    acknowledgement = client.respond(answer.token)
    assert acknowledgement == b"\x01"
    assert send(exchange, acknowledgement) == TokenAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED, INVALID.decode())
    assert (exchange.phase, exchange.failure) == (Phase.FAILED, "it has expired")


def test_after_an_invalid_token_a_second_one_is_refused() -> None:
    verdicts: list[Verdict] = [AccessToken("ann", 1000), TokenRefused("no")]
    exchange = exchange_with(lambda token: resolved(verdicts.pop()))
    send(exchange, client_first("bad", {}))
    assert send(exchange, client_first("good", {})) == TokenAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED, GENERIC)
    assert exchange.principal is None


def test_a_malformed_message_is_refused_without_a_reason() -> None:
    exchange = exchange_with(verifier_returning(AccessToken("ann", 1000)))
    assert send(exchange, b"\x01") == TokenAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED, GENERIC)
    assert "malformed" in exchange.failure


@pytest.mark.parametrize(("authorization_id", "is_accepted"), [("ann", True), ("bob", False)])
def test_the_authorization_id_must_be_the_user_of_the_token(authorization_id: str, is_accepted: bool) -> None:
    exchange = exchange_with(verifier_returning(AccessToken("ann", 1000)))
    answer = send(exchange, b"n,a=%s,\x01auth=Bearer t\x01\x01" % authorization_id.encode())
    assert (answer.error is ErrorCode.NONE) is is_accepted
    if not is_accepted:
        assert answer.message == (
            "Authentication failed: Client requested an authorization id that is different from the token's"
            " principal name"
        )


@pytest.mark.parametrize(
    ("session_ms", "token_ms", "expected_ms"),
    [(0, 5000, 5000), (3000, 5000, 3000), (5000, 3000, 3000), (-1, 4000, 4000), (5000, -1, 0), (0, 0, 0)],
)
def test_a_session_ends_with_the_token_or_before(session_ms: int, token_ms: int, expected_ms: int) -> None:
    exchange = exchange_with(verifier_returning(AccessToken("ann", token_ms)), session_ms)
    assert send(exchange, client_first("t", {}), 100).lifetime_ms == expected_ms
    assert exchange.expires_ms == 100 + expected_ms


def test_another_user_cannot_authenticate_again() -> None:
    verdicts: list[Verdict] = [AccessToken("bob", 1000), AccessToken("ann", 1000)]
    exchange = exchange_with(lambda token: resolved(verdicts.pop()))
    send(exchange, client_first("t", {}))
    exchange.handshake("OAUTHBEARER", 1, 500)
    answer = send(exchange, client_first("t", {}), 500)
    assert answer.error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.message == "Cannot change principals during re-authentication from User.ann: User.bob"


def test_while_a_token_is_verified_nothing_else_is_accepted() -> None:
    verifier = Verifier()
    exchange = exchange_with(verifier)
    answer = exchange.authenticate(client_first("t", {}), 0)
    with pytest.raises(NotAnswered, match="being verified"):
        exchange.authenticate(client_first("t", {}), 0)
    assert exchange.handshake("OAUTHBEARER", 1, 0).error is ErrorCode.ILLEGAL_SASL_STATE
    verifier.answer(AccessToken("ann", 1000))
    assert isinstance(answer, Promise)
    assert answer.value().error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert (exchange.phase, exchange.principal) == (Phase.FAILED, None)


# --- when keys are read again -----------------------------------------------------------------------------------


def test_keys_are_refreshed_periodically_and_sooner_after_failures() -> None:
    schedule = RefreshSchedule(60_000, 100, 1000, is_file=False)
    assert schedule.after_success_ms() == 60_000
    assert [schedule.after_failure_ms() for _ in range(6)] == [100, 200, 400, 800, 1000, 1000]
    assert schedule.after_success_ms() == 60_000
    assert schedule.after_failure_ms() == 100
    assert max(schedule.after_failure_ms() for _ in range(10_000)) == 1000
    assert RefreshSchedule(60_000, 100, 1000, is_file=True).after_success_ms() == FILE_CHECK_MS


def test_reads_for_unknown_keys_are_rate_limited() -> None:
    schedule = RefreshSchedule(60_000, 100, 1000, is_file=False)
    allowed = [now_ms for now_ms in range(0, 60_000, 100) if schedule.allows_for_unknown_key(now_ms)]
    assert allowed == list(range(0, 60_000, UNKNOWN_KEY_INTERVAL_MS_MIN))


# --- URLs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://idp.test/keys?x=1", Endpoint("https", "idp.test", 443, "/keys?x=1")),
        ("http://[::1]:8080", Endpoint("http", "::1", 8080, "/")),
        ("file:///etc/a%20b.json", Endpoint("file", "", 0, "/etc/a b.json")),
        ("file:/etc/keys", Endpoint("file", "", 0, "/etc/keys")),
    ],
)
def test_urls_are_parsed(url: str, expected: Endpoint) -> None:
    assert parse_endpoint(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "idp.test/keys",
        "ftp://idp.test/keys",
        "gopher://idp.test",
        "https://",
        "https://user:secret@idp.test/",
        "https://idp.test:99999/",
        "https://idp.test/\r\nX: y",
        "https://[::1/",
        "file://other/etc/keys",
        "file:keys",
    ],
)
def test_wrong_urls_are_refused(url: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_endpoint(url)
    assert "secret" not in str(refused.value)


@given(st.text())
def test_any_text_is_a_url_or_refused(text: str) -> None:
    for url in (text, f"https://{text}", f"file:{text}"):
        try:
            parse_endpoint(url)
        except ValueError:
            continue


def test_only_http_urls_of_other_hosts_are_exposed() -> None:
    urls = ["http://idp.test/", "http://127.0.0.1:1/", "http://localhost/", "https://idp.test/", "file:/x", "nonsense"]
    assert [is_exposed(url) for url in urls] == [True, False, False, False, False, False]


def test_allowed_urls_are_read_from_java_options() -> None:
    name = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls"
    assert allowed_urls("-Xmx1G") is None
    assert allowed_urls(f"-Xmx1G {name}=https://a/,file:/b -Dx=y") == {"https://a/", "file:/b"}
    assert allowed_urls(f"{name}=") == frozenset()
