"""Vote v0–2 (v1: voters by directory, KIP-853; v2: pre-votes, KIP-996), BeginQuorumEpoch v0–1, EndQuorumEpoch v0–1,
Fetch v4–18 of `__cluster_metadata` (v17: directory ids; v18: the fetcher's high watermark), FetchSnapshot v0–1,
UpdateRaftVoter v0: what the nodes of the quorum send each other."""

from __future__ import annotations

from typing import Any

from moldau.base.clock import Timers
from moldau.base.errors import KafkaError
from moldau.base.limits import QUORUM_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems, map_in_steps
from moldau.base.turns import LISTED_A_TURN
from moldau.runtime.quorum.driver import QuorumDriver
from moldau.security.acls.denials import denied
from moldau.security.acls.requirements import CLUSTER_ACTION
from moldau.server.handler import LONG_ELEMENTS_MAX, Caller, Handler
from moldau.server.handlers.fetch import Fetch
from moldau.server.handlers.replies import run_steps
from moldau.wire.apis import ApiKey
from moldau.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from moldau.wire.schema import Message


class RaftHandler(Handler):
    is_on_brokers = False
    is_on_controllers = True
    needs = (CLUSTER_ACTION,)
    request_bytes_max = QUORUM_REQUEST_BYTES_MAX

    def __init__(self, driver: QuorumDriver, timers: Timers) -> None:
        self._driver = driver
        self._timers = timers

    def answer(self, request: Message, caller: Caller) -> Message | Promise[Any]:
        if not caller.access.allows(CLUSTER_ACTION):
            return run_steps(self._timers, self.refuse(request, denied(CLUSTER_ACTION)))
        return self._driver.answer(request, caller.version)

    @staticmethod
    def is_of_node(request: Message) -> bool:
        return True


class Vote(RaftHandler):
    api = ApiKey.VOTE
    versions = (0, 2)


class BeginQuorumEpoch(RaftHandler):
    api = ApiKey.BEGIN_QUORUM_EPOCH
    versions = (0, 1)


class EndQuorumEpoch(RaftHandler):
    api = ApiKey.END_QUORUM_EPOCH
    versions = (0, 1)


class FetchMetadata(RaftHandler):
    """Fetch as controllers serve it."""

    api = Fetch.api
    versions = (4, 18)
    elements_max = LONG_ELEMENTS_MAX

    def refuse(self, request: FetchRequest, error: KafkaError) -> Steps[FetchResponse]:
        """Up to v12, in which topics have names, each partition has the error too: before v7 it is the only place."""
        turn = TurnItems(LISTED_A_TURN)
        topics: list[FetchableTopicResponse] = []
        for topic in request.topics:
            if topic.topic:
                partitions = yield from map_in_steps(
                    turn,
                    topic.partitions,
                    lambda each: PartitionData(each.partition, error.code, high_watermark=-1, records=b""),
                )
                topics.append(FetchableTopicResponse(topic=topic.topic, partitions=partitions))
            if turn.ends_after(1):
                yield
        return FetchResponse(error_code=error.code, session_id=request.session_id, responses=topics)


class FetchSnapshot(RaftHandler):
    api = ApiKey.FETCH_SNAPSHOT
    versions = (0, 1)


class UpdateRaftVoter(RaftHandler):
    api = ApiKey.UPDATE_RAFT_VOTER
    versions = (0, 0)
