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

Print = Callable[[str], None]


def stop_all(
    directory: ClusterDirectory, description: Description, processes: Sequence[NodeProcess], print_line: Print
) -> bool:
    """Stop all nodes; kill those that do not stop. Return whether all stopped by themselves."""
    leader_id = quorum_leader(directory, description, processes)
    leaders = [process for process in processes if process.node_id == leader_id]
    others = [process for process in processes if process.node_id != leader_id]
    # A list, not `and`: the leader has to be stopped even if another node was killed.
    return all([_stop(others, print_line), _stop(leaders, print_line)])


def _stop(processes: Sequence[NodeProcess], print_line: Print) -> bool:
    for process in processes:
        ask_to_stop(process)
    running = wait_for_end(processes, STOP_SECONDS)
    for process in running:
        print_line(f"node {process.node_id} did not stop within {STOP_SECONDS:.0f} s and is killed")
        process.identity.signal(signal.SIGKILL)
    wait_for_end(running, STOP_SECONDS)
    return not running


def stop_one(process: NodeProcess, print_line: Print) -> bool:
    return _stop([process], print_line)


def quorum_leader(
    directory: ClusterDirectory, description: Description, processes: Iterable[NodeProcess]
) -> int | None:
    """Ask each node that is up, until one knows the leader of the quorum."""
    security = _node_security(directory) if description.is_secure else None
    for process in processes:
        if process.state() is NodeState.UP:
            node = description.node(process.node_id)
            leader_id = _request_leader(node.internal_port or node.port, security)
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


def _request_leader(port: int, security: Security | None) -> int | None:
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
        with Channel(HOST, port, security, REQUEST_SECONDS) as channel:
            response = channel.ask(ApiKey.DESCRIBE_QUORUM, request, DescribeQuorumResponse)
    except (OSError, KafkaError, MalformedData):
        return None
    leaders = [partition.leader_id for topic in response.topics for partition in topic.partitions]
    return leaders[0] if leaders and leaders[0] >= 0 and not response.error_code else None
