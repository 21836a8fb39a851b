"""The first users of a new cluster: `kafka-storage format --add-scram 'SCRAM-SHA-256=[name=ann,password=secret]'`.

The tool writes their credentials to `bootstrap.checkpoint`, and the first active controller takes them from there. No
error quotes what may be a piece of a password.
"""

from __future__ import annotations

import os
import re
from base64 import b64decode
from typing import Final

from moldau.base.limits import SALT_BYTES
from moldau.cli.kafka.java.numbers import parse_integer
from moldau.cli.kafka.tool import ToolFailed
from moldau.security.sasl.mechanism import SCRAM_MECHANISMS
from moldau.security.sasl.scram_messages import ITERATIONS_MAX, ITERATIONS_MIN, ScramKeys
from moldau.wire.log_records.metadata import UserScramCredentialRecord

NAMES: Final = frozenset(("name", "password", "saltedpassword", "salt", "iterations"))
_MECHANISM_NAME: Final = re.compile("SCRAM-SHA-?[0-9]{1,4}", re.IGNORECASE)


def scram_record(text: str) -> UserScramCredentialRecord:
    """Parse an argument of --add-scram, and hash its password."""
    name, equals, config = text.strip().partition("=")
    if not equals:
        raise ToolFailed("Failed to find equals sign in SCRAM argument")
    mechanism = SCRAM_MECHANISMS.get(name)
    if mechanism is None:
        # A name that is none of Kafka's form may be a piece of a password.
        shown = f" {name}" if _MECHANISM_NAME.fullmatch(name) else ""
        raise ToolFailed(f"The add-scram mechanism{shown} is not supported.")
    if not config.startswith("["):
        raise ToolFailed("Expected configuration string to start with [")
    if not config.endswith("]"):
        raise ToolFailed("Expected configuration string to end with ]")
    parts = dict(_part(part) for part in config[1:-1].split(","))
    if parts.keys() - NAMES:
        raise ToolFailed(f"Unknown SCRAM configurations; expected only {', '.join(sorted(NAMES))}")
    user = parts.get("name")
    if not user:
        raise ToolFailed("You must supply 'name' to add-scram")
    iterations = _iterations(parts.get("iterations"), mechanism.name)
    keys = ScramKeys(mechanism)
    salt = _decoded(parts["salt"], "salt") if "salt" in parts else os.urandom(SALT_BYTES)
    if "password" in parts:
        salted = keys.salted_password(parts["password"], salt, iterations)
    elif "saltedpassword" not in parts:
        raise ToolFailed("You must supply one of 'password' or 'saltedpassword' to add-scram")
    elif "salt" not in parts:
        raise ToolFailed("You must supply 'salt' with 'saltedpassword' to add-scram")
    else:
        salted = _decoded(parts["saltedpassword"], "saltedPassword")
    return UserScramCredentialRecord(user, mechanism, *keys.credential(salted, salt, iterations))


def _part(text: str) -> tuple[str, str]:
    name, equals, value = text.strip().partition("=")
    if not equals:
        raise ToolFailed("Failed to find equals sign in SCRAM argument; a password must not have a comma")
    value = value.strip()
    if len(value) >= 2 and value.startswith('"') and value.endswith('"'):
        value = value[1:-1]
    return name.strip(), value


def _iterations(text: str | None, mechanism: str) -> int:
    try:
        iterations = ITERATIONS_MIN if text is None else parse_integer(text)
    except ValueError:
        raise ToolFailed("Failed to parse iterations count") from None
    if iterations < ITERATIONS_MIN:
        raise ToolFailed(f"The 'iterations' value must be >= {ITERATIONS_MIN} for add-scram using {mechanism}")
    if iterations > ITERATIONS_MAX:
        raise ToolFailed(f"The 'iterations' value must be <= {ITERATIONS_MAX} for add-scram using {mechanism}")
    return iterations


def _decoded(text: str, name: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:  # also what binascii.Error is; plain for text that is not ASCII
        raise ToolFailed(f"Failed to decode given {name}") from None
