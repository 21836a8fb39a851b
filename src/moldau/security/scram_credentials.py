"""What the cluster knows of a user's password: enough to check it with SCRAM, not enough to log in with."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class ScramMechanism(IntEnum):
    """The mechanisms with their codes in records and requests."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @classmethod
    def _missing_(cls, value: object) -> ScramMechanism:
        return cls.UNKNOWN

    def __str__(self) -> str:
        return self.name.replace("_", "-")


class ScramCredential(NamedTuple):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        """Leave the keys out: a log line must not contain them."""
        return f"ScramCredential(iterations={self.iterations})"
