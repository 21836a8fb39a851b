"""Gives a JVM of ours a local file system that creates files without starting a process for each (LocalFiles.java).

Hadoop keeps one file system for each scheme and user, and everything in Spark asks it for that one. So ours is created
first, in a JVM that has just started. Spark brings the compiler, with which it compiles its queries.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

SOURCE: Final = Path(__file__).with_name("LocalFiles.java")
CLASS: Final = "moldau.LocalFiles"
HADOOP: Final = "spark.hadoop."
"""Prefix of Hadoop's settings among those of Spark."""
_log = logging.getLogger(__name__)


def install(jvm: Any, settings: Mapping[str, str]) -> None:
    """Make ours the local file system of the JVM, before anything there has asked for one. If that is impossible, Spark
    works with Hadoop's."""
    from py4j.protocol import Py4JJavaError

    if any(key.startswith(f"{HADOOP}fs.file.impl") for key in settings):
        return
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    configuration = jvm.org.apache.hadoop.conf.Configuration()
    try:
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(SOURCE.read_text())
        configuration.setClassLoader(compiler.getClassLoader())
        configuration.set("fs.file.impl", CLASS)
        for key, value in settings.items():
            if key.startswith(HADOOP):
                configuration.set(key.removeprefix(HADOOP), value)
        jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("file:///"), configuration)
    except Py4JJavaError as error:
        _log.warning("Hadoop's own file system is used, which is slower: %s", error.java_exception)
