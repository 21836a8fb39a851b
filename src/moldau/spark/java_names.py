"""Keeps the classes of the JVM that PySpark looks up for every expression.

Py4J asks the JVM at each use of a name. The JVM tries it as a class of each imported package, in each of Spark's 250
jars: that was a fifth of what it took to check pipelines. A class that was found stays what it is as long as the JVM
lives.
"""

from __future__ import annotations

from typing import Any, Final

CLASSES: Final = (
    "PythonErrorUtils",
    "PythonSQLUtils",
    "PythonUtils",
    "SimplePythonFunction",
    "functions",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.internal.SQLConf",
)
"""As PySpark names them."""


def keep(jvm: Any) -> None:
    """Set the classes as attributes: Py4J looks up only what is none."""
    for name in CLASSES:
        setattr(jvm, name, getattr(jvm, name))
    # is_instance_of asks for jvm.py4j.reflection.TypeUtil, part by part.
    jvm.py4j = jvm.py4j
    jvm.py4j.reflection = jvm.py4j.reflection
    jvm.py4j.reflection.TypeUtil = jvm.py4j.reflection.TypeUtil
