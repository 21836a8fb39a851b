"""The message about a step that is read before it is there."""

from __future__ import annotations

import pytest

from moldau.pipelines.planning.problem_collection import later_step


@pytest.mark.parametrize(
    ("relation", "view", "expected"),
    [
        ("TAKINGS", "hourly", "it reads step takings, which comes after it; move takings up"),
        ("Hourly", "hourly", "it reads itself"),
        ("taking", "hourly", None),
        ("takings", None, "it reads step takings, which comes after it; move takings up"),
    ],
)
def test_a_step_that_comes_later_is_not_called_missing(relation: str, view: str | None, expected: str | None) -> None:
    assert later_step(relation, ["rentals", "hourly", "takings"], view) == expected
