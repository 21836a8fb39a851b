"""Which client properties are secret, and how their values are kept out of a text."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from moldau.security.sasl.jaas import JaasError, parse_line

MASK: Final = "********"
LENGTH_MIN: Final = 4
"""A shorter secret is not masked: it would hide parts of ordinary words, and protects nothing anyway."""
SECRET_NAMES: Final = (
    r"password|passphrase|secret|jaas[.]config|keystore[.]key|ssl[.]key[.]pem|access[.]key|account[.]key|token$"
)
"""A regular expression, also for Spark, which is Java's: of the names of secret properties of Java's clients,
librdkafka, and Hadoop's object stores."""
_SECRET_NAME: Final = re.compile(SECRET_NAMES, re.IGNORECASE)


def is_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


def secret_values(properties: Mapping[str, str]) -> frozenset[str]:
    """Return the values that may not be shown, and the secret options inside a JAAS line."""
    values: set[str] = set()
    for name, value in properties.items():
        if is_secret(name):
            values |= {value, *_jaas_secrets(value)} if name.lower().endswith("jaas.config") else {value}
    return frozenset(values)


def _jaas_secrets(line: str) -> Collection[str]:
    try:
        options = parse_line(line).options
    except JaasError:
        return ()
    return {value for name, value in options.items() if is_secret(name)}


def masked(text: str, secrets: Collection[str]) -> str:
    """Return the text without the secrets. The longest goes first: one may be a part of another."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= LENGTH_MIN:
            text = text.replace(secret, MASK)
    return text
