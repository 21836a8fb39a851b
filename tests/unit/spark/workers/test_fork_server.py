"""Processes started by the launcher through a real fork server, which preloads one small module."""

from __future__ import annotations

import gc
import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness.patience import PATIENCE_S

from moldau.spark.workers import fork_server, launcher, starting
from moldau.spark.workers.launcher import SERVER_VARIABLE, without_zips

SERVE = "from moldau.spark.workers import fork_server; fork_server.PRELOADED = ('json.tool',); fork_server.main()"
LAUNCHER = [sys.executable, "-I", "-S", launcher.__file__]


class Server:
    def __init__(self, directory: Path) -> None:
        self.address = str(directory / "fork-server")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(self.address)
            listener.listen(16)
            self.process = subprocess.Popen(
                [sys.executable, "-u", "-c", SERVE, str(listener.fileno())],
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                pass_fds=[listener.fileno()],
            )

    def environment(self, **more: str) -> dict[str, str]:
        return {**os.environ, SERVER_VARIABLE: self.address, **more}

    def run(
        self, *arguments: str, given: str = "", cwd: Path | None = None, **more: str
    ) -> subprocess.CompletedProcess[str]:
        return run_launcher(self.environment(**more), *arguments, given=given, cwd=cwd)

    def stop(self) -> str:
        """Stop the server as its driver does, and return its standard error."""
        _, errors = self.process.communicate(timeout=PATIENCE_S)
        return str(errors)


