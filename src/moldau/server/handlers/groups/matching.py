"""JoinGroup and ConsumerGroupHeartbeat of a member that subscribes by a new pattern. The group's machine refuses them
with `PatternsNotMatched`; then the pattern is matched with all topics, in turns of the loop, and the request is
answered from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from moldau.base.clock import Timers
from moldau.base.errors import KafkaError
from moldau.base.promise import Promise
from moldau.base.steps import WaitingSteps
from moldau.coordinator.group.consumer.patterns import PatternsNotMatched
from moldau.runtime.coordinators.group import GroupCoordinator
from moldau.server.handlers.replies import run_steps

R = TypeVar("R")


def answer_when_matched(
    coordinator: GroupCoordinator,
    timers: Timers,
    group_id: str,
    unmatched: PatternsNotMatched,
    answer: Callable[[], R | Promise[R]],
    error_response: Callable[[KafkaError], R],
) -> R | Promise[R]:
    """Match the patterns, then call `answer`. Later requests of the connection wait, so that a member that leaves does
    not overtake its own join."""

    def steps() -> WaitingSteps[R | Promise[R]]:
        try:
            yield from coordinator.match(group_id, unmatched)
        except KafkaError as error:
            return error_response(error)
        return answer()

    return run_steps(timers, steps())
