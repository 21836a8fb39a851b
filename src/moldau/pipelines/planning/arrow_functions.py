"""Python functions over Arrow columns as Spark functions: no pandas, one call for thousands of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import DataType


def arrow_function(
    function: Callable[[pa.Array], pa.Array], of: DataType | str, is_costly: bool = False
) -> Callable[[Column], Column]:
    """`of` is the type of the result. A costly one is called not deterministic, so that the optimizer does not copy it
    into every filter and projection that uses its result."""
    udf: Any = arrow_udf  # whose overloads know no functions that are made at run time
    made = udf(function, of)
    called: Callable[[Column], Column] = made.asNondeterministic() if is_costly else made
    return called
