"""What Spark starts as its Python: asks the fork server for a process and waits for its end, or becomes a plain Python.

Run as a script, without site-packages (`python -I -S launcher.py -m pyspark.daemon …`): it must start within
milliseconds, and must not import the package it lies in.

    request   4 bytes: length of what follows; JSON: {"arguments": […], "environment": {…}, "directory": …};
              with it, as ancillary data, the files 0, 1 and 2
    response  1 byte, when the process has ended: its exit status

The connection is the life line: if this process is killed, the fork server sees it close and ends the other.
"""

from __future__ import annotations

import json
import os
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # the module typing takes as long to import as all the others here
    from typing import NoReturn

SERVER_VARIABLE = "MOLDAU_FORK_SERVER"
STANDARD_FILES = (0, 1, 2)
LENGTH_BYTES = 4
STATUS_UNKNOWN = 1
"""The fork server died before it could tell."""


def main() -> int:
    arguments = sys.argv[1:]
    server = os.environ.get(SERVER_VARIABLE)
    status = run_in_fork(server, arguments) if server and arguments[:1] == ["-m"] else None
    return become_python(arguments) if status is None else status


def become_python(arguments: list[str]) -> NoReturn:
    os.environ["PYTHONPATH"] = without_zips(os.environ.get("PYTHONPATH", ""))
    os.execv(sys.executable, [sys.executable, *arguments])


def run_in_fork(server: str, arguments: list[str]) -> int | None:
    """The exit status of the process that was asked for; None if nobody serves."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(server)
    except OSError:
        return None
    with connection:
        wanted = {"arguments": arguments, "environment": dict(os.environ), "directory": os.getcwd()}
        body = json.dumps(wanted).encode()
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
    """Whoever reads from the other process must see the end of its output: it must not be held open here."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for file in STANDARD_FILES:
        os.dup2(nothing, file)
    os.close(nothing)


def without_zips(path: str) -> str:
    """Spark puts PySpark on the path as a zip of sources, before the installed one that has bytecode."""
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if not _is_spark_zip(os.path.basename(entry)))


def _is_spark_zip(name: str) -> bool:
    return name == "pyspark.zip" or (name.startswith("py4j-") and name.endswith("-src.zip"))


if __name__ == "__main__":
    sys.exit(main())
