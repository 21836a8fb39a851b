"""The position of a stream of changes: a value that Spark keeps in its checkpoint as JSON.

    {}                                                          nothing has been read, there is no slot yet
    {"slot": S, "lsn": "0/15", "snapshot": "7:9:7", "until": "0/20", "part": 3}     3 files of the snapshot are read
    {"slot": S, "lsn": "0/15", "snapshot": "7:9:7", "until": "0/20"}                changes that commit from 0/15 on
    {"slot": S, "lsn": "0/20"}                                  the snapshot no longer matters

`lsn` is where the record of a commit ends: transactions whose commit begins before it have been read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_LSN: Final = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def parse_lsn(text: str) -> int:
    match = _LSN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a position in PostgreSQL's log")
    return int(match[1], 16) << 32 | int(match[2], 16)


def lsn_text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


@dataclass(frozen=True, slots=True)
class Offset:
    slot: str | None = None
    """None before the first batch."""
    lsn: int = 0
    snapshot: str | None = None
    """Which transactions the snapshot of the table contains, as PostgreSQL writes it (visibility.py)."""
    until: int = 0
    """Transactions that commit from here on are not in the snapshot."""
    part: int | None = None
    """How many files of the snapshot have been read; None when all have."""

    @property
    def is_fresh(self) -> bool:
        return self.slot is None

    def at(self, lsn: int) -> Offset:
        """Return the position after all files of the snapshot and the transactions that end at or before `lsn`."""
        if lsn >= self.until:
            return Offset(self.slot, lsn)
        return Offset(self.slot, lsn, self.snapshot, self.until)

    def to_json(self) -> dict[str, Any]:
        if self.slot is None:
            return {}
        content: dict[str, Any] = {"slot": self.slot, "lsn": lsn_text(self.lsn)}
        if self.snapshot is not None:
            content |= {"snapshot": self.snapshot, "until": lsn_text(self.until)}
        return content if self.part is None else content | {"part": self.part}

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> Offset:
        """Raises ValueError if it is not the offset of a stream of changes."""
        if not content:
            return Offset()
        try:
            until = parse_lsn(content["until"]) if "until" in content else 0
            return Offset(
                str(content["slot"]), parse_lsn(content["lsn"]), content.get("snapshot"), until, content.get("part")
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"{dict(content)} is not a position of a stream of changes") from error
