"""What every worker process does on its own side: it yields to its broker, answers one request after the other, and
ends when the broker's end of the socket is closed, however the broker died.

An unexpected exception is a bug of ours. The process prints where it happened, answers with its type, and ends. The
message of the exception may contain records and is not printed.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from moldau.platforms.scheduling import lower_priority, set_oom_score

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Request = TypeVar("Request")

OOM_SCORE: Final = 500
"""If memory runs out, Linux should kill this process and not its broker: that costs only a piece of work."""


class Unexpected(NamedTuple):
    """The answer of a process that failed with an exception of this type."""

    error: str


def serve(niceness: int, work: Callable[[Connection], None]) -> None:
    """Work with the connection to the broker, until that closes it."""
    from multiprocessing.connection import Connection

    lower_priority(niceness)
    set_oom_score(OOM_SCORE)
    try:
        work(Connection(sys.stdin.fileno()))
    except (EOFError, OSError, KeyboardInterrupt):
        os._exit(0)


def answer_requests(
    receive: Callable[[], Request], answer: Callable[[Request], object], send: Callable[[object], None]
) -> None:
    while True:
        request = receive()
        try:
            result = answer(request)
        except Exception as unexpected:
            error = type(unexpected).__name__
            print(*traceback.format_tb(unexpected.__traceback__), error, sep="", file=sys.stderr, flush=True)
            send(Unexpected(error))
            return
        send(result)
