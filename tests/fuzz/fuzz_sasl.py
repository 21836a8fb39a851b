"""Targets of SASL: whole exchanges on a connection, and the client's side against a hostile server."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random
from typing import Any, ClassVar, NamedTuple

from fuzz_checks import PLANTED, Limits, Violation, check_line
from fuzz_mutations import mutate, mutate_text
from fuzz_wire import Stateless
from test_sasl_session import SaslConnection

from moldau.base.limits import UNAUTHENTICATED_BUDGET_BYTES
from moldau.security.sasl.client import LoginFailed, PlainClient, ScramClient
from moldau.security.sasl.scram_messages import ScramKeys
from moldau.security.scram_credentials import ScramMechanism
from moldau.wire.apis import ApiKey
from moldau.wire.frames import request_frame
from moldau.wire.messages.api_versions import ApiVersionsRequest
from moldau.wire.messages.heartbeat import HeartbeatRequest
from moldau.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from moldau.wire.messages.sasl_handshake import SaslHandshakeRequest
from moldau.wire.schema import Message

PASSWORDS = {"ann": "secret", "bob": "secret"}
"""Those that the server of `test_sasl_session` knows; SCRAM knows only ann."""
SALT, ITERATIONS = b"salt", 4096
SHA_256 = ScramMechanism.SCRAM_SHA_256
MECHANISMS = ("PLAIN", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-256", "SCRAM-SHA-512", "", PLANTED)
SCRAM_WORDS = (
    ",",
    "=",
    "n=",
    "r=",
    "p=",
    "c=biws",
    "a=ann",
    ",ext=1",
    "=2C",
    "=3D",
    "tokenauth=true",
    "\0",
    "y,,",
    "p=x,,",
)


class QuickKeys(ScramKeys):
    """Derives a key once: thousands of hashes for each case would be most of the work."""

    _derived: ClassVar[dict[tuple[str, bytes, int], bytes]] = {}

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        key = (password, salt, iterations if iterations == ITERATIONS else 0)
        if key not in self._derived:
            if len(self._derived) > 1000:
                self._derived.clear()
            self._derived[key] = super().salted_password(password, salt, ITERATIONS if key[2] else 1)
        return self._derived[key]


class Step(NamedTuple):
    """What the client sends next: an API with a message, or a token; and how it is damaged."""

    kind: str
    version: int
    mechanism: str = ""
    damage: str = ""
    seed: int = 0


class Made(NamedTuple):
    steps: tuple[Step, ...]
    user: str
    password: str
    lifetime_ms: int
    nonce: str


KINDS = ("handshake", "token", "token", "token", "versions", "request", "raw", "wait")
DAMAGES = ("token", "token", "short", "short", "text", "frame", "body")


def _random_step(rng: Random) -> Step:
    damage = rng.choice(("", *DAMAGES))
    return Step(rng.choice(KINDS), rng.randrange(-1, 5), rng.choice(MECHANISMS), damage, rng.getrandbits(32))


class Exchanges(Stateless):
    """Conversations on a SASL listener: right and wrong messages in any order. No client is served as a user whose
    password it does not know."""

    name = "sasl"
    limits = Limits(operations=20_000, per_byte=100, memory=2_000_000)

    def make(self, rng: Random) -> Made:
        mechanism = rng.choice(MECHANISMS)
        if rng.random() < 0.7:  # an ordinary exchange, with something wrong in it
            version = rng.choice((1, 1, 0))
            token = "token" if version else "raw"
            tokens = 1 if mechanism == "PLAIN" else 2
            steps = [Step("handshake", version, mechanism), *[Step(token, rng.randrange(3)) for _ in range(tokens)]]
            steps.append(Step("request", 4))
            if rng.random() < 0.3:
                steps.insert(0, Step("versions", 3))
            if rng.random() < 0.2:
                steps += [Step("wait", 60_000), Step("handshake", 1, mechanism), Step("token", 2), Step("request", 4)]
            for _ in range(rng.choice((0, 1, 1, 2))):
                at = rng.randrange(len(steps))
                steps[at] = steps[at]._replace(damage=rng.choice(DAMAGES), seed=rng.getrandbits(32))
            if rng.random() < 0.2:
                steps.insert(rng.randrange(len(steps)), steps[rng.randrange(len(steps))])
        else:
            steps = [_random_step(rng) for _ in range(rng.randint(1, 8))]
        return Made(
            tuple(steps),
            rng.choice(("ann", "ann", "ann", "bob", "eve", PLANTED)),
            rng.choice(("secret", "secret", "secret", PLANTED)),
            rng.choice((0, 0, 60_000, 1)),
            f"{rng.getrandbits(64):x}",
        )

    def size_of(self, made: Made) -> int:
        return 200 * len(made.steps)

    def run(self, made: Made) -> None:
        connection = SaslConnection(made.lifetime_ms)
        client = _Client(made)
        for step in made.steps:
            if step.kind == "wait":
                connection.timers.advance(max(step.version, 0))
                continue
            connection.feed(client.frame(step))
            client.read(connection.sent)
            if connection.heartbeats.callers and connection.heartbeats.callers[-1] not in client.allowed:
                raise Violation(f"served as {connection.heartbeats.callers[-1]}")
        connection.timers.advance(31_000 if connection.closed is None and not connection.heartbeats.callers else 200)
        if connection.closed:
            check_line(connection.closed.encode("unicode_escape").decode())
        connection.close()
        if (connection.budget.free, connection.budget.of_strangers.free) != (1 << 20, UNAUTHENTICATED_BUDGET_BYTES):
            raise Violation("the memory for incomplete frames was not released")


class _Client:
    """A client that has a right or wrong password, and damages some of its messages."""

    def __init__(self, made: Made) -> None:
        self._made = made
        self._scram: ScramClient | None = None
        self._answer: bytes | None = None
        self._mechanism = ""
        self._correlation_ids = itertools.count(1)
        self.allowed: set[str] = set()
        """The principals as which it may be served: it has sent their password, or proven to know it."""

    def frame(self, step: Step) -> bytes:
        rng = Random(step.seed)
        message: tuple[ApiKey, Message]
        match step.kind:
            case "handshake":
                self._mechanism, self._scram, self._answer = step.mechanism, None, None
                message = ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(step.mechanism)
            case "token":
                message = ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(self._token(step, rng))
            case "raw":
                token = self._token(step, rng)
                return len(token).to_bytes(4, "big") + token
            case "versions":
                message = ApiKey.API_VERSIONS, ApiVersionsRequest(PLANTED, "1")
            case _:
                message = ApiKey.HEARTBEAT, HeartbeatRequest(PLANTED, 1, PLANTED)
        api, request = message
        low, high = type(request).VERSIONS
        version = min(max(step.version, low), high)
        frame = request_frame(api, version, next(self._correlation_ids), PLANTED, request)
        if step.damage == "frame":
            return bytes(mutate(frame, rng))
        if step.damage == "body":
            body = mutate(frame[4:], rng)
            return len(body).to_bytes(4, "big") + bytes(body)
        return bytes(frame)

    def _token(self, step: Step, rng: Random) -> bytes:
        token = self._right_token()
        if step.damage == "token":
            token = bytes(mutate(token or b"\0", rng))
        elif step.damage == "short":
            token = token[: rng.randrange(len(token) + 1)]
        elif step.damage == "text":
            token = mutate_text(token.decode(), rng, words=SCRAM_WORDS).encode()
        if token.count(b"\0") == 2:  # a damaged token may be right, too
            _, user, password = token.decode("utf-8", "replace").split("\0")
            if PASSWORDS.get(user) == password:
                self.allowed.add(f"User:{user}")
        return token

    def _right_token(self) -> bytes:
        if self._mechanism.startswith("SCRAM"):
            made = self._made
            if PASSWORDS.get(made.user) == made.password:
                self.allowed.add(f"User:{made.user}")
            if self._scram is None:
                self._scram = ScramClient(QuickKeys(SHA_256), made.user, made.password, made.nonce)
                return self._scram.first()
            return self._answer or b""
        return PlainClient(self._made.user, self._made.password).first()

    def read(self, sent: list[bytes]) -> None:
        """Take the server's first message from its response."""
        for reply in sent:
            if (at := reply.find(b"r=")) >= 0 and self._scram is not None:
                text = reply[at:].split(b"\0")[0]
                try:
                    self._answer = self._scram.respond(text)
                except LoginFailed:
                    self._answer = None
        sent.clear()


