"""Tokens that are accepted and refused, signed by keys of all kinds; hostile tokens and key sets."""

from __future__ import annotations

import hmac
import json
import random
from hashlib import sha256
from typing import Any

import pytest
from harness.tokens import AUDIENCE, ISSUER, Key, part
from harness.tokens import Issuer as AnyIssuer
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from moldau.security.sasl.oauthbearer.keys import KEYS_MAX, parse_keys
from moldau.security.sasl.oauthbearer.server import AccessToken, TokenRefused
from moldau.security.sasl.oauthbearer.settings import TokenRules
from moldau.security.sasl.oauthbearer.tokens import TOKEN_BYTES_MAX, UnknownKey, verify_token

RULES = TokenRules((AUDIENCE, "other"), ISSUER, 30)
RSA = RSAKey.generate_key(2048)
NOW_MS = 1_800_000_000_000


class Issuer(AnyIssuer):
    def __init__(self, key: Key | None = None, algorithm: str = "ES256") -> None:
        super().__init__(key, algorithm, lambda: NOW_MS / 1000)


def verify(issuer: Issuer, token: str, rules: TokenRules = RULES, now_ms: int = NOW_MS) -> AccessToken:
    return verify_token(token, parse_keys(issuer.key_set()), rules, now_ms)


def refusal(issuer: Issuer, token: str, rules: TokenRules = RULES) -> str:
    with pytest.raises(TokenRefused) as refused:
        verify(issuer, token, rules)
    line = str(refused.value)
    assert token not in line
    assert len(line) < 500
    assert line.isprintable()
    return line


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.mark.parametrize(
    ("algorithm", "key"),
    [
        ("RS256", RSA),
        ("RS384", RSA),
        ("RS512", RSA),
        ("PS256", RSA),
        ("PS384", RSA),
        ("PS512", RSA),
        ("ES256", ECKey.generate_key("P-256")),
        ("ES384", ECKey.generate_key("P-384")),
        ("ES512", ECKey.generate_key("P-521")),
        ("Ed25519", OKPKey.generate_key("Ed25519")),
    ],
)
def test_every_algorithm_is_verified(algorithm: str, key: Any) -> None:
    issuer = Issuer(key, algorithm)
    token = issuer.token("ann", 100)
    verified = verify(issuer, token)
    assert verified == AccessToken("ann", 100_000)
    assert "signature" in refusal(issuer, f"{token[:-8]}{'A' * 8}")


@pytest.mark.parametrize("depth", range(900, 1_000))
def test_a_header_nested_to_the_limit_of_the_stack_is_refused(issuer: Issuer, depth: int) -> None:
    """The header is parsed twice, the second time a few calls deeper."""
    header = f'{{"alg": "ES256", "x": {"[" * depth}{"]" * depth}}}'
    with pytest.raises(TokenRefused):
        verify(issuer, f"{part(header.encode())}.{part(b'{}')}.AAAA")


@pytest.mark.parametrize("operations", [5, True, "verify", {"verify": 1}, ["sign"]])
def test_a_key_with_odd_operations_is_not_used(issuer: Issuer, operations: Any) -> None:
    keys = json.loads(issuer.key_set())
    keys["keys"][0]["key_ops"] = operations
    with pytest.raises(ValueError, match="none of its 1 keys can verify"):
        parse_keys(json.dumps(keys).encode())


