"""Makes Spark functions of Python functions over Arrow columns: no pandas, one call for thousands of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import DataType


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
