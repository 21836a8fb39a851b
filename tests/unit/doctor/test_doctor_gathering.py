"""What `moldau doctor` observes under real conditions: a port in use, a directory without access, a broken Java, and
limits.

Read-only, full and noexec disks are tmpfs mounts in a mount namespace, which needs root.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from moldau.base.limits import RESERVE_BYTES
from moldau.base.listeners import Listener
from moldau.base.reserve import RESERVE_FILE
from moldau.doctor import gathering
from moldau.doctor.verdicts import judge
from moldau.platforms.addresses import is_own_host
from moldau.spark import java

VARIABLES = ("KAFKA_", "MOLDAU_", "JAVA_", "SPARK_")


def listener(host: str, port: int) -> Listener:
    return Listener("PLAINTEXT", "PLAINTEXT", host, port)


def clean_environment(**variables: str) -> dict[str, str]:
    others = {key: value for key, value in os.environ.items() if not key.startswith(VARIABLES)}
    return {**others, **variables}


def doctor(*arguments: str, prefix: list[str] | None = None, **variables: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Run `moldau doctor`; return its exit status, and the findings by their check."""
    command = [*(prefix or []), sys.executable, "-m", "moldau", "doctor", "--format", "json", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, env=clean_environment(**variables))
    assert ran.stdout, ran.stderr
    return ran.returncode, {each["check"]: each for each in json.loads(ran.stdout)}


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def find_check(findings: dict[str, dict[str, Any]], words: str) -> dict[str, Any]:
    (finding,) = [each for check, each in findings.items() if check.startswith(words)]
    return finding


# --- directories --------------------------------------------------------------------------------------------------


def test_a_writable_directory_is_left_clean(tmp_path: Path) -> None:
    seen = gathering.look_at_directory(tmp_path / "not" / "there")
    assert (seen.exists, seen.is_directory, seen.error) == (False, True, None)
    assert seen.free_bytes
    assert abs(seen.clock_offset_s) < 3600
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_path_of_a_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    seen = gathering.look_at_directory(tmp_path / "home" / ".cache" / "moldau")
    assert (seen.exists, seen.is_directory, seen.error) == (False, False, f"{tmp_path}/home is a file")


def test_a_path_that_the_system_refuses_is_reported(tmp_path: Path) -> None:
    seen = gathering.look_at_directory(tmp_path / ("x" * 300))
    assert (seen.exists, seen.error) == (False, os.strerror(errno.ENAMETOOLONG))


def test_a_directory_that_becomes_stale_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(_: Path) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(shutil, "disk_usage", stale)
    assert gathering.look_at_directory(tmp_path).error == os.strerror(errno.ESTALE)


def test_a_directory_without_write_permission_is_reported(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    tmp_path.chmod(0o500)
    assert gathering.look_at_directory(tmp_path).error == "Permission denied"


def mounted(directory: Path, options: str) -> list[str]:
    """Return the prefix of a command that sees a tmpfs there. Skip the test if this user may not mount."""
    directory.mkdir()
    mount = f"mount -t tmpfs -o {options} tmpfs {shlex.quote(str(directory))}"
    result = subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True, text=True)
    if result.returncode:
        pytest.skip(f"needs root and mount namespaces: {result.stderr.strip()}")
    return ["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh"]


def test_a_read_only_disk_is_reported(tmp_path: Path) -> None:
    prefix = mounted(tmp_path / "ro", "ro")
    status, findings = doctor("-d", str(tmp_path / "ro" / "data"), "-l", free_port(), prefix=prefix)
    assert status == 1
    data = find_check(findings, "data directory")
    assert (data["status"], data["found"]) == ("broken", "cannot be written: Read-only file system")


def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    prefix = mounted(tmp_path / "full", "size=4k,nr_inodes=1")
    status, findings = doctor("-d", str(tmp_path / "full" / "data"), "-l", free_port(), prefix=prefix)
    assert status == 1
    assert find_check(findings, "data directory")["found"] == "cannot be written: No space left on device"


