"""Entry point of `moldau <noun> <verb>`: the list of commands, how errors are printed, shell completion.

A command's module is imported when the command is called: `moldau start` loads no table code and no client library,
and `moldau --help` loads nothing but click. So import nothing here that `--help` does not need.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, NoReturn, TypeGuard

import click

from moldau import __version__
from moldau.base.quick_imports import no_collections
from moldau.cli.kafka.tool import missing_library

SIGINT_STATUS: Final = 130
SIGPIPE_STATUS: Final = 141
"""The status a shell reports for a program that this signal ended; scripts with `pipefail` rely on both numbers."""


_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class LazyCommand(NamedTuple):
    """Where a command is defined, and its line in `moldau --help`, which is shown without importing the command."""

    target: str
    summary: str


COMMANDS: Final = {
    "start": LazyCommand("moldau.cli.start:start", "Start a broker on this machine."),
    "topic": LazyCommand("moldau.cli.topic.commands:topic", "Create, list, describe, alter, trim and delete topics."),
    "produce": LazyCommand(
        "moldau.cli.records.produce:produce", "Write lines or JSON envelopes to a topic as records."
    ),
    "consume": LazyCommand("moldau.cli.records.consume:consume", "Read records from topics and print them."),
    "view": LazyCommand("moldau.cli.view.commands:view", "Create and describe views: part of a topic, by content."),
    "group": LazyCommand("moldau.cli.group.commands:group", "List, describe, reset and delete consumer groups."),
    "acl": LazyCommand("moldau.cli.acl.commands:acl", "List, allow and deny who may do what, and test it."),
    "user": LazyCommand("moldau.cli.user.commands:user", "List, add and remove users, and set passwords."),
    "transaction": LazyCommand(
        "moldau.cli.transaction.commands:transaction", "List, describe and abort transactions; find those that hang."
    ),
    "log": LazyCommand("moldau.cli.log.commands:log", "Read the files of a data directory, without a broker."),
    "pipeline": LazyCommand(
        "moldau.cli.pipeline.commands:pipeline", "Write, check, run and watch data pipelines on Spark."
    ),
    "cluster": LazyCommand(
        "moldau.cli.cluster.commands:cluster", "Start and stop a cluster here; show who leads what in any."
    ),
    "generate": LazyCommand(
        "moldau.cli.generate.commands:generate", "Write files for Prometheus and Grafana that watch a cluster."
    ),
    "console": LazyCommand("moldau.cli.console:console", "Serve a web console for any Kafka cluster."),
    "gateway": LazyCommand("moldau.cli.gateway:gateway", "Let devices send and follow records over HTTP."),
    "doctor": LazyCommand("moldau.cli.doctor:doctor", "Look at this machine: what is wrong and what to do."),
    "completion": LazyCommand("moldau.cli.completion:completion", "Print the completion script of a shell."),
}


class LazyGroup(click.Group):
    """A click group that has its commands by name and imports only the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].target.partition(":")
        with no_collections():
            command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.summary) for name, command in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Ctrl-C and a closed pipe (`| head`) are not errors, though click would report them so."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except (click.Abort, click.exceptions.Exit):
            raise
        except KeyboardInterrupt:
            raise click.exceptions.Exit(SIGINT_STATUS) from None
        except BrokenPipeError:
            _discard_stdout()
            raise click.exceptions.Exit(SIGPIPE_STATUS) from None
        except Exception:
            if ctx.params["debug"]:
                traceback.print_exc()
            raise

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = "moldau",
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run and exit. Every failure ends here: one line on stderr, status 1."""
        try:
            status = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.Abort:
            sys.exit(SIGINT_STATUS)
        except Exception as error:
            if _is_request_for_help(error):
                click.echo(error.format_message(), err=True)
            else:
                click.echo(f"moldau: {one_line(error)}", err=True)
            sys.exit(1)
        sys.exit(status if isinstance(status, int) else 0)


def _is_request_for_help(error: Exception) -> TypeGuard[click.UsageError]:
    """Whether a group was called without a command. Click 8.1 has no such error: it prints the help itself."""
    return isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ()))


def _discard_stdout() -> None:
    """Redirect stdout to /dev/null: its reader is gone, and the flush at exit would fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def one_line(error: Exception) -> str:
    """Return what is wrong and what to do next. An internal error says so, and how to see its stack trace."""
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"{_sentence(error.format_message())} See `{error.ctx.command_path} --help`."
    if isinstance(error, click.ClickException):
        return _flat(error.format_message())
    if line := missing_library(error):
        return line
    if isinstance(error, OSError):
        return _flat(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    return f"{type(error).__name__}: {_flat(str(error))} (a stack trace: `moldau --debug ...`)"


def _flat(text: str) -> str:
    """Return the text in one line, without control characters: a broker may have written it."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), " ".join(text.split()))


def _sentence(text: str) -> str:
    flat = _flat(text)
    return flat if flat.endswith((".", "?", "!")) else flat + "."


@click.group(
    "moldau",
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="The address of the broker is given by -b/--bootstrap-server, by the variable MOLDAU_BOOTSTRAP, or is"
    " localhost:9092; a secured one needs --command-config FILE or MOLDAU_COMMAND_CONFIG.",
)
@click.version_option(__version__, prog_name="moldau", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the whole stack trace of an error, and librdkafka's own log lines.")
def main(debug: bool) -> None:
    """Moldau: event streaming that speaks Kafka.

    \b
    moldau start                              a broker on localhost:9092
    moldau topic create orders -p 6           a topic of six partitions
    echo hello | moldau produce orders        a record
    moldau consume orders -f '%p %o %v\\n'     all records, then wait for more
    """
