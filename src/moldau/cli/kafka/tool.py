"""The frame of every tool: parse the flags, run the body, turn any failure into one line and an exit status.

`run` is for tools whose flags are `ToolFlags`; `verbs.py` and the tools that start, stop and format servers parse by
themselves and use `guarded`.

With MOLDAU_DEBUG=1 in the environment the stack trace of an error is shown too. Nothing here depends on the tool.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Final

from moldau.base.errors import KafkaError, MalformedData, UnusableProperty
from moldau.cli.flags import Arguments, HelpRequested, ToolFlags, UsageError, VersionRequested, version_line

SIGINT_STATUS: Final = 130
SIGPIPE_STATUS: Final = 141
"""The statuses a shell reports for a program that the signal ended."""


class ToolFailed(Exception):
    """One line: what is wrong and what to do next."""


FAILURES: Final = (ToolFailed, UnusableProperty, KafkaError, MalformedData, ConnectionError, TimeoutError)
"""Failures of the environment or of a broker, printed as they are. Anything else is an internal error."""


def debugging() -> bool:
    return os.environ.get("MOLDAU_DEBUG", "") not in ("", "0")


def run(
    name: str,
    flags: ToolFlags,
    body: Callable[[Arguments], int],
    argv: Sequence[str] | None,
    help_to_stdout: bool = False,
) -> int:
    """Run a tool and return its exit status, which is 1 after help, as with Kafka's tools."""

    def parse_and_run(words: Sequence[str]) -> int:
        arguments = flags.parse(words)
        for line in arguments.warnings:
            print(line, flush=True)
        for line in arguments.notes:
            print_to_stderr(line)
        return body(arguments)

    try:
        return guarded(parse_and_run, argv)
    except HelpRequested:
        if help_to_stdout:
            print(flags.help())
        else:
            print_to_stderr(flags.help())
        return 1
    except VersionRequested:
        print(version_line())
        return 0
    except UsageError as error:
        trace()
        print_to_stderr(f"{error}\n`{name} --help` lists the options.")
        return 1


def guarded(body: Callable[[Sequence[str]], int], argv: Sequence[str] | None) -> int:
    """Run `body`, and handle what all tools have in common: failures, Ctrl-C, and a closed pipe (`| head`)."""
    try:
        status = body(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        discard_stdout()
        return SIGPIPE_STATUS
    except FAILURES as error:
        trace()
        print_to_stderr(" ".join(str(error).split()))
        return 1
    except KeyboardInterrupt:
        return SIGINT_STATUS
    except Exception as error:
        if isinstance(error, UsageError | HelpRequested | VersionRequested):
            raise
        trace()
        internal_error = f"{type(error).__name__}: {' '.join(str(error).split())} (MOLDAU_DEBUG=1 shows where)"
        print_to_stderr(missing_library(error) or internal_error)
        return 1


def missing_library(error: Exception) -> str | None:
    """Return what to do if a library is missing: a checkout runs from source before anything is installed."""
    if not isinstance(error, ModuleNotFoundError) or not error.name or error.name.partition(".")[0] == "moldau":
        return None
    return f"{error.name} is not installed; run `make setup` in a checkout, or `pip install .`"


def print_to_stderr(line: str) -> None:
    sys.stdout.flush()
    print(line, file=sys.stderr, flush=True)


def trace() -> None:
    """Print the stack trace of the error being handled, if MOLDAU_DEBUG is set."""
    if debugging():
        traceback.print_exc()


def discard_stdout() -> None:
    """Redirect stdout to /dev/null: its reader is gone, and the flush at exit would fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
