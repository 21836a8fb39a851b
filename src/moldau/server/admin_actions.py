"""What an administrative request changed, for the audit log: the resources, how they were changed, and the results.

Values of configs, passwords and hashes are never part of it: a config may be a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import chain, islice
from operator import attrgetter
from typing import Any, Final, NamedTuple

from moldau.base.errors import ErrorCode

NAMES_MAX: Final = 20
"""Names of configs or partitions in one line; the rest is counted."""


class AdminAction(NamedTuple):
    resource: str
    """KIND:NAME"""
    error_code: int
    detail: object = ""
    """Its text is made only for a line that is written."""


class Lazy:
    """A text that is made when it is needed."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[], str]) -> None:
        self._make = make

    def __str__(self) -> str:
        return self._make()


def joined(items: Sequence[object]) -> str:
    return first_joined(items, len(items))


def first_joined(items: Iterable[object], count: int) -> str:
    """Join the first of `count` items."""
    rest = f",+{count - NAMES_MAX}" if count > NAMES_MAX else ""
    return ",".join(map(str, islice(items, NAMES_MAX))) + rest


def partition_count(topics: Sequence[Any]) -> int:
    return sum(map(len, map(attrgetter("partitions"), topics)))


def first_error(response: Any) -> int:
    """Return the first error of a partition; 0 if there is none."""
    codes = (map(attrgetter("error_code"), topic.partitions) for topic in response.topics)
    return next(filter(None, chain.from_iterable(codes)), 0)


@cache
def result_name(error_code: int) -> str:
    """Return OK, or the name of the error."""
    return ErrorCode(error_code).name if error_code else "OK"
