"""SCRAM with a delegation token: the id as user name, the hmac as password, the owner as principal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.promise import Promise
from moldau.security.delegation_tokens import DelegationToken, TokenHmacs
from moldau.security.principals import Principal
from moldau.security.sasl import token_credentials
from moldau.security.sasl.client import ClientLogin
from moldau.security.sasl.exchange import Mechanism, SaslExchange
from moldau.security.sasl.mechanism import SCRAM_MECHANISMS, SaslRefusal, Step
from moldau.security.sasl.scram import ScramServer, ScramUsers
from moldau.security.sasl.scram_messages import ScramKeys, base64_text, parse_client_first
from moldau.security.sasl.token_credentials import TokenCredentials
from moldau.security.scram_credentials import ScramCredential, ScramMechanism

ANN, BOB = Principal("User", "ann"), Principal("User", "bob")
HMACS = TokenHmacs("secret")
SHA_256 = ScramMechanism.SCRAM_SHA_256


KEYS = ScramKeys(SHA_256)
STORED = {(int(SHA_256), "ann"): KEYS.credential(KEYS.salted_password("pw", b"salt", 4096), b"salt", 4096)}


class TokenLogins:
    """Tokens at a point in time, and logins with them."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.tokens = {
            "t1": DelegationToken("t1", ANN, BOB, (), 0, 9_000, 5_000),
            "t2": DelegationToken("t2", Principal("Group", "admins"), BOB, (), 0, 9_000, 5_000),
        }
        self.credentials = TokenCredentials(HMACS, lambda: self.tokens, lambda: self.now_ms, self.run_in_thread)
        self.work: list[tuple[Callable[[], None], Promise[None]]] = []

    def run_in_thread(self, work: Callable[[], None]) -> Promise[Any]:
        self.work.append((work, Promise()))
        return self.work[-1][1]

    def run_threads(self) -> None:
        for work, done in self.work:
            work()
            done.complete(None)
        self.work.clear()

    def server(self, mechanism: str = "SCRAM-SHA-256", has_tokens: bool = True) -> ScramServer:
        users = ScramUsers(SCRAM_MECHANISMS[mechanism], lambda: STORED, lambda: b"secret")
        return ScramServer(users, lambda: "server", self.credentials if has_tokens else None)

    def log_in(self, server: ScramServer, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> Step:
        client = ClientLogin(mechanism, user, password, by_token=True).begin("me")
        step, token = Step(b""), client.first()
        while token is not None:
            step = server.respond(token)
            token = client.respond(step.token)  # type: ignore[assignment]
        return step


@pytest.fixture
def logins() -> TokenLogins:
    return TokenLogins()


def password(token_id: str) -> str:
    return base64_text(HMACS.hmac(token_id))


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
def test_the_bearer_of_a_token_is_its_owner(logins: TokenLogins, mechanism: str) -> None:
    step = logins.log_in(logins.server(mechanism), "t1", password("t1"), mechanism)
    assert (step.user, step.by_token, step.lifetime_ms) == ("ann", True, 4_000)


@pytest.mark.parametrize(
    ("user", "secret"),
    [
        ("t1", password("t2")),
        ("t1", "secret"),
        ("t1", ""),
        ("ann", password("t1")),
        ("t3", password("t3")),
        ("t2", password("t2")),
    ],
    ids=[
        "hmac of another token",
        "secret key",
        "empty",
        "user name of the owner",
        "unknown token",
        "owner is not a user",
    ],
)
def test_wrong_token_logins_are_refused(logins: TokenLogins, user: str, secret: str) -> None:
    with pytest.raises(SaslRefusal) as refused:
        logins.log_in(logins.server(), user, secret)
    assert refused.value.message is None


def test_without_a_secret_key_there_are_no_tokens(logins: TokenLogins) -> None:
    with pytest.raises(SaslRefusal):
        logins.log_in(logins.server(has_tokens=False), "t1", password("t1"))


@pytest.mark.parametrize(("now_ms", "lifetime_ms"), [(4_999, 1), (5_000, None), (9_001, None)])
def test_a_token_is_accepted_until_it_expires(logins: TokenLogins, now_ms: int, lifetime_ms: int | None) -> None:
    logins.now_ms = now_ms
    if lifetime_ms is not None:
        assert logins.log_in(logins.server(), "t1", password("t1")).lifetime_ms == lifetime_ms
        return
    with pytest.raises(SaslRefusal):
        logins.log_in(logins.server(), "t1", password("t1"))


@pytest.mark.parametrize("change", ["expire", "remove"])
def test_a_token_that_ends_during_the_login_is_refused(logins: TokenLogins, change: str) -> None:
    client, server = ClientLogin("SCRAM-SHA-256", "t1", password("t1"), by_token=True).begin("me"), logins.server()
    final = client.respond(server.respond(client.first()).token)
    assert final is not None
    if change == "expire":
        logins.now_ms = 5_001
    else:
        del logins.tokens["t1"]
    with pytest.raises(SaslRefusal):
        server.respond(final)


@pytest.mark.parametrize(
    ("extensions", "is_token"),
    [
        ("", False),
        (",tokenauth=true", True),
        (",tokenauth=TRUE", True),
        (",a=b,tokenauth=true,c=d=e", True),
        (",tokenauth=false", False),
        (",tokenauth=truer", False),
        (",TOKENAUTH=true", False),
        (",xtokenauth=true", False),
        (",tokenauth=true,tokenauth=false", False),
    ],
)
def test_the_tokenauth_extension_is_parsed(extensions: str, is_token: bool) -> None:
    assert parse_client_first(f"n,,n=ann,r=x{extensions}".encode()).is_token == is_token


def test_credentials_are_computed_once_and_bounded(logins: TokenLogins, monkeypatch: pytest.MonkeyPatch) -> None:
    computed = count_computations(logins, monkeypatch)
    monkeypatch.setattr(token_credentials, "CREDENTIALS_MAX", 2)
    for token_id in ("a", "a", "b", "b", "c", "c", "a"):
        logins.credentials.credential(SHA_256, token_id)
    assert computed == ["a", "b", "c", "a"]
    assert len(logins.credentials._computed) == 2


def count_computations(logins: TokenLogins, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    computed: list[str] = []
    compute = logins.credentials._compute

    def counted(key: tuple[ScramMechanism, str]) -> ScramCredential:
        computed.append(key[1])
        return compute(key)

    monkeypatch.setattr(logins.credentials, "_compute", counted)
    return computed


@pytest.mark.parametrize("is_thread_slow", [False, True])
def test_a_thread_computes_the_credential_while_the_client_does(
    logins: TokenLogins, monkeypatch: pytest.MonkeyPatch, is_thread_slow: bool
) -> None:
    computed = count_computations(logins, monkeypatch)
    clients = [ClientLogin("SCRAM-SHA-256", "t1", password("t1"), by_token=True).begin("me") for _ in range(3)]
    servers = [logins.server() for _ in clients]
    firsts = [server.respond(client.first()).token for client, server in zip(clients, servers, strict=True)]
    assert (computed, len(logins.work)) == ([], 1)
    if not is_thread_slow:
        logins.run_threads()
    for client, server, first in zip(clients, servers, firsts, strict=True):
        final = client.respond(first)
        assert final is not None
        assert server.respond(final).user == "ann"
    logins.run_threads()
    assert computed == (["t1", "t1"] if is_thread_slow else ["t1"])


# --- the session ------------------------------------------------------------------------------------------------


def session(logins: TokenLogins, lifetime_ms: int, now_ms: int = 0) -> SaslExchange:
    exchange = SaslExchange({"SCRAM-SHA-256": Mechanism(logins.server, lifetime_ms)})
    authenticate(exchange, "t1", password("t1"), now_ms, by_token=True)
    return exchange


def authenticate(exchange: SaslExchange, user: str, secret: str, now_ms: int, by_token: bool) -> int:
    assert exchange.handshake("SCRAM-SHA-256", 1, now_ms).error is ErrorCode.NONE
    client = ClientLogin("SCRAM-SHA-256", user, secret, by_token).begin("me")
    token: bytes | None = client.first()
    lifetime_ms = 0
    while token is not None:
        answer = exchange.authenticate(token, now_ms)
        assert answer.error is ErrorCode.NONE
        token, lifetime_ms = client.respond(answer.token), answer.lifetime_ms
    return lifetime_ms


@pytest.mark.parametrize(
    ("reauthentication_ms", "expected_ms"), [(0, 4_000), (-1, 4_000), (3_000, 3_000), (8_000, 4_000)]
)
def test_the_session_ends_with_the_token_or_earlier(
    logins: TokenLogins, reauthentication_ms: int, expected_ms: int
) -> None:
    exchange = session(logins, reauthentication_ms, now_ms=70)
    assert exchange.principal == Principal("User", "ann", by_token=True)
    assert exchange.expires_ms == 70 + expected_ms
    assert [exchange.is_expired(70 + expected_ms - 1), exchange.is_expired(70 + expected_ms)] == [False, True]


def test_a_renewed_token_prolongs_the_session(logins: TokenLogins) -> None:
    exchange = session(logins, 0)
    logins.tokens["t1"] = logins.tokens["t1"]._replace(expires_ms=8_000)
    assert authenticate(exchange, "t1", password("t1"), 2_000, by_token=True) == 7_000
    assert exchange.expires_ms == 9_000


def test_a_session_continues_with_another_token_of_the_same_owner(logins: TokenLogins) -> None:
    exchange = session(logins, 0)
    logins.tokens["t9"] = DelegationToken("t9", ANN, ANN, (), 0, 9_000, 9_000)
    assert authenticate(exchange, "t9", password("t9"), 2_000, by_token=True) == 8_000


def test_a_session_continues_with_the_owners_password(logins: TokenLogins) -> None:
    """Kafka compares type and name only. The last authentication decides how long the session lasts."""
    exchange = session(logins, 0)
    assert authenticate(exchange, "ann", "pw", 2_000, by_token=False) == 0
    assert (exchange.principal, exchange.expires_ms) == (ANN, None)
