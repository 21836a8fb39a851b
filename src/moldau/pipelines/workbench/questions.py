"""`validate`, `test` and `preview` use the Spark of a running `dev` of the same file: lines of JSON over a socket.

    question   {"version": Moldau's, "do": "check" | "test" | "preview", "file", "settings", "environ", and more:
                to test "cases": [names], "update": whether cases without expected files run;
                to preview "steps": [names], "rows", "case": name or null, "bootstrap"}
    answer     any number of {"phase": text}, then one of
               {"problems": [{"message", "place": [file, line, column] or null, "hint", "severity"}]}
               {"results": [{"case", "seconds", "error", "story", "closed", "outputs",
                             "differences": [{"sink", "missing", "unexpected"}]}]}
               {"previews": [{"name", "columns", "rows", "has_more", "seconds", "error"}]}
               {"failed": text}            an error message for the user
               {"other": version}          the `dev` is of another version of Moldau and does not answer

The socket is in a private directory of the user. If no `dev` accepts the connection, the command starts its own Spark.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import selectors
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from moldau import __version__
from moldau.pipelines.problems import PipelineError
from moldau.platforms.file_locks import try_lock
from moldau.spark.scripts import private_directories

QUESTION_BYTES_MAX: Final = 4 << 20
CLIENT_TIMEOUT_S: Final = 10.0
"""How long a client that has connected may take to send its question, and to receive a line of the answer."""
PATH_LENGTH_MAX: Final = 100
"""Limit of the bytes of a socket's path. The kernel's limit is a little higher."""

log = logging.getLogger(__name__)

OnPhase = Callable[[str], None]
Answerer = Callable[[Mapping[str, Any], OnPhase], Mapping[str, Any]]


def socket_path(file: Path) -> Path | None:
    """Return the path of the socket of the `dev` of that file; None if no directory has a short enough path."""
    name = f"dev-{hashlib.sha256(os.fsencode(file.resolve())).hexdigest()[:16]}.sock"
    for directory in private_directories():
        if len(os.fsencode(directory / name)) <= PATH_LENGTH_MAX:
            return directory / name
    return None


# --- server ------------------------------------------------------------------------------------------------------


@contextmanager
def listening(file: Path) -> Iterator[socket.socket | None]:
    """Listen on the socket of that file. Raises PipelineError if another `dev` already does, or is about to: it holds
    the lock of the file beside the socket (where the file system has locks).

    Yields None if there is no directory for the socket; then no command can connect.
    """
    path = socket_path(file)
    if path is None:
        yield None
        return
    with open(path.with_suffix(".lock"), "wb") as lock:
        if not _lock_if_possible(lock.fileno()):
            raise PipelineError(f"another `moldau pipeline dev {file}` is already running")
        path.unlink(missing_ok=True)  # left by a `dev` that was killed
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            try:
                yield listener
            finally:
                path.unlink(missing_ok=True)


def _lock_if_possible(fd: int) -> bool:
    """Return False if another process holds the lock. Some network file systems have no locks: go on without one."""
    try:
        return try_lock(fd)
    except OSError as error:
        if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            return True
        raise


def answer_one(listener: socket.socket, answer: Answerer, timeout_s: float) -> bool:
    """Wait up to `timeout_s` for a question and answer it. Return whether one was answered."""
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        if not selector.select(timeout_s):
            return False
    caller, _ = listener.accept()
    with caller, suppress(OSError):  # the caller may disconnect before the answer, or not read it
        caller.settimeout(CLIENT_TIMEOUT_S)
        question = _read_question(caller)
        if question is None:
            return False
        if question.get("version") != __version__:
            _send(caller, {"other": __version__})
            return False

        def on_phase(phase: str) -> None:
            with suppress(OSError):
                _send(caller, {"phase": phase})

        try:
            message = answer(question, on_phase)
        except PipelineError as error:
            message = {"failed": str(error)}
        except Exception as error:  # the `dev` of another terminal goes on
            log.exception("the question of another command could not be answered")
            message = {"failed": f"{type(error).__name__}: {error}"}
        _send(caller, message)
    return True


def _read_question(caller: socket.socket) -> dict[str, Any] | None:
    with caller.makefile("rb") as lines:
        line = lines.readline(QUESTION_BYTES_MAX)
    try:
        question = json.loads(line)
    except ValueError:
        return None
    return question if isinstance(question, dict) else None


def _send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")


# --- client ---------------------------------------------------------------------------------------------------------


def ask(
    file: Path, do: str, settings: Mapping[str, str], on_phase: OnPhase, more: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    """Return the answer of the `dev` of that file; None if there is no `dev`, or it died before it answered."""
    path = socket_path(file)
    connection = None if path is None else _connect(path)
    if connection is None:
        return None
    question = {
        "version": __version__, "do": do, "file": str(file.absolute()), "settings": dict(settings),
        "environ": dict(os.environ), **(more or {}),
    }  # fmt: skip
    with connection, suppress(OSError):
        _send(connection, question)
        on_phase("waiting for the Spark of `moldau pipeline dev` to finish its current work")
        with connection.makefile("rb") as lines:
            for line in lines:
                try:
                    message: dict[str, Any] = json.loads(line)
                except ValueError:  # cut off: the `dev` was killed while it sent the line
                    return None
                if "phase" not in message:
                    return None if "other" in message else message
                on_phase(message["phase"])
    return None


def _connect(path: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        return None
    return connection
