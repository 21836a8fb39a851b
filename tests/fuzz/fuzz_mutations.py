"""Mutations of valid bytes and texts, all from one random number generator.

Besides random bytes there are mutations that parsers often miss: huge counts, cut and repeated parts, and elements of
DER whose lengths are still right, so that the error is found only after the first check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

HUGE = (
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xfe",
    b"\x7f\xff",
    b"\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\x7f\xff\xff\xff\xff\xff\xff\xff",
    b"\x80\x00\x00\x00\x00\x00\x00\x00",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x80",
)
"""Counts, lengths and numbers in the ways in which the protocol writes them."""
ODD_BYTES = (0, 1, 2, 0x7F, 0x80, 0xFF)
ODD_TEXTS = (
    *"\0\n\r\t ,;=:\"'\\/$%{}[]()*+?.|#!-<>&@^~`",
    *("\\u", "\\uD800", "${", "//", "/*", "*/", "é", "𝄞", "\u2028", "\ufeff", "9" * 400, "-1", "2147483648"),
)


def flip(data: bytearray, rng: Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def overwrite(data: bytearray, rng: Random) -> None:
    data[rng.randrange(len(data))] = rng.choice(ODD_BYTES) if rng.random() < 0.5 else rng.randrange(256)


def cut(data: bytearray, rng: Random) -> None:
    del data[rng.randrange(len(data)) :]


def insert(data: bytearray, rng: Random) -> None:
    place = rng.randrange(len(data) + 1)
    data[place:place] = rng.randbytes(rng.randint(1, 8))


def remove(data: bytearray, rng: Random) -> None:
    place = rng.randrange(len(data))
    del data[place : place + rng.randint(1, 8)]


def claim(data: bytearray, rng: Random) -> None:
    """Write something huge where a count or length may be."""
    huge, place = rng.choice(HUGE), rng.randrange(len(data))
    data[place : place + rng.choice((1, len(huge)))] = huge


def step(data: bytearray, rng: Random) -> None:
    """Make a byte one more or one less: lengths that are off by one."""
    place = rng.randrange(len(data))
    data[place] = data[place] + rng.choice((-1, 1)) & 0xFF


def splice(data: bytearray, rng: Random) -> None:
    one, other = rng.randrange(len(data)), rng.randrange(len(data))
    data[one:one] = data[other : other + rng.choice((4, 16, 64))]


BYTE_MUTATIONS: tuple[Callable[[bytearray, Random], None], ...] = (
    flip, overwrite, cut, insert, remove, claim, step, splice,
)  # fmt: skip


def mutate(data: bytes | bytearray, rng: Random, most: int = 4) -> bytearray:
    """Return the bytes with one mutation, or a few."""
    mutated = bytearray(data)
    for _ in range(1 if rng.random() < 0.6 else rng.randint(1, most)):
        if not mutated:
            mutated.append(rng.randrange(256))
        rng.choice(BYTE_MUTATIONS)(mutated, rng)
    return mutated


def mutate_text(text: str, rng: Random, most: int = 5, words: Sequence[str] = ODD_TEXTS) -> str:
    """Return the text with some characters inserted, removed, doubled or replaced. `words` are what is inserted."""
    for _ in range(rng.randint(1, most)):
        place, length = rng.randrange(len(text) + 1), rng.choice((0, 0, 1, 1, 4, 30))
        match rng.randrange(4):
            case 0:
                text = text[:place] + rng.choice(words) + text[place + length :]
            case 1:
                text = text[:place] + text[place + length :]
            case 2:
                text = text[:place] + text[place : place + length] * 2 + text[place + length :]
            case 3:
                text = text[:place] + chr(rng.choice((rng.randrange(128), rng.randrange(0xD800)))) + text[place + 1 :]
    return text


# --- DER --------------------------------------------------------------------------------------------------------


def mutate_der(data: bytes, rng: Random) -> bytes:
    """Return the DER with one element changed somewhere inside, and the lengths around it corrected; sometimes with a
    mutation of the bytes on top of it."""
    mutated = _mutate_element(data, rng, 0)
    return bytes(mutate(mutated, rng, 2)) if rng.random() < 0.2 else mutated


def _mutate_element(data: bytes, rng: Random, depth: int) -> bytes:
    parts = _split(data)
    if not parts:
        return bytes(mutate(data, rng, 2)) if rng.random() < 0.9 else b""
    place = rng.randrange(len(parts))
    tag, content = parts[place]
    chance = rng.random()
    if tag & 0x20 and chance < (0.9 if depth < 6 else 0.5):
        parts[place] = tag, _mutate_element(content, rng, depth + 1)
    elif chance < 0.15:
        del parts[place]
    elif chance < 0.3:
        parts.insert(place, parts[rng.randrange(len(parts))])
    elif chance < 0.45:
        parts[place] = rng.choice((tag ^ 0x20, tag ^ 0x80, 0x1F, 0x05, rng.randrange(256))), content
    elif chance < 0.5:
        parts[place] = tag, content * rng.choice((2, 50))
    else:
        parts[place] = tag, bytes(mutate(content, rng, 2))
    return _joined(parts)


def without_mac(data: bytes) -> bytes:
    """Return a PKCS12 file without its message authentication code: it has a random salt, a mutated file would fail
    there and not go further, and a mutated number of iterations would take hours."""
    ((tag, content),) = _split(data)
    return _joined([(tag, _joined(_split(content)[:2]))])


def _joined(parts: list[tuple[int, bytes]]) -> bytes:
    return b"".join(bytes((tag,)) + der_length(len(content)) + content for tag, content in parts)


def der_length(length: int) -> bytes:
    if length < 0x80:
        return bytes((length,))
    encoded = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes((0x80 | len(encoded),)) + encoded


def _split(data: bytes) -> list[tuple[int, bytes]]:
    """Return tags and contents; nothing if the bytes are not DER."""
    parts: list[tuple[int, bytes]] = []
    position = 0
    while position + 2 <= len(data):
        tag, length = data[position], data[position + 1]
        position += 2
        if length >= 0x80:
            count = length & 0x7F
            length = int.from_bytes(data[position : position + count], "big")
            position += count
        if position + length > len(data):
            return []
        parts.append((tag, data[position : position + length]))
        position += length
    return parts if position == len(data) else []
