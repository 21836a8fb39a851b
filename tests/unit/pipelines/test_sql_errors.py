"""Spark's messages are shortened to one line. The texts are Spark's own; tests/spark calls the analyzer itself."""

from __future__ import annotations

import logging

import pytest
from pyspark.errors import AnalysisException, ParseException, PySparkException

from moldau.pipelines.planning.sql_errors import SqlError, message_of, quiet, sql_error

PLAN = "; line 2 pos 3;\n'Project ['idd]\n+- SubqueryAlias v\n"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            AnalysisException("[MISSING_GROUP_BY] The query has no GROUP BY clause. SQLSTATE: 42803" + PLAN),
            SqlError("The query has no GROUP BY clause.", 2, 4),
        ),
        (
            ParseException("\n[PARSE_EMPTY_STATEMENT] Syntax error, unexpected empty statement. SQLSTATE: 42617"
                           " (line 1, pos 0)\n\n== SQL ==\n\n^^^\n"),
            SqlError("Syntax error, unexpected empty statement.", 1, 1),
        ),
        (
            AnalysisException("[WRONG_NUM_ARGS] The `sum` requires 1 parameters but the actual number is 2. Please,"
                              " refer to 'https://spark.apache.org/docs/latest/sql-ref-functions.html' for a fix."
                              " SQLSTATE: 42605; line 1 pos 7"),
            SqlError("The `sum` requires 1 parameters but the actual number is 2.", 1, 8),
        ),
        (
            AnalysisException("[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):\n  File \"x\"\n"
                              "moldau.spark.lake.tables.LakeError: /lake/t: there is no table SQLSTATE: 38000"),
            SqlError("/lake/t: there is no table"),
        ),
        (AnalysisException("x" * 1000), SqlError("x" * 299 + "…")),
    ],
)  # fmt: skip
def test_a_message_is_shortened(error: PySparkException, expected: SqlError) -> None:
    assert sql_error(error, "select\n   idd from v") == expected
    assert message_of(error) == expected.message


def test_quiet_silences_the_logger_of_spark() -> None:
    logger = logging.getLogger("SQLQueryContextLogger")
    before = logger.level
    with quiet():
        assert not logger.isEnabledFor(logging.CRITICAL)
    assert logger.level == before
