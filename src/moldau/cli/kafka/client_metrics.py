"""kafka-client-metrics: which metrics clients push to the cluster (KIP-714): lists, describes, alters and deletes the
client metrics resources, with the flags and the output of Kafka's tool, which prints errors on stdout. To a broker they
are config resources: the requests are those of kafka-configs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from random import SystemRandom
from typing import TYPE_CHECKING, Final

from moldau.base.client_metrics_configs import INTERVAL_MS, MATCH, METRICS, SELECTORS
from moldau.base.ids import uuid_text
from moldau.cli.flags import Arguments, Flag, ToolFlags, UsageError
from moldau.cli.kafka.connection import clients, properties
from moldau.cli.kafka.java.numbers import parse_integer
from moldau.cli.kafka.tool import run, trace

if TYPE_CHECKING:
    from moldau.cli.kafka.configs import Command

ACTIONS: Final = ("alter", "delete", "describe", "list")
CONFIGS: Final = {"interval": INTERVAL_MS, "metrics": METRICS, "match": MATCH}
"""The config that each flag sets."""
ENTITY_TYPE: Final = "client-metrics"
FLAGS = ToolFlags(
    "This tool helps to manipulate and describe client metrics configurations.",
    (
        Flag("bootstrap-server", "REQUIRED: A broker of the cluster, HOST:PORT.", "server to connect to"),
        Flag("command-config", "A properties file with settings of the client.", "command config property file"),
        Flag("alter", "Create or alter a client metrics resource."),
        Flag("delete", "Delete a client metrics resource."),
        Flag("describe", "Show the configs of one or of all client metrics resources."),
        Flag("list", "List the client metrics resources."),
        Flag("name", "The name of the client metrics resource.", "name"),
        Flag("generate-name", "Use a random id as the name."),
        Flag(
            "interval",
            "How often clients push their metrics, in milliseconds (100 to 3600000). Empty resets it to 5 minutes.",
            "push interval",
        ),
        Flag(
            "match",
            "Which clients push them, as regular expressions of these: " + ", ".join(SELECTORS) + ". All, if empty.",
            "k1=v1,k2=v2",
        ),
        Flag("metrics", "The prefixes of the names of the metrics; * stands for all.", "m1,m2"),
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    return run("kafka-client-metrics", FLAGS, _main, argv)


def _main(arguments: Arguments) -> int:
    _check(arguments)
    from moldau.cli.kafka.configs import Command

    java_config = properties.load(arguments.single_value("command-config"))
    servers = arguments.single_value("bootstrap-server") or ""
    with clients.channel(servers, java_config) as channel:
        command = Command(channel, servers, java_config, [])
        try:
            _run(command, arguments)
        except clients.ResponseError as error:
            trace()
            print(f"Error while executing client metrics command : {error}")
            return 1
    return 0


def _check(arguments: Arguments) -> None:
    if sum(map(arguments.has, ACTIONS)) != 1:
        raise UsageError("Command must include exactly one action: --alter, --delete, --describe or --list.")
    if not arguments.has("bootstrap-server"):
        raise UsageError("--bootstrap-server must be specified.")
    of_alter = ("generate-name", *CONFIGS)
    for action in ("delete", "describe"):
        arguments.forbid_together(action, *of_alter)
    arguments.forbid_together("list", "name", *of_alter)
    if arguments.has("alter") and arguments.has("name") == arguments.has("generate-name"):
        raise UsageError("One of --name or --generate-name must be specified with --alter.")
    if arguments.has("delete") and not arguments.has("name"):
        raise UsageError("A client metrics resource name must be specified with --delete.")
    interval = arguments.single_value("interval")
    try:
        parse_integer(interval or "0")
    except ValueError:
        raise UsageError("Invalid interval value. Enter an integer, or leave empty to reset.") from None


def _run(command: Command, arguments: Arguments) -> None:
    name = arguments.single_value("name")
    if arguments.has("alter"):
        name = name if name is not None else uuid_text(SystemRandom().randbytes(16))
        given = {config: ",".join(arguments.values_of(flag)) for flag, config in CONFIGS.items() if arguments.has(flag)}
        added = {config: value for config, value in given.items() if value}
        command.alter_resource(ENTITY_TYPE, name, added, [config for config in given if config not in added])
        print(f"Altered client metrics config for {name}.")
    elif arguments.has("delete"):
        assert name is not None
        command.alter_resource(ENTITY_TYPE, name, {}, [entry.name for entry in command.entries_of(ENTITY_TYPE, name)])
        print(f"Deleted client metrics config for {name}.")
    elif arguments.has("list"):
        print("\n".join(sorted(command.names_with_configs(ENTITY_TYPE))))
    else:
        _describe(command, name)


def _describe(command: Command, name: str | None) -> None:
    names = sorted(command.names_with_configs(ENTITY_TYPE))
    if name is not None and name not in names:
        print(f"The client metric resource {name} doesn't exist and doesn't have dynamic config.")
        return
    for each in names if name is None else [name]:
        print(f"Client metrics configs for {each} are:")
        values = {entry.name: entry.value for entry in command.entries_of(ENTITY_TYPE, each)}
        for config in sorted(values):
            print(f"  {config}={values[config] or ''}")


if __name__ == "__main__":
    sys.exit(main())
