"""PLAIN and SCRAM, server and client, compared with the vectors of the RFCs."""

from __future__ import annotations

from base64 import b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.security.sasl.client import ITERATIONS_ACCEPTED_MAX, ClientLogin, LoginFailed, ScramClient
from moldau.security.sasl.mechanism import PLAIN, SCRAM_MECHANISMS, SaslRefusal, ServerMechanism, Step
from moldau.security.sasl.plain import PlainServer
from moldau.security.sasl.scram import ScramServer, ScramUsers
from moldau.security.sasl.scram_messages import ScramKeys, base64_text
from moldau.security.scram_credentials import ScramCredential, ScramMechanism

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
PASSWORDS = {"ann": "secret", "a,b=c": "x"}
Credentials = dict[tuple[int, str], ScramCredential]


def credentials(**passwords: str) -> Credentials:
    return {
        (mechanism, user): keys.credential(keys.salted_password(password, b"salt", 4096), b"salt", 4096)
        for mechanism in (SHA_256, SHA_512)
        for keys in [ScramKeys(mechanism)]
        for user, password in passwords.items()
    }


PASSWORD_MECHANISMS = (PLAIN, *SCRAM_MECHANISMS)
STORED = credentials(**PASSWORDS)


def scram_server(
    mechanism: ScramMechanism = SHA_256, stored: Credentials = STORED, nonce: str = "server"
) -> ScramServer:
    return ScramServer(ScramUsers(mechanism, lambda: stored, lambda: b"secret"), lambda: nonce)


def server_of(mechanism: str) -> ServerMechanism:
    if mechanism == "PLAIN":
        return PlainServer(PASSWORDS)
    return scram_server(SHA_256 if mechanism.endswith("256") else SHA_512)


def log_in(mechanism: str, user: str, password: str) -> Step:
    client, server = ClientLogin(mechanism, user, password).begin("me"), server_of(mechanism)
    step, token = Step(b""), client.first()
    while token is not None:
        step = server.respond(token)
        token = client.respond(step.token)  # type: ignore[assignment]
    return step


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
@pytest.mark.parametrize("user", PASSWORDS)
def test_the_right_password_logs_in(mechanism: str, user: str) -> None:
    assert log_in(mechanism, user, PASSWORDS[user]).user == user


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("ann", "Secret"), ("ann", "secret "), ("bob", "secret")])
def test_a_wrong_password_and_an_unknown_user_are_refused(mechanism: str, user: str, password: str) -> None:
    with pytest.raises(SaslRefusal) as refusal:
        log_in(mechanism, user, password)
    expected = "Authentication failed: Invalid username or password" if mechanism == "PLAIN" else None
    assert refusal.value.message == expected


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"ann\0secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0ann\0secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0" * 9, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0ann\0", "Authentication failed: password not specified"),
        (b"bob\0ann\0wrong", "Authentication failed: Invalid username or password"),
        (
            b"bob\0ann\0secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"\0ann\0\xff\xfe", "Authentication failed: Invalid username or password"),
    ],
)
def test_malformed_or_wrong_plain_tokens_are_refused(token: bytes, message: str) -> None:
    with pytest.raises(SaslRefusal) as refusal:
        PlainServer(PASSWORDS).respond(token)
    assert refusal.value.message == message


def test_plain_accepts_the_users_own_authorization_id() -> None:
    assert PlainServer(PASSWORDS).respond(b"ann\0ann\0secret") == Step(b"", "ann")


