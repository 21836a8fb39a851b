"""Problems found while a pipeline is planned: their messages and places."""

from __future__ import annotations

from pathlib import Path

import pytest
from marked_yaml import line_column, load_text, marked

from moldau.pipelines.planning.problem_collection import InvalidSetting, ProblemCollection, later_step_message


@pytest.mark.parametrize(
    ("relation", "view", "expected"),
    [
        ("TAKINGS", "hourly", "it reads step takings, which comes after it; move takings up"),
        ("Hourly", "hourly", "it reads itself"),
        ("taking", "hourly", None),
        ("takings", None, "it reads step takings, which comes after it; move takings up"),
    ],
)
def test_a_later_step_is_not_reported_as_missing(relation: str, view: str | None, expected: str | None) -> None:
    assert later_step_message(relation, ["rentals", "hourly", "takings"], view) == expected


PIPELINE = """
name: shop
sources:
  orders: {topic: orders, schema: id string}
steps:
  - {name: late, python: rules:late, inputs: [orders], args: {«minuets»: «120»}}
sinks:
  - {from: late, console: true}
"""


def test_a_wrong_key_is_marked_at_the_key_and_a_wrong_value_at_the_value(tmp_path: Path) -> None:
    text, places = marked(PIPELINE)
    (tmp_path / "rules.py").write_text("def late(orders, minutes): return orders\n")
    problems = ProblemCollection(load_text(tmp_path, text))
    for at_key in (True, False):
        with problems.recording("steps.0.python", "step late"):
            raise InvalidSetting("steps.0.args.minuets", "wrong", at_key=at_key)
    assert [line_column(problem) for problem in problems.all()] == places
