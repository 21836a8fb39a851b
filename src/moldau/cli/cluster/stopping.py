"""How a whole cluster is stopped in order: the leader of the quorum last.

Every node hands over its leaderships before it stops, which needs an active controller. So all other nodes stop first,
in parallel, and then the leader of the quorum.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from moldau.base.errors import KafkaError, MalformedData, UnusableProperty
from moldau.base.topic_names import METADATA_TOPIC
from moldau.cli.cluster.directory import ClusterDirectory, Description
from moldau.cli.cluster.processes import NodeProcess, NodeState, ask_to_stop, wait_for_end
from moldau.cli.connect import CommandFailed
from moldau.local_cluster import HOST

if TYPE_CHECKING:
    from moldau.client.channel import Security

REQUEST_SECONDS: Final = 1.0
STOP_SECONDS: Final = 15.0
"""A stopping node answers pending requests for ten seconds at most, then closes its logs."""
BROKER_STOP_SECONDS: Final = 40.0
"""The same for a broker with real data, which may have thousands of logs. There are two steps, and systemd waits 90
seconds."""

Print = Callable[[str], None]


def stop_all(
    directory: ClusterDirectory, description: Description, processes: Sequence[NodeProcess], print_line: Print
) -> bool:
    """Stop all nodes; kill those that do not stop. Return whether all stopped by themselves."""
    leader_id = quorum_leader(directory, description, processes)
    leaders = [process for process in processes if process.node_id == leader_id]
    others = [process for process in processes if process.node_id != leader_id]
    seconds = BROKER_STOP_SECONDS if description.shared_port else STOP_SECONDS
    # A list, not `and`: the leader has to be stopped even if another node was killed.
    return all([_stop(others, print_line, seconds), _stop(leaders, print_line, seconds)])


def _stop(processes: Sequence[NodeProcess], print_line: Print, seconds: float = STOP_SECONDS) -> bool:
    for process in processes:
        ask_to_stop(process)
    running = wait_for_end(processes, seconds)
    for process in running:
        print_line(f"node {process.node_id} did not stop within {seconds:.0f} s and is killed")
        process.identity.signal(signal.SIGKILL)
    wait_for_end(running, STOP_SECONDS)
    return not running


def stop_one(process: NodeProcess, print_line: Print) -> bool:
    return _stop([process], print_line)


def quorum_leader(
    directory: ClusterDirectory, description: Description, processes: Iterable[NodeProcess]
) -> int | None:
    """Ask each node that is up, until one knows the leader of the quorum."""
    if description.shared_port and not description.machines:
        return description.nodes[0].id  # the only controller
    security = _node_security(directory) if description.is_secure else None
    for process in processes:
        if process.state() is NodeState.UP:
            node = description.node(process.node_id)
            leader_id = _request_leader(
                HOST if node.internal_port else node.host, node.internal_port or node.port, security
            )
            if leader_id is not None:
                return leader_id
    return None


def _node_security(directory: ClusterDirectory) -> Security:
    """Return how a node connects to others: that holds whatever users and passwords there are."""
    from moldau.client.properties import security
    from moldau.secure_setup.directory import SecureDirectory

    try:
        return security(SecureDirectory(directory.path).internal_client_properties())
    except UnusableProperty as error:
        raise CommandFailed(str(error)) from error


def _request_leader(host: str, port: int, security: Security | None) -> int | None:
    from moldau.client.channel import Channel
    from moldau.wire.apis import ApiKey
    from moldau.wire.messages.describe_quorum import (
        DescribeQuorumRequest,
        DescribeQuorumResponse,
        RequestPartitionData,
        RequestTopicData,
    )

    request = DescribeQuorumRequest(topics=[RequestTopicData(METADATA_TOPIC, [RequestPartitionData(0)])])
    try:
        with Channel(host, port, security, REQUEST_SECONDS) as channel:
            response = channel.ask(ApiKey.DESCRIBE_QUORUM, request, DescribeQuorumResponse)
    except (OSError, KafkaError, MalformedData):
        return None
    leaders = [partition.leader_id for topic in response.topics for partition in topic.partitions]
    return leaders[0] if leaders and leaders[0] >= 0 and not response.error_code else None
