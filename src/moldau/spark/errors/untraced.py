"""In Spark's Python workers: sends expected errors to the driver as one sentence, without a stack trace.

Spark sends an exception to the driver as the text that Python would print. For a wrong option that text was thirty
lines about our modules, with the sentence at the end. Unexpected errors keep their trace.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from moldau.base.errors import KafkaError, MalformedData, StorageFault, UnusableProperty

EXPECTED: Final[tuple[type[Exception], ...]] = (
    KafkaError,
    MalformedData,
    StorageFault,
    UnusableProperty,
    ConnectionError,
    TimeoutError,
)
"""Errors of the cluster, the network or a disk. Their messages name topic, partition, address or path."""
RUNTIME: Final = "SPARK_PYTHON_RUNTIME"
WORKER: Final = "PYTHON_WORKER"
"""The value of RUNTIME in processes that Spark starts."""
HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
"""PySpark reads it when it reports an exception."""


@contextmanager
def untraced(*kinds: type[Exception]) -> Iterator[None]:
    """Let Spark report EXPECTED errors and those of `kinds` without a trace. The errors themselves are unchanged.

    Also a decorator. A generator must use it inside its body, which runs later.
    """
    try:
        yield
    except EXPECTED + kinds:
        if os.environ.get(RUNTIME) == WORKER:
            os.environ[HIDE_TRACEBACK] = "1"  # for good: a process that reports an error ends
        raise
