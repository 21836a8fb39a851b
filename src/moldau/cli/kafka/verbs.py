"""Tools with a verb and flags before and after it, as kafka-metadata-quorum and kafka-features are written.

Flags that say where the cluster is may stand on either side of the verb; Kafka takes them only before it. What a verb
does is the tool's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from moldau.base.errors import KafkaError
from moldau.cli.kafka.java.exceptions import exception_text
from moldau.cli.kafka.tool import ToolFailed, guarded


class VerbParser(argparse.ArgumentParser):
    """A wrong command line ends with status 1, as Kafka's tools do, not with 2."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(1, f"{self.prog.split()[0]}: error: {kafkas_words(message)}\n")


def kafkas_words(message: str) -> str:
    """What argparse says is missing, as Kafka's parser says it: one thing at a time."""
    missing = message.removeprefix("the following arguments are required: ")
    if missing == message:
        return message
    return "too few arguments" if missing.lower() == "command" else f"argument {missing.split(', ')[0]} is required"


def add_connection(parser: argparse.ArgumentParser, required: bool) -> None:
    """Where the cluster is. A verb's own parser has no defaults: they would undo what stood before the verb."""
    default = None if required else argparse.SUPPRESS
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--bootstrap-server", default=default, help="brokers to connect to, HOST:PORT")
    either.add_argument("--bootstrap-controller", default=default, help="controllers to connect to, HOST:PORT")
    parser.add_argument("--command-config", default=default, help="a properties file with settings of the client")


def run_verbs(
    parser: argparse.ArgumentParser, body: Callable[[argparse.Namespace], int], argv: Sequence[str] | None
) -> int:
    def parsed(words: Sequence[str]) -> int:
        arguments = parser.parse_args(list(words))
        try:
            return body(arguments)
        except KafkaError as error:
            raise ToolFailed(exception_text(error)) from error

    try:
        return guarded(parsed, argv)
    except SystemExit as ended:
        return int(ended.code or 0)
