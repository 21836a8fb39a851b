"""Makes Spark functions of Python functions over Arrow columns: no pandas, one call for thousands of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import DataType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType


def arrow_function(
    function: Callable[[pa.Array], pa.Array], result_type: DataType | str, is_costly: bool = False
) -> Callable[[Column], Column]:
    """Return the function as a Spark function with results of `result_type`.

    A costly function is declared nondeterministic, so that the optimizer does not copy it into every filter and
    projection that uses its result.
    """
    make_udf: Any = arrow_udf  # its overloads do not accept functions that are defined at run time
    udf = make_udf(function, result_type)
    result: Callable[[Column], Column] = udf.asNondeterministic() if is_costly else udf
    return result


def map_batches(
    frame: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str
) -> DataFrame:
    """Return the frame of what the function yields for the rows of each partition.

    This is DataFrame.mapInArrow, which asks for pandas although it does not use it.
    """
    kind: Any = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    udf = UserDefinedFunction(function, schema, function.__name__, kind)
    columns = udf(*(F.col(f"`{name.replace('`', '``')}`") for name in frame.columns))
    java: Any = frame._jdf
    return DataFrame(java.mapInArrow(columns._jc, False, None), frame.sparkSession)
