"""Which topics the `route` of a sink may give, and which of them the pipeline reads itself: that would be a loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyspark.errors import IllegalArgumentException
from pyspark.sql import Column, DataFrame, SparkSession

from moldau.pipelines.spec import TopicSource

_CHOICES: Final = ("If", "CaseWhen", "Coalesce")
"""Spark's expressions that return one of their arguments."""


def written_topics(routes: DataFrame) -> set[str]:
    """Return the topics that stand in the expression of a route as texts. `routes` has the route as its one column."""
    java: Any = routes._jdf
    named = java.queryExecution().analyzed().expressions().head()
    return set(_texts(named.child() if named.getClass().getSimpleName() == "Alias" else named))


def _texts(expression: Any) -> Iterator[str]:
    """Yield the texts that may be the result. A condition is none: it has another type."""
    if expression.dataType().typeName() != "string":
        return
    kind = expression.getClass().getSimpleName()
    if kind == "Literal" and (value := expression.value()) is not None:
        yield str(value)
    elif kind in _CHOICES:
        children = expression.children()
        for index in range(children.size()):
            yield from _texts(children.apply(index))


def is_read(route: Column, sources: Sequence[TopicSource], session: SparkSession) -> Column:
    """Return whether one of the sources reads the topic of a row.

    The patterns of Moldau's connector are Python's. Spark checks them as Java's, which give the same for nearly all;
    one that Java does not know is not checked.
    """
    read = route.isin([topic for source in sources for topic in source.topics])
    for source in sources:
        # Checked as a whole: a pattern may end in a comment or an open quote, which would hide the end.
        if source.pattern is not None and _is_of_java(whole := rf"\A(?:{source.pattern})\z", session):
            read = read | route.rlike(whole)
    return read


def _is_of_java(pattern: str, session: SparkSession) -> bool:
    jvm: Any = session.sparkContext._jvm
    try:
        jvm.java.util.regex.Pattern.compile(pattern)
    except IllegalArgumentException:
        return False
    return True
