"""How a whole cluster is stopped in order: the leader of the quorum last.

Every node hands over its leaderships before it stops, which needs an active controller. So all other nodes stop first,
in parallel, and then the leader of the quorum.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from moldau.base.errors import KafkaError, MalformedData, UnusableProperty
from moldau.cli.cluster.directory import ClusterDirectory, Description
from moldau.cli.cluster.processes import NodeProcess, NodeState, ask_to_stop, wait_for_end
from moldau.cli.connect import CommandFailed
from moldau.local_cluster import HOST

if TYPE_CHECKING:
    from moldau.client.channel import Security
    from moldau.wire.messages.describe_quorum import DescribeQuorumResponse

REQUEST_SECONDS: Final = 1.0
STOP_SECONDS: Final = 40.0
"""Longer than a node may take: 10 s to hand over its leaderships, 2 s to resign from the quorum, 10 s for the pending
requests of each listener, of which a secure node has two, and some time to close its logs."""
STOP_ALL_SECONDS: Final = 2 * STOP_SECONDS + 10.0
"""STOP_SECONDS for the others, as much for the leader after them, and a little more: what does not stop in its time is
killed."""

Print = Callable[[str], None]


def stop_all(
    directory: ClusterDirectory, description: Description, processes: Sequence[NodeProcess], print_line: Print
) -> bool:
    """Stop all nodes; kill those that do not stop. Return whether all stopped by themselves."""
    try:
        leader_id = quorum_leader(directory, description, processes)
    except CommandFailed as error:
        print_line(f"cannot ask for the leader of the quorum, so all nodes stop at once: {error.message}")
        leader_id = None
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
    """Return how nodes connect to each other, with their own certificate: this works whatever users and passwords were
    set."""
    from moldau.client.properties import security
    from moldau.secure_setup.directory import SecureDirectory

    try:
        return security(SecureDirectory(directory.path).internal_client_properties())
    except UnusableProperty as error:
        raise CommandFailed(str(error)) from error


def _request_leader(host: str, port: int, security: Security | None) -> int | None:
    from moldau.client.channel import Channel
    from moldau.client.requests.controller import describe_quorum

    try:
        with Channel(host, port, security, REQUEST_SECONDS) as channel:
            response = describe_quorum(channel.ask)
    except (OSError, KafkaError, MalformedData):
        return None
    return leader_in(response)


def leader_in(response: DescribeQuorumResponse) -> int | None:
    if response.error_code:
        return None
    partitions = [partition for topic in response.topics for partition in topic.partitions if not partition.error_code]
    return next((partition.leader_id for partition in partitions if partition.leader_id >= 0), None)
