"""The driver's part: starts the fork server and writes the launcher script that Spark uses as its Python.

Its processes talk with the JVM through Unix sockets. Over TCP each small exchange waits up to 40 ms for a delayed
acknowledgement, because the JVM leaves Nagle's algorithm on.
"""

from __future__ import annotations

import atexit
import functools
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from moldau.spark.scripts import place_script
from moldau.spark.workers import launcher
from moldau.spark.workers.launcher import SERVER_VARIABLE

_SCRIPT: Final = """\
#!/bin/sh
# Written by moldau.spark.workers, which tells why; made anew when it is missing.
exec {python} -I -S {launcher} "$@"
"""
SINGLE_THREADED: Final = {
    # A process with several threads must not fork. These two libraries start threads when they are imported.
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
SEED: Final = "PYTHONHASHSEED"
UNIX_SOCKETS: Final = "spark.python.unix.domain.socket."


@functools.cache
def start_fork_server() -> Mapping[str, str]:
    """Start the fork server; return the environment that makes Spark use it, {} if it cannot be started.

    All sessions of this process share one server, which ends with the process.
    """
    script = Path(launcher.__file__)
    if not script.is_file() or not hasattr(os, "fork"):
        return {}  # imported from an archive, or on Windows
    text = _SCRIPT.format(python=shlex.quote(sys.executable), launcher=shlex.quote(str(script)))
    try:
        return _start_server(place_script("python", text))
    except OSError:  # no directory for the script or the socket, or no more processes
        return {}


def _start_server(python: Path) -> Mapping[str, str]:
    directory = tempfile.mkdtemp(prefix="moldau-")  # private, and short: a socket's path has at most 100 bytes
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    address = os.path.join(directory, "fork-server")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(address)
        listener.listen(128)
        _start(listener, _environment(os.environ))
    return {SERVER_VARIABLE: address, "PYSPARK_PYTHON": str(python)}


def settings_with(environment: Mapping[str, str], configured: Collection[str]) -> dict[str, str]:
    """Return the settings of Spark that go with the environment of a fork server; none if the user has some.

    The server's directory is private, and its path short, as those of sockets must be."""
    if SERVER_VARIABLE not in environment or any(key.startswith(UNIX_SOCKETS) for key in configured):
        return {}
    directory = os.path.dirname(environment[SERVER_VARIABLE])
    return {f"{UNIX_SOCKETS}enabled": "true", f"{UNIX_SOCKETS}dir": directory}


def _start(listener: socket.socket, environment: Mapping[str, str]) -> None:
    command = [sys.executable, "-u", "-m", "moldau.spark.workers.fork_server", str(listener.fileno())]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=environment,
        pass_fds=[listener.fileno()],
        process_group=0,  # Ctrl-C on the terminal is for the driver only; the session is the driver's
    )
    atexit.register(_stop, process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.wait()


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Hashes of strings must be equal in all workers: forks inherit them from the server, and Spark's default is 0."""
    return {SEED: "0", **environ, **SINGLE_THREADED}
