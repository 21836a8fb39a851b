"""Facts from /proc and /sys, read from trees made for the test, and from the real ones if they exist."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from moldau.platforms import machine

needs_proc = pytest.mark.skipif(not Path("/proc/self/mountinfo").exists(), reason="this system has no /proc")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    return tmp_path / "proc"


@pytest.fixture
def cgroups(tmp_path: Path) -> Path:
    (tmp_path / "cgroup").mkdir()
    return tmp_path / "cgroup"


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_cgroup_2_uses_the_lowest_limit_of_all_parent_groups(proc: Path, cgroups: Path) -> None:
    write(proc / "self" / "cgroup", "0::/pod/box\n")
    write(cgroups / "pod" / "box" / "cpu.max", "max 100000\n")
    write(cgroups / "pod" / "cpu.max", "50000 100000\n")
    write(cgroups / "pod" / "box" / "memory.max", "1073741824\n")
    write(cgroups / "pod" / "memory.max", "max\n")
    assert machine.core_quota(proc, cgroups) == 0.5
    assert machine.memory_limit_bytes(proc, cgroups) == 1 << 30


def test_cgroup_2_limits_inside_a_container(proc: Path, cgroups: Path) -> None:
    """The path is that of the host, and only the root group is visible."""
    write(proc / "self" / "cgroup", "0::/docker/0123\n")
    write(cgroups / "cpu.max", "150000 100000\n")
    assert machine.core_quota(proc, cgroups) == 1.5


def test_cgroup_1_limits(proc: Path, cgroups: Path) -> None:
    write(proc / "self" / "cgroup", "4:memory:/box\n2:cpu,cpuacct:/box\n0::/\n")
    write(cgroups / "cpu" / "box" / "cpu.cfs_quota_us", "25000\n")
    write(cgroups / "cpu" / "box" / "cpu.cfs_period_us", "100000\n")
    write(cgroups / "cpu" / "cpu.cfs_quota_us", "-1\n")
    write(cgroups / "cpu" / "cpu.cfs_period_us", "100000\n")
    write(cgroups / "memory" / "box" / "memory.limit_in_bytes", "9223372036854771712\n")
    write(cgroups / "memory" / "memory.limit_in_bytes", "536870912\n")
    assert machine.core_quota(proc, cgroups) == 0.25
    assert machine.memory_limit_bytes(proc, cgroups) == 512 << 20


def test_without_cgroups_there_is_no_limit(tmp_path: Path) -> None:
    assert machine.core_quota(tmp_path / "none", tmp_path / "none") is None
    assert machine.memory_limit_bytes(tmp_path / "none", tmp_path / "none") is None


def test_the_file_system_is_that_of_the_innermost_mount(proc: Path) -> None:
    write(
        proc / "self" / "mountinfo",
        "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "35 21 0:40 / /mnt/two\\040words rw - nfs4 server:/x rw\n"
        "36 21 0:41 / /mnt ro,noexec - xfs /dev/sdb rw\n"
        "37 21 0:42 / /mnt ro,noexec - tmpfs tmpfs rw\n",
    )
    assert machine.file_system_type(Path("/data"), proc) == "ext4"
    assert machine.file_system_type(Path("/mnt/data"), proc) == "tmpfs", "the last mount hides the earlier one"
    assert machine.file_system_type(Path("/mnt/two words/data"), proc) == "nfs4"
    assert machine.file_system_type(Path("/mnt"), Path("/nowhere")) is None


@needs_proc
def test_the_process_that_listens_on_a_port_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        holder = machine.process_listening_on(server.getsockname()[1])
        assert holder is not None
        assert holder.pid == os.getpid()
        assert "python" in holder.command or "pytest" in holder.command


@needs_proc
def test_a_connection_is_not_a_listener() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert machine.process_listening_on(client.getsockname()[1]) is None


def test_no_process_is_found_without_proc(tmp_path: Path) -> None:
    assert machine.process_listening_on(9092, tmp_path) is None


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no RLIMIT_NOFILE")
def test_limits_cores_and_memory_of_this_machine_are_plausible() -> None:
    limits = machine.open_file_limits()
    assert limits is not None
    assert 0 < limits.soft <= limits.hard
    assert machine.usable_cores() >= 1
    memory = machine.memory_bytes()
    assert memory is not None
    assert memory > 1 << 26