def test_eddsa_is_accepted_under_its_old_name() -> None:
    issuer = Issuer(OKPKey.generate_key("Ed25519"), "EdDSA")
    with pytest.warns(UserWarning, match="EdDSA"):
        token = issuer.token()
    assert verify(issuer, token).user == "ann"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"exp": NOW_MS / 1000 - 31}, "the token has expired"),
        ({"exp": None}, "the token lacks the claim exp"),
        ({"exp": "tomorrow"}, "the claim exp of the token is not a time"),
        ({"exp": True}, "the claim exp of the token is not a time"),
        ({"exp": -5}, "the claim exp of the token is not a time"),
        ({"exp": 10**400}, "the claim exp of the token is not a time"),
        ({"iat": None}, "the token lacks the claim iat"),
        ({"iat": []}, "the claim iat of the token is not a time"),
        ({"iat": NOW_MS / 1000 + 10_000}, "expires (exp) before it is issued"),
        ({"nbf": NOW_MS / 1000 + 40}, "the token is not valid yet"),
        ({"nbf": "x"}, "the claim nbf of the token is not a time"),
        ({"iss": "https://evil.test"}, 'the issuer of the token is "https://evil.test", not https://issuer.test'),
        ({"iss": None}, "the issuer of the token is null"),
        ({"iss": 7}, "the issuer of the token (iss) is not a text"),
        ({"aud": "payroll"}, 'the audience of the token is ["payroll"], not kafka or other'),
        ({"aud": []}, "the audience of the token is []"),
        ({"aud": None}, "the audience of the token is []"),
        ({"aud": {"a": 1}}, "the audience of the token (aud) is neither"),
        ({"aud": ["kafka", 1]}, "the audience of the token (aud) is neither"),
        ({"sub": None}, "the token has no user"),
        ({"sub": ""}, "the token has no user"),
        ({"sub": " \t"}, "the token has no user"),
        ({"sub": ["ann"]}, "the token has no user"),
        ({"scope": ["a", "a "]}, "has a scope twice"),
        ({"scope": ["a", ""]}, "a scope that is empty"),
        ({"scope": [1]}, "a scope that is empty or not a text"),
        ({"scope": " "}, "a scope that is empty"),
        ({"iss": "\n\x1b[31m" + "x" * 10_000}, "the issuer of the token is"),
    ],
)
def test_wrong_claims_are_refused(issuer: Issuer, changes: dict[str, Any], sentence: str) -> None:
    assert sentence in refusal(issuer, issuer.token(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": NOW_MS / 1000 - 29},
        {"nbf": NOW_MS / 1000 + 29},
        {"aud": ["payroll", "other"]},
        {"scope": "read write"},
        {"scope": ["read", "write"]},
        {"scope": {"not": "a scope"}},
        {"sub": "  ann "},
        {"exp": int(NOW_MS / 1000) + 10, "nested": {"a": [1, {"b": None}]}},
    ],
)
def test_valid_claims_are_accepted(issuer: Issuer, changes: dict[str, Any]) -> None:
    assert verify(issuer, issuer.token(**changes)).user == "ann"


def test_the_claims_of_user_and_scope_can_be_configured(issuer: Issuer) -> None:
    rules = TokenRules((AUDIENCE,), ISSUER, 30, "scp", "email")
    assert verify(issuer, issuer.token(email="a@b.test", scp=["x"], scope=[1]), rules).user == "a@b.test"
    assert "the claim email is missing" in refusal(issuer, issuer.token(), rules)
    assert "a scope twice" in refusal(issuer, issuer.token(email="a", scp=["x", "x"]), rules)


def test_without_an_expected_audience_a_token_with_one_is_refused(issuer: Issuer) -> None:
    rules = TokenRules()
    assert verify(issuer, issuer.token(aud=None, iss="anybody"), rules).user == "ann"
    assert "expected.audience is not set" in refusal(issuer, issuer.token(), rules)


# --- attacks on the signature -----------------------------------------------------------------------------------


def forged(header: dict[str, Any], claims: Any, signature: bytes = b"") -> str:
    return f"{part(header)}.{part(claims)}.{part(signature)}"


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE"])
def test_unsigned_tokens_are_refused(issuer: Issuer, name: str) -> None:
    assert refusal(issuer, forged({"alg": name, "kid": "first"}, issuer.claims())) == (
        "the token is not signed (alg none)"
    )


def test_a_public_key_is_not_a_shared_secret() -> None:
    issuer = Issuer(RSA, "RS256")
    signing_input = f"{part({'alg': 'HS256', 'kid': 'first'})}.{part(issuer.claims())}"
    for secret in (RSA.as_pem(private=False), RSA.as_der(private=False)):
        signature = hmac.new(secret, signing_input.encode(), sha256).digest()
        line = refusal(issuer, f"{signing_input}.{part(signature)}")
        assert line == 'the token is signed with a shared secret (alg "HS256"), not with a key'


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES384", "Ed25519"])
def test_an_algorithm_that_does_not_fit_the_key_is_refused(issuer: Issuer, algorithm: str) -> None:
    token = forged({"alg": algorithm, "kid": "first"}, issuer.claims(), b"x" * 64)
    assert f"is not for its algorithm {algorithm}" in refusal(issuer, token)