def run_launcher(
    environment: Mapping[str, str], *arguments: str, given: str = "", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LAUNCHER, *arguments],
        input=given,
        capture_output=True,
        text=True,
        env=environment,
        cwd=cwd,
        timeout=PATIENCE_S,
    )


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path)
    yield running
    if running.process.poll() is None:
        running.stop()


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """A directory of small programs, to be found by PYTHONPATH."""
    directory = tmp_path / "modules"
    directory.mkdir()
    (directory / "tell.py").write_text(
        "import json, os, sys\n"
        "parent = open(f'/proc/{os.getppid()}/cmdline').read() if os.path.isdir('/proc/self') else 'fork_server'\n"
        "print(json.dumps([sys.argv, sys.path[0], os.getcwd(), os.environ['COLOUR'], __name__, parent]))\n"
        "print('aside', file=sys.stderr)\n"
    )
    (directory / "end.py").write_text("import sys\nsys.exit(int(sys.argv[1]) if sys.argv[1:] else 'a reason')\n")
    (directory / "die.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    (directory / "wait.py").write_text("import os, sys\nprint(os.getpid(), flush=True)\nsys.stdin.read()\n")
    return directory


@contextmanager
def waiting_process(server: Server, modules: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A launcher whose process waits for the end of its input, and the id of that process."""
    environment = server.environment(PYTHONPATH=str(modules))
    with subprocess.Popen(
        [*LAUNCHER, "-m", "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as started:
        assert started.stdin is not None
        assert started.stdout is not None
        yield started, int(started.stdout.readline())


def test_a_forked_process_is_like_one_that_python_started(server: Server, modules: Path, tmp_path: Path) -> None:
    ran = server.run("-m", "tell", "a", "b c", cwd=tmp_path, PYTHONPATH=str(modules), COLOUR="blue")
    argv, first, directory, colour, name, parent = json.loads(ran.stdout)
    assert (argv[1:], first, directory, colour, name) == (
        ["a", "b c"],
        str(tmp_path),
        str(tmp_path),
        "blue",
        "__main__",
    )
    assert Path(argv[0]).name == "tell.py"
    assert "fork_server" in parent
    assert (ran.stderr, ran.returncode) == ("aside\n", 0)


def test_a_preloaded_module_runs_as_main_with_its_standard_files(server: Server) -> None:
    ran = server.run("-m", "json.tool", "--compact", given='{"a": [1, 2]}')
    assert (ran.stdout, ran.stderr, ran.returncode) == ('{"a":[1,2]}\n', "", 0)


@pytest.mark.parametrize(("arguments", "status", "stderr"), [(["7"], 7, ""), (["0"], 0, ""), ([], 1, "a reason\n")])
def test_exit_statuses_are_passed_on(
    server: Server, modules: Path, arguments: list[str], status: int, stderr: str
) -> None:
    ran = server.run("-m", "end", *arguments, PYTHONPATH=str(modules))
    assert (ran.returncode, ran.stderr) == (status, stderr)


def test_a_killed_process_gets_the_exit_status_that_a_shell_gives(server: Server, modules: Path) -> None:
    assert server.run("-m", "die", PYTHONPATH=str(modules)).returncode == 128 + signal.SIGKILL


def test_an_exception_is_printed_and_the_exit_status_is_1(server: Server) -> None:
    ran = server.run("-m", "no_such_module")
    assert ran.returncode == 1
    assert "No module named no_such_module" in ran.stderr


def test_the_process_of_a_killed_launcher_is_killed(server: Server, modules: Path) -> None:
    with waiting_process(server, modules) as (waiting, process):
        assert waiting.stdout is not None
        waiting.kill()
        assert waiting.stdout.read() == "", "the process has ended"
    assert server.run("-m", "json.tool", given="1").returncode == 0, "other launchers are served"
    assert process != waiting.pid


def test_processes_outlive_each_other_and_the_server(server: Server, modules: Path) -> None:
    with waiting_process(server, modules) as (waiting, process):
        assert waiting.stdout is not None
        assert server.run("-m", "end", "3", PYTHONPATH=str(modules)).returncode == 3
        server.stop()
        os.kill(process, 0)
        assert waiting.wait(PATIENCE_S) == launcher.STATUS_UNKNOWN
        assert waiting.stdin is not None
        waiting.stdin.close()
        assert waiting.stdout.read() == ""


def test_without_a_server_the_launcher_runs_python(server: Server, modules: Path) -> None:
    server.stop()
    ran = server.run("-m", "end", "4", PYTHONPATH=str(modules))
    assert ran.returncode == 4


def test_calls_without_a_module_are_run_by_python(server: Server) -> None:
    assert server.run("-c", "import sys; print('%d.%d' % sys.version_info[:2])").stdout.startswith("3.")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x00\x00",
        b"\x00\x00\x00\x05hello",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x02{}",
        b'\x00\x00\x00\x12{"arguments":["x"]',
        b"\x00\x00\x01\x00[",
    ],
)
def test_a_malformed_request_is_logged_and_the_server_keeps_serving(server: Server, message: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as hostile:
        hostile.connect(server.address)
        hostile.sendall(message)
        hostile.shutdown(socket.SHUT_WR)
        assert hostile.recv(1) == b""
    assert server.run("-m", "json.tool", given="1").stdout == "1\n"
    assert "fork server: a launcher's request failed: " in server.stop()


def test_a_module_that_cannot_be_preloaded_is_skipped() -> None:
    loaded: list[str] = []

    def load(name: str) -> None:
        if name == "absent":
            raise ModuleNotFoundError(name)
        loaded.append(name)

    fork_server.preload(("a", "absent", "b"), load)
    gc.unfreeze()
    assert loaded == ["a", "b"]


def test_a_worker_ends_without_a_word_when_its_connection_is_closed_between_tasks() -> None:
    seen: list[bytes] = []
    main = fork_server.quiet_at_end(lambda infile, outfile: seen.append(infile.read(4)))
    main(io.BufferedReader(io.BytesIO(b"task")), io.BytesIO())
    assert seen == [b"task"], "what was looked at is still there to read"
    with pytest.raises(SystemExit) as end:
        main(io.BufferedReader(io.BytesIO(b"")), io.BytesIO())
    assert end.value.code != 0, "with 0 PySpark's daemon would call it again"


def test_what_a_worker_could_not_send_is_dropped() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, os.fdopen(os.dup(ours.fileno()), "wb", 65_536) as outfile:
        main = fork_server.quiet_at_end(lambda infile, out: out.write(b"a result that nobody reads"))
        main(io.BufferedReader(io.BytesIO(b"task")), outfile)


def test_a_process_whose_connection_is_closed_ends_without_a_message(server: Server, modules: Path) -> None:
    (modules / "closed.py").write_text(
        "import socket\nours, theirs = socket.socketpair()\ntheirs.close()\nours.sendall(b'answer')\n"
    )
    done = server.run("-m", "closed", PYTHONPATH=str(modules))
    assert (done.returncode, done.stderr) == (1, "")


def test_unix_sockets_are_used_with_a_fork_server_unless_they_are_configured() -> None:
    environment = {SERVER_VARIABLE: "/tmp/moldau-1/fork-server"}
    chosen = starting.settings_with(environment, ["spark.master"])
    assert chosen == {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": "/tmp/moldau-1",
    }
    assert starting.settings_with(environment, list(chosen)) == {}
    assert starting.settings_with({}, []) == {}


def test_sparks_zips_are_removed_from_the_path() -> None:
    path = ["/spark/python/lib/pyspark.zip", "/spark/python/lib/py4j-0.10.9.9-src.zip", "/mine", "x-src.zip"]
    assert without_zips(os.pathsep.join(path)) == os.pathsep.join(["/mine", "x-src.zip"])


def test_a_launcher_killed_as_its_process_ends_does_not_stop_the_server(server: Server, modules: Path) -> None:
    """The server sees both events in one turn of its loop, which an incomplete request delays."""
    with waiting_process(server, modules) as (waiting, _):
        assert waiting.stdin is not None
        assert waiting.stdout is not None
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as slow:
            slow.connect(server.address)
            slow.sendall(b"\0\0\0")
            waiting.stdin.close()
            assert waiting.stdout.read() == "", "the process has ended"
            waiting.kill()
            waiting.wait(PATIENCE_S)
    assert server.run("-m", "json.tool", given="1").stdout == "1\n"


def test_no_fork_server_is_started_if_the_path_of_its_socket_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert starting.start_fork_server.__wrapped__() == {}
