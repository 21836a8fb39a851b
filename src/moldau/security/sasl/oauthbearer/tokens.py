"""Verifies tokens: JSON Web Tokens that an identity provider has signed (RFC 7519), by the rules of Kafka's validator.

joserfc verifies the signature. The claims are checked here, since Kafka's rules are its own. Every refusal is one
sentence for the log; it quotes claims, escaped and shortened, but never the token or its signature.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from typing import Any, Final

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jws import JWSRegistry

from moldau.security.sasl.oauthbearer.keys import ALGORITHMS, VerificationKey, VerificationKeys
from moldau.security.sasl.oauthbearer.server import AccessToken, TokenRefused
from moldau.security.sasl.oauthbearer.settings import TokenRules

TOKEN_BYTES_MAX: Final = 64 << 10
HEADER_BYTES_MAX: Final = 8 << 10
SIGNATURE_BYTES_MAX: Final = 2 << 10
SECONDS_MAX: Final = 1 << 40
QUOTED_MAX: Final = 100


class UnknownKey(TokenRefused):
    """The token names a key that is not in the set; it may be there when the set is read again."""


class _Registry(JWSRegistry):
    max_header_length = HEADER_BYTES_MAX
    max_payload_length = TOKEN_BYTES_MAX
    max_signature_length = SIGNATURE_BYTES_MAX

    def get_alg(self, name: str) -> Any:
        """Return the algorithm, without the warning of joserfc that EdDSA has a newer name."""
        assert name in ALGORITHMS, "checked with the header"
        return self.algorithms[name]


_REGISTRY: Final = _Registry(strict_check_header=False)


def verify_token(token: str, keys: VerificationKeys, rules: TokenRules, now_ms: int) -> AccessToken:
    """Return who the token says its bearer is. Raise TokenRefused if it is not valid. `now_ms` is the time of day."""
    if len(token) > TOKEN_BYTES_MAX:
        raise TokenRefused(f"the token has {len(token)} bytes; at most {TOKEN_BYTES_MAX} are accepted")
    parts = token.split(".")
    if len(parts) != 3 or not parts[0] or not parts[1]:
        raise TokenRefused("the token is not a signed JWT: expected three parts")
    header = _read_object(parts[0], "header")
    if "crit" in header:
        raise TokenRefused("the token has critical parameters (crit) in its header, which are not supported")
    algorithm = _accepted_algorithm(header)
    key = _key_for(header.get("kid"), algorithm, keys)
    try:
        jws.deserialize_compact(token, key.key, registry=_REGISTRY)
    except (JoseError, ValueError, TypeError, RecursionError) as wrong:
        raise TokenRefused(f"the signature of the token is not valid ({type(wrong).__name__})") from None
    return _check_claims(_read_object(parts[1], "payload"), rules, now_ms)


def _accepted_algorithm(header: Mapping[str, Any]) -> str:
    algorithm = header.get("alg")
    if isinstance(algorithm, str) and algorithm in ALGORITHMS:
        return algorithm
    if isinstance(algorithm, str) and algorithm.lower() == "none":
        raise TokenRefused("the token is not signed (alg none)")
    if isinstance(algorithm, str) and algorithm.upper().startswith("HS"):
        raise TokenRefused(f"the token is signed with a shared secret (alg {_quoted(algorithm)}), not with a key")
    raise TokenRefused(f"the algorithm of the token ({_quoted(algorithm)}) is not one of {', '.join(ALGORITHMS)}")


def _key_for(key_id: object, algorithm: str, keys: VerificationKeys) -> VerificationKey:
    if key_id is None:
        fitting = keys.fitting(algorithm)
        if len(fitting) != 1:
            raise TokenRefused(f"the token names no key (kid), and {len(fitting)} keys fit its algorithm {algorithm}")
        return fitting[0]
    named = keys.named(key_id) if isinstance(key_id, str) else []
    if not named:
        raise UnknownKey(f"the key of the token (kid {_quoted(key_id)}) is not known")
    for each in named:
        if each.fits(algorithm):
            return each
    raise TokenRefused(f"the key of the token (kid {_quoted(key_id)}) is not for its algorithm {algorithm}")


def _read_object(part: str, what: str) -> dict[str, Any]:
    try:
        data = urlsafe_b64decode(part + "=" * (-len(part) % 4))
        found = json.loads(data, object_pairs_hook=_without_duplicates, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise TokenRefused(f"the {what} of the token is not JSON in base64, or has a member twice") from None
    if not isinstance(found, dict):
        raise TokenRefused(f"the {what} of the token is not a JSON object")
    return found


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _no_constant(name: str) -> None:
    raise ValueError


# --- claims -----------------------------------------------------------------------------------------------------


def _check_claims(claims: Mapping[str, Any], rules: TokenRules, now_ms: int) -> AccessToken:
    expires, issued = _required_time(claims, "exp"), _required_time(claims, "iat")
    not_before = _time(claims, "nbf")
    now, skew = now_ms / 1000, rules.clock_skew_seconds
    if now - skew >= expires:
        raise TokenRefused(f"the token has expired {now - expires:.0f} s ago (exp)")
    if not_before is not None and now + skew < not_before:
        raise TokenRefused(f"the token is not valid yet, but in {not_before - now:.0f} s (nbf)")
    if expires < issued or (not_before is not None and expires < not_before):
        raise TokenRefused("the token expires (exp) before it is issued (iat) or valid (nbf)")
    _check_issuer(claims.get("iss"), rules.issuer)
    _check_audience(claims.get("aud"), rules.audiences)
    _check_scope(rules.scope_claim, claims.get(rules.scope_claim))
    user = claims.get(rules.sub_claim)
    if not isinstance(user, str) or not user.strip():
        raise TokenRefused(f"the token has no user: the claim {rules.sub_claim} is missing, empty or not a text")
    return AccessToken(user.strip(), int(expires * 1000) - now_ms)


def _required_time(claims: Mapping[str, Any], name: str) -> float:
    value = _time(claims, name)
    if value is None:
        raise TokenRefused(f"the token lacks the claim {name}")
    return value


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= SECONDS_MAX:
        raise TokenRefused(f"the claim {name} of the token is not a time in seconds")
    return float(value)


def _check_issuer(issuer: object, expected: str | None) -> None:
    if issuer is not None and not isinstance(issuer, str):
        raise TokenRefused("the issuer of the token (iss) is not a text")
    if expected is not None and issuer != expected:
        raise TokenRefused(f"the issuer of the token is {_quoted(issuer)}, not {expected}")


def _check_audience(audience: object, expected: tuple[str, ...]) -> None:
    audiences = [] if audience is None else audience if isinstance(audience, list) else [audience]
    if not all(isinstance(each, str) for each in audiences):
        raise TokenRefused("the audience of the token (aud) is neither a text nor a list of texts")
    if not expected and audiences:
        # Kafka's rule: a token for somebody else must not be accepted because nobody said whom to expect.
        raise TokenRefused(
            f"the token is for the audience {_quoted(audiences)}, and sasl.oauthbearer.expected.audience is not set"
        )
    if expected and not set(expected).intersection(audiences):
        raise TokenRefused(f"the audience of the token is {_quoted(audiences)}, not {' or '.join(expected)}")


def _check_scope(name: str, scope: object) -> None:
    scopes = [scope] if isinstance(scope, str) else scope if isinstance(scope, list) else []
    if not all(isinstance(each, str) and each.strip() for each in scopes):
        raise TokenRefused(f"the claim {name} of the token has a scope that is empty or not a text")
    if len({each.strip() for each in scopes}) != len(scopes):
        raise TokenRefused(f"the claim {name} of the token has a scope twice")


def _quoted(value: object) -> str:
    """Return a value of the token for the log: its characters escaped, its length limited."""
    text = json.dumps(value)
    return text if len(text) <= QUOTED_MAX else f"{text[:QUOTED_MAX]}..."
