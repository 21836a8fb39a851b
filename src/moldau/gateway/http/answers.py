"""What a device is told of its records: where each is, or why it was refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from moldau.base.errors import KafkaError
from moldau.gateway.ports import Appended, Place
from moldau.web.failures import ApiError

SOME_REFUSED: Final = 207


class Answer(NamedTuple):
    status: int
    body: bytes


def answer_of(appended: Appended, told: Callable[[Exception], ApiError]) -> Answer:
    """Return 200 with all places; 207 if some records were refused; if all were, the status of the first error.
    `told` says what a client is told of an error."""
    places = [b'{"partition":%d,"offset":%d}' % each for each in appended if type(each) is Place]
    if len(places) == len(appended):
        return Answer(200, b'{"offsets":[%b]}' % b",".join(places))
    outcomes = [_outcome(each, told) for each in appended]
    status = SOME_REFUSED if places else next(told(e).status for e in appended if isinstance(e, KafkaError))
    if not places and len(outcomes) == 1:
        return Answer(status, outcomes[0])
    return Answer(status, b'{"offsets":[%b]}' % b",".join(outcomes))


def _outcome(outcome: Place | KafkaError, told: Callable[[Exception], ApiError]) -> bytes:
    if isinstance(outcome, KafkaError):
        return msgspec.json.encode(told(outcome).body())
    return b'{"partition":%d,"offset":%d}' % outcome
