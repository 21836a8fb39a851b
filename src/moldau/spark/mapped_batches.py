"""Calls a Python function with the Arrow batches of each partition of a frame, without pandas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from moldau.spark.quoting import quoted_name

MapBatches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_batches(frame: DataFrame, function: MapBatches, schema: str) -> DataFrame:
    """Return the frame of what the function yields for the rows of each partition.

    This is DataFrame.mapInArrow, which asks for pandas although it does not use it.
    """
    kind: Any = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    udf = UserDefinedFunction(function, schema, function.__name__, kind)
    columns = udf(*(F.col(quoted_name(name)) for name in frame.columns))
    java: Any = frame._jdf
    return DataFrame(java.mapInArrow(columns._jc, False, None), frame.sparkSession)