@pytest.mark.parametrize("algorithm", ["ES256K", "dir", "", None, 7, ["ES256"], {"a": 1}, "A" * 5000, "\n"])
def test_unknown_algorithms_are_refused(issuer: Issuer, algorithm: Any) -> None:
    assert "the algorithm of the token" in refusal(issuer, forged({"alg": algorithm, "kid": "first"}, issuer.claims()))


@pytest.mark.parametrize("key_id", ["second", "", "../first", 7, ["first"], "k" * 5000])
def test_unknown_keys_are_refused(issuer: Issuer, key_id: Any) -> None:
    token = forged({"alg": "ES256", "kid": key_id}, issuer.claims(), b"x" * 64)
    assert "is not known" in refusal(issuer, token)
    with pytest.raises(UnknownKey):
        verify(issuer, token)


def test_a_token_of_another_issuer_with_the_same_key_id_is_refused(issuer: Issuer) -> None:
    assert "signature" in refusal(issuer, Issuer().token())


def test_keys_inside_the_token_are_not_used(issuer: Issuer) -> None:
    other = Issuer()
    public = other.key.as_dict(private=False)
    for header in ({"jwk": public}, {"jku": "https://evil.test/"}, {"x5c": ["AAAA"]}, {"x5u": "https://evil.test/"}):
        assert "signature" in refusal(issuer, other.token(header=header))
        assert verify(issuer, issuer.token(header=header)).user == "ann"


def test_critical_parameters_are_refused(issuer: Issuer) -> None:
    token = forged({"alg": "ES256", "kid": "first", "crit": ["b64"], "b64": False}, issuer.claims(), b"x" * 64)
    assert "critical parameters" in refusal(issuer, token)


def test_a_changed_payload_is_refused(issuer: Issuer) -> None:
    header, _, signature = issuer.token().split(".")
    assert "signature" in refusal(issuer, f"{header}.{part(issuer.claims('admin'))}.{signature}")


def test_a_token_without_a_key_id_needs_a_single_fitting_key() -> None:
    issuer = Issuer()
    token = issuer.token(header={"kid": None})
    assert verify(issuer, token).user == "ann"
    issuer.published.append(("another", ECKey.generate_key("P-256")))
    assert "names no key (kid), and 2 keys fit" in refusal(issuer, token)


def with_header(header: bytes) -> str:
    return f"{part(header)}.{part({})}.AAAA"


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "a.b",
        "a.b.c",
        "a.b.c.d",
        "a.b.c.d.e",
        with_header(b"[1]"),
        with_header(b"{"),
        with_header(b"[" * 20_000),
        with_header(b'{"alg":"ES256","alg":"none"}'),
        with_header(b"\xff\xfe"),
        "A" * 60_000,
        "." * 60_000,
    ],
)
def test_text_that_is_not_a_token_is_refused(issuer: Issuer, token: str) -> None:
    with pytest.raises(TokenRefused) as refused:
        verify(issuer, token)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    "payload",
    [b"", b"null", b"[]", b'"x"', b"{", b"[" * 20_000, b'{"exp":NaN}', b'{"sub":"a","sub":"admin"}', b"\xff"],
)
def test_signed_payloads_that_are_not_claims_are_refused(issuer: Issuer, payload: bytes) -> None:
    refusal(issuer, issuer.sign(payload))


def test_too_long_tokens_are_refused(issuer: Issuer) -> None:
    token = issuer.token(padding="x" * TOKEN_BYTES_MAX)
    assert refusal(issuer, token) == f"the token has {len(token)} bytes; at most {TOKEN_BYTES_MAX} are accepted"
    assert verify(issuer, issuer.token(padding="x" * 40_000)).user == "ann"


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)
HEADERS = st.fixed_dictionaries(
    {"alg": st.one_of(st.sampled_from(["ES256", "RS256", "none", "HS256", "EdDSA"]), JSON)},
    optional={
        "kid": st.one_of(st.just("first"), JSON),
        "b64": JSON,
        "typ": JSON,
        "crit": JSON,
        "x5c": JSON,
        "jwk": JSON,
    },
)
CLAIMS = st.fixed_dictionaries({}, optional=dict.fromkeys(("exp", "iat", "nbf", "iss", "aud", "sub", "scope"), JSON))
SHARED = Issuer()


