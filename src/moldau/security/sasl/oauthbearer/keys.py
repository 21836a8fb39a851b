"""The public keys of an identity provider, from a JSON Web Key Set (RFC 7517).

Only what can verify a signature is kept: no symmetric keys, no short ones, no private parts. A key of a kind that is
not known is left out, as the RFC demands; a set without any usable key is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

JWKS_BYTES_MAX: Final = 1 << 20
KEYS_MAX: Final = 1000
RSA_BITS_MIN: Final = 2048
RSA_BITS_MAX: Final = 8192
"""A longer key would keep the node busy for milliseconds at each login, and so would a long exponent."""
RSA_EXPONENT_CHARACTERS_MAX: Final = 11
"""64 bits in base64."""

Key = RSAKey | ECKey | OKPKey
_KINDS: Final[Mapping[str, tuple[type[RSAKey] | type[ECKey] | type[OKPKey], tuple[str, ...]]]] = {
    "RSA": (RSAKey, ("n", "e")),
    "EC": (ECKey, ("crv", "x", "y")),
    "OKP": (OKPKey, ("crv", "x")),
}
_RSA: Final = ("RSA", "")
ALGORITHMS: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), _RSA),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
    "Ed25519": ("OKP", "Ed25519"),
}
"""The algorithms of signatures that are accepted, with the kind and curve of their keys."""
_SLOW_CURVES: Final = ("P-384", "P-521")
"""Verifying a signature with one of these takes more than a millisecond, with the others a tenth of one."""


class VerificationKey:
    def __init__(self, key: Key, key_id: str | None, algorithm: str | None, kind: tuple[str, str]) -> None:
        self.key = key
        self.id = key_id
        self._algorithm = algorithm
        """The only one for which the key may be used; None: any that fits its kind."""
        self._kind = kind
        self.is_slow = kind[1] in _SLOW_CURVES

    def fits(self, algorithm: str) -> bool:
        return self._algorithm in (None, algorithm) and ALGORITHMS.get(algorithm) == self._kind


class VerificationKeys:
    def __init__(self, keys: list[VerificationKey]) -> None:
        self._keys = keys
        self.has_slow = any(each.is_slow for each in keys)

    def __len__(self) -> int:
        return len(self._keys)

    def named(self, key_id: str) -> list[VerificationKey]:
        return [each for each in self._keys if each.id == key_id]

    def fitting(self, algorithm: str) -> list[VerificationKey]:
        return [each for each in self._keys if each.fits(algorithm)]


def parse_keys(data: bytes) -> VerificationKeys:
    """Raise ValueError, with the reason, if the data is not a set of keys."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    entries = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(entries, list):
        raise ValueError("it is not a JSON Web Key Set: expected an object with a list of keys")
    if len(entries) > KEYS_MAX:
        raise ValueError(f"it has {len(entries)} keys; expected at most {KEYS_MAX}")
    keys = list(_usable(entries))
    if not keys:
        raise ValueError(f"none of its {len(entries)} keys can verify a signature; expected RSA, EC or Ed25519")
    return VerificationKeys(keys)


def _usable(entries: list[Any]) -> Iterator[VerificationKey]:
    for entry in entries:
        if isinstance(entry, dict) and (key := _import(entry)) is not None:
            yield key


def _import(entry: dict[str, Any]) -> VerificationKey | None:
    kind = entry.get("kty")
    operations = entry.get("key_ops")
    is_for_signatures = entry.get("use", "sig") == "sig" and (
        operations is None or (isinstance(operations, list) and "verify" in operations)
    )
    if not isinstance(kind, str) or kind not in _KINDS or not is_for_signatures:
        return None
    key_id, algorithm = entry.get("kid"), entry.get("alg")
    if not isinstance(key_id, str | None) or not isinstance(algorithm, str | None):
        return None
    key_class, members = _KINDS[kind]
    public = {"kty": kind, **{name: entry[name] for name in members if isinstance(entry.get(name), str)}}
    if kind == "RSA" and not _has_usable_size(public.get("n", ""), public.get("e", "")):
        return None
    try:
        key = key_class.import_key(public)
    except (JoseError, ValueError, TypeError, KeyError, UnsupportedAlgorithm):
        return None
    usable = VerificationKey(key, key_id, algorithm, (kind, public.get("crv", "")))
    return usable if any(map(usable.fits, ALGORITHMS)) else None


def _has_usable_size(modulus: str, exponent: str) -> bool:
    """Whether the numbers of an RSA key, in base64, are neither too short nor too long."""
    bits = len(modulus.rstrip("=")) * 6
    return RSA_BITS_MIN <= bits <= RSA_BITS_MAX + 16 and len(exponent) <= RSA_EXPONENT_CHARACTERS_MAX
