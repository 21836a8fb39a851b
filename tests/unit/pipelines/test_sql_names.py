"""The views that an SQL statement reads are found from its words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.pipelines.sql_names import views_used

VIEWS = ("events", "users", "rates")

STATEMENTS = {
    "select * from events": "events",
    "SELECT * FROM Events": "events",
    "select * from `events`": "events",
    "select * from events e left join `USERS` u using (id), rates": "events users rates",
    "select e.users, events from users as events, rates": "users rates",
    "select * from events natural join users where exists (select 1 from rates)": "events users rates",
    "select (select max(x) from rates) from users where id in (select id from events)": "rates users events",
    "select * from (select * from users) u, (rates r join events on true)": "users rates events",
    "select * from ((((users))))": "users",
    "table events union all table users": "events users",
    "from events |> where users = 1 |> join rates using (x) |> select users, events": "events rates",
    "select * from f(table(events), table users)": "events users",
    "select * from stream events": "events",
    "select count(*) over (partition by users order by rates), users from events": "events",
    # names of views that mean something else here: in strings and comments, of columns and functions, qualified names
    "select 'from users', \"from rates\", 'it\\'s from users' from events": "events",
    "select r'\\' from events, users": "events users",
    "select 1 -- from users\nfrom events -- , rates": "events",
    "select /* from users /* from rates */ from users */ 1 from events": "events",
    "select extract(day from users), trim(both from rates), a is distinct from users from events": "events",
    "select a is not distinct from users from events": "events",
    "select * from other.events, parquet.`users`, rates.x.y, users(3)": "",
    "select * from events lateral view explode(x) t as users, rates": "events",
    "select * from events where x in (users, rates) group by users, rates order by rates, users limit 3": "events",
    "select * from values (1), (2) as t(users, rates)": "",
    "select users, rates from events union select rates, users from events": "events",
    # names that WITH defines
    "with events as (select * from users) select * from events": "users",
    "with events as (select * from events) select * from events": "events",
    "with a as (select 1), users(x, rates) as (select * from users) select * from a, users join rates": "users rates",
    "with users (select * from events), rates(a, b) (select 1, 2) select * from users, rates": "events",
    "with recursive events as (select 1 union all select * from events) select * from events, users": "users",
    "select * from (with users as (select 1) select * from users) join users": "users",
    "with a as (with users as (select 1) select * from users) select * from users, a": "users",
    "select * from events group by x with rollup": "events",
    # not SQL at all
    "": "",
    "((((": "",
    "))))": "",
    "'": "",
    "`": "",
    "/*": "",
    "from": "",
    "with": "",
}


@pytest.mark.parametrize(("sql", "views"), STATEMENTS.items())
def test_the_views_of_a_statement(sql: str, views: str) -> None:
    """Each view once, in the order of first use."""
    assert " ".join(use.view for use in views_used(sql, VIEWS)) == views


def test_a_use_has_its_offset() -> None:
    sql = "select *\nfrom `users` u, events"
    assert [(use.view, sql[use.offset :][:7]) for use in views_used(sql, VIEWS)] == [
        ("users", "`users`"),
        ("events", "events"),
    ]


WORDS = [
    "select",
    "from",
    "join",
    "with",
    "as",
    "(",
    ")",
    ",",
    "events",
    "`",
    "'",
    "/*",
    "*/",
    "--",
    "table",
    ".",
    "|>",
    "\n",
]


@given(st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join) | st.text(max_size=40))
def test_any_text_gives_only_known_views(sql: str) -> None:
    assert {use.view for use in views_used(sql, VIEWS)} <= set(VIEWS)


def test_a_very_deep_statement_is_read() -> None:
    sql = "select * from " + "(" * 20_000 + "events" + ")" * 20_000
    assert [use.view for use in views_used(sql, VIEWS)] == ["events"]