@given(HEADERS, st.one_of(CLAIMS, JSON), st.binary(max_size=80))
def test_any_forged_token_is_refused(header: dict[str, Any], claims: Any, signature: bytes) -> None:
    refusal(SHARED, forged(header, claims, signature))


@given(CLAIMS)
def test_any_signed_claims_are_a_user_or_refused(claims: dict[str, Any]) -> None:
    token = SHARED.sign(json.dumps({**SHARED.claims(), **claims}).encode())
    try:
        user = verify(SHARED, token).user
    except TokenRefused:
        refusal(SHARED, token)
    else:
        assert user


def test_tokens_with_flipped_characters_are_refused(issuer: Issuer) -> None:
    token, rng = issuer.token(), random.Random(1)
    keys = parse_keys(issuer.key_set())
    characters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~+/="
    for _ in range(500):
        place = rng.randrange(len(token) - 1)  # some bits of the last character are padding
        other = rng.choice(characters.replace(token[place], ""))
        with pytest.raises(TokenRefused):
            verify_token(token[:place] + other + token[place + 1 :], keys, RULES, NOW_MS)


# --- key sets ---------------------------------------------------------------------------------------------------


def key_set(*keys: Any) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


PUBLIC = {**RSA.as_dict(private=False), "kid": "a"}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "it is not JSON"),
        (b"<html>", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"\xff", "it is not JSON"),
        (b"[]", "it is not a JSON Web Key Set"),
        (b'{"keys":{}}', "it is not a JSON Web Key Set"),
        (key_set(), "none of its 0 keys"),
        (key_set(1, None, "x", [], {}), "none of its 5 keys"),
        (key_set({**OctKey.generate_key(256).as_dict(), "kid": "a"}), "none of its 1 keys"),
        (key_set({**PUBLIC, "use": "enc"}), "none of its 1 keys"),
        (key_set({**PUBLIC, "key_ops": ["encrypt"]}), "none of its 1 keys"),
        (key_set({**PUBLIC, "kty": "PQ"}), "none of its 1 keys"),
        (key_set({**PUBLIC, "kid": 7}), "none of its 1 keys"),
        (key_set({**PUBLIC, "n": "AQAB"}), "none of its 1 keys"),
        (key_set({**PUBLIC, "n": "A" * 100_000}), "none of its 1 keys"),
        (key_set({**PUBLIC, "e": "A" * 300}), "none of its 1 keys"),
        (key_set({**PUBLIC, "e": None}), "none of its 1 keys"),
        (key_set({"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA"}), "none of its 1 keys"),
        (key_set({"kty": "EC", "crv": "P-999", "x": "AAAA", "y": "AAAA"}), "none of its 1 keys"),
        (key_set({"kty": "OKP", "crv": "Ed25519", "x": "AAAA"}), "none of its 1 keys"),
        (key_set(*[PUBLIC] * (KEYS_MAX + 1)), f"it has {KEYS_MAX + 1} keys"),
    ],
)
def test_wrong_key_sets_are_refused(data: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_keys(data)


def test_unusable_keys_are_left_out_and_private_parts_too() -> None:
    private = {**RSA.as_dict(private=True), "kid": "private"}
    keys = parse_keys(key_set(1, {"kty": "PQ"}, PUBLIC, {**PUBLIC, "use": "enc"}, private))
    assert len(keys) == 2
    assert all("d" not in each.key.as_dict() for each in keys.fitting("RS256"))


def test_a_key_for_one_algorithm_verifies_no_other() -> None:
    issuer = Issuer(RSA, "RS512")
    keys = parse_keys(key_set({**PUBLIC, "kid": "first", "alg": "RS256"}))
    with pytest.raises(TokenRefused, match="is not for its algorithm RS512"):
        verify_token(issuer.token(), keys, RULES, NOW_MS)


@given(st.one_of(st.binary(max_size=200), st.builds(lambda each: json.dumps(each).encode(), JSON)))
def test_arbitrary_bytes_are_refused_as_a_key_set(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse_keys(data)


@given(st.dictionaries(st.sampled_from(["kty", "crv", "x", "y", "n", "e", "kid", "use", "alg", "key_ops"]), JSON))
def test_any_changed_key_is_used_or_left_out(changes: dict[str, Any]) -> None:
    for key in (PUBLIC, SHARED.key.as_dict(private=False)):
        assert len(parse_keys(key_set(PUBLIC, {**key, **changes}))) in (1, 2)