def test_a_small_tmpfs_and_a_temporary_directory_mounted_noexec_give_warnings(tmp_path: Path) -> None:
    prefix = mounted(tmp_path / "tmp", "noexec,size=100m")
    words = ("-d", str(tmp_path / "tmp" / "data"), "-l", free_port())
    status, findings = doctor(*words, prefix=prefix, TMPDIR=str(tmp_path / "tmp"))
    assert status == 0, findings
    data, temporary = find_check(findings, "data directory"), find_check(findings, "temporary directory")
    assert (data["status"], "100 MiB free (tmpfs)" in data["found"]) == ("warning", True)
    assert (temporary["status"], "mounted noexec" in temporary["found"]) == ("warning", True)


def test_the_reserve_counts_as_far_as_it_takes_space(tmp_path: Path) -> None:
    assert gathering.look_at_reserve(tmp_path / "none", RESERVE_BYTES) is None
    seen = gathering.look_at_reserve(tmp_path, RESERVE_BYTES)
    assert seen is not None
    assert (seen.held_bytes, seen.wanted_bytes) == (None, RESERVE_BYTES)
    (tmp_path / RESERVE_FILE).touch()
    os.truncate(tmp_path / RESERVE_FILE, RESERVE_BYTES)
    sparse = gathering.look_at_reserve(tmp_path, RESERVE_BYTES)
    assert sparse is not None
    assert sparse.held_bytes == 0


def test_a_home_that_is_a_file_gives_a_warning(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    status, findings = doctor("-l", free_port(), HOME=str(tmp_path / "home"), XDG_CACHE_HOME="", TMPDIR=str(tmp_path))
    assert status == 0, findings
    cache = find_check(findings, "cache directory")
    assert (cache["status"], f"{tmp_path}/home is a file" in cache["found"]) == ("warning", True)


def test_a_missing_temporary_directory_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    assert gathering.look_at_temporary_directory() is None


# --- ports --------------------------------------------------------------------------------------------------------


def test_a_free_port_is_free_after_the_check() -> None:
    host, _, port = free_port().rpartition(":")
    for _ in range(2):
        assert gathering.look_at_port(listener(host, int(port))).errno is None


def test_a_port_in_use_is_reported_with_its_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        seen = gathering.look_at_port(listener("127.0.0.1", server.getsockname()[1]))
    assert seen.errno == errno.EADDRINUSE
    if Path("/proc/net/tcp").exists():
        assert seen.listening_process is not None
        assert seen.listening_process.pid == os.getpid()


@pytest.mark.skipif(not is_own_host("::1"), reason="this machine has no IPv6")
def test_the_port_of_a_name_that_has_only_an_ipv6_address_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda _, *rest, **kind: resolve("::1", *rest, **kind))
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        port = server.getsockname()[1]
        assert gathering.look_at_port(listener("broker.test", port)).errno == errno.EADDRINUSE
    assert gathering.look_at_port(listener("broker.test", port)).errno is None


