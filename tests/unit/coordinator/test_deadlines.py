"""Deadlines against the simplest model: a dictionary that is searched as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

import hypothesis.strategies as st
import pytest
from harness.depth import deep
from hypothesis import given, settings

from moldau.coordinator.machine import NOTHING, Action, Deadlines, Outcome

KEYS = "abc"
Step = tuple[str, str, int]


class DeadlinesModel:
    """A model that searches everything, every time."""

    def __init__(self) -> None:
        self.set: dict[Hashable, tuple[int, Action]] = {}

    def due(self, now_ms: int) -> list[Action]:
        reached = [key for key, (at_ms, _) in self.set.items() if at_ms <= now_ms]
        return [self.set.pop(key)[1] for key in reached]

    def earliest(self) -> int | None:
        return min((at_ms for at_ms, _ in self.set.values()), default=None)


def new_action() -> Action:
    """Return an action that is not equal to any other."""

    def act() -> Outcome[None]:
        return NOTHING

    return act


schedules = st.tuples(st.just("schedule"), st.sampled_from(KEYS), st.integers(-3, 20))
cancels = st.tuples(st.just("cancel"), st.sampled_from(KEYS), st.just(0))
advances = st.tuples(st.just("advance"), st.just(""), st.integers(0, 12))


@settings(max_examples=deep(100, quick=30), deadline=None)
@given(st.lists(schedules | schedules | cancels | advances, max_size=40))
def test_the_same_deadlines_are_due_as_in_the_model(steps: list[Step]) -> None:
    deadlines, model, now_ms = Deadlines(), DeadlinesModel(), 0
    for what, key, number in steps:
        if what == "schedule":
            action = new_action()
            deadlines.schedule(key, now_ms + number, action)
            model.set[key] = (now_ms + number, action)
        elif what == "cancel":
            deadlines.cancel(key)
            model.set.pop(key, None)
        else:
            now_ms += number
            assert Counter(deadlines.due(now_ms)) == Counter(model.due(now_ms))
        assert [one in deadlines for one in KEYS] == [one in model.set for one in KEYS]
        check_next(deadlines, model)
    assert Counter(deadlines.due(now_ms + 100)) == Counter(model.due(now_ms + 100))
    assert deadlines.next_ms() is None


def check_next(deadlines: Deadlines, model: DeadlinesModel) -> None:
    """Check the next time: it may be too early, with nothing to do, but never too late."""
    earliest = model.earliest()
    if earliest is not None:
        next_ms = deadlines.next_ms()
        assert next_ms is not None
        assert next_ms <= earliest


@settings(max_examples=deep(35, quick=12), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KEYS), st.integers(1, 50)), min_size=1, max_size=12), st.integers(0, 60))
def test_after_due_the_next_time_is_later(scheduled: list[tuple[str, int]], now_ms: int) -> None:
    """Otherwise the caller would loop without waiting."""
    deadlines = Deadlines()
    for key, at_ms in scheduled:
        deadlines.schedule(key, at_ms, new_action())
    list(deadlines.due(now_ms))
    next_ms = deadlines.next_ms()
    assert next_ms is None or next_ms > now_ms


def test_a_deadline_postponed_many_times_runs_once() -> None:
    deadlines, actions = Deadlines(), [new_action() for _ in range(50)]
    for at_ms, action in enumerate(actions):
        deadlines.schedule("session", at_ms + 45, action)
        assert not list(deadlines.due(at_ms))
    assert not list(deadlines.due(93))
    assert list(deadlines.due(94)) == [actions[-1]]
    assert not list(deadlines.due(1000))


def test_a_deadline_may_be_set_to_an_earlier_time() -> None:
    deadlines, soon = Deadlines(), new_action()
    deadlines.schedule("join", 100, new_action())
    deadlines.schedule("join", 10, soon)
    assert deadlines.next_ms() == 10
    assert list(deadlines.due(10)) == [soon]
    assert not list(deadlines.due(100))


def test_a_postponed_deadline_keeps_its_action_and_needs_no_earlier_timer() -> None:
    deadlines, action = Deadlines(), new_action()
    assert not deadlines.postpone("session", 10), "there is none yet"
    deadlines.schedule("session", 10, action)
    assert deadlines.has_earlier
    deadlines.has_earlier = False
    assert deadlines.postpone("session", 30)
    assert not deadlines.postpone("session", 20), "that is earlier"
    assert not deadlines.has_earlier
    assert not list(deadlines.due(29))
    assert list(deadlines.due(30)) == [action]
    assert not deadlines.postpone("session", 50), "it has been run"


@pytest.mark.parametrize("at_ms", [5, 10])
def test_a_key_may_be_used_again_after_it_was_cancelled(at_ms: int) -> None:
    """The old heap entry does not affect the new deadline, whether it is earlier or later."""
    deadlines, wanted = Deadlines(), new_action()
    deadlines.schedule("sync", 7, new_action())
    deadlines.cancel("sync")
    assert not list(deadlines.due(0))
    deadlines.schedule("sync", at_ms, wanted)
    assert list(deadlines.due(at_ms - 1)) == []
    assert list(deadlines.due(at_ms)) == [wanted]


def test_keys_of_any_kind_with_one_time_are_all_due() -> None:
    """Actions and keys cannot be compared, and need not be."""
    deadlines, actions = Deadlines(), [new_action() for _ in range(3)]
    for key, action in zip((("session", "g", "m"), "join", 3), actions, strict=True):
        deadlines.schedule(key, 5, action)
    assert list(deadlines.due(5)) == actions


def test_an_action_that_an_earlier_one_cancels_or_postpones_is_not_run() -> None:
    """A completed join restarts the sessions of its members: those that would expire at the same moment must not."""
    deadlines, later = Deadlines(), new_action()

    def complete() -> Outcome[None]:
        deadlines.cancel("sync")
        deadlines.schedule("session", 50, later)
        return NOTHING

    deadlines.schedule("join", 10, complete)
    deadlines.schedule("sync", 10, new_action())
    deadlines.schedule("session", 10, new_action())
    done = []
    for action in deadlines.due(10):
        action()
        done.append(action)
    assert done == [complete]
    assert deadlines.next_ms() == 50
    assert list(deadlines.due(50)) == [later]


def test_an_action_that_reschedules_itself_for_now_runs_with_the_next_call() -> None:
    deadlines = Deadlines()

    def again() -> Outcome[None]:
        deadlines.schedule("again", 10, again)
        return NOTHING

    again()
    for _ in range(3):
        done = [(action, action()) for action in deadlines.due(10)]
        assert [action for action, _ in done] == [again]


def test_members_that_join_and_leave_leave_no_entries_behind() -> None:
    deadlines, kept = Deadlines(), new_action()
    deadlines.schedule("kept", 1_800_000, kept)
    for number in range(20_000):
        deadlines.schedule(("session", number), 1_800_000 - number % 7, new_action())
        deadlines.schedule("brought forward", 900_000 - number, new_action())
        deadlines.cancel(("session", number))
    assert len(deadlines._heap) < 3_000
    assert deadlines.next_ms() == 900_000 - 19_999
    deadlines.cancel("brought forward")
    assert list(deadlines.due(1_800_000)) == [kept]


def test_if_the_caller_stops_early_the_next_call_yields_the_rest() -> None:
    deadlines, actions = Deadlines(), [new_action() for _ in range(5)]
    for key, action in enumerate(actions):
        deadlines.schedule(key, 5, action)
    assert next(iter(deadlines.due(5))) is actions[0]
    next_ms = deadlines.next_ms()
    assert next_ms is not None
    assert next_ms <= 5
    deadlines.cancel(1)
    assert deadlines.postpone(2, 20)
    again = new_action()
    deadlines.cancel(3)
    deadlines.schedule(3, 30, again)
    assert list(deadlines.due(6)) == [actions[4]]
    assert deadlines.next_ms() == 20
    assert list(deadlines.due(20)) == [actions[2]]
    assert list(deadlines.due(30)) == [again]
    assert deadlines.next_ms() is None
