"""PEM texts: finds keys and certificates in one, and writes them as OpenSSL reads them.

A text in a properties file may have spaces instead of its line ends.
"""

from __future__ import annotations

import binascii
import re
from typing import Final, NamedTuple

from moldau.base.errors import MalformedData

CERTIFICATE: Final = "CERTIFICATE"
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_LINE_LENGTH: Final = 64
_OLD_HEADER: Final = "Proc-Type:"


class Block(NamedTuple):
    label: str
    text: str
    """The block as PEM."""

    @property
    def is_certificate(self) -> bool:
        return self.label in (CERTIFICATE, "X509 CERTIFICATE", "TRUSTED CERTIFICATE")

    @property
    def is_key(self) -> bool:
        return self.label.endswith("PRIVATE KEY")

    @property
    def is_encrypted(self) -> bool:
        return self.label == "ENCRYPTED PRIVATE KEY" or _OLD_HEADER in self.text

    def __repr__(self) -> str:
        """Leave the text out: a log line must not contain a key."""
        return f"Block({self.label})"


def parse_blocks(text: str) -> list[Block]:
    """Return the blocks of a text. Raise MalformedData if one is damaged."""
    blocks = [Block(match[1], _rewrapped(match[1], match[2])) for match in _BLOCK.finditer(text)]
    if text.count("-----BEGIN ") != len(blocks):
        raise MalformedData("a PEM block has no end")
    return blocks


def der_of(block: Block) -> bytes:
    return binascii.a2b_base64("".join(block.text.splitlines()[1:-1]))


def _rewrapped(label: str, body: str) -> str:
    if _OLD_HEADER in body:  # a key encrypted in the format before PKCS 8: its header needs its own lines
        return f"-----BEGIN {label}-----{body}-----END {label}-----\n"
    joined = "".join(body.split())
    try:
        data = binascii.a2b_base64(joined, strict_mode=True)
    except (binascii.Error, ValueError):
        raise MalformedData(f"a PEM block ({label}) is damaged") from None
    if not data:
        raise MalformedData(f"a PEM block ({label}) is empty")
    return _pem(label, joined)


def _pem(label: str, base64: str) -> str:
    lines = (base64[at : at + _LINE_LENGTH] for at in range(0, len(base64), _LINE_LENGTH))
    return "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""))
