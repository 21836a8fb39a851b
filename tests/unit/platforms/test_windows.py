"""What is for Windows too must do without POSIX: tried in a process from which all that Windows lacks was taken."""

from __future__ import annotations

import json
import subprocess
import sys
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

from moldau.platforms.support import refusal

PATIENCE_S = 300.0
"""What is not refused would run until it is told to stop."""
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
"""Only where it is asked for: other libraries would look for files that are on Windows alone."""

IMPORT_ALL = """
def fail(name):
    raise

for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for found in pkgutil.walk_packages(getattr(package, "__path__", ()), name + ".", onerror=fail):
        importlib.import_module(found.name)
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
WHERE_INSTEAD = "does not run on Windows; run it in WSL 2, or on Linux or macOS (docs/platforms.md tells what runs)\n"


class Ended(NamedTuple):
    status: int | None
    out: str
    err: str


def tried(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    quiet = "ignore::RuntimeWarning:runpy"  # which says that a module is there already
    with TemporaryDirectory() as directory:  # what is refused would leave its data there
        return subprocess.run(
            [sys.executable, "-W", quiet, "-c", script, *words],
            capture_output=True,
            text=True,
            cwd=directory,
            timeout=PATIENCE_S,
        )


def run_as_windows(*lines: str) -> list[Ended]:
    ran = tried(AS_WINDOWS + RUN_ALL, *lines)
    assert ran.returncode == 0, ran.stderr
    return [Ended(*each) for each in json.loads(ran.stdout)]


def test_what_speaks_to_a_broker_is_imported_without_posix() -> None:
    ran = tried(WITHOUT_POSIX + IMPORT_ALL, *FOR_WINDOWS)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("missed", ["import fcntl", "import resource", "os.sendfile", "signal.SIGKILL"])
def test_what_was_taken_is_missed(missed: str) -> None:
    """Else the test above could not fail."""
    assert tried(WITHOUT_POSIX + missed).returncode == 1


def test_commands_tell_their_use_on_windows() -> None:
    lines = ["moldau --help", *(f"moldau {command} --help" for command in COMMANDS)]
    for line, ended in zip(lines, run_as_windows(*lines), strict=True):
        assert ended.status == 0, (line, ended.err)
        assert ended.out.startswith(f"Usage: {line.removesuffix(' --help')} "), line


def test_tools_of_kafka_tell_their_use_on_windows() -> None:
    for tool, ended in zip(TOOLS, run_as_windows(*(f"moldau.cli.kafka.{tool} --help" for tool in TOOLS)), strict=True):
        assert len((ended.out + ended.err).splitlines()) > 5, tool
        assert "--" in ended.out + ended.err, tool


def test_what_needs_posix_ends_on_windows_with_one_line() -> None:
    for (line, what), ended in zip(REFUSED.items(), run_as_windows(*REFUSED), strict=True):
        assert ended == (1, "", f"{what} {WHERE_INSTEAD}"), line


def test_our_plugin_keeps_no_pytest_from_running_on_windows() -> None:
    ran = tried("import pytest\n" + AS_WINDOWS + "import moldau.pytest_plugin")
    assert ran.returncode == 0, ran.stderr


def test_a_broker_in_a_test_is_refused_with_the_same_line() -> None:
    ran = tried(AS_WINDOWS + "from moldau.testing import broker\nwith broker(): pass")
    assert ran.stderr.endswith(f"RuntimeError: the broker {WHERE_INSTEAD}")


def test_a_spark_of_ours_is_refused_with_the_same_line() -> None:
    ran = tried(AS_WINDOWS + "from moldau.spark.java import find_java\nfind_java()")
    assert ran.stderr.endswith(f"MissingJava: a Spark that Moldau starts {WHERE_INSTEAD}")


@pytest.mark.parametrize("platform", ["linux", "darwin", "freebsd14"])
def test_other_systems_are_not_refused(platform: str) -> None:
    assert refusal("the broker", platform) is None
