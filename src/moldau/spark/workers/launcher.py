"""Spark starts this as its Python: it requests a process from the fork server and waits for its end, or runs Python.

Run as a script, without site-packages (`python -I -S launcher.py -m pyspark.daemon …`): it must start within
milliseconds, and must not import its own package.

    request   4 bytes: length of what follows; JSON: {"arguments": […], "environment": {…}, "directory": …};
              with it, as ancillary data, the files 0, 1 and 2
    response  1 byte, when the process has ended: its exit status

If this process is killed, the fork server sees the connection close and terminates the forked process.
"""

from __future__ import annotations

import json
import os
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as all the other imports here
    from typing import NoReturn

SERVER_VARIABLE = "MOLDAU_FORK_SERVER"
STANDARD_FILES = (0, 1, 2)
LENGTH_BYTES = 4
STATUS_UNKNOWN = 1
"""The fork server ended before it could send the status."""


def main() -> int:
    arguments = sys.argv[1:]
    server = os.environ.get(SERVER_VARIABLE)
    status = run_in_fork(server, arguments) if server and arguments[:1] == ["-m"] else None
    return become_python(arguments) if status is None else status


def become_python(arguments: list[str]) -> NoReturn:
    os.environ["PYTHONPATH"] = without_zips(os.environ.get("PYTHONPATH", ""))
    os.execv(sys.executable, [sys.executable, *arguments])


def run_in_fork(server: str, arguments: list[str]) -> int | None:
    """Return the exit status of the requested process, or None if there is no fork server."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(server)
    except OSError:
        return None
    with connection:
        request = {"arguments": arguments, "environment": dict(os.environ), "directory": os.getcwd()}
        body = json.dumps(request).encode()
        message = len(body).to_bytes(LENGTH_BYTES, "big") + body
        sent = socket.send_fds(connection, [message], STANDARD_FILES)
        connection.sendall(message[sent:])
        release_standard_files()
        try:
            status = connection.recv(1)
        except ConnectionError:
            status = b""
    return status[0] if status else STATUS_UNKNOWN


def release_standard_files() -> None:
    """Close the standard files, so that readers of the forked process's output see its end."""
    null_device = os.open(os.devnull, os.O_RDWR)
    for file in STANDARD_FILES:
        os.dup2(null_device, file)
    os.close(null_device)


def without_zips(path: str) -> str:
    """Remove Spark's zips of PySpark, so that the installed package with bytecode is imported."""
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if not _is_spark_zip(os.path.basename(entry)))


def _is_spark_zip(name: str) -> bool:
    return name == "pyspark.zip" or (name.startswith("py4j-") and name.endswith("-src.zip"))


if __name__ == "__main__":
    sys.exit(main())