VECTORS = {
    # RFC 7677, section 3
    SHA_256: (
        "rOprNGfwEbeRWgbNEkqO",
        "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        "W22ZaJ0SNY7soEsUEjb6gQ==",
        "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
    # No RFC has one for SHA-512; several libraries test with this one.
    SHA_512: (
        "rOprNGfwEbeRWgbNEkqO",
        "02431b08-2f89-4bad-a4e6-80c0564ec865",
        "Yin2FuHTt/M0kJWb0t9OI32n2VmOGi3m+JfjOvuDF88=",
        "Hc5yec3NmCD7t+kFRw4/3yD6/F3SQHc7AVYschRja+Bc3sbdjlA0eH1OjJc0DD4ghn1tnXN5/Wr6qm9xmaHt4A==",
        "BQuhnKHqYDwQWS5jAw4sZed+C9KFUALsbrq81bB0mh+bcUUbbMPNNmBIupnS2AmyyDnG5CTBQtkjJ9kyY4kzmw==",
    ),
}


@pytest.mark.parametrize("mechanism", VECTORS)
def test_scram_messages_equal_published_vectors(mechanism: ScramMechanism) -> None:
    client_nonce, server_nonce, salt, proof, signature = VECTORS[mechanism]
    keys = ScramKeys(mechanism)
    salted = keys.salted_password("pencil", b64decode(salt), 4096)
    stored = {(int(mechanism), "user"): keys.credential(salted, b64decode(salt), 4096)}
    client = ScramClient(keys, "user", "pencil", client_nonce)
    server = scram_server(mechanism, stored, server_nonce)
    assert client.first() == f"n,,n=user,r={client_nonce}".encode()
    server_first = server.respond(client.first())
    assert server_first == Step(f"r={client_nonce}{server_nonce},s={salt},i=4096".encode())
    client_final = client.respond(server_first.token)
    assert client_final == f"c=biws,r={client_nonce}{server_nonce},p={proof}".encode()
    server_final = server.respond(client_final)
    assert server_final == Step(f"v={signature}".encode(), "user")
    assert client.respond(server_final.token) is None


def signed(bare: str, server_first: bytes, without_proof: str) -> bytes:
    """Return a final message with ann's proof for exactly these messages."""
    keys = ScramKeys(SHA_256)
    client_key = keys.client_key(keys.salted_password("secret", b"salt", 4096))
    signature = keys.mac(keys.hashed(client_key), f"{bare},{server_first.decode()},{without_proof}".encode())
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{without_proof},p={base64_text(proof)}".encode()


def test_extensions_are_part_of_the_signed_message() -> None:
    """A client may sign extensions that the server does not know; the server must include them."""
    server, bare = scram_server(), "n=ann,r=me,x=1,y=z=2"
    first = server.respond(f"n,a=ann,{bare}".encode()).token
    assert server.respond(signed(bare, first, "c=bixhPWFubiw=,r=meserver,e=5")).user == "ann"


@pytest.mark.parametrize("without_proof", ["c=biws,r=me", "c=biws,r=meother", "c=eSws,r=meserver", "c=,r=meserver"])
def test_a_right_proof_with_another_nonce_or_channel_is_refused(without_proof: str) -> None:
    """CVE-2024-56128: the nonce must be the one that the server sent."""
    server, bare = scram_server(), "n=ann,r=me"
    first = server.respond(f"n,,{bare}".encode()).token
    with pytest.raises(SaslRefusal):
        server.respond(signed(bare, first, without_proof))


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"n,,n=ann",
        b"y,,n=ann,r=x",
        b"p=tls-unique,,n=ann,r=x",
        b"n,,n=,r=x",
        b"n,,n=a=b,r=x",
        b"n,,n=ann,r=",
        b"n,,n=ann,r=x y",
        b"n,,n=\xc4\x8d,r=x",
        b"n,,n=\xff,r=x",
        b"n,,n=ann,r=x,tokenauth=true",
        b"n,,n=%b,r=x" % (b"a" * (16 << 10)),
    ],
)
def test_malformed_first_messages_are_refused(token: bytes) -> None:
    server = scram_server()
    with pytest.raises(SaslRefusal):
        server.respond(token)
    with pytest.raises(SaslRefusal):
        server.respond(b"n,,n=ann,r=x")


def test_an_authorization_id_of_another_user_is_refused() -> None:
    with pytest.raises(SaslRefusal, match="different from username"):
        scram_server().respond(b"n,a=root,n=ann,r=x")


