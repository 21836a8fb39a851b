"""Keeps the classes and methods of the JVM that PySpark looks up for every expression.

Py4J asks the JVM at each use of a name. The JVM tries it as a class of each imported package, in each of Spark's 250
jars, and as each of a thousand overloaded methods: that was a fifth of what it took to check pipelines. What was found
stays what it is as long as the JVM lives.
"""

from __future__ import annotations

from typing import Any, Final

from py4j.java_gateway import JavaClass, JavaMember

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


class KeptClass(JavaClass):  # type: ignore[misc]
    """A class that looks up each static method once. The value of a static field is read each time."""

    def __getattr__(self, name: str) -> Any:
        member = super().__getattr__(name)
        if isinstance(member, JavaMember):
            setattr(self, name, member)
        return member


def keep(jvm: Any) -> None:
    """Set the classes as attributes: Py4J looks up only what is none."""
    for name in CLASSES:
        setattr(jvm, name, _kept(getattr(jvm, name)))
    # is_instance_of asks for jvm.py4j.reflection.TypeUtil, part by part.
    jvm.py4j = jvm.py4j
    jvm.py4j.reflection = jvm.py4j.reflection
    jvm.py4j.reflection.TypeUtil = _kept(jvm.py4j.reflection.TypeUtil)


def _kept(found: JavaClass) -> KeptClass:
    return KeptClass(found._fqn, found._gateway_client)
