"""The authentication of one connection, as scripts: what the client sends, and what it gets.

A line of a script is a message, an arrow, and the answer. `+5` lets 5 ms pass. The digit of `handshake1` is the
version of the request; in tokens, `|` stands for NUL. With PLAIN, sessions of WITH_LIFETIME have a lifetime of 10 s.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.security.sasl.exchange import Mechanism, NotAnswered, Phase, SaslExchange
from moldau.security.sasl.mechanism import SaslRefusal, Step
from moldau.security.sasl.plain import PlainServer


class TwoSteps:
    """A mechanism in which the client says hello, then its name."""

    def __init__(self) -> None:
        self._is_greeted = False
        self.user_tried = ""

    def respond(self, token: bytes) -> Step:
        if token == b"hello" and not self._is_greeted:
            self._is_greeted = True
            return Step(b"who?")
        if not self._is_greeted or token == b"hello":
            raise SaslRefusal
        return Step(b"welcome", token.decode("latin-1"))


MESSAGES = {
    "<after-success>": "SaslAuthenticate request received after successful authentication",
    "<invalid>": "Authentication failed during authentication due to invalid credentials with SASL mechanism TWO",
    "<other-principal>": "Cannot change principals during re-authentication from User.ann: User.bob",
}
PASSWORDS = {"ann": "secret", "bob": "secret"}


class Script:
    def __init__(self, lifetime_ms: int) -> None:
        self.now_ms = 1000
        self.exchange = SaslExchange(
            {"PLAIN": Mechanism(lambda: PlainServer(PASSWORDS), lifetime_ms), "TWO": Mechanism(TwoSteps)}
        )

    def run(self, line: str) -> str:
        verb, *words = line.split()
        if verb.startswith("+"):
            self.now_ms += int(verb)
            return "expired" if self.exchange.is_expired(self.now_ms) else ""
        try:
            if verb.startswith("handshake"):
                error, mechanisms = self.exchange.handshake(words[0], int(verb[-1]), self.now_ms)
                answer = f"{error.name} {','.join(mechanisms)}".strip()
            else:
                token = words[0].replace("|", "\0").encode() if words else b""
                answered = self.exchange.authenticate(token, self.now_ms)
                parts = (answered.error.name, answered.message, answered.token.decode(), answered.lifetime_ms or "")
                answer = " ".join(str(part) for part in parts if part)
        except NotAnswered:
            answer = "no answer"
        principal = f" {self.exchange.principal}" if self.exchange.phase is Phase.AUTHENTICATED else ""
        return f"{answer}; {self.exchange.phase.name}{principal}"


SCRIPTS = {
    "success": """
        handshake1 PLAIN -> NONE PLAIN,TWO; TOKENS
        token |ann|secret -> NONE; AUTHENTICATED User:ann
        token |ann|secret -> ILLEGAL_SASL_STATE <after-success>; AUTHENTICATED User:ann
        handshake1 PLAIN -> ILLEGAL_SASL_STATE; AUTHENTICATED User:ann
        +9999999 ->
    """,
    "several tokens": """
        handshake1 TWO -> NONE PLAIN,TWO; TOKENS
        token hello -> NONE who?; TOKENS
        token ann -> NONE welcome; AUTHENTICATED User:ann
    """,
    "raw tokens": """
        handshake0 TWO -> NONE PLAIN,TWO; RAW_TOKENS
        token hello -> NONE who?; RAW_TOKENS
        token ann -> NONE welcome; AUTHENTICATED User:ann
    """,
    "wrong password": """
        handshake1 PLAIN -> NONE PLAIN,TWO; TOKENS
        token |ann|wrong -> SASL_AUTHENTICATION_FAILED Authentication failed: Invalid username or password; FAILED
        token |ann|secret -> no answer; FAILED
    """,
    "a refusal without a reason": """
        handshake1 TWO -> NONE PLAIN,TWO; TOKENS
        token x -> SASL_AUTHENTICATION_FAILED <invalid>; FAILED
    """,
    "unknown mechanism": """
        handshake1 plain -> UNSUPPORTED_SASL_MECHANISM PLAIN,TWO; FAILED
        handshake1 PLAIN -> ILLEGAL_SASL_STATE; FAILED
    """,
    "token first": """
        token |ann|secret -> no answer; HANDSHAKE
    """,
    "handshake twice": """
        handshake1 PLAIN -> NONE PLAIN,TWO; TOKENS
        handshake1 PLAIN -> ILLEGAL_SASL_STATE; FAILED
    """,
}
WITH_LIFETIME = {
    "reauthentication": """
        handshake1 PLAIN -> NONE PLAIN,TWO; TOKENS
        token |ann|secret -> NONE 10000; AUTHENTICATED User:ann
        +1 ->
        handshake1 PLAIN -> NONE PLAIN,TWO; TOKENS
        token |ann|secret -> NONE 10000; AUTHENTICATED User:ann
        +999 ->
        handshake1 PLAIN -> ILLEGAL_SASL_STATE; AUTHENTICATED User:ann
        +1 ->
        handshake1 PLAIN -> NONE PLAIN,TWO; TOKENS
        token |ann|secret -> NONE 10000; AUTHENTICATED User:ann
        +9999 ->
        +1 -> expired
        handshake1 PLAIN -> NONE PLAIN,TWO; TOKENS
        token |ann|secret -> NONE 10000; AUTHENTICATED User:ann
        +1 ->
    """,
    "reauthentication as another user": """
        handshake1 PLAIN -> NONE PLAIN,TWO; TOKENS
        token |ann|secret -> NONE 10000; AUTHENTICATED User:ann
        handshake1 PLAIN -> NONE PLAIN,TWO; TOKENS
        token |bob|secret -> SASL_AUTHENTICATION_FAILED <other-principal>; FAILED
    """,
    "reauthentication with another mechanism": """
        handshake1 PLAIN -> NONE PLAIN,TWO; TOKENS
        token |ann|secret -> NONE 10000; AUTHENTICATED User:ann
        handshake1 TWO -> NONE PLAIN,TWO; TOKENS
        token hello -> no answer; FAILED
    """,
    "reauthentication with an unknown mechanism": """
        handshake1 PLAIN -> NONE PLAIN,TWO; TOKENS
        token |ann|secret -> NONE 10000; AUTHENTICATED User:ann
        handshake1 THREE -> UNSUPPORTED_SASL_MECHANISM PLAIN,TWO; FAILED
    """,
    "the lifetime is that of the mechanism": """
        handshake1 TWO -> NONE PLAIN,TWO; TOKENS
        token hello -> NONE who?; TOKENS
        token ann -> NONE welcome; AUTHENTICATED User:ann
        handshake1 TWO -> ILLEGAL_SASL_STATE; AUTHENTICATED User:ann
    """,
}  # fmt: skip


@pytest.mark.parametrize(
    ("lifetime_ms", "text"),
    [
        *(pytest.param(0, text, id=name) for name, text in SCRIPTS.items()),
        *(pytest.param(10_000, text, id=name) for name, text in WITH_LIFETIME.items()),
    ],
)
def test_an_exchange_follows_its_script(lifetime_ms: int, text: str) -> None:
    script = Script(lifetime_ms)
    lines = [line.strip() for line in text.strip().splitlines()]
    messages = [line.partition("->")[0].strip() for line in lines]
    found = "\n".join(f"{message} -> {script.run(message)}".strip() for message in messages)
    for short, message in MESSAGES.items():
        found = found.replace(message, short)
    assert found.splitlines() == lines


@given(
    st.lists(
        st.tuples(st.just("handshake"), st.sampled_from(["PLAIN", "TWO", "x"]), st.integers(0, 1))
        | st.tuples(st.just("token"), st.binary(max_size=40) | st.just(b"\0ann\0secret"), st.integers(0, 2000)),
        max_size=12,
    )
)
def test_arbitrary_messages_never_authenticate_without_the_password(messages: list[tuple[str, object, int]]) -> None:
    exchange, now_ms = SaslExchange({"PLAIN": Mechanism(lambda: PlainServer(PASSWORDS), 10_000)}), 0
    for verb, text, number in messages:
        try:
            if verb == "handshake":
                assert isinstance(text, str)
                exchange.handshake(text, number, now_ms)
            else:
                assert isinstance(text, bytes)
                exchange.authenticate(text, now_ms)
                now_ms += number
        except NotAnswered:
            continue
    if exchange.phase is Phase.AUTHENTICATED:
        assert ("token", b"\0ann\0secret") in [message[:2] for message in messages]