@pytest.mark.parametrize(
    "change",
    [
        lambda final: final.replace(b"meserver", b"me"),
        lambda final: final.replace(b"meserver", b"meserver2"),
        lambda final: final.replace(b"c=biws", b"c=eSws"),
        lambda final: final.replace(b"p=", b"p=AAAA"),
        lambda final: final[:-4],
        lambda final: final[: final.index(b"p=")] + b"p=",
        lambda final: final[: final.index(b",p=")],
        lambda final: b"",
    ],
)
def test_a_changed_final_message_is_refused(change: object) -> None:
    server = scram_server()
    client = ScramClient(ScramKeys(SHA_256), "ann", "secret", "me")
    final = client.respond(server.respond(client.first()).token)
    assert callable(change)
    with pytest.raises(SaslRefusal):
        server.respond(change(final))
    with pytest.raises(SaslRefusal):
        server.respond(final or b"")


def test_an_unknown_user_gets_a_stable_salt_like_a_known_one() -> None:
    first, again = (scram_server().respond(b"n,,n=nobody,r=x").token for _ in range(2))
    assert first == again
    assert first != scram_server().respond(b"n,,n=nobody2,r=x").token
    assert first.endswith(b",i=4096")
    salt = b64decode(first.split(b",s=")[1].split(b",")[0])
    assert len(salt) == len(b"salt")


def test_made_up_credentials_have_the_form_of_those_that_exist() -> None:
    stored = {(int(SHA_256), "a"): ScramCredential(bytes(40), b"", b"", 8192)}
    stored |= {(int(SHA_512), f"u{number}"): ScramCredential(b"abc", b"", b"", 4096) for number in range(99)}
    made_up, is_known = ScramUsers(SHA_256, lambda: stored, bytes).find("nobody")
    assert not is_known
    assert (made_up.iterations, len(made_up.salt)) == (8192, 40)
    empty, _ = ScramUsers(SHA_256, dict, bytes).find("nobody")
    assert (empty.iterations, empty.salt.isalnum()) == (4096, True)


def test_too_few_iterations_are_refused() -> None:
    weak = {(int(SHA_256), "ann"): ScramCredential(b"salt", b"k" * 32, b"k" * 32, 4095)}
    with pytest.raises(SaslRefusal):
        scram_server(stored=weak).respond(b"n,,n=ann,r=x")


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"r=you,s=c2FsdA==,i=4096",
        b"r=me,s=c2FsdA==,i=4096",
        b"r=meserver,s=c2FsdA==,i=4095",
        b"r=meserver,s=c2FsdA==,i=%d" % (ITERATIONS_ACCEPTED_MAX + 1),
        b"r=meserver,s=c2FsdA==,i=999999999999999999999",
        b"r=meserver,s=*,i=4096",
        b"\xff",
    ],
)
def test_a_client_rejects_a_wrong_server_first_message(token: bytes) -> None:
    client = ScramClient(ScramKeys(SHA_256), "ann", "secret", "me")
    with pytest.raises(LoginFailed):
        client.respond(token)


@pytest.mark.parametrize("token", [b"", b"v=", b"v=AAAA", b"e=other-error", b"v=*"])
def test_a_client_rejects_a_server_without_the_password(token: bytes) -> None:
    client = ScramClient(ScramKeys(SHA_256), "ann", "secret", "me")
    client.respond(b"r=meserver,s=c2FsdA==,i=4096")
    with pytest.raises(LoginFailed):
        client.respond(token)


def test_no_password_in_a_repr() -> None:
    assert "secret" not in repr(ClientLogin("PLAIN", "ann", "secret"))


TOKENS = st.binary(max_size=200) | st.lists(
    st.sampled_from([b"n,,", b"n=ann", b",", b"r=x", b"c=biws", b"p=", b"AAAA", b"=2C", b"\0", b"\xff", b"a=", b"x=1"]),
    max_size=12,
).map(b"".join)


@given(st.sampled_from(PASSWORD_MECHANISMS), st.lists(TOKENS, min_size=1, max_size=4))
def test_arbitrary_tokens_never_authenticate(mechanism: str, tokens: list[bytes]) -> None:
    server = server_of(mechanism)
    for token in tokens:
        try:
            step = server.respond(token)
        except SaslRefusal:
            continue
        assert step.user is None


@given(st.lists(TOKENS, min_size=1, max_size=3))
def test_a_client_rejects_arbitrary_server_messages(tokens: list[bytes]) -> None:
    client = ScramClient(ScramKeys(SHA_256), "ann", "secret", "me")
    for token in tokens:
        with pytest.raises(LoginFailed):
            client.respond(token)
