"""Imports what Spark's Python processes need, once, and forks a process for each launcher's request.

`python -m moldau.spark.workers.fork_server FD`, where FD is a listening socket. It has one thread and no locks, so that
fork is safe. It ends when its standard input is closed, which its driver holds open.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from moldau.spark.workers.launcher import LENGTH_BYTES, STANDARD_FILES, without_zips

PRELOADED: Final = (
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pyspark_moldau",
    "moldau.spark.exactly_once.wire",
    "moldau.spark.fetching",
    "moldau.spark.lake.source",
    "moldau.spark.positions",
    "moldau.spark.producing",
    "moldau.spark.sink",
    "moldau.spark.source",
)
REQUEST_TIMEOUT_S: Final = 60.0
"""A launcher sends its request at once, but a busy machine may interrupt it; one that does not is stopped or broken."""
CLOSED: Final = (BrokenPipeError, ConnectionResetError)
"""What a process of Spark's meets when the JVM has closed its connection."""
REQUEST_BYTES_MAX: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Request:
    arguments: list[str]
    """The interpreter's arguments: -m, the module, the module's arguments."""
    environment: dict[str, str]
    directory: str


@dataclass(slots=True)
class ForkServer:
    listener: socket.socket
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    children: dict[int, socket.socket] = field(default_factory=dict)
    """Process id -> the connection to its launcher."""
    _wakeup: tuple[int, int] = (-1, -1)

    def serve(self) -> None:
        """Serve until standard input is closed."""
        self._watch_children()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.selector.register(0, selectors.EVENT_READ)
        while True:
            for key, _ in self.selector.select():
                if key.fd == 0:
                    if not os.read(0, 1):
                        return
                elif key.fileobj is self.listener:
                    self._accept()
                elif key.fd == self._wakeup[0]:
                    os.read(key.fd, 4096)
                    self._reap()
                else:
                    self._end(key.data)

    def _watch_children(self) -> None:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        self._wakeup = (reading, writing)
        signal.set_wakeup_fd(writing)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # makes Python write to the wakeup fd
        self.selector.register(reading, selectors.EVENT_READ)

    def _accept(self) -> None:
        connection, _ = self.listener.accept()
        files: list[int] = []
        try:
            request, files = receive(connection)
            child = os.fork()
        except (OSError, ValueError) as error:
            print(f"fork server: a launcher's request failed: {error}", file=sys.stderr)
            connection.close()
            child = -1
        if child == 0:
            self._leave(connection)
            become(request, files)
        for file in files:
            os.close(file)
        if child > 0:
            self.children[child] = connection
            self.selector.register(connection, selectors.EVENT_READ, child)

    def _leave(self, connection: socket.socket) -> None:
        """In a child: close the server's files, or launchers would not notice the end of the server."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.selector.close()
        for each in (self.listener, connection, *self.children.values()):
            each.close()
        for pipe in self._wakeup:
            os.close(pipe)

    def _reap(self) -> None:
        """Send exit statuses to the launchers whose processes have ended."""
        while True:
            try:
                child, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if child == 0:
                return
            if (connection := self.children.pop(child, None)) is not None:
                self.selector.unregister(connection)
                with suppress(OSError), connection:  # the launcher may have ended as well
                    connection.send(bytes([exit_status(status)]))

    def _end(self, child: int) -> None:
        """Terminate a process whose launcher has ended. It is reaped like any other."""
        connection = self.children.pop(child, None)
        if connection is None:
            return  # it ended at the same time and was already reaped
        self.selector.unregister(connection)
        connection.close()
        os.kill(child, signal.SIGTERM)


def receive(connection: socket.socket) -> tuple[Request, list[int]]:
    """Read a request with its three standard files. ValueError if it is malformed."""
    connection.settimeout(REQUEST_TIMEOUT_S)
    start, files, _, _ = socket.recv_fds(connection, LENGTH_BYTES, len(STANDARD_FILES))
    try:
        body = _exactly(connection, int.from_bytes(start, "big")) if len(start) == LENGTH_BYTES else b""
        fields = json.loads(body)
        if len(files) != len(STANDARD_FILES) or fields["arguments"][0] != "-m":
            raise ValueError("it asks for no module")
        return Request(fields["arguments"], fields["environment"], fields["directory"]), list(files)
    except (KeyError, IndexError, TypeError, OSError, ValueError) as error:
        for file in files:
            os.close(file)
        raise ValueError(str(error)) from error


def _exactly(connection: socket.socket, size: int) -> bytes:
    if size > REQUEST_BYTES_MAX:
        raise ValueError(f"it has {size} bytes, of {REQUEST_BYTES_MAX} at most")
    body = bytearray()
    while len(body) < size:
        piece = connection.recv(size - len(body))
        if not piece:
            raise ValueError("it ends too early")
        body += piece
    return bytes(body)


def exit_status(waited: int) -> int:
    """Return the exit status as in a shell: 128 plus the signal's number for a killed process."""
    code = os.waitstatus_to_exitcode(waited)
    return code if code >= 0 else 128 - code


