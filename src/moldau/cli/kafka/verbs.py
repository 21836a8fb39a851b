"""Tools with a verb and flags before and after it, such as kafka-metadata-quorum and kafka-features.

The flags that name the cluster may stand before or after the verb; Kafka accepts them only before it. The tool decides
what a verb does.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from moldau.base.errors import KafkaError
from moldau.cli.kafka.java.exceptions import exception_text
from moldau.cli.kafka.java.numbers import parse_integer
from moldau.cli.kafka.tool import ToolFailed, guarded


def _java_integer(kind: str, bits: int) -> Callable[[str], int]:
    """Return a parser of numbers of this Java type, with Java's error messages."""

    def parse(text: str) -> int:
        try:
            return parse_integer(text, bits)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"could not convert '{text}' to {kind} ({error})") from None

    return parse


LONG: Final = _java_integer("Long", 64)
INTEGER: Final = _java_integer("Integer", 32)
SHORT: Final = _java_integer("Short", 16)


class VerbParser(argparse.ArgumentParser):
    """A wrong command line ends with status 1, as in Kafka's tools, not with 2."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(1, f"{self.prog.split()[0]}: error: {kafka_message(message)}\n")


def kafka_message(message: str) -> str:
    """Word argparse's message about missing arguments as Kafka's parser does: only the first of them."""
    missing = message.removeprefix("the following arguments are required: ")
    if missing == message:
        return message
    return "too few arguments" if missing.lower() == "command" else f"argument {missing.split(', ')[0]} is required"


def add_connection(parser: argparse.ArgumentParser, is_verb: bool) -> None:
    """Add the cluster flags. A verb's parser has no defaults: they would undo flags before the verb."""
    default = argparse.SUPPRESS if is_verb else None
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--bootstrap-server", default=default, help="brokers to connect to, HOST:PORT")
    either.add_argument("--bootstrap-controller", default=default, help="controllers to connect to, HOST:PORT")
    parser.add_argument("--command-config", default=default, help="a properties file with settings of the client")


def run_verbs(
    parser: argparse.ArgumentParser, body: Callable[[argparse.Namespace], int], argv: Sequence[str] | None
) -> int:
    def parse_and_run(words: Sequence[str]) -> int:
        arguments = parser.parse_args(list(words))
        addresses = [getattr(arguments, name, None) for name in ("bootstrap_server", "bootstrap_controller")]
        if None not in addresses:
            # One stands before the verb and one after it: neither of the two parsers has seen both. A tool that cannot
            # connect to controllers has no --bootstrap-controller.
            parser.error("argument --bootstrap-controller: not allowed with argument --bootstrap-server")
        try:
            return body(arguments)
        except KafkaError as error:
            raise ToolFailed(exception_text(error)) from error

    try:
        return guarded(parse_and_run, argv)
    except SystemExit as ended:
        return int(ended.code or 0)
