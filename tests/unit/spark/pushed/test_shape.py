"""The name and the definition of the view that a read with `where` and `fields` needs."""

from __future__ import annotations

import shlex

import pytest

from moldau.base.topic_names import topic_name_problem
from moldau.spark.options import read_options
from moldau.spark.pushed.shape import PREFIX, Shape, is_made, made_by

BIG = Shape("amount > 100", "id, amount")


def configs(**more: str) -> dict[str, str]:
    given = {"from": "orders", "where": "amount > 100", "select": "id, amount", **more}
    return {"moldau.view." + name.replace("_", "."): value for name, value in given.items()}


def test_the_name_of_a_view_never_changes() -> None:
    """Users have rights on the name, and administrators have created views with it."""
    assert BIG.view_name("orders") == "moldau-spark-view-orders-f2d344d674a5cb87"


def test_different_topics_conditions_and_fields_get_different_view_names() -> None:
    shapes = [BIG, Shape("amount > 100"), Shape(None, "id, amount"), Shape("id, amount"), Shape("amount > 101")]
    names = {shape.view_name(source) for shape in shapes for source in ("orders", "orders-", "Orders", "a.b", "a_b")}
    assert len(names) == 25
    assert all(name.startswith(PREFIX) for name in names)


def test_the_view_name_of_a_long_topic_is_valid() -> None:
    one, two = BIG.view_name("t" * 249), BIG.view_name("t" * 248 + "u")
    assert one != two
    assert topic_name_problem(one) is None
    assert len(one) == 249


def test_whitespace_outside_of_quotes_does_not_matter() -> None:
    spread = Shape("\n  amount >\t100\n", " id,\n amount ")
    assert spread == BIG
    assert spread.view_name("orders") == BIG.view_name("orders")
    assert Shape("name = 'a  b'") != Shape("name = 'a b'")
    assert Shape("name = 'it''s  so'  and x").where == "name = 'it''s  so' and x"
    assert Shape('"odd  name" = 1').where == '"odd  name" = 1'
    assert Shape("name = 'open   end").where == "name = 'open end", "the broker refuses it"


def test_is_shown_by_compares_the_configs_of_a_view() -> None:
    assert BIG.is_shown_by(configs(), "orders")
    assert BIG.is_shown_by(configs(where="amount  > 100", key="keep", format="json", made_by="spark"), "orders")
    assert not BIG.is_shown_by(configs(), "payments")
    assert not BIG.is_shown_by({}, "orders")
    for different in (
        {"where": "amount > 101"},
        {"select": "id"},
        {"select": ""},
        {"format": "csv(id, amount)"},
        {"key": "null"},
        {"headers": "drop"},
        {"on_error": "pass"},
    ):
        assert not BIG.is_shown_by(configs(**different), "orders")


def test_the_command_that_creates_the_view() -> None:
    quoted = Shape("name = 'x'")
    assert shlex.split(quoted.command("orders")) == [
        *("moldau", "view", "create", quoted.view_name("orders")),
        *("--from", "orders", "--where", "name = 'x'"),
    ]
    assert BIG.command("orders").endswith("--from orders --where 'amount > 100' --select 'id, amount'")
    assert "\n" not in Shape("name = 'a\nb'").command("orders")


def test_made_by_names_spark_and_the_user() -> None:
    assert made_by(None) == "spark"
    assert made_by("ann") == "spark for ann"
    assert made_by("a\nb") == made_by("a" * 300) == "spark"
    assert is_made({"moldau.view.made.by": "spark for ann"})
    assert not is_made({"moldau.view.made.by": "sparkling"})
    assert not is_made({})


def test_the_options_where_and_fields() -> None:
    given = {"kafka.bootstrap.servers": "here:9092", "subscribe": "orders"}
    assert read_options(given, is_stream=None).shape is None
    both = {**given, "where": "amount > 100", "fields": "id, amount"}
    assert read_options(both, is_stream=True).shape == BIG
    with pytest.raises(ValueError, match="where is a condition such as amount > 100, not ''"):
        read_options({**given, "where": ""}, is_stream=False)
    with pytest.raises(ValueError, match="fields is a list such as id, amount, not ' '"):
        read_options({**given, "fields": " "}, is_stream=False)
