"""Internal errors are logged with their traceback, but a client that causes many of them cannot fill the disk."""

from __future__ import annotations

import logging

import pytest

from moldau.runtime.internal_errors import PER_SECOND_MAX, PLACES_MAX, REPEAT_S, InternalErrors

log = logging.getLogger("moldau.test")


class FakeTime:
    now_s = 100.0


@pytest.fixture
def fake_time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def errors(fake_time: FakeTime) -> InternalErrors:
    return InternalErrors(lambda: fake_time.now_s)


def fail_once(errors: InternalErrors) -> None:
    try:
        raise KeyError("one place")
    except KeyError:
        errors.log(log, "request of %s failed", "ann")


def fail_at_line(errors: InternalErrors, line: int) -> None:
    """Raise at a line of a file that does not exist: each line is a place of its own."""
    try:
        exec(compile("\n" * line + "1 / 0", "generated", "exec"))
    except ZeroDivisionError:
        errors.log(log, "line %d", line)


def test_the_first_error_has_a_traceback_and_repeats_are_counted(
    errors: InternalErrors, fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5000):
        fail_once(errors)
    assert [record.getMessage() for record in caplog.records] == ["request of ann failed"]
    assert "KeyError: 'one place'" in caplog.text
    fake_time.now_s += REPEAT_S
    fail_once(errors)
    assert caplog.messages[1:] == ["request of ann failed (4999 more like it before this one)"]


def test_another_place_is_logged_at_once(errors: InternalErrors, caplog: pytest.LogCaptureFixture) -> None:
    fail_once(errors)
    fail_at_line(errors, 3)
    assert caplog.messages == ["request of ann failed", "line 3"]


def test_many_places_together_are_limited_too_and_use_bounded_memory(
    errors: InternalErrors, fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    for line in range(50):
        fail_at_line(errors, line)
    assert len(caplog.messages) == PER_SECOND_MAX
    for line in range(2 * PLACES_MAX):
        fake_time.now_s += 1
        fail_at_line(errors, line)
    assert len(errors._logged) <= PLACES_MAX
