"""A strict reader of DER, the encoding of certificates: just enough to find the names in one.

The bytes come from clients. Every length is checked against the bytes that are there, and anything that DER does not
allow (indefinite or padded lengths) raises MalformedData.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from moldau.base.errors import MalformedData

BOOLEAN: Final = 0x01
OCTET_STRING: Final = 0x04
OBJECT_IDENTIFIER: Final = 0x06
SEQUENCE: Final = 0x30
SET: Final = 0x31
_LONG_TAG: Final = 0x1F
_LENGTH_BYTES_MAX: Final = 4
_OBJECT_IDENTIFIER_BYTES_MAX: Final = 256


class Element(NamedTuple):
    tag: int
    content: bytes
    encoded: bytes
    """The whole element, with tag and length."""


def elements(data: bytes) -> Iterator[Element]:
    """Yield the elements that the bytes consist of."""
    position = 0
    while position < len(data):
        start = position
        tag = data[position]
        if tag & _LONG_TAG == _LONG_TAG:
            raise MalformedData("certificate: a tag of several bytes")
        position, length = _read_length(data, position + 1)
        end = position + length
        if end > len(data):
            raise MalformedData("certificate: an element is longer than the bytes around it")
        yield Element(tag, data[position:end], data[start:end])
        position = end


def expect(found: Iterator[Element], tag: int) -> Element:
    """Return the next element, which must have this tag."""
    element = next(found, None)
    if element is None or element.tag != tag:
        raise MalformedData(f"certificate: expected an element with tag {tag:#x}")
    return element


def single(data: bytes, tag: int) -> Element:
    """Return the only element of the bytes, which must have this tag."""
    found = elements(data)
    element = expect(found, tag)
    if next(found, None) is not None:
        raise MalformedData("certificate: bytes after the last element")
    return element


def dotted(content: bytes) -> str:
    """Return an object identifier as text: `2.5.4.3`."""
    if not content or content[-1] & 0x80 or len(content) > _OBJECT_IDENTIFIER_BYTES_MAX:
        raise MalformedData("certificate: not an object identifier")
    arcs: list[int] = []
    arc = 0
    is_first_byte = True
    for byte in content:
        if is_first_byte and byte == 0x80:
            raise MalformedData("certificate: an object identifier with padding")
        arc = arc << 7 | byte & 0x7F
        is_first_byte = not byte & 0x80
        if is_first_byte:
            arcs.append(arc)
            arc = 0
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, (first, arcs[0] - 40 * first, *arcs[1:])))


def _read_length(data: bytes, position: int) -> tuple[int, int]:
    """Return the position of the content and its length."""
    if position >= len(data):
        raise MalformedData("certificate: it ends before a length")
    first = data[position]
    if first < 0x80:
        return position + 1, first
    count = first & 0x7F
    end = position + 1 + count
    if not 1 <= count <= _LENGTH_BYTES_MAX or end > len(data):
        raise MalformedData("certificate: a length of no or too many bytes")
    length = int.from_bytes(data[position + 1 : end], "big")
    if length < 0x80 or length >> 8 * (count - 1) == 0:
        raise MalformedData("certificate: a length with padding")
    return end, length