def test_ports_in_use_give_status_1() -> None:
    """`moldau start` binds the ports of clients and of metrics, so both are checked."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as metrics:
        addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in (server, metrics)]
        status, findings = doctor("-l", addresses[0], "-o", f"metrics.listener={addresses[1]}")
    assert status == 1
    ports = [each["status"] for check, each in findings.items() if check.startswith("port ")]
    assert ports == ["broken", "broken"]


def test_a_listener_with_an_unknown_host_is_reported() -> None:
    seen = gathering.look_at_port(listener("no-such-host.invalid", 9092))
    assert seen.errno is not None
    assert seen.is_name_unknown
    assert seen.reason


def test_a_host_that_is_no_name_is_unknown() -> None:
    """A label has at most 63 characters."""
    name = "x" * 64
    assert gathering.look_at_port(listener(name, 9092)).is_name_unknown
    assert "too long" in (gathering.look_up(name).error or "")


# --- Java ---------------------------------------------------------------------------------------------------------


def make_java(home: Path, script: str) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\n{script}\n")
    executable.chmod(0o755)
    return executable


@pytest.mark.parametrize(
    ("script", "version"),
    [
        ("exit 127", None),
        ("""echo 'openjdk version "1.8.0_292"' >&2""", 8),
        ("""echo 'java version "11.0.2"' >&2""", 11),
    ],
)
def test_a_broken_or_too_old_java_is_listed_with_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, version: int | None
) -> None:
    monkeypatch.setattr(java, "_bundled", lambda: None)
    executable = make_java(tmp_path, script)
    environ = {"JAVA_HOME": str(tmp_path), "PATH": "/nowhere", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    seen = gathering.look_at_spark("4.3.0", environ)
    assert [(each.origin, each.java, each.version) for each in seen.javas] == [("JAVA_HOME", executable, version)]


def test_the_chosen_java_is_the_last_that_was_tried(tmp_path: Path) -> None:
    make_java(tmp_path / "old", """echo 'openjdk version "1.8.0_292"' >&2""")
    new = make_java(tmp_path / "new", """echo 'openjdk version "21.0.2"' >&2""")
    environ = {
        "JAVA_HOME": str(tmp_path / "old"),
        "PATH": str(new.parent),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    seen = gathering.look_at_spark("4.3.0", environ)
    assert [each.version for each in seen.javas] == [8, 21]
    assert seen.error is None


def test_a_spark_home_of_another_spark_is_reported(tmp_path: Path) -> None:
    pyspark = pytest.importorskip("pyspark")
    environ = {"PATH": "/nowhere", "XDG_CACHE_HOME": str(tmp_path)}
    assert gathering.look_at_spark("4.3.0", environ | {"SPARK_HOME": "/opt/spark"}).spark_home == "/opt/spark"
    own = str(Path(pyspark.__file__).parent)
    assert gathering.look_at_spark("4.3.0", environ | {"SPARK_HOME": own}).spark_home is None


# --- names, limits, clock -----------------------------------------------------------------------------------------


def test_known_and_unknown_host_names_are_looked_up() -> None:
    assert "127.0.0.1" in gathering.look_up("localhost").addresses
    unknown = gathering.look_up("no-such-host.invalid")
    assert unknown.error
    assert unknown.addresses == ()


def test_a_resolver_that_does_not_answer_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def silent(*_: object, **__: object) -> list[object]:
        released.wait()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    try:
        assert gathering.look_up("vm", patience_s=0.01).error == "no answer in 0 s"
        port = gathering.look_at_port(listener("vm", 9092), patience_s=0.01)
        assert (port.is_name_unknown, port.reason) == (True, "no answer in 0 s")
    finally:
        released.set()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no RLIMIT_NOFILE")
def test_a_limit_of_256_open_files_gives_a_warning(tmp_path: Path) -> None:
    prefix = ["sh", "-c", 'ulimit -n 256 && exec "$@"', "sh"]
    status, findings = doctor("-d", str(tmp_path / "data"), "-l", free_port(), prefix=prefix)
    assert status == 0, findings
    assert findings["open files"]["status"] == "warning"
    assert findings["open files"]["found"].startswith("256 (soft), 256 (hard)")


def test_the_clock_does_not_jump() -> None:
    assert abs(gathering.look_at_clock().jump_s) < 60


def test_all_checks_run_on_this_machine(tmp_path: Path) -> None:
    host, _, port = free_port().rpartition(":")
    environ = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(tmp_path / "cache")}
    findings = judge(gathering.gather([listener(host, int(port))], str(tmp_path / "data"), RESERVE_BYTES, environ))
    assert [each.check for each in findings if each.check == "python"]
    assert all("\n" not in f"{each.found}{each.todo}" for each in findings)
