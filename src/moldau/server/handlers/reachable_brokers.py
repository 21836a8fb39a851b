"""The brokers as a client sees them: it can connect only to those that have the listener it uses. A listener is added
broker by broker, so that a leader may lack it for a while.
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.metadata.image import MetadataImage, PartitionState

NO_LEADER = -1


class ReachableBrokers:
    def __init__(self, image: MetadataImage, listener: str) -> None:
        brokers = [broker for broker in image.brokers.values() if broker.endpoint(listener) is not None]
        self._registered = image.brokers
        self._with_listener = {broker.id for broker in brokers}
        self._live = {broker.id for broker in brokers if not broker.fenced}

    def leader(self, state: PartitionState) -> int:
        """Return the leader of a partition; NO_LEADER if there is none, or the client cannot connect to it."""
        return state.leader if state.leader in self._with_listener else NO_LEADER

    def missing_leader_code(self, state: PartitionState) -> ErrorCode:
        """Return the error for a partition without a leader that the client can connect to."""
        return ErrorCode.LISTENER_NOT_FOUND if state.leader in self._registered else ErrorCode.LEADER_NOT_AVAILABLE

    def offline_replicas(self, state: PartitionState) -> list[int]:
        return [broker for broker in state.replicas if broker not in self._live]
