"""What is left of a request after authorization, and the functions that most APIs share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple, TypeVar

from moldau.base.errors import KafkaError
from moldau.security.acls.access import Access, Needs
from moldau.security.acls.denials import denied
from moldau.server.handlers.error_responses import error_response
from moldau.wire.schema import Message

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)


class Authorized(NamedTuple):
    request: Message | None
    """The part of the request that is allowed; None if nothing is left of it."""
    with_refused: Callable[[Any], Message]
    """Returns the whole response from the one to the allowed part, or from an empty one if nothing is left."""


Authorize = Callable[[Any, Access], Authorized]
"""Takes what the client may not do out of a request. A request that is allowed as a whole is not copied."""


def unchanged(response: Message) -> Message:
    return response


def whole_request(needs: Needs) -> Authorize:
    """For APIs that need one permission, whatever the request contains."""

    def authorize(request: Message, access: Access) -> Authorized:
        return Authorized(request, unchanged) if access.allows(needs) else refused(request, denied(needs))

    return authorize


def refused(request: Message, error: KafkaError) -> Authorized:
    return Authorized(None, lambda _: error_response(request, error))


def split(items: Iterable[T], is_allowed: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    """Return the items that are allowed and those that are denied."""
    allowed: list[T] = []
    rest: list[T] = []
    for item in items:
        (allowed if is_allowed(item) else rest).append(item)
    return allowed, rest


def duplicates(keys: Iterable[H]) -> set[H]:
    """Return the keys that occur more than once. The controller refuses these before anything else, so they are
    not authorized here."""
    return {key for key, count in Counter(keys).items() if count > 1}
