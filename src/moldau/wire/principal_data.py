"""A principal as bytes, in the form in which brokers put it into an envelope: Kafka's DefaultPrincipalData, with its
version before it.
"""

from __future__ import annotations

from typing import Final

from moldau.base.errors import MalformedData
from moldau.wire.codec import decode_from, encode
from moldau.wire.schema import Message

VERSION: Final = 0


class PrincipalData(Message):
    __slots__ = ("name", "token_authenticated", "type")
    VERSIONS = (0, 0)
    FLEXIBLE = 0
    SCHEMA = """
        type string 0+
        name string 0+
        token_authenticated bool 0+
    """

    def __init__(self, type: str = "", name: str = "", token_authenticated: bool = False) -> None:
        self.type = type
        self.name = name
        self.token_authenticated = token_authenticated


def principal_bytes(principal: PrincipalData) -> bytes:
    out = bytearray(VERSION.to_bytes(2, "big"))
    encode(principal, VERSION, out)
    return bytes(out)


def read_principal(data: bytes | memoryview) -> PrincipalData:
    """Raise MalformedData for anything but a principal."""
    if bytes(data[:2]) != VERSION.to_bytes(2, "big"):
        raise MalformedData("a principal in an unknown version")
    principal, _ = decode_from(PrincipalData, memoryview(data), VERSION, 2)
    return principal
