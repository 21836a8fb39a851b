"""How every tool begins and ends: its flags are read, its body runs, whatever goes wrong becomes a line and a status.

An error is one line. The stack trace behind it is shown when the environment has MOLDAU_DEBUG=1. Nothing here knows
what any tool does.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Final

from moldau.base.errors import KafkaError, MalformedData, UnusableProperty
from moldau.cli.flags import Arguments, Flags, HelpRequested, UsageError, VersionRequested, version_line

SIGINT_STATUS: Final = 130
SIGPIPE_STATUS: Final = 141
"""What a shell reports for a program that the signal ended."""


class ToolFailed(Exception):
    """One line: what is wrong and what to do next."""


FAILURES: Final = (ToolFailed, UnusableProperty, KafkaError, MalformedData, ConnectionError, TimeoutError)
"""What the world or a broker did: told in its own words. Anything else is a defect of ours."""


def debugging() -> bool:
    return os.environ.get("MOLDAU_DEBUG", "") not in ("", "0")


def run(
    name: str, flags: Flags, body: Callable[[Arguments], int], argv: Sequence[str] | None, help_to_stdout: bool = False
) -> int:
    """Runs a tool and answers its exit status, which is 1 after help: Kafka's tools do so."""

    def parsed(words: Sequence[str]) -> int:
        arguments = flags.parse(words)
        for line in arguments.warnings:
            print(line, flush=True)
        for line in arguments.notes:
            complain(line)
        return body(arguments)

    try:
        return guarded(parsed, argv)
    except HelpRequested:
        if help_to_stdout:
            print(flags.help())
        else:
            complain(flags.help())
        return 1
    except VersionRequested:
        print(version_line())
        return 0
    except UsageError as error:
        trace()
        complain(f"{error}\n`{name} --help` lists the options.")
        return 1


def guarded(body: Callable[[Sequence[str]], int], argv: Sequence[str] | None) -> int:
    """The endings all tools share: failures, Ctrl-C, and a reader that left (`| head`)."""
    try:
        status = body(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        forget_stdout()
        return SIGPIPE_STATUS
    except FAILURES as error:
        trace()
        complain(" ".join(str(error).split()))
        return 1
    except KeyboardInterrupt:
        return SIGINT_STATUS
    except Exception as error:
        if isinstance(error, UsageError | HelpRequested | VersionRequested):
            raise
        trace()
        defect = f"{type(error).__name__}: {' '.join(str(error).split())} (MOLDAU_DEBUG=1 shows where)"
        complain(missing_library(error) or defect)
        return 1


def missing_library(error: Exception) -> str | None:
    """What to do when a library is not there: a checkout runs from its own source before anything is installed."""
    if not isinstance(error, ModuleNotFoundError) or not error.name or error.name.partition(".")[0] == "moldau":
        return None
    return f"{error.name} is not installed; `make setup` in a checkout, or `pip install .`, brings it"


def complain(line: str) -> None:
    sys.stdout.flush()
    print(line, file=sys.stderr, flush=True)


def trace() -> None:
    """The stack trace of the error being handled, for those who asked for it."""
    if debugging():
        traceback.print_exc()


def forget_stdout() -> None:
    """The reader is gone; without this the interpreter complains once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
