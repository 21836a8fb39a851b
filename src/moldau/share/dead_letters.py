"""Dead letters: what a share group writes about records that it has given up (KIP-1191)."""

from __future__ import annotations

from typing import Final, NamedTuple

from moldau.share.ports import ShareKey
from moldau.wire.records import NEXT_OFFSET, Header, Record

REJECTED: Final = "Offset rejected by client."
DELIVERED_TOO_OFTEN: Final = "Offset delivery count exceeded the threshold."
"""Apache Kafka's words: programs compare them."""


class DeadLetter(NamedTuple):
    """Records that get a dead letter each."""

    first_offset: int
    last_offset: int
    delivery_count: int
    reason: str


class Content(NamedTuple):
    """The key and the value of a record, as far as its dead letter has them."""

    key: bytes | None = None
    value: bytes | None = None


def dead_letter_record(
    key: ShareKey, topic: str, letter: DeadLetter, offset: int, content: Content, now_ms: int
) -> Record:
    """Return the record for the topic of dead letters. The headers of the lost record are not in it."""
    texts = {
        "topic": topic,
        "partition": str(key.partition),
        "offset": str(offset),
        "group": key.group_id,
        "delivery.count": str(letter.delivery_count),
        "message": letter.reason,
    }
    headers: tuple[Header, ...] = tuple((f"__dlq.errors.{name}", text.encode()) for name, text in texts.items())
    return Record(NEXT_OFFSET, now_ms, content.key, content.value, headers)
