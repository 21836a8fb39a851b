"""Judge the observations: one pure function for each check, from an observation to its findings."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping
from typing import Final

from moldau.base.listeners import WILDCARD_HOSTS
from moldau.doctor.directory_verdicts import judge_cache, judge_data, judge_reserve, judge_temporary
from moldau.doctor.finding import Finding, broken, ok, warning
from moldau.doctor.observations import ClockSeen, MachineSeen, NameSeen, PortSeen, PythonSeen, ResourcesSeen
from moldau.doctor.software_verdicts import judge_java, judge_packages, judge_spark
from moldau.platforms.machine import UNLIMITED, OpenFileLimits

PYTHON_MIN: Final = (3, 11)
OPEN_FILES_WANTED: Final = 4096
SLOW_RESOLVER_S: Final = 1.0
JUMP_S: Final = 0.1
YEARS: Final = range(2024, 2100)
DRIVER_BYTES: Final = 2 << 30
"""Spark's driver has a heap of 1 GiB by default; its other memory and the Python process need about as much."""
BROKER_BYTES: Final = 256 << 20
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
PROXY_VARIABLES: Final = ("http_proxy", "https_proxy", "all_proxy")
JAVA_VARIABLES: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_JAVA_PROXY: Final = re.compile(r"-D(https?|socks)\.?[pP]roxyHost=")
_JAVA_NON_PROXY_HOSTS: Final = re.compile(r"-D(?:http\.non|socksNon)ProxyHosts=(\S*)")


def judge(seen: MachineSeen) -> list[Finding]:
    return [
        judge_python(seen.python),
        *judge_packages(seen.packages),
        judge_spark(seen.spark),
        judge_java(seen.spark),
        *(judge_port(port) for port in seen.ports),
        *([] if seen.open_files is None else [judge_open_files(seen.open_files)]),
        judge_data(seen.data),
        *([] if seen.reserve is None else [judge_reserve(seen.reserve)]),
        judge_cache(seen.cache),
        judge_temporary(seen.temporary),
        judge_host_name(seen.host),
        judge_localhost(seen.localhost),
        *judge_proxies(seen.environ),
        judge_clock(seen.clock, seen.data.clock_offset_s),
        judge_cores(seen.resources),
        *([] if seen.resources.memory_bytes is None else [judge_memory(seen.resources)]),
    ]


def judge_python(seen: PythonSeen) -> Finding:
    found = f"{seen.implementation} {'.'.join(map(str, seen.version))} ({seen.executable})"
    if seen.version < PYTHON_MIN:
        return broken("python", found, "install Python 3.11 or later, and Moldau with it")
    if seen.implementation != "cpython":
        return warning("python", found, "use CPython: Moldau is tested only with it")
    return ok("python", found)


def judge_port(seen: PortSeen) -> Finding:
    check, elsewhere = f"port {seen.address}", "choose another address (`moldau start --listen HOST:PORT`)"
    if seen.errno is None:
        return ok(check, "free")
    if seen.is_name_unknown:
        return broken(
            check, f"name not resolved: {seen.reason}", f"add it to /etc/hosts, write its address, or {elsewhere}"
        )
    if seen.errno != errno.EADDRINUSE:
        host = seen.address.rpartition(":")[0].strip("[]")
        step = "listen on 0.0.0.0 or localhost, or " if host not in WILDCARD_HOSTS else ""
        step = "use a port above 1023, or " if seen.errno == errno.EACCES else step
        return broken(check, f"cannot listen there: {seen.reason}", step + elsewhere)
    if seen.listening_process is None:
        return broken(check, "taken by another process", f"stop what listens there, or {elsewhere}")
    found = f"taken by process {seen.listening_process.pid} ({shortened(seen.listening_process.command)})"
    if "moldau start" in seen.listening_process.command or "kafka-server-start" in seen.listening_process.command:
        return broken(check, f"{found}: a Moldau broker runs already", f"use it, stop it, or {elsewhere}")
    return broken(check, found, f"stop it, or {elsewhere}")


def shortened(command: str, length_max: int = 60) -> str:
    """Return a command line short enough for a sentence."""
    plain = "".join(each if each.isprintable() else "?" for each in command)
    return plain if len(plain) <= length_max else plain[: length_max - 1] + "…"


def judge_open_files(seen: OpenFileLimits) -> Finding:
    """Only the hard limit matters: a broker raises its soft limit to it, and so does Java."""
    found = f"{_limit_text(seen.soft)} (soft), {_limit_text(seen.hard)} (hard)"
    if seen.hard < OPEN_FILES_WANTED:
        return warning(
            "open files",
            f"{found}: each partition and each connection needs one",
            f"raise the hard limit to {OPEN_FILES_WANTED} or more: as root `ulimit -n 65536`,"
            " /etc/security/limits.conf, LimitNOFILE= of systemd, or `docker run --ulimit nofile=…`",
        )
    return ok("open files", found)


def _limit_text(value: int) -> str:
    return "unlimited" if value >= UNLIMITED else str(value)


