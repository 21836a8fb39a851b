"""What is left of a request after authorization, and the functions that most APIs share.

A request may name thousands of resources: it is authorized in steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import compress
from operator import not_
from typing import Any, NamedTuple, TypeVar

from moldau.base.steps import Steps, TurnItems, WaitingSteps, map_in_steps, no_steps
from moldau.security.acls.access import Access
from moldau.wire.schema import Message

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)


class Authorized(NamedTuple):
    request: Message | None
    """The part of the request that is allowed; None if nothing is left of it."""
    with_refused: Callable[[Any], Steps[Message]]
    """Returns the whole response from the one to the allowed part, or from an empty one if nothing is left."""


Authorize = Callable[[Any, Access], WaitingSteps[Authorized]]
"""Takes what the client may not do out of a request. A request that is allowed as a whole is not copied."""


def unchanged(response: Message) -> Steps[Message]:
    return no_steps(response)


def split(turn: TurnItems, items: Sequence[T], is_allowed: Callable[[T], bool]) -> Steps[tuple[list[T], list[T]]]:
    """Return the items that are allowed and those that are denied."""
    verdicts = yield from map_in_steps(turn, items, is_allowed)
    return list(compress(items, verdicts)), list(compress(items, map(not_, verdicts)))


def duplicates(keys: Iterable[H]) -> set[H]:
    """Return the keys that occur more than once. The controller refuses these before anything else, so they are
    not authorized here."""
    return {key for key, count in Counter(keys).items() if count > 1}
