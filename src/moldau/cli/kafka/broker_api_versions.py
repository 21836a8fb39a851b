"""kafka-broker-api-versions: the APIs of each broker of a cluster, and their versions.

One block for each broker; `usable` is the highest version of an API that both the broker and this tool implement.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Final

from moldau.cli.flags import Arguments, Flag, ToolFlags
from moldau.cli.kafka.connection import clients, properties
from moldau.cli.kafka.tool import ToolFailed, run
from moldau.wire.apis import APIS, ApiKey

INTER_NODE_APIS: Final = frozenset(
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
"""APIs between brokers and controllers. If a broker lacks one, no UNSUPPORTED is printed: clients never call it."""

FLAGS = ToolFlags(
    "This tool helps to retrieve broker version information.",
    (
        Flag("bootstrap-server", "REQUIRED: A broker of the cluster, HOST:PORT.", "server(s) to use for bootstrapping"),
        Flag("command-config", "A properties file with settings of the client.", "command config property file"),
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    return run("kafka-broker-api-versions", FLAGS, _main, argv)


def _main(arguments: Arguments) -> int:
    from moldau.client.requests.metadata import metadata

    arguments.require("bootstrap-server")
    java_config = properties.load(arguments.single_value("command-config"))
    with clients.channel(arguments.single_value("bootstrap-server") or "", java_config) as channel:
        nodes = metadata(channel.ask, ()).brokers
    for node in nodes:
        rack = "null" if node.rack is None else node.rack
        title = f"{node.host}:{node.port} (id: {node.node_id} rack: {rack} isFenced: false)"
        try:
            with clients.channel_to(node.host, node.port, java_config) as channel:
                print(f"{title} -> (\n{version_table(channel.versions)}\n)")
        except ToolFailed as error:
            print(f"{title} -> ERROR: {error}")
    return 0


def version_table(versions: Mapping[int, tuple[int, int]]) -> str:
    """Return a line for each API that the broker offers (key → lowest and highest version) or a client may call."""
    keys = sorted(versions.keys() | (APIS.keys() - INTER_NODE_APIS))
    return ",\n".join(f"\t{_line(key, versions.get(key))}" for key in keys)


def _line(key: int, offered: tuple[int, int] | None) -> str:
    """Return a line such as `Fetch(1): 4 to 18 [usable: 18]`. `offered` is None if the broker lacks the API."""
    name = APIS[key].name if key in APIS else "UNKNOWN"
    if offered is None:
        return f"{name}({key}): UNSUPPORTED"
    lowest, highest = offered
    version_range = str(lowest) if lowest == highest else f"{lowest} to {highest}"
    if key not in APIS:
        return f"{name}({key}): {version_range}"
    usable = min(highest, APIS[key].highest)
    if usable >= max(lowest, APIS[key].lowest):
        return f"{name}({key}): {version_range} [usable: {usable}]"
    return f"{name}({key}): {version_range} [unusable: node too {'old' if highest < APIS[key].lowest else 'new'}]"


if __name__ == "__main__":
    sys.exit(main())
