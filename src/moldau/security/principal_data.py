"""The principal of a forwarded request as bytes, in the format of Kafka's DefaultPrincipalData: the version as int16,
then the fields.
"""

from __future__ import annotations

from typing import Final

from moldau.base.buffers import Buffer
from moldau.base.errors import MalformedData
from moldau.security.principals import PRINCIPAL_LENGTH_MAX, Principal
from moldau.wire.codec import decode_from, encode
from moldau.wire.schema import Message

VERSION_BYTES: Final = 2


class DefaultPrincipalData(Message):
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


def principal_bytes(principal: Principal) -> bytes:
    version = DefaultPrincipalData.VERSIONS[1]
    out = bytearray(version.to_bytes(VERSION_BYTES, "big"))
    encode(DefaultPrincipalData(*principal), version, out)
    return bytes(out)


def read_principal(data: Buffer) -> Principal:
    """Raise MalformedData if the bytes are no principal."""
    version = int.from_bytes(data[:VERSION_BYTES], "big")
    if len(data) < VERSION_BYTES or version > DefaultPrincipalData.VERSIONS[1]:
        raise MalformedData(f"principal of version {version}, {len(data)} bytes: is not supported")
    read, _ = decode_from(DefaultPrincipalData, data, version, VERSION_BYTES)
    if not read.type or not read.name or len(read.type) + len(read.name) > PRINCIPAL_LENGTH_MAX:
        raise MalformedData("principal without type or name, or too long")
    return Principal(read.type, read.name, read.token_authenticated)
