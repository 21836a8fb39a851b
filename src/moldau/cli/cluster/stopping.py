"""How a whole cluster is stopped in order, and who leads its quorum: the one that is stopped last.

Every node hands over what it leads before it goes, and the controller must be there to see to it. So the others go
first, all at once, and the leader of the quorum when they are gone.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from moldau.base.errors import KafkaError, MalformedData
from moldau.base.local_cluster import HOST
from moldau.base.names import METADATA_TOPIC
from moldau.cli.cluster.directory import Description
from moldau.cli.cluster.processes import NodeProcess, NodeState, ask_to_stop, await_end

ASK_SECONDS: Final = 1.0
STOP_SECONDS: Final = 15.0
"""A node answers what it was asked for ten seconds at most, then closes its logs."""

Tell = Callable[[str], None]


def stop_all(description: Description, processes: Sequence[NodeProcess], tell: Tell) -> bool:
    """Whether all stopped by themselves; those that did not are killed."""
    leader_id = quorum_leader(description, processes)
    leaders = [process for process in processes if process.node_id == leader_id]
    others = [process for process in processes if process.node_id != leader_id]
    # All, not the first that fails to: `and` would leave the leader running.
    return all([_stop(others, tell), _stop(leaders, tell)])


def _stop(processes: Sequence[NodeProcess], tell: Tell) -> bool:
    for process in processes:
        ask_to_stop(process)
    left = await_end(processes, STOP_SECONDS)
    for process in left:
        tell(f"node {process.node_id} did not stop within {STOP_SECONDS:.0f} s and is killed")
        process.born.signal(signal.SIGKILL)
    await_end(left, STOP_SECONDS)
    return not left


def stop_one(process: NodeProcess, tell: Tell) -> bool:
    return _stop([process], tell)


def quorum_leader(description: Description, processes: Iterable[NodeProcess]) -> int | None:
    """Asked of each node that is up, until one knows."""
    for process in processes:
        if process.state() is NodeState.UP:
            leader_id = _told_leader(description.node(process.node_id).port)
            if leader_id is not None:
                return leader_id
    return None


def _told_leader(port: int) -> int | None:
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
        with Channel(HOST, port, timeout_seconds=ASK_SECONDS) as channel:
            told = channel.ask(ApiKey.DESCRIBE_QUORUM, request, DescribeQuorumResponse)
    except (OSError, KafkaError, MalformedData):
        return None
    leaders = [partition.leader_id for topic in told.topics for partition in topic.partitions]
    return leaders[0] if leaders and leaders[0] >= 0 and not told.error_code else None