class HostileServer(Stateless):
    """A SCRAM client whose server sends anything: it must never trust a server that does not know the password."""

    name = "sasl client"
    limits = Limits(operations=20_000, per_byte=100, memory=1_000_000)

    def make(self, rng: Random) -> tuple[str, bytes, bytes]:
        nonce = f"{rng.getrandbits(64):x}"
        first = f"r={nonce}server,s=c2FsdA==,i=4096"
        final = rng.choice(("v=" + "A" * 43 + "=", "e=other-error", "v=", ""))
        damage: Callable[[str], bytes] = lambda text: (  # noqa: E731
            bytes(mutate(text.encode() or b"\0", rng))
            if rng.random() < 0.5
            else mutate_text(text, rng, words=SCRAM_WORDS).encode()
        )
        return nonce, damage(first) if rng.random() < 0.7 else first.encode(), damage(final)

    def size_of(self, made: Any) -> int:
        return sum(map(len, made))

    def run(self, made: tuple[str, bytes, bytes]) -> None:
        nonce, first, final = made
        client = ScramClient(QuickKeys(SHA_256), "ann", "secret", nonce)
        client.first()
        try:
            client.respond(first)
            client.respond(final)
        except LoginFailed as failed:
            check_line(str(failed))
        else:
            raise Violation("the client trusted a server that does not know the password")
