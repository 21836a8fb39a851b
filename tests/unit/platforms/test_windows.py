"""The parts that run on Windows work without POSIX: tested in a process without everything that Windows lacks."""

from __future__ import annotations

import json
import subprocess
import sys
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

from moldau.platforms.support import refusal_text

PATIENCE_S = 300.0
"""A command that should be refused, and is not, would run until this timeout."""
WITHOUT_POSIX = """
import asyncio, contextlib, importlib, io, json, os, pkgutil, runpy, signal, socket, subprocess, sys, tempfile
import click, confluent_kafka.admin, numpy, rich.console, rich.live

for name in ("fcntl", "resource", "uvloop", "grp", "pwd", "termios", "tty", "pty", "syslog", "readline"):
    sys.modules[name] = None
for module, names in {
    os: "fork getuid geteuid getgid sysconf sendfile fdatasync posix_fadvise RWF_NOWAIT preadv pread pwrite nice"
    " O_CLOEXEC O_DIRECTORY killpg setsid SCHED_OTHER POSIX_FADV_WILLNEED pidfd_open",
    signal: "SIGHUP SIGKILL SIGSTOP SIGCONT SIGUSR1 SIGUSR2 SIGCHLD SIGPIPE",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
"""
AS_WINDOWS = WITHOUT_POSIX + 'sys.platform = "win32"\n'
"""Set only where needed: other libraries would look for files that only Windows has."""

IMPORT_ALL = """
def fail(name):
    raise

for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for found in pkgutil.walk_packages(getattr(package, "__path__", ()), name + ".", onerror=fail):
        importlib.import_module(found.name)
"""
TRY_ALL = """
for line in sys.argv[1:]:
    try:
        exec(line)
    except Exception as error:
        print(type(error).__name__)
"""
RUN_ALL = """
def run(words):
    sys.argv, status = words, None
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        except SystemExit as ended:
            status = ended.code
    return status, out.getvalue(), err.getvalue()

print(json.dumps([run(line.split()) for line in sys.argv[1:]]))
"""

FOR_WINDOWS = (
    "moldau.client",
    "moldau.spark",
    "pyspark_moldau",
    "moldau.cli",
    "moldau.pipelines",
)
COMMANDS = ("topic", "produce", "consume", "group", "transaction", "log", "pipeline", "cluster", "completion", "start")
TOOLS = ("topics", "console_producer", "console_consumer", "consumer_groups", "configs", "get_offsets", "dump_log")
REFUSED = {
    "moldau start": "moldau: the broker",
    "moldau cluster start": "moldau: `moldau cluster start`",
    "moldau cluster kill 1": "moldau: `moldau cluster kill`",
    "moldau.cli.kafka.server_start server.properties": "the broker",
    "moldau.cli.kafka.server_start -daemon server.properties": "the broker",
    "moldau.cli.kafka.server_stop": "a Moldau server",
}
NOT_ON_WINDOWS = "does not run on Windows; run it in WSL 2, or on Linux or macOS (docs/platforms.md tells what runs)\n"


class Ended(NamedTuple):
    status: int | None
    out: str
    err: str


def run_script(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    quiet = "ignore::RuntimeWarning:runpy"  # it warns that a module is imported already
    with TemporaryDirectory() as directory:  # a broker that is not refused would write its data there
        return subprocess.run(
            [sys.executable, "-W", quiet, "-c", script, *arguments],
            capture_output=True,
            text=True,
            cwd=directory,
            timeout=PATIENCE_S,
        )


def run_as_windows(*lines: str) -> list[Ended]:
    ran = run_script(AS_WINDOWS + RUN_ALL, *lines)
    assert ran.returncode == 0, ran.stderr
    return [Ended(*each) for each in json.loads(ran.stdout)]


def test_clients_and_tools_can_be_imported_without_posix() -> None:
    ran = run_script(WITHOUT_POSIX + IMPORT_ALL, *FOR_WINDOWS)
    assert ran.returncode == 0, ran.stderr


def test_the_removed_names_are_missing() -> None:
    """Otherwise the test above could not fail."""
    ran = run_script(WITHOUT_POSIX + TRY_ALL, "import fcntl", "import resource", "os.sendfile", "signal.SIGKILL")
    assert ran.stdout.split() == ["ModuleNotFoundError", "ModuleNotFoundError", "AttributeError", "AttributeError"]


def test_commands_print_their_usage_on_windows() -> None:
    lines = ["moldau --help", *(f"moldau {command} --help" for command in COMMANDS)]
    for line, ended in zip(lines, run_as_windows(*lines), strict=True):
        assert ended.status == 0, (line, ended.err)
        assert ended.out.startswith(f"Usage: {line.removesuffix(' --help')} "), line


def test_kafka_tools_print_their_usage_on_windows() -> None:
    for tool, ended in zip(TOOLS, run_as_windows(*(f"moldau.cli.kafka.{tool} --help" for tool in TOOLS)), strict=True):
        assert len((ended.out + ended.err).splitlines()) > 5, tool
        assert "--" in ended.out + ended.err, tool


def test_commands_that_need_posix_fail_on_windows_with_one_line() -> None:
    for (line, what), ended in zip(REFUSED.items(), run_as_windows(*REFUSED), strict=True):
        assert ended == (1, "", f"{what} {NOT_ON_WINDOWS}"), line


def test_the_pytest_plugin_can_be_imported_on_windows() -> None:
    ran = run_script("import pytest\n" + AS_WINDOWS + "import moldau.pytest_plugin")
    assert ran.returncode == 0, ran.stderr


def test_a_broker_in_a_test_is_refused_on_windows() -> None:
    ran = run_script(AS_WINDOWS + "from moldau.testing import broker\nwith broker(): pass")
    assert ran.stderr.endswith(f"RuntimeError: the broker {NOT_ON_WINDOWS}")


def test_a_spark_session_is_refused_on_windows() -> None:
    ran = run_script(AS_WINDOWS + "from moldau.spark.java import find_java\nfind_java()")
    assert ran.stderr.endswith(f"MissingJava: a Spark that Moldau starts {NOT_ON_WINDOWS}")


@pytest.mark.parametrize("platform", ["linux", "darwin", "freebsd14"])
def test_other_systems_are_not_refused(platform: str) -> None:
    assert refusal_text("the broker", platform) is None
