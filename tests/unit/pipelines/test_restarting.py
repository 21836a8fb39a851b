"""When a failed query is restarted: pauses grow up to a limit, and failures that do not go away end the restarts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.pipelines.running.failures import Failure, Kind
from moldau.pipelines.running.restarting import HEALTHY_S, IN_A_ROW_MAX, PAUSE_S_MAX, SAME_BATCH_MAX, Restarts

RETRIABLE_FAILURE = Failure(Kind.RETRIABLE, "no broker answers")
UNKNOWN_FAILURE = Failure(Kind.UNKNOWN, "something broke")
LASTING_FAILURE = Failure(Kind.LASTING, "no such column")


def test_pauses_double_up_to_a_limit_until_restarts_end() -> None:
    restarts, now_s, pauses = Restarts(lambda: 0.99999), 0.0, []
    while (pause := restarts.pause_after(RETRIABLE_FAILURE, 3, None, now_s)) is not None:
        pauses.append(round(pause, 3))
        now_s += pause
    assert pauses[:7] == [1, 2, 4, 8, 16, 30, 30]
    assert len(pauses) == IN_A_ROW_MAX
    assert max(pauses) <= PAUSE_S_MAX
    assert sum(pauses) > 120, "restarts must continue while a broker is down for two minutes"


@given(st.integers(1, IN_A_ROW_MAX), st.floats(0, 1, exclude_max=True))
def test_jitter_shortens_a_pause_by_at_most_half(failures: int, chance: float) -> None:
    whole, partly = Restarts(lambda: 1.0), Restarts(lambda: chance)
    for _ in range(failures):
        most, pause = (
            whole.pause_after(RETRIABLE_FAILURE, None, None, 0.0),
            partly.pause_after(RETRIABLE_FAILURE, None, None, 0.0),
        )
        assert most is not None
        assert pause is not None
        assert most / 2 <= pause <= most


def test_a_lasting_failure_is_not_retried() -> None:
    assert Restarts(lambda: 0.5).pause_after(LASTING_FAILURE, 0, None, 0.0) is None


def test_an_unknown_failure_of_the_same_batch_is_retried_a_few_times() -> None:
    restarts = Restarts(lambda: 0.5)
    tried = [
        restarts.pause_after(UNKNOWN_FAILURE, 7, None, float(number)) is not None for number in range(SAME_BATCH_MAX)
    ]
    assert tried == [True] * (SAME_BATCH_MAX - 1) + [False]


def test_retriable_failures_do_not_count_as_unknown_failures_of_their_batch() -> None:
    restarts = Restarts(lambda: 0.5)
    for number in range(SAME_BATCH_MAX):
        restarts.pause_after(RETRIABLE_FAILURE, 7, None, float(number))
    assert restarts.pause_after(UNKNOWN_FAILURE, 7, None, float(SAME_BATCH_MAX)) is not None
    restarts.pause_after(RETRIABLE_FAILURE, 7, None, float(SAME_BATCH_MAX))
    tried = [
        restarts.pause_after(UNKNOWN_FAILURE, 7, None, float(SAME_BATCH_MAX)) is not None
        for _ in range(SAME_BATCH_MAX - 1)
    ]
    assert tried == [True] * (SAME_BATCH_MAX - 2) + [False]


def test_unknown_failures_of_different_batches_are_retried() -> None:
    restarts = Restarts(lambda: 0.5)
    assert all(
        restarts.pause_after(UNKNOWN_FAILURE, number, None, float(number)) is not None for number in range(IN_A_ROW_MAX)
    )


def test_pauses_start_over_after_a_healthy_period() -> None:
    restarts = Restarts(lambda: 1.0)
    now_s = 0.0
    for _ in range(10):
        restarts.pause_after(RETRIABLE_FAILURE, 1, "waiting", now_s)
        now_s += PAUSE_S_MAX
    assert restarts.pause_after(RETRIABLE_FAILURE, 1, "waiting", now_s) == PAUSE_S_MAX
    assert restarts.pause_after(RETRIABLE_FAILURE, 1, "waiting again", now_s + PAUSE_S_MAX + HEALTHY_S + 1) == 1.0


@pytest.mark.parametrize(
    ("failure", "most"), [(RETRIABLE_FAILURE, IN_A_ROW_MAX), (UNKNOWN_FAILURE, SAME_BATCH_MAX - 1)]
)
def test_a_batch_that_always_fails_late_is_not_restarted_for_ever(failure: Failure, most: int) -> None:
    restarts, late_s = Restarts(lambda: 0.5), PAUSE_S_MAX + HEALTHY_S + 1
    times = [number * late_s for number in range(IN_A_ROW_MAX + 1)]
    restarted = [restarts.pause_after(failure, 7, "batch 7 is done", now_s) is not None for now_s in times]
    assert restarted[: most + 1] == [True] * most + [False]
