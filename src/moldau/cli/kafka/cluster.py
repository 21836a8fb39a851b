"""kafka-cluster: prints the cluster's id and its endpoints, and unregisters a broker that will not come back.

A verb stands before the flags, and each verb has flags of its own, deprecated ones too: so they are parsed here like
those of a tool without verbs. Errors are worded as in Kafka's parser for verbs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.cli.flags import Arguments, Flag, ToolFlags, UsageError
from moldau.cli.kafka.connection import properties
from moldau.cli.kafka.connection.admin import connect
from moldau.cli.kafka.java.exceptions import exception_text
from moldau.cli.kafka.tool import ToolFailed, print_to_stderr, run
from moldau.client.admin.cluster_values import BrokerNode

if TYPE_CHECKING:
    from moldau.client.admin.cluster_admin import ClusterAdmin

CONNECTION: Final = (
    Flag("bootstrap-server", "Brokers to connect to, HOST:PORT.", "BOOTSTRAP_SERVER", short="b"),
    Flag("bootstrap-controller", "Controllers to connect to, HOST:PORT.", "BOOTSTRAP_CONTROLLER", short="C"),
    Flag("config", "A properties file with settings of the client.", "CONFIG", replaced_by="command-config"),
    Flag("command-config", "A properties file with settings of the client.", "COMMAND_CONFIG", short="c"),
)
DEPRECATED: Final = "Option --{old} has been deprecated and will be removed in a future version. Use --{new} instead."


def _verb(intro: str, *flags: Flag) -> ToolFlags:
    return ToolFlags(intro, (*CONNECTION, *flags), warning=DEPRECATED)


VERBS: Final = {
    "cluster-id": _verb("Get information about the ID of a cluster."),
    "unregister": _verb("Unregister a broker.", Flag("id", "The id of the broker.", "ID", "Integer", short="i")),
    "list-endpoints": _verb("List endpoints", Flag("include-fenced-brokers", "Fenced brokers too.")),
}
USAGE: Final = "usage: kafka-cluster [-h] {cluster-id,unregister,list-endpoints} ..."


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    verb = words[0] if words else ""
    if verb in VERBS:
        flags = words[1:] or ["--"]  # without any flag, an error and not the help
        return run(f"kafka-cluster {verb}", VERBS[verb], ACTIONS[verb], flags, help_to_stdout=True)
    if verb in ("-h", "--help"):
        summaries = "\n".join(f"  {name:<22} {flags.intro}" for name, flags in VERBS.items())
        print(f"{USAGE}\n\nThe Kafka cluster tool.\n\n{summaries}")
        return 1
    if not verb:
        message = "too few arguments"
    elif verb.startswith("-"):
        message = f"unrecognized arguments: '{verb}'"
    else:
        message = f"invalid choice: '{verb}' (choose from {', '.join(repr(name) for name in VERBS)})"
    print_to_stderr(f"{USAGE}\nkafka-cluster: error: {message}")
    return 1


def _admin(arguments: Arguments) -> ClusterAdmin:
    if arguments.has("bootstrap-server") == arguments.has("bootstrap-controller"):
        raise UsageError(
            "kafka-cluster: error: one of the arguments --bootstrap-server/-b --bootstrap-controller/-C is required"
        )
    java_config = properties.load(arguments.single_value("command-config"))
    return connect(
        arguments.single_value("bootstrap-server"), arguments.single_value("bootstrap-controller"), java_config
    )


def _cluster_id(arguments: Arguments) -> int:
    with _admin(arguments) as admin:
        print(f"Cluster ID: {admin.described().cluster_id}")
    return 0


def _unregister(arguments: Arguments) -> int:
    broker = arguments.integer("id")
    if broker is None:
        raise UsageError("kafka-cluster: error: argument --id/-i is required")
    with _admin(arguments) as admin:
        try:
            admin.unregister_broker(broker)
        except KafkaError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise ToolFailed(exception_text(error)) from error
            print("The target cluster does not support the broker unregistration API.")
            return 0
    print(f"Broker {broker} is no longer registered.")
    return 0


def _list_endpoints(arguments: Arguments) -> int:
    include_fenced, are_controllers = arguments.has("include-fenced-brokers"), arguments.has("bootstrap-controller")
    if include_fenced and are_controllers:
        raise ToolFailed("The option --include-fenced-brokers is only supported with --bootstrap-server option")
    with _admin(arguments) as admin:
        nodes = list(admin.described(include_fenced).nodes.values())
    print("\n".join(endpoint_lines(nodes, are_controllers)))
    return 0


def endpoint_lines(nodes: Sequence[BrokerNode], are_controllers: bool) -> list[str]:
    """Return the rows. Only hosts and racks of nodes widen their columns, so headers may be wider than the columns."""
    host_width = max((len(node.host) for node in nodes), default=100)
    rack_width = max((len(node.rack) for node in nodes if node.rack is not None), default=10)
    rows = [("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE")]
    kind = "controller" if are_controllers else "broker"
    for node in nodes:
        state = "fenced" if node.is_fenced else "unfenced"
        rows.append((str(node.node_id), node.host, str(node.port), node.rack or "null", state, kind))
    return [
        f"{number:<10} {host:<{host_width}} {port:<10} {rack:<{rack_width}} "
        + ("" if are_controllers else f"{state:<10} ")
        + f"{endpoint:<15}"
        for number, host, port, rack, state, endpoint in rows
    ]


ACTIONS: Final[dict[str, Callable[[Arguments], int]]] = {
    "cluster-id": _cluster_id,
    "unregister": _unregister,
    "list-endpoints": _list_endpoints,
}

if __name__ == "__main__":
    sys.exit(main())
