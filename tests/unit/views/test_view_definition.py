"""Definitions of views: expressions and configs that are refused, their messages, and the cost of the checks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness.operations import operations_of

from moldau.base.view_configs import VIEW_FORMAT, VIEW_KEY, VIEW_ON_ERROR, VIEW_SELECT, VIEW_WHERE
from moldau.views.definition import view_definition
from moldau.views.parser import BadExpression, parse_condition, parse_selection
from moldau.views.sql import compile_queries

WRONG = {
    "": "a field, a number or a text is missing at the end",
    "amount >": "a field, a number or a text is missing at the end",
    "amount > 5 5": "an operator or the end is missing before '5' at character 12",
    "amount > 'x": "unexpected a text without its closing quote at character 10",
    "amount ; drop": "unexpected ';' at character 8",
    "read_text('/etc/passwd') = ''": "there is no function read_text",
    "lowr(a) = 'b'": "there is no function lowr, did you mean lower?",
    "heder('a') = 'b'": "there is no function heder, did you mean header?",
    "(select 1)": "missing before '1'",
    "a in 5": "( is missing",
    "a not 5": "IN, BETWEEN or LIKE is missing",
    "left(a) = 1": "left() takes 2 arguments, and 1 are given",
    "header(5) = 1": "header() takes one name in quotes",
    "a[x] = 1": "an index in [ ] is a whole number",
    "a[1234567890] = 1": "an index in [ ] has at most 9 digits, not 10",
    'a = ""': 'a name in "" is empty at character 5',
    'a = "b\\c"': 'a name in "" contains a backslash or a control character at character 5',
    'a = "b': "unexpected a name without its closing quote at character 5",
    "amount + 1": "a condition is true or false, and this is a number",
    "case when a then b": "END is missing at the end",
    "(" * 60 + "a" + ")" * 60: "nested more than 50 deep",
    "-".join(["a"] * 200) + " > 0": "nested more than 50 deep",
    "x" * 9000: "at most 8192",
    "a" + " or a" * 1500: "more than 2000 words",
    'a."*" = 1': 'a field cannot be named "*"',
    "a like b": "a pattern in quotes is missing",
    "a = 'x\x00'": "cannot contain the character 0",
}


@pytest.mark.parametrize("text", WRONG)
def test_invalid_conditions_are_refused(text: str) -> None:
    with pytest.raises(BadExpression) as refused:
        parse_condition(text)
    assert WRONG[text] in str(refused.value)


def test_the_error_for_an_invalid_config_has_its_name() -> None:
    for name, value in {
        VIEW_WHERE: "a >",
        VIEW_SELECT: "a + 1",
        VIEW_KEY: "hide",
        VIEW_ON_ERROR: "stop",
        VIEW_FORMAT: "avro",
    }.items():
        with pytest.raises(BadExpression, match=name):
            view_definition({name: value})
    with pytest.raises(BadExpression, match="has no column b; it has a"):
        view_definition({VIEW_FORMAT: "csv(a)", VIEW_WHERE: "b = 1"})
    with pytest.raises(BadExpression, match="at most 255 characters"):
        view_definition({VIEW_FORMAT: f"csv(a, {'b' * 256})"})
    with pytest.raises(BadExpression, match=r"has no column b; it has c0, .*, c19 and 5 more$"):
        view_definition({VIEW_FORMAT: f"csv({', '.join(f'c{n}' for n in range(25))})", VIEW_WHERE: "b = 1"})
    with pytest.raises(BadExpression, match="two fields would be named a"):
        parse_selection("a, b as a")


def test_names_and_texts_of_a_condition_are_quoted_in_sql() -> None:
    queries = compile_queries(view_definition({VIEW_WHERE: """"a' or 1" = 'b'' or 2'"""}))
    assert queries.mask is not None
    assert """'$."a'' or 1"'""" in queries.mask.extraction
    assert """'b'' or 2'""" in queries.mask.results


def test_comparisons_of_fields_that_are_too_complex_are_refused() -> None:
    text = "a"
    for _ in range(12):
        text = f"coalesce(b, case when {text} = c then d end)"
    with pytest.raises(BadExpression, match="too complex"):
        compile_queries(view_definition({VIEW_WHERE: f"{text} = e"}))


def compile_or_refuse(where: str) -> None:
    try:
        compile_queries(view_definition({VIEW_WHERE: where}))
    except BadExpression as wrong:
        assert "too complex" in str(wrong)  # noqa: PT017  shallow ones are accepted


def nested_between(depth: int) -> str:
    return "(" * depth + "a = 1" + ") between 1 and 2" * depth


def nested_case(depth: int) -> str:
    text = "a"
    for _ in range(depth):
        text = f"case when ({text}) = 1 then b end"
    return f"({text}) = 1"


def nested_in(depth: int) -> str:
    return "(" * depth + "a = 1" + ") in (true, b, 2, 3)" * depth


@pytest.mark.parametrize("nested", [nested_between, nested_case, nested_in])
def test_the_cost_of_a_check_does_not_double_with_each_level(nested: Callable[[int], str]) -> None:
    shallow, deep = (operations_of(lambda depth=depth: compile_or_refuse(nested(depth))) for depth in (6, 24))
    assert deep < 8 * shallow


def test_a_wide_list_of_a_long_operand_is_refused_before_it_is_written() -> None:
    numbers = ", ".join(map(str, range(400)))
    operand = " || ".join(f"field_number_{number}" for number in range(40))
    with pytest.raises(BadExpression, match="too complex"):
        compile_queries(view_definition({VIEW_WHERE: f"({operand} || (case when a = b then c end)) in ({numbers})"}))


def test_a_long_list_of_numbers_is_accepted() -> None:
    numbers = ", ".join(map(str, range(900)))
    assert compile_queries(view_definition({VIEW_WHERE: f"a in ({numbers})"})).mask is not None
