"""`validate`, `test` and `preview` ask the `dev` of the same file for its Spark: lines of JSON over a socket.

    question   {"version": of Moldau, "do": "check" | "test" | "preview", "file", "settings", "environ", and more:
                to test "cases": [names], "update": whether cases without expected files run;
                to preview "steps": [names], "rows", "case": name or null, "bootstrap"}
    answer     any number of {"phase": text}, then one of
               {"problems": [{"message", "place": [file, line, column] or null, "hint"}]}
               {"results": [{"case", "seconds", "error", "story", "closed", "outputs",
                             "differences": [{"sink", "missing", "unexpected"}]}]}
               {"previews": [{"name", "columns", "rows", "has_more", "seconds", "error"}]}
               {"failed": text}            what the command is to say
               {"other": version}          another version of Moldau: nothing is answered

The socket lies in a directory that is the user's alone. Whoever cannot be asked is not there: the command then starts a
Spark of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import selectors
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from moldau import __version__
from moldau.pipelines.problems import PipelineError
from moldau.spark.scripts import private_directories

QUESTION_BYTES_MAX: Final = 4 << 20
ASKING_S: Final = 10.0
"""For a question to arrive, once somebody has called."""
PATH_LENGTH_MAX: Final = 100
"""Of a socket's path; the kernel takes some more."""

Tell = Callable[[str], None]
Answerer = Callable[[Mapping[str, Any], Tell], Mapping[str, Any]]


def socket_of(file: Path) -> Path | None:
    """Where the `dev` of that file listens; None where there is no place for it."""
    name = f"dev-{hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:16]}.sock"
    for directory in private_directories():
        if len(str(directory / name)) <= PATH_LENGTH_MAX:
            return directory / name
    return None


# --- who answers ------------------------------------------------------------------------------------------------------


@contextmanager
def listening(file: Path) -> Iterator[socket.socket | None]:
    """PipelineError if another `dev` answers for that file. None where sockets have no place: nobody can ask then."""
    path = socket_of(file)
    if path is None:
        yield None
        return
    if (other := _call(path)) is not None:
        other.close()
        raise PipelineError(f"another `moldau pipeline dev {file}` runs already")
    path.unlink(missing_ok=True)  # of one that was killed
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


def answer_one(listener: socket.socket, answer: Answerer, timeout_s: float) -> bool:
    """Waits so long for somebody to ask, and answers; whether somebody did."""
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        if not selector.select(timeout_s):
            return False
    caller, _ = listener.accept()
    with caller, suppress(OSError):  # who does not wait for the answer does not get it
        caller.settimeout(ASKING_S)
        question = _question(caller)
        if question is None:
            return False
        caller.settimeout(None)
        if question.get("version") != __version__:
            _send(caller, {"other": __version__})
            return False

        def tell(phase: str) -> None:
            with suppress(OSError):
                _send(caller, {"phase": phase})

        try:
            _send(caller, answer(question, tell))
        except PipelineError as error:
            _send(caller, {"failed": str(error)})
    return True


def _question(caller: socket.socket) -> dict[str, Any] | None:
    with caller.makefile("rb") as lines:
        line = lines.readline(QUESTION_BYTES_MAX)
    try:
        told = json.loads(line)
    except ValueError:
        return None
    return told if isinstance(told, dict) else None


def _send(caller: socket.socket, told: Mapping[str, Any]) -> None:
    caller.sendall(json.dumps(told).encode() + b"\n")


# --- who asks ---------------------------------------------------------------------------------------------------------


def ask(
    file: Path, do: str, settings: Mapping[str, str], on_phase: Tell, more: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    """The answer of the `dev` of that file; None if there is none, or it died before it answered."""
    path = socket_of(file)
    called = None if path is None else _call(path)
    if called is None:
        return None
    question = {
        "version": __version__, "do": do, "file": str(file.absolute()), "settings": dict(settings),
        "environ": dict(os.environ), **(more or {}),
    }  # fmt: skip
    with called, suppress(OSError):
        _send(called, question)
        on_phase("asking the Spark of `moldau pipeline dev`, when it has done what it is at")
        with called.makefile("rb") as lines:
            for line in lines:
                told: dict[str, Any] = json.loads(line)
                if "phase" not in told:
                    return None if "other" in told else told
                on_phase(told["phase"])
    return None


def _call(path: Path) -> socket.socket | None:
    called = socket.socket(socket.AF_UNIX)
    try:
        called.connect(str(path))
    except OSError:
        called.close()
        return None
    return called
