"""kafka-broker-api-versions: the APIs of each broker of a cluster, and their versions.

One block for each broker; `usable` is the highest version that broker and tool have in common.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Final

from moldau.cli.flags import Arguments, Flag, Flags
from moldau.cli.kafka.connection import clients, properties
from moldau.cli.kafka.tool import ToolFailed, run
from moldau.wire.apis import APIS, ApiKey

NOT_FOR_CLIENTS: Final = frozenset(
    {
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.ALTER_PARTITION,
        ApiKey.ENVELOPE,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.UPDATE_RAFT_VOTER,
    }
)
"""Requests between brokers and controllers; a broker need not offer them."""

FLAGS = Flags(
    "This tool helps to retrieve broker version information.",
    (
        Flag("bootstrap-server", "REQUIRED: A broker of the cluster, HOST:PORT.", "server(s) to use for bootstrapping"),
        Flag("command-config", "A properties file with settings of the client.", "command config property file"),
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    return run("kafka-broker-api-versions", FLAGS, _main, argv)


def _main(arguments: Arguments) -> int:
    from moldau.wire.messages.metadata import MetadataRequest, MetadataResponse

    arguments.require("bootstrap-server")
    java_config = properties.load(arguments.text("command-config"))
    with clients.channel(arguments.text("bootstrap-server") or "", java_config) as channel:
        nodes = channel.ask(ApiKey.METADATA, MetadataRequest(topics=[]), MetadataResponse).brokers
    for node in nodes:
        rack = "null" if node.rack is None else node.rack
        title = f"{node.host}:{node.port} (id: {node.node_id} rack: {rack} isFenced: false)"
        try:
            with clients.channel_to(node.host, node.port, java_config) as channel:
                print(f"{title} -> (\n{table(channel.versions)}\n)")
        except ToolFailed as error:
            print(f"{title} -> ERROR: {error}")
    return 0


def table(versions: Mapping[int, tuple[int, int]]) -> str:
    keys = sorted(versions.keys() | (APIS.keys() - NOT_FOR_CLIENTS))
    return ",\n".join(f"\t{_line(key, versions.get(key))}" for key in keys)


def _line(key: int, offered: tuple[int, int] | None) -> str:
    """Return a line such as `Fetch(1): 4 to 18 [usable: 18]`."""
    name = APIS[key].name if key in APIS else "UNKNOWN"
    if offered is None:
        return f"{name}({key}): UNSUPPORTED"
    lowest, highest = offered
    span = str(lowest) if lowest == highest else f"{lowest} to {highest}"
    if key not in APIS:
        return f"{name}({key}): {span}"
    usable = min(highest, APIS[key].highest)
    if usable >= max(lowest, APIS[key].lowest):
        return f"{name}({key}): {span} [usable: {usable}]"
    return f"{name}({key}): {span} [unusable: node too {'old' if highest < APIS[key].lowest else 'new'}]"


if __name__ == "__main__":
    sys.exit(main())
