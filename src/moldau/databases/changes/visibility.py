"""Which transactions a snapshot contains. PostgreSQL writes it as `xmin:xmax:xip,xip`: all before xmin, and those
before xmax that are not in the list, had ended when it was taken.

The log has the lower 32 bits of a transaction's id. Ids that are in use at one time differ by less than 2^31, so the
whole id is the one nearest to xmax.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_SNAPSHOT: Final = re.compile(r"(\d{1,20}):(\d{1,20}):((?:\d{1,20}(?:,\d{1,20})*)?)")
_EPOCH: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class Snapshot:
    xmin: int
    xmax: int
    in_progress: frozenset[int]

    def contains(self, xid: int) -> bool:
        """Return whether the transaction with this 32-bit id, which has committed, is in the snapshot."""
        distance = (xid - self.xmax) % _EPOCH
        whole = self.xmax + (distance if distance < _EPOCH // 2 else distance - _EPOCH)
        return whole < self.xmax and (whole < self.xmin or whole not in self.in_progress)


def parse_snapshot(text: str) -> Snapshot:
    match = _SNAPSHOT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a snapshot of PostgreSQL")
    in_progress = frozenset(int(xid) for xid in match[3].split(",") if xid)
    return Snapshot(int(match[1]), int(match[2]), in_progress)
