"""The condition of a search, in the language of views: what `where` of a view shows is what `where` of a search finds.

Parsed here, evaluated by workers (`condition_workers`): the records of a fetch all at once. Pure.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import Final

from moldau.base.ids import TopicPartition
from moldau.runtime.views.ports import BatchesTask
from moldau.views.definition import ViewDefinition
from moldau.views.expressions import Binary, Expression, Field, Literal, walk
from moldau.views.jobs import Matching, ViewFailed
from moldau.views.parser import BadExpression, parse_condition
from moldau.views.sql import compile_queries
from moldau.web.failures import ApiError, bad_request

Match = Callable[[BatchesTask], Matching | ViewFailed]
COMPARISONS: Final = ("=", "<>")
EARLIER_NAMES: Final = {
    "headers": "headers is a field of the value; a header is header('name')",
    "text": "text is a field of the value; the whole value as text is value",
    "size": "size is a field of the value; the length of the whole value is length(value)",
}
"""What a condition could name before it was written as in views."""


class Condition:
    def __init__(self, text: str, match: Match) -> None:
        """ApiError, with the column of the mistake, if the text is no condition."""
        try:
            text.encode()
            expression = parse_condition(text)
            self.definition = ViewDefinition(expression)
            compile_queries(self.definition)
        except UnicodeEncodeError as wrong:
            raise bad_request("where: half of a surrogate pair is no character", column=wrong.start + 1) from None
        except BadExpression as wrong:
            place = {} if wrong.position is None else {"column": wrong.position + 1}
            raise bad_request(f"where: {wrong}", **place) from None
        self._match = match
        self.hints = list(dict.fromkeys(_hints(expression, text)))
        """Where the condition is right, and probably means something else than its author."""

    def matching(self, content: bytes, partition: TopicPartition) -> frozenset[int]:
        """Return the offsets of the records in these batches that match."""
        result = self._match(BatchesTask(self.definition, content, partition.partition))
        if isinstance(result, Matching):
            return frozenset(array("q", result.offsets))
        why = f"where could not be evaluated for {partition}: {result.why}"
        raise ApiError(503, "TRY_AGAIN", why) if result.is_retriable else ApiError(422, "WHERE_FAILED", why)


def _hints(expression: Expression, text: str) -> Iterator[str]:
    for part in walk(expression):
        match part:
            case Field((str() as name, *_)) if name in EARLIER_NAMES:
                yield EARLIER_NAMES[name]
            case Binary(operator, left, right) if operator in COMPARISONS:
                if Literal(None) in (left, right):
                    yield "nothing is equal to null or different from it; write IS NULL or IS NOT NULL"
                for side in (left, right):
                    if isinstance(side, Field) and len(side.path) == 1 and f'"{side.path[0]}"' in text:
                        yield f"\"{side.path[0]}\" is a field of the value; a text is written '{side.path[0]}'"
