"""Clients that commit offsets: every acknowledged offset must be found again, whichever broker coordinates the group by
then.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from cluster.client import ClusterClient
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.topic_names import CONSUMER_OFFSETS_TOPIC
from moldau.runtime.coordinators.topic import java_hash
from moldau.wire.apis import ApiKey
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from moldau.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from cluster.world import ClusterWorld

FETCH_SHARE = 0.3
NOTHING_COMMITTED = -1
TRY_AGAIN = {
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


class Committer(ClusterClient):
    """Commits ever higher offsets for one group and one partition; sends one request at a time."""

    def __init__(self, world: ClusterWorld, name: str, topic: str, rng: Random, gap_ms: int) -> None:
        super().__init__(world, name, topic, rng)
        self.group_id = f"group-{name}"
        self._gap_ms = gap_ms
        self._coordinator: int | None = None
        self._next = 1
        self.commits = 0
        self.tries = 0
        """How often it asked for a commit, or lost its coordinator: without any, nothing is to be expected of it."""
        self.acknowledged = NOTHING_COMMITTED
        self._doubtful: dict[int, None] = {}
        """Commits without a response: any of them may still take effect."""
        self.refresh()
        self._find()

    def _act(self) -> None:
        if self._coordinator is None or self._coordinator not in self.brokers:
            self._find()
        elif self.rng.random() < FETCH_SHARE:
            self._fetch_offset()
        else:
            self._commit()

    def _pause(self) -> None:
        self.later(1 + int(self.rng.expovariate(1) * self._gap_ms), self._act)

    def _lost_coordinator(self, what: str, code: ErrorCode) -> None:
        self.trace_result(what, code)
        self.tries += 1
        if code not in TRY_AGAIN:
            self.world.violated(f"{self.name} {what}: {code.name}")
        self._coordinator = None
        self.retry(self._find)

    # --- the coordinator ------------------------------------------------------------------------------------------

    def _find(self) -> None:
        request = FindCoordinatorRequest("", 0, [self.group_id])
        self.ask(self.some_broker(), ApiKey.FIND_COORDINATOR, 4, request, self._found, "metadata")

    def _found(self, reply: FindCoordinatorResponse | KafkaError) -> None:
        code = reply.code if isinstance(reply, KafkaError) else ErrorCode(reply.coordinators[0].error_code)
        if isinstance(reply, KafkaError) or code is not ErrorCode.NONE:
            self._lost_coordinator("finds no coordinator", code)
            return
        result = reply.coordinators[0]
        self._coordinator = result.node_id
        self.brokers[result.node_id] = (result.host, result.port)
        self._act()

    # --- committing -----------------------------------------------------------------------------------------------

    def _commit(self) -> None:
        assert self._coordinator is not None
        self.tries += 1
        offset, self._next = self._next, self._next + 1
        partitions = [OffsetCommitRequestPartition(0, offset)]
        request = OffsetCommitRequest(
            self.group_id, topics=[OffsetCommitRequestTopic(name=self.topic, partitions=partitions)]
        )
        # From now on the commit may take effect, whatever the response.
        self._doubtful[offset] = None
        self.ask(
            self._coordinator, ApiKey.OFFSET_COMMIT, 9, request, lambda reply: self._committed(offset, reply), "commit"
        )

    def _committed(self, offset: int, reply: OffsetCommitResponse | KafkaError) -> None:
        code = reply.code if isinstance(reply, KafkaError) else ErrorCode(reply.topics[0].partitions[0].error_code)
        if isinstance(reply, KafkaError) or code is not ErrorCode.NONE:
            self._lost_coordinator(f"commits {offset}", code)
            return
        self.world.trace(f"{self.name} has committed {offset}")
        self.commits += 1
        self.acknowledged = offset
        del self._doubtful[offset]
        self._pause()

    def _fetch_offset(self) -> None:
        assert self._coordinator is not None
        topics = [OffsetFetchRequestTopics(name=self.topic, partition_indexes=[0])]
        request = OffsetFetchRequest([OffsetFetchRequestGroup(self.group_id, topics=topics)], require_stable=True)
        coordinator, acknowledged = self._coordinator, self.acknowledged
        is_coordinator = self._is_coordinator(coordinator)

        def then(reply: OffsetFetchResponse | KafkaError) -> None:
            self._offset_fetched(coordinator, is_coordinator, acknowledged, reply)

        self.ask(coordinator, ApiKey.OFFSET_FETCH, 9, request, then, "commit")

    def _is_coordinator(self, node_id: int) -> bool:
        """Whether the node coordinates the group by the newest image. A former coordinator that does not know it yet
        returns old offsets, as Kafka's would, but cannot commit new ones."""
        topic = self.world.newest_image().topics.get(CONSUMER_OFFSETS_TOPIC)
        if topic is None:
            return False
        return topic.partitions[java_hash(self.group_id) % len(topic.partitions)].leader == node_id

    def _offset_fetched(
        self, coordinator: int, was_coordinator: bool, acknowledged: int, reply: OffsetFetchResponse | KafkaError
    ) -> None:
        if isinstance(reply, KafkaError) or reply.groups[0].error_code:
            code = reply.code if isinstance(reply, KafkaError) else ErrorCode(reply.groups[0].error_code)
            self._lost_coordinator("fetches its offset", code)
            return
        result = reply.groups[0].topics[0].partitions[0]
        if result.error_code:
            self._lost_coordinator("fetches its offset", ErrorCode(result.error_code))
            return
        offset = result.committed_offset
        self.world.trace(f"{self.name} fetches {offset} from n{coordinator}")
        is_coordinator = was_coordinator and self._is_coordinator(coordinator)
        if is_coordinator and offset != acknowledged and offset not in self._doubtful:
            self.world.violated(
                f"{self.name} fetches {offset}, committed was {acknowledged}, perhaps one of {list(self._doubtful)}"
            )
        if not is_coordinator:
            self._coordinator = None
        self._pause()
