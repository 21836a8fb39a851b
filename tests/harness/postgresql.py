"""A real PostgreSQL server for one test: its own directory, a free port on 127.0.0.1, and logical replication.

The programs come from the system (Debian: `apt-get install postgresql`). Without them `why_none` says so: tests skip.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from harness.patience import wait_until

USER = "moldau"
PASSWORD = "ein Geheimnis"
DATABASE = "postgres"
SETTINGS = {
    "wal_level": "logical",
    "max_wal_senders": "10",
    "max_replication_slots": "10",
    "fsync": "off",  # processes are killed here, not machines
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "shared_buffers": "16MB",
}


def programs() -> Path | None:
    """Return the directory of the newest installed PostgreSQL's programs."""
    on_path = shutil.which("postgres")
    if on_path is not None:
        return Path(on_path).resolve().parent
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda each: int(each.parts[-3]))
    return found[-1].parent if found else None


def why_none() -> str | None:
    """Return why no server can be started here, or None."""
    if programs() is None:
        return "PostgreSQL is not installed (Debian: apt-get install postgresql)"
    if os.geteuid() == 0 and not _has_user("postgres"):
        return "PostgreSQL does not run as root, and there is no user postgres"
    return None


def _has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


class PostgreSQL:
    """A server that can be stopped, killed and started again at the same address."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        bin_ = programs()
        assert bin_ is not None, why_none()
        self._bin, self._data = bin_, folder / "data"
        self._log = folder / "postgresql.log"
        self._settings = SETTINGS | settings
        self._as_user = "postgres" if os.geteuid() == 0 else None
        self.port = _free_port()
        if self._as_user is not None:
            shutil.chown(folder, self._as_user)
        secret = folder / "password"
        secret.write_text(PASSWORD)
        if self._as_user is not None:
            shutil.chown(secret, self._as_user)
        self._run(
            "initdb", "--pgdata", str(self._data), "--username", USER, "--pwfile", str(secret),
            "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync",
        )  # fmt: skip
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql://{USER}:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{self.port}/{DATABASE}"

    @property
    def pid(self) -> int:
        return int((self._data / "postmaster.pid").read_text().splitlines()[0])

    def start(self) -> None:
        settings = " ".join(f"-c {name}={value!r}" for name, value in self._settings.items())
        self._run("pg_ctl", "start", "--pgdata", str(self._data), "--wait", "--timeout", "120",
                  "--log", str(self._log), "--options", f"-p {self.port} {settings}")  # fmt: skip

    def stop(self) -> None:
        """Stop in order; connections are broken."""
        self._run("pg_ctl", "stop", "--pgdata", str(self._data), "--mode", "fast", "--wait")

    def kill(self) -> None:
        """Kill the server and all its processes, as a crash does."""
        pid = self.pid
        os.kill(pid, signal.SIGSTOP)  # it makes no new ones
        children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
        processes = [pid, *map(int, children)]
        for each in processes:
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.kill(each, signal.SIGKILL)
        wait_until(lambda: all(map(_is_dead, processes)), "the server is dead")
        (self._data / "postmaster.pid").unlink(missing_ok=True)

    def query(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run one statement in a transaction of its own and return its rows."""
        import psycopg

        with psycopg.connect(self.url) as connection, connection.cursor() as cursor:
            cursor.execute(sql, parameters or None)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def log(self) -> str:
        return self._log.read_text()

    def close(self) -> None:
        if (self._data / "postmaster.pid").exists():
            self._run("pg_ctl", "stop", "--pgdata", str(self._data), "--mode", "immediate", "--wait")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._bin / program), *arguments]
        completed = subprocess.run(
            command, user=self._as_user, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, cwd="/", start_new_session=True,
        )  # fmt: skip
        assert completed.returncode == 0, f"{program}: {completed.stderr}"


@contextmanager
def postgresql(folder: Path, **settings: str) -> Iterator[PostgreSQL]:
    """Run a server in a new directory below `folder`; `settings` are those of postgresql.conf.

    As root, in a directory of its own: the server runs as another user, and each pytest of the machine closes the
    parent of its directories to others when it starts.
    """
    own = folder / "postgresql" if os.geteuid() else Path(tempfile.mkdtemp(prefix="moldau-postgresql-"))
    own.mkdir(exist_ok=True)
    server = PostgreSQL(own, settings)
    try:
        yield server
    finally:
        server.close()
        if not os.geteuid():
            shutil.rmtree(own, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
