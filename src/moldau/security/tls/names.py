"""The names in a certificate: its subject as Java's `X500Principal.getName()` writes it, and its alternative names.

ACLs contain subjects as text, so every character has to be the one that Kafka writes (RFC 2253, with Java's choices).
`ssl.SSLSocket.getpeercert()` as a dict loses the types of values and the structure, hence the DER.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from typing import Final

from moldau.base.errors import MalformedData
from moldau.security.tls.der import (
    BOOLEAN,
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    SEQUENCE,
    SET,
    Element,
    dotted,
    elements,
    expect,
    single,
)

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attributes with a keyword in RFC 2253; all others are written as numbers and hexadecimal values."""
_STRING_TAGS: Final = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString. Java reads all of them as UTF-8."""
_ESCAPED: Final = {ord(char): f"\\{char}" for char in ',=+<>#;"\\'} | {0: "\\00"}
_BLANKS: Final = " \r"
_VERSION_TAG: Final = 0xA0
_EXTENSIONS_TAG: Final = 0xA3
_ALTERNATIVE_NAMES: Final = "2.5.29.17"
_INTEGER_TAG: Final = 0x02
_EMAIL, _DNS, _URI, _IP = 0x81, 0x82, 0x86, 0x87


def subject(certificate: bytes) -> str:
    """Return the distinguished name of a certificate's subject. Raise MalformedData if the DER is invalid."""
    rdns = [
        "+".join(_attribute(each) for each in elements(rdn.content)) for rdn in _tagged(_fields(certificate)[0], SET)
    ]
    return ",".join(reversed(rdns))


def alternative_names(certificate: bytes) -> frozenset[str]:
    """Return the subject alternative names of a certificate, each as TYPE:VALUE."""
    extensions = _fields(certificate)[1]
    for extension in _tagged(extensions, SEQUENCE):
        parts = elements(extension.content)
        if dotted(expect(parts, OBJECT_IDENTIFIER).content) != _ALTERNATIVE_NAMES:
            continue
        value = next(parts, None)
        if value is not None and value.tag == BOOLEAN:
            value = next(parts, None)
        if value is None or value.tag != OCTET_STRING:
            raise MalformedData("certificate: an extension without a value")
        return frozenset(_alternative_name(name) for name in elements(single(value.content, SEQUENCE).content))
    return frozenset()


def _fields(certificate: bytes) -> tuple[bytes, bytes]:
    """Return the content of the subject and of the list of extensions, which may be empty."""
    to_be_signed = expect(elements(single(certificate, SEQUENCE).content), SEQUENCE)
    fields = elements(to_be_signed.content)
    field = next(fields, None)
    if field is not None and field.tag == _VERSION_TAG:
        field = next(fields, None)
    if field is None or field.tag != _INTEGER_TAG:
        raise MalformedData("certificate: no serial number")
    for _ in range(3):  # the signature's algorithm, the issuer, the validity
        expect(fields, SEQUENCE)
    name = expect(fields, SEQUENCE).content
    for field in fields:
        if field.tag == _EXTENSIONS_TAG:
            return name, single(field.content, SEQUENCE).content
    return name, b""


def _tagged(data: bytes, tag: int) -> Iterator[Element]:
    for element in elements(data):
        if element.tag != tag:
            raise MalformedData(f"certificate: expected an element with tag {tag:#x}")
        yield element


def _attribute(attribute: Element) -> str:
    parts = elements(attribute.content)
    if attribute.tag != SEQUENCE:
        raise MalformedData("certificate: not an attribute of a name")
    kind = dotted(expect(parts, OBJECT_IDENTIFIER).content)
    value = next(parts, None)
    if value is None or next(parts, None) is not None:
        raise MalformedData("certificate: an attribute has exactly one value")
    if kind not in _KEYWORDS:
        return f"{kind}=#{value.encoded.hex()}"
    if value.tag not in _STRING_TAGS:
        return f"{_KEYWORDS[kind]}=#{value.encoded.hex()}"
    return f"{_KEYWORDS[kind]}={_escape(value.content.decode(errors='replace'))}"


def _escape(value: str) -> str:
    text = value.translate(_ESCAPED)
    first = len(text) - len(text.lstrip(_BLANKS))
    end = len(text.rstrip(_BLANKS))
    return "".join(f"\\{char}" if index < first or index >= end else char for index, char in enumerate(text))


def _alternative_name(name: Element) -> str:
    kinds = {_EMAIL: "EMAIL", _DNS: "DNS", _URI: "URI"}
    if name.tag in kinds:
        return f"{kinds[name.tag]}:{name.content.decode(errors='replace')}"
    if name.tag == _IP and len(name.content) in (4, 16):
        return f"IP:{ip_address(name.content)}"
    return f"{name.tag:#x}:{name.content.hex()}"
