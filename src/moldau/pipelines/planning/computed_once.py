"""Keeps Spark's optimizer from computing an expression twice."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


def once(computed: Column) -> Column:
    """Return the column so that it is computed once where a filter and others use it: the optimizer does not copy
    nondeterministic expressions."""
    return F.when(F.spark_partition_id() >= 0, computed)
