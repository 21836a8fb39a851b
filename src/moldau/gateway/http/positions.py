"""How far a reader has got, as text: `0:13,1:40` is the next offset of each partition."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from moldau.web.failures import bad_request

PARTITIONS_MAX: Final = 1_000
LENGTH_MAX: Final = 30_000
_fields: Final = msgspec.json.Decoder(dict[str, str])
_PAIR: Final = re.compile(r"([0-9]{1,9}):([0-9]{1,18})")


def text_of(positions: Mapping[int, int]) -> str:
    return ",".join([f"{partition}:{offset}" for partition, offset in positions.items()])


def positions_of(text: str) -> dict[int, int]:
    """Return the positions of a text. ApiError if it is none."""
    positions: dict[int, int] = {}
    for pair in text.split(",") if len(text) <= LENGTH_MAX else ():
        found = _PAIR.fullmatch(pair)
        if found is None or int(found[1]) in positions:
            break
        positions[int(found[1])] = int(found[2])
    else:
        if 0 < len(positions) <= PARTITIONS_MAX:
            return positions
    raise bad_request(f"{text[:40]!r} is no position: expected the next offset of each partition, such as 0:13,1:40")


def said(message: bytes, name: str) -> str | None:
    """Return the position in a message `{name: POSITION}`; None if it is no such message."""
    try:
        fields = _fields.decode(message)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return fields.get(name) if len(fields) == 1 else None


def looks_like_positions(text: str) -> bool:
    return _PAIR.fullmatch(text.partition(",")[0]) is not None