def become(request: Request, files: Iterable[int]) -> NoReturn:
    """Turn this child into the requested process."""
    status = 1
    try:
        for target, file in zip(STANDARD_FILES, files, strict=True):
            os.dup2(file, target)
            os.close(file)
        os.environ.clear()
        os.environ.update(request.environment)
        os.chdir(request.directory)
        adopt_path(request)
        status = run_module(request.arguments[1], request.arguments[2:])
    except CLOSED:
        pass  # Spark has closed the connection, as at the end of a query: nobody waits for the answer
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def adopt_path(request: Request) -> None:
    """Set sys.path as `python -m` does: the directory, then PYTHONPATH, then installed packages."""
    python_path = without_zips(request.environment.get("PYTHONPATH", "")).split(os.pathsep)
    sys.path[:1] = [request.directory, *(entry for entry in python_path if entry and entry not in sys.path)]


def run_module(name: str, arguments: list[str]) -> int:
    """Run like `python -m name arguments`; return the exit status."""
    sys.argv = [name, *arguments]
    sys.modules.pop(name, None)  # it becomes __main__; runpy would warn about the preloaded one
    try:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return status_of(end.code)
    return 0


def status_of(code: Any) -> int:
    """Return the exit status for an argument of sys.exit."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def preload(names: Iterable[str], load: Callable[[str], object] = importlib.import_module) -> None:
    """Import modules for all children. If an import fails, the process that needs the module will raise the error."""
    for name in names:
        try:
            load(name)
        except Exception as error:  # an import may raise anything; the other modules are still useful
            print(f"fork server: {name} is not preloaded: {type(error).__name__}: {error}", file=sys.stderr)
    gc.collect()
    # Workers collect garbage after every task: this spares them these objects and the copying of their pages.
    gc.freeze()


def quiet_at_end(main: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Return the main function of a worker, but it ends without a word when Spark has closed its connection.

    Spark does so with a worker that was idle for a minute, and with those of a query that ends. PySpark's own would
    write to the closed connection, and print the error."""

    def main_unless_ended(infile: Any, outfile: Any) -> None:
        if not _has_task(infile):
            sys.exit(1)
        try:
            main(infile, outfile)
        finally:
            _send_or_drop(outfile)

    return main_unless_ended


def _has_task(infile: Any) -> bool:
    """Wait for the next task; return whether there is one."""
    try:
        return bool(infile.peek(1))
    except CLOSED:
        return False


def _send_or_drop(outfile: Any) -> None:
    """Send what is buffered. If the connection is closed, let the rest go nowhere, also when the file is closed."""
    try:
        outfile.flush()
    except CLOSED:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, outfile.fileno())
        os.close(nowhere)


def _quiet_workers() -> None:
    """PySpark's daemon calls the function `main` of one of these modules for each task, or for each plan of a query."""
    for name in PRELOADED:
        module: Any = sys.modules.get(name)
        if name.startswith(("pyspark.worker", "pyspark.sql.")) and hasattr(module, "main"):
            module.main = quiet_at_end(module.main)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles Ctrl-C, as for the JVM's processes
    listener = socket.socket(fileno=int(sys.argv[1]))
    preload(PRELOADED)
    _quiet_workers()
    ForkServer(listener).serve()


if __name__ == "__main__":
    main()
