"""In Spark's Python processes: errors that say all in one sentence travel to the driver without a stack trace.

Spark sends an exception to the driver as the text that Python would print. For an option with a wrong value that text
was thirty lines about our own modules, and the sentence stood last. Errors that are not expected keep their trace.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from moldau.base.errors import KafkaError, MalformedData, UnusableProperty

EXPECTED: Final[tuple[type[Exception], ...]] = (
    KafkaError,
    MalformedData,
    UnusableProperty,
    ConnectionError,
    TimeoutError,
)
"""What the cluster or the world may do to anybody. Their messages name topic, partition or address."""
RUNTIME: Final = "SPARK_PYTHON_RUNTIME"
WORKER: Final = "PYTHON_WORKER"
"""What Spark sets RUNTIME to in the processes that it starts, and nobody does elsewhere."""
HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
"""PySpark looks for it when it reports an exception."""


@contextmanager
def untraced(*kinds: type[Exception]) -> Iterator[None]:
    """Within, EXPECTED errors and those of `kinds` are raised as they are; Spark's report of them has no trace.

    Also a decorator. A generator has to use it inside, as its body runs later.
    """
    try:
        yield
    except EXPECTED + kinds:
        if os.environ.get(RUNTIME) == WORKER:
            os.environ[HIDE_TRACEBACK] = "1"  # for good: a process that reports an error ends
        raise
