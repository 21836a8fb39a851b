"""A problem points at the wrongly indented line itself, not at the later line where YAML's parser stops."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from harness.depth import deep, few
from harness.operations import operations_of
from marked_yaml import WHOLE_PIPELINE, line_column, marked
from test_pipeline_loading import EVERYTHING

from moldau.pipelines.problems import InvalidPipeline, Problem
from moldau.pipelines.reading.indentation import find_wrong_line
from moldau.pipelines.reading.yaml_tree import read_yaml

FILES = sorted((Path(__file__).parents[3] / "examples").glob("*/pipeline.yaml"))
EXAMPLES = [path.read_text() for path in FILES[: deep(2)]]
LISTS_AT_THE_MARGIN = """\
name: shop
sources:
    orders:
        topic: orders
        watermark:
            column: ts
            delay: 1s
        format: text
    users: &base
        topic: users
        format: text
steps:
- name: a
  sql: >-
    select *
    from orders

    where x
- name: b
  # a remark
  sql: select *
    from a
sinks:
- from: b
  topic: "t
    u"
- from: a
  headers: {a: b,
    c: d}
  console: true
"""
SOURCE = "name: x\nsources:\n  a:\n    topic: a\n    format: json\n    schema: b int\n"
TEXT = "      select *\n      from a\n      where b\n"
STEPS = f"name: x\nsteps:\n  - name: s\n    sql: |\n{TEXT}  - name: t\n    sql: c\n"

WRONG = {
    "too little": (SOURCE.replace("    format", "   «format»"), "3 spaces; the lines of the same block by 4"),
    "too much": (SOURCE.replace("    format", "     «format»"), "5 spaces; the lines of the same block by 4"),
    "the first too little": (SOURCE.replace("    topic", "   «topic»"), "3 spaces; the lines of the same block by 4"),
    "the first too much": (SOURCE.replace("    topic", "     «topic»"), "5 spaces; the lines of the same block by 4"),
    "the first of two": (
        "name: x\nsources:\n  a:\n   «topic»: a\n    format: json\n",
        "3 spaces; the lines of the same block by 4",
    ),
    "the last": (SOURCE.replace("    schema", "   «schema»"), "3 spaces; the lines of the same block by 4"),
    "the last, far too little": (
        STEPS.replace("    sql: c", "  «sql»: c"),
        "2 spaces; the lines of the same block by 4",
    ),
    "a source": (SOURCE + "   «b»:\n    topic: b\n", "3 spaces; the lines of the same block by 2"),
    "the first source": (
        SOURCE.replace("  a:", "   «a»:") + "  b:\n    topic: b\n",
        "3 spaces; the lines of the same block by 2",
    ),
    "the first source too little": (
        SOURCE.replace("  a:", " «a»:") + "  b:\n    topic: b\n",
        "1 space; the lines of the same block by 2",
    ),
    "a section": (SOURCE + " «sinks»:\n  - from: a\n", "1 space; the lines of the same block by 0"),
    "the first section": (" «name»: x\nsources:\n  a: {}\nsinks: []\n", "1 space; the lines of the same block by 0"),
    "an item": (STEPS.replace("  - name: t", "   «»- name: t"), "3 spaces; the lines of the same block by 2"),
    "an item too little": (STEPS.replace("  - name: t", " «»- name: t"), "1 space; the lines of the same block by 2"),
    "the first item": (STEPS.replace("  - name: s", " «»- name: s"), "1 space; the lines of the same block by 2"),
    "an item under its keys": (
        STEPS.replace("  - name: t", "    «»- name: t"),
        "4 spaces; the lines of the same block by 2",
    ),
    "key of an item": (STEPS.replace("    sql: c", "   «sql»: c"), "3 spaces; the lines of the same block by 4"),
    "text": (STEPS.replace("      from", "     «from»"), "5 spaces; the lines of the same block by 6"),
    "first line of a text": (
        STEPS.replace("      select", "       «select»"),
        "7 spaces; the lines of the same block by 6",
    ),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG.keys())
def test_the_problem_has_the_indentation_of_the_line_and_of_its_block(case: tuple[str, str]) -> None:
    text, (place,) = marked(case[0])
    problem = first_problem(text)
    assert problem is not None
    assert problem.message == f"this line is indented by {case[1]}"
    assert line_column(problem) == place
    assert problem.hint is None


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (SOURCE.replace("topic: a", "topic: a«»: b"), True),
        (SOURCE.replace("topic: a", "topic: a\n      where it is«»: b"), True),
        (SOURCE.replace("    schema: b int", "     «schema»: b int"), False),
        (SOURCE.replace("topic: a", "«topic» a"), False),
        (SOURCE.replace("format: json", "«format» json"), False),
    ],
)
def test_quotes_are_suggested_only_where_they_help(text: str, hint: bool) -> None:
    text, (place,) = marked(text)
    problem = first_problem(text)
    assert problem is not None
    assert line_column(problem) == place, problem
    assert bool(problem.hint and "quotes" in problem.hint) == hint, problem


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        (SOURCE.replace("topic: a", "«topic» a"), "':'"),
        (SOURCE.replace("topic: a", "«topic»:a"), "space after its ':'"),
        (SOURCE.replace("schema: b", "«schema» b"), "':'"),
        (SOURCE.replace("schema: b int", "«schema»:int"), "space after its ':'"),
        (SOURCE.replace("name: x", "«name» x"), "':'"),
        (SOURCE.replace("sources:", "«sources»"), "':'"),
        (STEPS.replace("name: s", "«name» s"), "':'"),
    ],
)
def test_the_problem_points_at_the_line_without_a_colon(text: str, missing: str) -> None:
    text, (place,) = marked(text)
    problem = first_problem(text)
    assert problem is not None
    assert problem.message == f"this line has no {missing}, but the lines around it have the form  key: value"
    assert line_column(problem) == place


@pytest.mark.parametrize("text", [SOURCE, STEPS, WHOLE_PIPELINE, LISTS_AT_THE_MARGIN])
def test_the_problem_points_at_a_tab(text: str) -> None:
    lines = text.splitlines()
    found = 0
    for at, line in enumerate(lines):
        for changed in ("\t" + line, "\t" + line.lstrip(), line.replace("  ", " \t", 1)):
            if changed.lstrip(" ").startswith("\t") and (
                problem := first_problem("\n".join(with_line(lines, at, changed)))
            ):
                assert problem.message == "a tab is not allowed here: YAML is indented with spaces"
                assert line_column(problem) == (at + 1, changed.index("\t") + 1)
                found += 1
    assert found >= len(lines), "only lines of a multi-line text may begin with a tab"


def test_a_tab_within_a_line_is_not_called_indentation() -> None:
    problem = first_problem(SOURCE.replace("topic: a", "topic:\ta"))
    assert problem is not None
    assert problem.message == "a tab is not allowed here: write a space instead"


@pytest.mark.parametrize("text", [EVERYTHING, LISTS_AT_THE_MARGIN, WHOLE_PIPELINE, *EXAMPLES])
@pytest.mark.parametrize("spaces", [-1, 1])
def test_any_line_moved_by_one_space_is_found(text: str, spaces: int) -> None:
    """If the file is then not YAML, the problem points at the moved line."""
    assert first_problem(text) is None
    found = 0
    for number, changed in moved(text, spaces):
        problem = first_problem(changed)
        if problem is not None:
            found += 1
            assert problem.place is not None
            assert problem.place.line == number, (changed.splitlines()[number - 1], problem)
            assert problem.message.startswith("this line is indented by"), problem
    assert found > 3, "some moved lines must make the file invalid"


@pytest.mark.parametrize("spaces", few([-3, 2], of=[-3, -2, 2, 3]))
def test_most_lines_moved_further_are_found(spaces: int) -> None:
    """A line that moves further may fit another block, so it is not always recognised."""
    right = 0
    wrong = []
    for text in (EVERYTHING, LISTS_AT_THE_MARGIN, *EXAMPLES):
        for number, changed in moved(text, spaces):
            problem = first_problem(changed)
            if problem is None or "occurs twice" in problem.message:
                continue
            assert problem.place is not None
            assert "quotes" not in (problem.hint or ""), problem
            right += problem.place.line == number
            if abs(problem.place.line - number) > 1:
                wrong.append(problem)
    assert right > 80
    assert len(wrong) <= right // 20, wrong


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{' ' * depth}k:\n" for depth in range(20)) + f"{' ' * 20}- a: b\n{' ' * 22}c: d\n" * 50,
        "a:\n  b: c\n" + "  d: |\n    e\n   f\n" * 50,
        "a: b\n" + "- " * 500 + "c: d\n" + "e: f\n" * 50,
    ],
)
def test_the_search_for_the_line_costs_less_than_reading_the_file(text: str) -> None:
    text += f"{' ' * 21}e: f\n"
    reading = operations_of(lambda: list(yaml.scan(text.replace(": ", "_"))))
    number = text.count("\n")
    assert operations_of(lambda: find_wrong_line(text, range(number + 1))) < reading


def first_problem(text: str) -> Problem | None:
    """Return the first problem of a text as YAML, or None."""
    try:
        read_yaml("pipeline.yaml", text.encode())
    except InvalidPipeline as error:
        return error.problems[0]
    return None


def moved(text: str, spaces: int) -> Iterator[tuple[int, str]]:
    """Yield the number of each line, and the text with that line moved."""
    lines = text.split("\n")
    for at, line in enumerate(lines):
        content = line.lstrip(" ")
        column = len(line) - len(content) + spaces
        if content and column >= 0:
            yield at + 1, "\n".join(with_line(lines, at, " " * column + content))


def with_line(lines: list[str], at: int, line: str) -> list[str]:
    return [*lines[:at], line, *lines[at + 1 :]]
