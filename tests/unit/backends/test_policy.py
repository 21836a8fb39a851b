"""Who may send to a backend when: scripts with a clock of their own, and random histories beside a simple oracle."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.backends.interface import Away, Retry
from moldau.backends.policy import (
    FAILURES_TO_OPEN,
    GO,
    PAUSE_S_MAX,
    Again,
    GiveUp,
    Limits,
    Traffic,
    Wait,
    pause_s,
)


def traffic(chance: float = 1.0, **limits: float) -> Traffic:
    return Traffic(Limits(**limits), lambda: chance)  # type: ignore[arg-type]


def fail(one: Traffic, now_s: float, key: str = "a", error: Retry | None = None, sender: int = 0) -> Again | GiveUp:
    return one.failed(sender, {key}, 1, now_s, error or Retry("HTTP 500"), now_s)


def opened(now_s: float = 0.0, **limits: float) -> Traffic:
    one = traffic(**limits)
    for number in range(FAILURES_TO_OPEN):
        fail(one, now_s, key=f"row {number}")
    assert one.outage is not None
    return one


def test_pauses_double_and_half_of_them_is_chance() -> None:
    assert [pause_s(attempt, 1.0) for attempt in (1, 2, 3, 7, 8, 100)] == [0.5, 1.0, 2.0, 32.0, 60.0, 60.0]
    assert pause_s(2, 0.0) == 0.5
    assert pause_s(1, 1.0, 30.0) == 30.0
    assert pause_s(1, 1.0, 1e9) == 3600.0, "a server that asks for years is asked again after an hour"


def test_a_row_is_given_up_after_its_retries_while_others_are_taken() -> None:
    one = traffic(retries=2)
    for attempt in (1, 2, 3):
        verdict = one.failed(0, {"bad"}, attempt, 0.0, Retry("HTTP 500"), float(attempt))
        one.succeeded()
        expected = GiveUp("HTTP 500 (after 3 attempts)", is_outage=False) if attempt == 3 else verdict
        assert verdict == expected
        assert one.outage is None


def test_one_row_alone_does_not_open_the_circuit_unless_the_backend_is_away() -> None:
    one = traffic(retries=100)
    for _ in range(20):
        assert fail(one, 1.0) == Again(0.5, counts=True)
    assert one.outage is None
    for _ in range(20):
        assert fail(one, 1.0, error=Away("refused")).counts is False  # type: ignore[union-attr]
    assert one.outage is not None


def test_an_open_circuit_lets_one_sender_at_a_time_try() -> None:
    one = opened()
    assert one.permission(0, 1, 0.0) == Wait(0.5)
    assert one.permission(1, 1, 0.5) == GO
    assert one.permission(0, 1, 0.6) == Wait(PAUSE_S_MAX), "the trial of another is under way"
    assert fail(one, 0.7, sender=1) == Again(0.0, counts=False)
    assert one.permission(0, 1, 0.8) == Wait(pytest.approx(0.9)), "pauses between trials grow"
    assert one.permission(1, 1, 2.0, others_wait=True) == Wait(PAUSE_S_MAX), "another row is the next trial"
    assert one.permission(0, 1, 2.0, others_wait=True) == GO
    one.succeeded()
    assert one.outage is None
    assert one.permission(1, 1, 2.0) == GO


def test_an_outage_of_a_day_ends_in_time_or_is_given_up() -> None:
    one, now_s, trials = opened(retry_for_s=86_400.0), 0.0, 0
    while not isinstance(decision := one.permission(0, 1, now_s), GiveUp):
        if isinstance(decision, Wait):
            now_s += decision.seconds
            continue
        trials += 1
        if isinstance(verdict := one.failed(0, {"a"}, 1, 0.0, Away("nobody listens"), now_s), GiveUp):
            decision = verdict
            break
    assert decision == GiveUp(f"nobody listens (for {now_s:.0f} s)", is_outage=True)
    assert 86_400 <= now_s < 86_400 + PAUSE_S_MAX
    assert 1_440 <= trials < 1_460, "about one trial a minute"


def test_without_a_limit_nobody_gives_up() -> None:
    one = opened()
    assert isinstance(fail(one, 1e9), Again)


def test_retry_after_makes_all_senders_wait() -> None:
    one = traffic()
    assert fail(one, 10.0, error=Away("HTTP 429", 3.0)) == Again(3.0, counts=False)
    assert one.outage is None
    assert one.permission(3, 1, 12.0) == Wait(1.0)
    assert one.permission(3, 1, 13.0) == GO


def test_a_long_retry_after_is_an_outage() -> None:
    one = traffic()
    assert fail(one, 10.0, error=Away("HTTP 429", 7.0)) == Again(0.0, counts=False)
    assert one.outage is not None
    assert one.permission(3, 1, 12.0) == Wait(5.0)
    assert one.permission(3, 1, 17.0) == GO


def test_a_row_that_fails_for_too_long_is_no_outage() -> None:
    one = traffic(retry_for_s=60.0)
    assert one.failed(0, {"a"}, 1, 0.0, Retry("HTTP 500"), 60.0) == GiveUp("HTTP 500 (for 60 s)", is_outage=False)
    assert one.failed(0, {"a"}, 1, 0.0, Away("refused"), 60.0) == GiveUp("refused (for 60 s)", is_outage=True)


def test_the_rate_counts_rows() -> None:
    one = traffic(rate=10.0)
    assert one.permission(0, 5, 100.0) == GO
    assert one.permission(0, 5, 100.0) == Wait(pytest.approx(0.45)), "a twentieth of a second may be made up for"
    assert one.permission(0, 5, 100.5) == GO


@settings(deadline=None)
@given(st.lists(st.floats(0.0, 0.3), max_size=60), st.sampled_from([3.0, 10.0, 1000.0]))
def test_the_rate_holds_in_every_second(pauses: list[float], rate: float) -> None:
    one, now_s, sent = traffic(rate=rate), 0.0, []
    for pause in pauses:
        now_s += pause
        if one.permission(0, 1, now_s) == GO:
            sent.append(now_s)
    for first in sent:
        assert sum(first <= at_s < first + 1.0 for at_s in sent) <= rate * 1.06 + 1


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ok", "retry", "away"]), st.integers(0, 3), st.sampled_from("ab"), st.floats(0.0, 40.0)
    ),
    max_size=80,
)


def is_open(history: list[tuple[str, str]]) -> bool:
    """The oracle: look at the failures since the last success, as if the circuit had no memory of its own."""
    last_ok = max((index for index, (event, _) in enumerate(history) if event == "ok"), default=-1)
    since = history[last_ok + 1 :]
    return any(
        since[end - 1][0] == "away" or len({key for _, key in since[:end]}) > 1
        for end in range(FAILURES_TO_OPEN, len(since) + 1)
    )


@settings(deadline=None)
@given(EVENTS)
def test_the_circuit_does_what_an_oracle_says(events: list[tuple[str, int, str, float]]) -> None:
    one, now_s = traffic(retries=1_000), 0.0
    history: list[tuple[str, str]] = []
    trial: int | None = None
    for event, sender, key, pause in events:
        now_s += pause
        if event == "ask":
            decision = one.permission(sender, 1, now_s)
            if is_open(history):
                assert decision != GO or trial is None, "one trial at a time"
                trial = sender if decision == GO else trial
            else:
                assert decision == GO, "a closed circuit without Retry-After lets everybody send"
            continue
        history.append((event, key))
        if event == "ok":
            one.succeeded()
            trial = None
        else:
            was_open = is_open(history[:-1])
            verdict = one.failed(sender, {key}, 1, now_s, Away("x") if event == "away" else Retry("x"), now_s)
            assert isinstance(verdict, Again)
            assert verdict.counts == (event == "retry" and not is_open(history))
            trial = None if was_open and sender == trial else trial
        assert (one.outage is not None) == is_open(history)