def judge_host_name(seen: NameSeen) -> Finding:
    check = f"host name {seen.name}"
    if seen.error is not None:
        return warning(
            check,
            f"not resolved: {seen.error}; a broker on 0.0.0.0 tells clients `localhost` instead",
            f"add `127.0.0.1 {seen.name}` to /etc/hosts, or set advertised.listeners",
        )
    found = ", ".join(seen.addresses)
    if seen.seconds > SLOW_RESOLVER_S:
        return warning(
            check,
            f"{found}, after {seen.seconds:.1f} s",
            f"add `127.0.0.1 {seen.name}` to /etc/hosts, or fix the resolver (/etc/resolv.conf)",
        )
    return ok(check, found)


def judge_localhost(seen: NameSeen) -> Finding:
    todo = "add `127.0.0.1 localhost` to /etc/hosts"
    if seen.error is not None:
        return broken("localhost", f"not resolved: {seen.error}", todo)
    found = ", ".join(seen.addresses)
    if not any(address.startswith("127.") for address in seen.addresses):
        return broken("localhost", f"{found}: no IPv4 address, on which brokers and Spark listen", todo)
    return ok("localhost", found)


def judge_proxies(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Kafka's protocol and Spark's own connections do not use proxies. HTTP does: object stores of lake tables, and
    pip."""
    proxies = [name for name in environ if name.lower() in PROXY_VARIABLES and environ[name]]
    exceptions = (environ.get("no_proxy") or environ.get("NO_PROXY") or "").replace(" ", "").split(",")
    missing = [] if "*" in exceptions else [host for host in LOOPBACK if host not in exceptions]
    if not proxies:
        yield ok("proxy", "none")
    elif missing:
        yield warning(
            "proxy",
            f"{', '.join(proxies)} set, and no_proxy lacks {', '.join(missing)}: brokers and Spark use no proxy, but"
            " requests to an object store on this machine would go through it",
            f"export no_proxy={','.join(filter(None, [*exceptions, *missing]))}",
        )
    else:
        yield ok("proxy", f"{', '.join(proxies)} set, not for this machine")
    for name in JAVA_VARIABLES:
        if finding := _judge_java_proxy(name, environ.get(name, "")):
            yield finding


def _judge_java_proxy(name: str, options: str) -> Finding | None:
    """Java uses no proxy for loopback addresses, unless an option replaces its list of exceptions (nonProxyHosts)."""
    if not _JAVA_PROXY.search(options):
        return None
    exceptions = [match[1] for match in _JAVA_NON_PROXY_HOSTS.finditer(options)]
    if any("localhost" not in hosts or "127." not in hosts for hosts in exceptions):
        return warning(
            f"proxy of {name}",
            "Java uses a proxy even for this machine: Spark's processes may not reach each other",
            "add localhost|127.*|[::1] to -Dhttp.nonProxyHosts and -DsocksNonProxyHosts, or remove these options",
        )
    return ok(f"proxy of {name}", "Java uses a proxy, not for this machine")


def judge_clock(seen: ClockSeen, file_offset_s: float) -> Finding:
    todo = "let NTP set the clock (`timedatectl set-ntp true`)"
    if seen.year not in YEARS:
        return broken("clock", f"the year {seen.year}: retention would delete or keep the wrong records", todo)
    if abs(seen.jump_s) > JUMP_S:
        return warning(
            "clock",
            f"jumped by {seen.jump_s:+.1f} s during the check: records get wrong timestamps",
            f"{todo}; nothing else should set it",
        )
    if abs(file_offset_s) > 2.0:
        return warning(
            "clock",
            f"the data directory's file system is {file_offset_s:+.0f} s off this machine's clock",
            "set the clocks of this machine and of its file server by NTP",
        )
    return ok("clock", f"the year {seen.year}, steady")


def judge_cores(seen: ResourcesSeen) -> Finding:
    found = f"{seen.cores} core{'s' if seen.cores > 1 else ''}"
    if seen.core_quota is None:
        return ok("cores", found)
    found = f"{seen.core_quota:g} of {found} (cgroup quota)"
    if seen.core_quota < 1:
        return warning(
            "cores",
            f"{found}: pipelines start slowly",
            "grant one core or more (docker --cpus, limits.cpu of Kubernetes)",
        )
    return ok("cores", found)


def judge_memory(seen: ResourcesSeen) -> Finding:
    assert seen.memory_bytes is not None
    usable = min(seen.memory_bytes, seen.memory_limit_bytes or seen.memory_bytes)
    found = f"{usable / (1 << 30):.1f} GiB{' (cgroup limit)' if usable < seen.memory_bytes else ''}"
    grant = "grant 2 GiB or more (docker --memory, limits.memory of Kubernetes)"
    if usable < BROKER_BYTES:
        return warning("memory", f"{found}: not enough even for a broker", grant)
    if usable < DRIVER_BYTES:
        return warning("memory", f"{found}: enough for a broker, not for Spark", grant)
    return ok("memory", found)
