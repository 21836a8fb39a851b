"""kafka-cluster: the cluster's id, its endpoints, and the unregistration of a broker that will not come back.

One verb before the flags, unlike the other tools; errors are worded as Kafka's parser for verbs words them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from moldau.base.errors import ErrorCode
from moldau.cli.flags import Flag, Flags, Given, UsageError
from moldau.cli.kafka import clients, properties
from moldau.cli.kafka.tool import complain, run
from moldau.wire.apis import ApiKey

if TYPE_CHECKING:
    from moldau.client.channel import Channel
    from moldau.wire.messages.describe_cluster import DescribeClusterResponse

BROKERS, CONTROLLERS = 1, 2
"""DescribeCluster's endpoint types (KIP-919)."""

CONNECTION: Final = (
    Flag("bootstrap-server", "Brokers to connect to, HOST:PORT.", "BOOTSTRAP_SERVER", short="b"),
    Flag("bootstrap-controller", "Controllers to connect to, HOST:PORT.", "BOOTSTRAP_CONTROLLER", short="C"),
    Flag("config", "A properties file with settings of the client.", "CONFIG", replaced_by="command-config"),
    Flag("command-config", "A properties file with settings of the client.", "COMMAND_CONFIG", short="c"),
)
DEPRECATED: Final = "Option --{old} has been deprecated and will be removed in a future version. Use --{new} instead."


def _verb(intro: str, *flags: Flag) -> Flags:
    return Flags(intro, (*CONNECTION, *flags), warning=DEPRECATED)


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
        return run(f"kafka-cluster {verb}", VERBS[verb], ACTIONS[verb], words[1:] or ["--"], help_to_stdout=True)
    if verb in ("-h", "--help"):
        summaries = "\n".join(f"  {name:<22} {flags.intro}" for name, flags in VERBS.items())
        print(f"{USAGE}\n\nThe Kafka cluster tool.\n\n{summaries}")
        return 1
    if not verb:
        said = "too few arguments"
    elif verb.startswith("-"):
        said = f"unrecognized arguments: '{verb}'"
    else:
        said = f"invalid choice: '{verb}' (choose from {', '.join(repr(name) for name in VERBS)})"
    complain(f"{USAGE}\nkafka-cluster: error: {said}")
    return 1


def _channel(given: Given) -> Channel:
    if given.has("bootstrap-server") == given.has("bootstrap-controller"):
        raise UsageError(
            "kafka-cluster: error: one of the arguments --bootstrap-server/-b --bootstrap-controller/-C is required"
        )
    servers = given.text("bootstrap-server") or given.text("bootstrap-controller") or ""
    return clients.channel(servers, properties.load(given.text("command-config")))


def _described(channel: Channel, given: Given, fenced_too: bool = False) -> DescribeClusterResponse:
    from moldau.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

    request = DescribeClusterRequest(
        endpoint_type=CONTROLLERS if given.has("bootstrap-controller") else BROKERS,
        include_fenced_brokers=fenced_too,
    )
    answer = channel.ask(ApiKey.DESCRIBE_CLUSTER, request, DescribeClusterResponse)
    clients.refuse(answer.error_code, answer.error_message)
    return answer


def _cluster_id(given: Given) -> int:
    with _channel(given) as channel:
        print(f"Cluster ID: {_described(channel, given).cluster_id}")
    return 0


def _unregister(given: Given) -> int:
    from moldau.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

    broker = given.integer("id")
    if broker is None:
        raise UsageError("kafka-cluster: error: argument --id/-i is required")
    with _channel(given) as channel:
        if not channel.offers(ApiKey.UNREGISTER_BROKER):
            print("The target cluster does not support the broker unregistration API.")
            return 0
        request = UnregisterBrokerRequest(broker_id=broker)
        answer = channel.ask(ApiKey.UNREGISTER_BROKER, request, UnregisterBrokerResponse)
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        print("The target cluster does not support the broker unregistration API.")
        return 0
    clients.refuse(answer.error_code, answer.error_message)
    print(f"Broker {broker} is no longer registered.")
    return 0


def _list_endpoints(given: Given) -> int:
    fenced_too = given.has("include-fenced-brokers")
    with _channel(given) as channel:
        answer = _described(channel, given, fenced_too)
    kind = "controller" if given.has("bootstrap-controller") else "broker"
    rows = [("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE")]
    for node in answer.brokers:
        state = "unknown" if kind == "controller" else "fenced" if node.is_fenced else "unfenced"
        rack = "null" if node.rack is None else node.rack
        rows.append((str(node.broker_id), node.host, str(node.port), rack, state, kind))
    host_width = max(len(row[1]) for row in rows)
    rack_width = max(10, *(len(row[3]) for row in rows))
    for number, host, port, rack, state, endpoint in rows:
        print(f"{number:<10} {host:<{host_width}} {port:<10} {rack:<{rack_width}} {state:<10} {endpoint:<15}")
    return 0


ACTIONS: Final[dict[str, Callable[[Given], int]]] = {
    "cluster-id": _cluster_id,
    "unregister": _unregister,
    "list-endpoints": _list_endpoints,
}

if __name__ == "__main__":
    sys.exit(main())
