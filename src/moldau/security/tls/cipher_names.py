"""Names of cipher suites: Java uses those of IANA, OpenSSL its own for TLS 1.2. Both are understood."""

from __future__ import annotations

import re
from typing import Final

TLS_13_SUITES: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
"""The suites of TLS 1.3 that OpenSSL enables. They have the same name everywhere."""
_REPLACEMENTS: Final = (
    (re.compile(r"_CBC_(?=SHA)"), "_"),
    (re.compile(r"CHACHA20_POLY1305_SHA256"), "CHACHA20-POLY1305"),
    (re.compile(r"(AES|CAMELLIA)_(\d+)_"), r"\1\2_"),
    (re.compile(r"CCM_8$"), "CCM8"),
)
_UNSAFE: Final = re.compile(r"NULL|anon|^A(?:EC)?DH-|EXPORT|[^A-Za-z0-9_-]")
"""Suites that do not encrypt, do not authenticate or are weak, and the operators of OpenSSL's expressions."""


def is_safe(name: str) -> bool:
    """Whether the name of a suite promises encryption and authentication. OpenSSL's keywords for several suites, such
    as ALL, are for the caller to find: they are not in its list of suites."""
    return not _UNSAFE.search(name)


def openssl_name(name: str) -> str:
    """Return OpenSSL's name of a suite of TLS 1.2 with AES, Camellia or ChaCha20, by certificates; a name that is not
    IANA's is returned as it is."""
    if not name.startswith("TLS_") or "_WITH_" not in name:
        return name
    exchange, _, cipher = name.removeprefix("TLS_").partition("_WITH_")
    for pattern, replacement in _REPLACEMENTS:
        cipher = pattern.sub(replacement, cipher)
    joined = cipher if exchange == "RSA" else f"{exchange}_{cipher}"
    return joined.replace("_", "-")
