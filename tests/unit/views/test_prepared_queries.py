"""Queries that stay prepared between two tables: what they return, and how many of them are kept."""

from __future__ import annotations

import gc
import weakref

import pytest

pytest.importorskip("duckdb")

import duckdb
import pyarrow as pa

from moldau.views.prepared import CHARACTERS_MAX, STATEMENTS_MAX, PreparedQueries
from moldau.views.sql import Query

ADDING = Query("n + 1 AS m", "", ("n",), ())


def table_of(*numbers: object, kind: pa.DataType | None = None) -> pa.Table:
    return pa.table({"n": pa.array(numbers, kind)})


def results(queries: PreparedQueries, query: Query, table: pa.Table) -> list[object]:
    found: list[object] = queries.table(query, table).column(0).to_pylist()
    return found


def kept(connection: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    """How many statements and tables the engine has."""
    (found,) = connection.execute(
        "SELECT (SELECT count(*) FROM duckdb_prepared_statements()), "
        "(SELECT count(*) FROM duckdb_views() WHERE view_name LIKE 'records%')"
    ).fetchall()
    return found


def test_each_table_has_its_own_result() -> None:
    queries = PreparedQueries(duckdb.connect())
    for numbers in ((1, 2, 3), (), (7,), tuple(range(5000))):
        table = table_of(*numbers, kind=pa.int64())
        assert results(queries, ADDING, table) == [number + 1 for number in numbers]


def test_arrays_are_masked_where_a_result_is_null() -> None:
    queries = PreparedQueries(duckdb.connect())
    query = Query("n > 1 AS m, n AS x0", "", ("n",), ())
    for numbers in ((1.5, 2.0), (None, 2.0, 1.0), (None, None), ()):
        table = table_of(*numbers, kind=pa.float64())
        arrays = queries.arrays(query, table)
        assert arrays["x0"].tolist() == list(numbers)
        assert arrays["m"].tolist() == [number and number > 1 for number in numbers]


def test_a_table_of_other_types_gets_another_statement() -> None:
    connection = duckdb.connect()
    queries = PreparedQueries(connection)
    assert results(queries, ADDING, table_of(1)) == [2]
    assert results(queries, ADDING, table_of(1.5)) == [2.5]
    assert results(queries, ADDING, table_of(2)) == [3]
    assert kept(connection) == (2, 2)


def test_a_failed_query_runs_again_with_other_records() -> None:
    queries = PreparedQueries(duckdb.connect())
    whole = Query("CAST(n AS INTEGER) AS m", "", ("n",), ())
    assert results(queries, whole, table_of("1")) == [1]
    with pytest.raises(duckdb.ConversionException):
        queries.table(whole, table_of("1", "one"))
    assert results(queries, whole, table_of("2")) == [2]


def test_a_query_that_cannot_be_planned_is_not_kept() -> None:
    connection = duckdb.connect()
    queries = PreparedQueries(connection)
    with pytest.raises(duckdb.BinderException):
        queries.table(Query("other AS m", "", ("n",), ()), table_of(1))
    assert kept(connection) == (0, 0)


def test_records_are_not_kept() -> None:
    queries = PreparedQueries(duckdb.connect())
    table = table_of(1, 2)
    gone = weakref.ref(table)
    queries.table(ADDING, table)
    del table
    gc.collect()
    assert gone() is None


def test_the_number_of_kept_statements_is_limited() -> None:
    connection = duckdb.connect()
    queries = PreparedQueries(connection)
    for number in range(STATEMENTS_MAX + 5):
        assert results(queries, Query(f"n + {number} AS m", "", ("n",), ()), table_of(1)) == [1 + number]
        results(queries, ADDING, table_of(1))
    assert kept(connection) == (STATEMENTS_MAX, STATEMENTS_MAX)
    results(queries, ADDING, table_of(1))
    assert kept(connection) == (STATEMENTS_MAX, STATEMENTS_MAX), "the statement used last is still kept"


def test_a_long_statement_is_kept_only_without_others() -> None:
    connection = duckdb.connect()
    queries = PreparedQueries(connection)
    long = Query("n = '" + "x" * CHARACTERS_MAX + "' AS m", "", ("n",), ())
    for _ in range(2):
        results(queries, ADDING, table_of(1))
        for _ in range(2):
            assert results(queries, long, table_of("x")) == [False]
            assert kept(connection) == (1, 1)
