"""A real MariaDB server for tests: its own directory and a free port on 127.0.0.1.

The programs come from the system (Debian: `apt-get install mariadb-server`). Without them `why_none` says so.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from harness.patience import wait_until

USER, PASSWORD, DATABASE = "moldau", "ein Geheimnis", "shop"


def why_none() -> str | None:
    """Return why no server can be started here, or None."""
    if find_spec("pymysql") is None:
        return "pymysql is not installed: pip install 'moldau[databases]'"
    if shutil.which("mariadbd") is None or shutil.which("mariadb-install-db") is None:
        return "MariaDB is not installed (Debian: apt-get install mariadb-server)"
    return None


class MariaDb:
    """A server that can be killed and started again at the same address."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._as_user = ["--user=root"] if os.geteuid() == 0 else []
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        install = ["mariadb-install-db", "--no-defaults", f"--datadir={folder}/data", "--skip-test-db", *self._as_user]
        done = subprocess.run(
            [*install, "--auth-root-authentication-method=normal"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        (folder / "users.sql").write_text(
            f"CREATE DATABASE IF NOT EXISTS {DATABASE};\n"
            f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON *.* TO '{USER}'@'%';\n"
        )
        self.start()

    @property
    def url(self) -> str:
        return f"mysql://{USER}:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{self.port}/{DATABASE}"

    def start(self) -> None:
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                ["mariadbd", "--no-defaults", f"--datadir={self._folder}/data", f"--port={self.port}",
                 "--bind-address=127.0.0.1", f"--socket={self._folder}/socket", f"--init-file={self._folder}/users.sql",
                 "--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=2", "--skip-name-resolve",
                 *self._as_user],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        wait_until(self._answers, "MariaDB answers")

    def _answers(self) -> bool:
        import pymysql

        assert self._process.poll() is None, (self._folder / "log").read_text()[-2000:]
        try:
            pymysql.connect(host="127.0.0.1", port=self.port, user=USER, password=PASSWORD, database=DATABASE).close()
        except pymysql.err.Error:
            return False
        return True

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        self.kill()


@contextmanager
def mariadb(folder: Path) -> Iterator[MariaDb]:
    """Run a server in a new directory below `folder`."""
    own = folder / "mariadb"
    own.mkdir()
    server = MariaDb(own)
    try:
        yield server
    finally:
        server.close()
