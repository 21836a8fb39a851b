"""The position a group is reset to, as a person writes it: a grammar. Pure.

earliest, start    the oldest record               latest, end      only records yet to come
N                  offset N                        current          the committed offset; the end where there is none
+N                 N records forward               -N               N records back
@T                 records from time T on, T as in offsets.py
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from moldau.base.limits import OFFSET_MAX
from moldau.operations import offsets
from moldau.operations.offsets import BadOffset


class Kind(Enum):
    START = "start"
    END = "end"
    CURRENT = "current"
    OFFSET = "offset"
    SHIFT = "shift"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Target:
    """`value` is an offset, a distance, or milliseconds since 1970."""

    kind: Kind
    value: int = 0


NAMED = {
    "earliest": Target(Kind.START),
    "start": Target(Kind.START),
    "latest": Target(Kind.END),
    "end": Target(Kind.END),
    "current": Target(Kind.CURRENT),
}


def parse_target(text: str, now_ms: int) -> Target:
    if text in NAMED:
        return NAMED[text]
    if text.startswith("@"):
        return Target(Kind.TIME, offsets.parse_moment(text[1:], now_ms).value)
    sign = text[:1] if text[:1] in ("+", "-") else ""
    digits = text[len(sign) :]
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= offsets.DIGITS_MAX
    if not is_number or int(digits) > OFFSET_MAX:
        raise BadOffset(f"{text!r} is not a position; use earliest, latest, current, N, +N, -N, @TIME or @-1h")
    if not sign:
        return Target(Kind.OFFSET, int(digits))
    return Target(Kind.SHIFT, int(digits) if sign == "+" else -int(digits))


def resolve(target: Target, committed: int | None, bounds: offsets.PartitionBounds) -> int | None:
    """Return the offset of a target in one partition, moved into the bounds of the log.

    Return None for +N and -N if the group has no committed offset in the partition to count from.
    """
    offset: int | None
    match target.kind:
        case Kind.START:
            offset = bounds.start
        case Kind.END:
            offset = bounds.end
        case Kind.OFFSET:
            offset = target.value
        case Kind.CURRENT:
            offset = bounds.end if committed is None else committed
        case Kind.SHIFT:
            offset = None if committed is None else committed + target.value
        case Kind.TIME:
            offset = bounds.at_time.get(target.value, bounds.end)
    return None if offset is None else min(max(offset, bounds.start), bounds.end)


def parse_topic(text: str) -> tuple[str, list[int]]:
    """Parse `orders` or `orders:0,3`; an empty list stands for all partitions."""
    topic, colon, indexes = text.partition(":")
    if not colon:
        return topic, []
    numbers = indexes.split(",")
    if not topic or not all(number.isascii() and number.isdigit() and len(number) < 11 for number in numbers):
        raise BadOffset(f"{text!r} is not a topic with partitions; write TOPIC or TOPIC:0,1,2")
    return topic, [int(number) for number in numbers]
