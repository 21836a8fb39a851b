"""Imports what Spark's Python processes need, once, and forks a process for each launcher that asks for one.

`python -m moldau.spark.workers.fork_server FD`, where FD is a listening socket. One thread, no locks: nothing that a
fork could copy half-way. It ends when its standard input does, which its driver holds open.
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
REQUEST_TIMEOUT_S: Final = 10.0
"""A launcher sends its request in one go; one that does not is stopped or broken."""
REQUEST_BYTES_MAX: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Request:
    arguments: list[str]
    """As behind the name of the interpreter: -m, the module, the module's own."""
    environment: dict[str, str]
    directory: str


@dataclass(slots=True)
class ForkServer:
    listener: socket.socket
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    children: dict[int, socket.socket] = field(default_factory=dict)
    """By process id: the connection to the launcher that stands in for it."""
    _wakeup: tuple[int, int] = (-1, -1)

    def serve(self) -> None:
        """Until standard input ends."""
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
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # a handler is what makes Python write the byte
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
        """In a child: nothing of the server's stays open, or launchers would not see it die."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.selector.close()
        for each in (self.listener, connection, *self.children.values()):
            each.close()
        for pipe in self._wakeup:
            os.close(pipe)

    def _reap(self) -> None:
        """Tells launchers whose processes have ended."""
        while True:
            try:
                child, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if child == 0:
                return
            if (connection := self.children.pop(child, None)) is not None:
                self.selector.unregister(connection)
                with suppress(OSError), connection:  # the launcher may be gone as well
                    connection.send(bytes([exit_status(status)]))

    def _end(self, child: int) -> None:
        """Its launcher is gone: so must it be. It is reaped as any other."""
        connection = self.children.pop(child, None)
        if connection is None:
            return  # it ended at the same moment, and is reaped already
        self.selector.unregister(connection)
        connection.close()
        os.kill(child, signal.SIGTERM)


def receive(connection: socket.socket) -> tuple[Request, list[int]]:
    """The request and the three standard files that come with it. ValueError if it is none."""
    connection.settimeout(REQUEST_TIMEOUT_S)
    start, files, _, _ = socket.recv_fds(connection, LENGTH_BYTES, len(STANDARD_FILES))
    try:
        body = _exactly(connection, int.from_bytes(start, "big")) if len(start) == LENGTH_BYTES else b""
        wanted = json.loads(body)
        if len(files) != len(STANDARD_FILES) or wanted["arguments"][0] != "-m":
            raise ValueError("it asks for no module")
        return Request(wanted["arguments"], wanted["environment"], wanted["directory"]), list(files)
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
    """As a shell tells it: 128 and the signal's number for one that was killed."""
    code = os.waitstatus_to_exitcode(waited)
    return code if code >= 0 else 128 - code


def become(request: Request, files: Iterable[int]) -> NoReturn:
    """Turns this child into the process that was asked for."""
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
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def adopt_path(request: Request) -> None:
    """sys.path as `python -m` would have it there: the directory, then PYTHONPATH, then what is installed."""
    wanted = without_zips(request.environment.get("PYTHONPATH", "")).split(os.pathsep)
    sys.path[:1] = [request.directory, *(entry for entry in wanted if entry and entry not in sys.path)]


def run_module(name: str, arguments: list[str]) -> int:
    """As `python -m name arguments` does; returns the exit status."""
    sys.argv = [name, *arguments]
    sys.modules.pop(name, None)  # it becomes __main__; the preloaded one would only raise a warning
    try:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return status_of(end.code)
    return 0


def status_of(code: Any) -> int:
    """What the interpreter makes of the argument of sys.exit."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def preload(names: Iterable[str], load: Callable[[str], object] = importlib.import_module) -> None:
    """Imports them for all children. What cannot be imported is left to the process that needs it, to tell why."""
    for name in names:
        try:
            load(name)
        except Exception as error:  # whatever its import raises: the others are served all the same
            print(f"fork server: {name} is not preloaded: {type(error).__name__}: {error}", file=sys.stderr)
    gc.collect()
    gc.freeze()  # workers collect after every task: they need not look at all this, and do not copy its pages


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the driver's to handle, as for the JVM's processes
    listener = socket.socket(fileno=int(sys.argv[1]))
    preload(PRELOADED)
    ForkServer(listener).serve()


if __name__ == "__main__":
    main()
