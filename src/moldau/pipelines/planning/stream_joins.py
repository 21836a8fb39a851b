"""Finds joins of two streams that keep rows for ever, or that Spark refuses only when the query starts.

Spark forgets a row of one stream when, by the watermark, no row of the other can match it any more. For that it needs a
watermark on each and a condition on their times. Without, the state grows until it does not fit. Spark's own function
decides, on the optimized plan, as at the start of a query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame

from moldau.pipelines.planning.event_time import event_times
from moldau.pipelines.problems import Problem
from moldau.pipelines.spec import Pipeline, SqlStep, Step
from moldau.pipelines.sql_names import views_used

FOR_EVER: Final = "its join keeps rows of the streams for ever, because"
HINT: Final = (
    "give each stream a watermark, and join with a condition on their times, such as"
    " b.ts between a.ts and a.ts + interval 1 hour"
)
ANY_TIME: Final = 1 << 40
"""A watermark in milliseconds, as large as this because py4j passes smaller numbers as Integer; Spark needs a Long."""


def join_problems(pipeline: Pipeline, views: Mapping[str, DataFrame]) -> list[Problem]:
    """Return an error for each step whose join Spark cannot run, and a warning for each whose join keeps rows for ever.
    Steps that read such a step are left out, because their plans contain its join."""
    problems: list[Problem] = []
    left_out: set[str] = set()
    for index, step in enumerate(pipeline.steps):
        if step.name not in views:
            continue
        read = _views_read(step, views)
        if left_out.isdisjoint(read):
            found = _problem(views[step.name], {name: views[name] for name in read})
            if found is None:
                continue
            message, hint, is_error = found
            key = "sql" if isinstance(step, SqlStep) else "python"
            place = pipeline.place_of(f"steps.{index}.{key}")
            problems.append(Problem(f"step {step.name}: {message}", place, hint, "error" if is_error else "warning"))
        left_out.add(step.name)
    return problems


def _views_read(step: Step, views: Mapping[str, DataFrame]) -> list[str]:
    if isinstance(step, SqlStep):
        return [use.view for use in views_used(step.sql, views)]
    inputs = {name.casefold() for name in step.inputs}
    return [name for name in views if name.casefold() in inputs]


def _problem(frame: DataFrame, read: Mapping[str, DataFrame]) -> tuple[str, str, bool] | None:
    """Return what is wrong with a join in the plan of this view, what helps, and whether it is an error."""
    are_limited = [_is_limited(frame, join) for join in _joins_of_streams(frame)]
    if None in are_limited:
        return "Spark cannot join streams without an equality", "add one, such as a.id = b.id", True
    if all(are_limited):
        return None
    without = [view for view, rows in read.items() if rows.isStreaming and not event_times(rows)]
    if without:
        return f"{FOR_EVER} {' and '.join(without)} {'has' if len(without) == 1 else 'have'} no watermark", HINT, False
    return f"{FOR_EVER} no condition on their times says how long a row can find a match", HINT, False


def _joins_of_streams(frame: DataFrame) -> list[Any]:
    """Return the nodes of the optimized plan that join two streams."""
    analyzed = frame._jdf.queryExecution().analyzed()
    # The text is one call of Java, the nodes are several each.
    if "Join" not in analyzed.toString() or not any(_joins_streams(node) for node in _nodes(analyzed)):
        return []
    # Not `optimizedPlan()`, which refuses plans with streams: Spark optimizes them for each batch.
    session: Any = frame.sparkSession._jsparkSession
    return [node for node in _nodes(session.sessionState().optimizer().execute(analyzed)) if _joins_streams(node)]


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for index in range(children.size()):
        yield from _nodes(children.apply(index))


def _joins_streams(node: Any) -> bool:
    return bool(node.nodeName() == "Join" and node.left().isStreaming() and node.right().isStreaming())


def _is_limited(frame: DataFrame, join: Any) -> bool | None:
    """Return whether Spark can forget rows of both streams of a join; None if it cannot run the join."""
    jvm: Any = frame.sparkSession._jvm
    parts = jvm.org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys.unapply(join)
    if parts.isEmpty():
        return None
    equality = parts.get()
    left_keys, right_keys, left, right = equality._2(), equality._3(), equality._6(), equality._7()
    helper = jvm.org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper
    watermark = jvm.scala.Some(ANY_TIME)
    forgotten = helper.getStateWatermarkPredicates(
        left.output(), right.output(), left_keys, right_keys, join.condition(), watermark, watermark, True
    )
    return not forgotten.left().isEmpty() and not forgotten.right().isEmpty()
