"""Topic names: which are legal, and which collide in metric names."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.base.limits import TOPIC_NAME_LENGTH_MAX
from moldau.base.topic_names import INTERNAL_TOPICS, METADATA_TOPIC, collision_key, topic_name_problem

LEGAL = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"


@pytest.mark.parametrize("name", ["a", "...", ".a", "-", "_", "a.b_c-D9", "x" * 249, METADATA_TOPIC, *INTERNAL_TOPICS])
def test_legal_names(name: str) -> None:
    assert topic_name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, "longer than"),
        ("a/b", "contains"),
        ("../../etc/passwd", "contains"),
        ("a b", "contains"),
        ("a\n", "contains"),
        ("a\0b", "contains"),
        ("café", "contains"),
        ("аpple", "contains"),  # the first letter is Cyrillic
        ("١٢٣", "contains"),  # digits, but not ASCII's
        ("a,b", "contains"),
    ],
)
def test_illegal_names(name: str, reason: str) -> None:
    assert reason in (topic_name_problem(name) or "")


@given(st.text(max_size=260))
def test_legal_names_are_safe_in_directory_names(name: str) -> None:
    if topic_name_problem(name) is None:
        assert name
        assert set(name) <= set(LEGAL)
        assert len(f"{name}-0000".encode()) <= 255
        assert os.path.normpath(f"data/{name}-0") == f"data/{name}-0"


@given(st.text(alphabet=LEGAL, min_size=1, max_size=TOPIC_NAME_LENGTH_MAX))
def test_all_names_of_legal_characters_except_two_are_legal(name: str) -> None:
    assert (topic_name_problem(name) is None) == (name not in (".", ".."))


def test_a_problem_contains_no_raw_control_characters() -> None:
    problem = topic_name_problem("evil\r\nlog line")
    assert problem is not None
    assert "\n" not in problem
    assert "\r" not in problem


@pytest.mark.parametrize(
    ("one", "other", "collide"),
    [("a.b", "a_b", True), ("a.b.c", "a_b.c", True), ("a.b", "a-b", False), ("a", "a_", False), ("A_b", "a.b", False)],
)
def test_collisions(one: str, other: str, collide: bool) -> None:
    assert (collision_key(one) == collision_key(other)) is collide
