"""What a device is told of its records: where each is, or why it was refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from moldau.base.errors import KafkaError
from moldau.gateway.ports import Appended, Place
from moldau.web.failures import ApiError

SOME_REFUSED: Final = 207
MAY_BE_THERE: Final = 504


class Answer(NamedTuple):
    status: int
    body: bytes


def answer_of(appended: Appended, told: Callable[[Exception], ApiError]) -> Answer:
    """Return 200 with all places; 207 if some records were refused; if all were, the status of the first error, or 504
    if one of them may be there.
    `told` says what a client is told of an error."""
    places = [b'{"partition":%d,"offset":%d}' % each for each in appended if type(each) is Place]
    if len(places) == len(appended):
        return Answer(200, b'{"offsets":[%b]}' % b",".join(places))
    outcomes = [_outcome(each, told) for each in appended]
    status = SOME_REFUSED if places else _status_of_all([e for e in appended if isinstance(e, KafkaError)], told)
    if not places and len(outcomes) == 1:
        return Answer(status, outcomes[0])
    return Answer(status, b'{"offsets":[%b]}' % b",".join(outcomes))


def _status_of_all(errors: Sequence[KafkaError], told: Callable[[Exception], ApiError]) -> int:
    """Return the status of the first error, unless one says that its record may be there."""
    statuses = [told(error).status for error in {id(error): error for error in errors}.values()]
    return MAY_BE_THERE if MAY_BE_THERE in statuses else statuses[0]


def _outcome(outcome: Place | KafkaError, told: Callable[[Exception], ApiError]) -> bytes:
    if isinstance(outcome, KafkaError):
        return msgspec.json.encode(told(outcome).body())
    return b'{"partition":%d,"offset":%d}' % outcome
