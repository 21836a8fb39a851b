"""Metadata v0–13. Brokers, topics and leaders; missing topics that are requested by name may be created.

v0: replicas that the client cannot reach are left out, with an error; v1: null means all topics, empty means none; v4:
the client may forbid creation; v10: topic ids; v12: request by id.
Clients get the addresses of the listener they use. A topic that is being created is answered when it exists. A view
whose source was deleted is unknown to those who ask for it by name, as its readers do; its id tells it from a topic
that does not exist. In the list of all topics it has no partitions, so that it can be found and deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from moldau.base.acl_operations import OPERATIONS_OMITTED
from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import ZERO_UUID
from moldau.base.limits import METADATA_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems, split
from moldau.base.topic_names import INTERNAL_TOPICS, topic_name_problem
from moldau.base.turns import LISTED_A_TURN
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage, PartitionState, TopicImage
from moldau.replica.partitions import Partitions
from moldau.runtime.controller.channel import TopicCreator
from moldau.security.acls.access import Access
from moldau.security.acls.allowed_operations import allowed_bits
from moldau.security.acls.bindings import ResourceType
from moldau.security.acls.requirements import CLUSTER_CREATE, CLUSTER_DESCRIBE, TOPIC_CREATE, TOPIC_DESCRIBE
from moldau.server.handler import LONG_ELEMENTS_MAX, Caller, Handler
from moldau.server.handlers.current_leaders import AskedLately, known_states
from moldau.server.handlers.reachable_brokers import NO_LEADER, ReachableBrokers
from moldau.server.handlers.replies import in_turns, run_steps
from moldau.wire.apis import ApiKey
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from moldau.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

CREATED_TOPICS_MAX: Final = 1_000
"""The most topics that one request creates: their names must fit into an envelope to the controller. Clients ask again
for the others."""
ROOM_OF_TOPIC: Final = 5
_Described = tuple[MetadataResponseTopic, Sequence[PartitionState]]
"""A topic without its partitions, and these."""
LISTENER_NOT_FOUND_MIN_VERSION: Final = 6
TOPIC_ID_REFUSED_VERSIONS = (10, 11)
"""In these versions a request must not name topics by id. Kafka refuses each topic and lists no broker."""


class Metadata(Handler):
    api = ApiKey.METADATA
    versions = (0, 13)
    needs = (TOPIC_DESCRIBE, CLUSTER_CREATE, TOPIC_CREATE, CLUSTER_DESCRIBE)
    elements_max = LONG_ELEMENTS_MAX
    request_bytes_max = METADATA_REQUEST_BYTES_MAX

    def __init__(
        self,
        current: CurrentImage,
        partitions: Partitions,
        creator: TopicCreator,
        cluster_id: str,
        auto_create_topics: bool,
        timers: Timers,
    ) -> None:
        self._timers = timers
        self._current = current
        self._partitions = partitions
        self._creator = creator
        self._cluster_id = cluster_id
        self._auto_create = auto_create_topics
        self._asked = AskedLately(timers)

    def answer(self, request: MetadataRequest, caller: Caller) -> MetadataResponse | Promise[MetadataResponse]:
        image = self._current.image
        if self._partitions.is_cut_off and request.topics != []:
            self._asked.check(caller.address)
        if request.topics is None or (caller.version == 0 and not request.topics):
            sees_all = caller.access.is_known_to_allow(TOPIC_DESCRIBE, image.topics)
            described = (
                self._topic_entry(topic, request, caller.access)
                if sees_all or caller.access.allows_quietly(TOPIC_DESCRIBE, topic.name)
                else None
                for topic in image.topics.values()
            )
            return run_steps(self._timers, self._steps(request, caller, described, image))
        if caller.version in TOPIC_ID_REFUSED_VERSIONS and any(topic.topic_id != ZERO_UUID for topic in request.topics):
            return in_turns(
                self._timers,
                request.topics,
                lambda topic: MetadataResponseTopic(ErrorCode.INVALID_REQUEST, topic.name or "", topic.topic_id),
                lambda refused: MetadataResponse(cluster_id=self._cluster_id, topics=refused),
                LISTED_A_TURN,
            )
        if not (self._auto_create and request.allow_auto_topic_creation) or self._partitions.is_cut_off:
            return self._response_for_requested(request, caller, {})
        return run_steps(self._timers, self._creating_steps(request, caller))

    def _creating_steps(
        self, request: MetadataRequest, caller: Caller
    ) -> Steps[MetadataResponse | Promise[MetadataResponse]]:
        """Create the topics that are missing, then describe all that are requested."""
        missing = yield from self._missing_topics(request, caller.access)
        creatable, denied = yield from _select_creatable(missing, caller.access)
        if not creatable:
            return self._response_for_requested(request, caller, denied)
        to_create = creatable[:CREATED_TOPICS_MAX]
        later = dict.fromkeys(creatable[CREATED_TOPICS_MAX:], ErrorCode.LEADER_NOT_AVAILABLE)
        create = CreateTopicsRequest([CreatableTopic(name, -1, -1) for name in to_create])
        return self._creator.create_topics(create, caller.client).and_then(
            lambda response: self._response_for_requested(
                request, caller, denied | later | _creation_errors(to_create, response)
            )
        )

    def _missing_topics(self, request: MetadataRequest, access: Access) -> Steps[list[str]]:
        """Return the topics that the request wants to be created. A client cannot create what it may not describe."""
        missing: dict[str, None] = {}
        for part_number, some in enumerate(split(request.topics or (), LISTED_A_TURN)):
            if part_number:
                yield
            topics = self._current.image.topics
            names = [topic.name for topic in some if topic.name is not None and topic.topic_id == ZERO_UUID]
            for name in names:
                if name not in topics and not topic_name_problem(name) and access.allows_quietly(TOPIC_DESCRIBE, name):
                    missing[name] = None
        return list(missing)

    def _response_for_requested(
        self, request: MetadataRequest, caller: Caller, creation_errors: dict[str, ErrorCode]
    ) -> MetadataResponse | Promise[MetadataResponse]:
        image = self._current.image
        requested = {(topic.topic_id, topic.name): topic for topic in request.topics or ()}
        described = (
            self._requested_topic_entry(image, topic, request, creation_errors, caller.access)
            for topic in requested.values()
        )
        return run_steps(self._timers, self._steps(request, caller, described, image))

    def _requested_topic_entry(
        self,
        image: MetadataImage,
        requested: MetadataRequestTopic,
        request: MetadataRequest,
        creation_errors: dict[str, ErrorCode],
        access: Access,
    ) -> _Described:
        if requested.topic_id != ZERO_UUID:
            by_id = image.topic_by_id(requested.topic_id)
            if by_id is None or (by_id.is_orphan and access.allows(TOPIC_DESCRIBE, by_id.name)):
                return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, requested.topic_id), ()
            if not access.allows(TOPIC_DESCRIBE, by_id.name):
                return MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, requested.topic_id), ()
            return self._topic_entry(by_id, request, access)
        name = requested.name or ""
        if not access.allows(TOPIC_DESCRIBE, name):
            return MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name), ()
        topic = image.topics.get(name)
        if topic is not None:
            entry, partitions = self._topic_entry(topic, request, access)
            if topic.is_orphan:
                entry.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return entry, partitions
        code = creation_errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if topic_name_problem(name):
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return MetadataResponseTopic(code, name), ()
        return MetadataResponseTopic(code, name, topic_authorized_operations=_topic_bits(name, request, access)), ()

    def _topic_entry(self, topic: TopicImage, request: MetadataRequest, access: Access) -> _Described:
        entry = MetadataResponseTopic(
            ErrorCode.NONE,
            topic.name,
            topic.id,
            topic.name in INTERNAL_TOPICS,
            topic_authorized_operations=_topic_bits(topic.name, request, access),
        )
        return entry, known_states(topic, self._partitions.withheld)

    def _steps(
        self, request: MetadataRequest, caller: Caller, described: Iterable[_Described | None], image: MetadataImage
    ) -> Steps[MetadataResponse]:
        """Describe the partitions of all topics, some topics or some partitions of one in each turn. None is a topic
        that the client may not see."""
        entries = []
        turn, version, brokers = TurnItems(LISTED_A_TURN), caller.version, ReachableBrokers(image, caller.listener)
        for topic in described:
            if turn.ends_after(ROOM_OF_TOPIC):
                yield
            if topic is None:
                continue
            entry, partitions = topic
            entries.append(entry)
            found: list[MetadataResponsePartition] = []
            while len(found) < len(partitions):
                if turn.is_over():
                    yield
                some = range(len(found), min(len(found) + turn.left, len(partitions)))
                found += [_partition_entry(index, partitions[index], brokers, version) for index in some]
                turn.count(len(some))
            if partitions:
                entry.partitions = found
        return self._response(request, caller, entries)

    def _response(
        self, request: MetadataRequest, caller: Caller, topics: Sequence[MetadataResponseTopic]
    ) -> MetadataResponse:
        image = self._current.image
        brokers = [
            MetadataResponseBroker(broker.id, endpoint.host, endpoint.port, broker.rack)
            for broker in image.live_brokers()
            if (endpoint := broker.endpoint(caller.listener))
        ]
        return MetadataResponse(
            brokers=brokers,
            cluster_id=self._cluster_id,
            controller_id=brokers[0].node_id if brokers else -1,
            topics=topics,
            cluster_authorized_operations=_cluster_bits(caller.access)
            if request.include_cluster_authorized_operations
            else OPERATIONS_OMITTED,
        )


def _cluster_bits(access: Access) -> int:
    return allowed_bits(access, ResourceType.CLUSTER) if access.allows_quietly(CLUSTER_DESCRIBE) else 0


def _select_creatable(missing: Sequence[str], access: Access) -> Steps[tuple[Sequence[str], dict[str, ErrorCode]]]:
    """Return the topics that the client may create, and the errors of the others."""
    if not missing or access.allows_quietly(CLUSTER_CREATE):
        return missing, {}
    creatable: list[str] = []
    denied: dict[str, ErrorCode] = {}
    for some in split(missing, LISTED_A_TURN):
        if some[0] != missing[0]:
            yield
        for name in some:
            if access.allows(TOPIC_CREATE, name):
                creatable.append(name)
            else:
                denied[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return creatable, denied


def _creation_errors(missing: Sequence[str], response: CreateTopicsResponse | KafkaError) -> dict[str, ErrorCode]:
    """Return the error for each topic if it does not exist after its creation: why it was refused, or
    LEADER_NOT_AVAILABLE if it will exist soon."""
    if isinstance(response, KafkaError):
        return dict.fromkeys(missing, ErrorCode.LEADER_NOT_AVAILABLE)
    exists = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    return {
        result.name: ErrorCode.LEADER_NOT_AVAILABLE if result.error_code in exists else ErrorCode(result.error_code)
        for result in response.topics
    }


def _partition_entry(
    index: int, state: PartitionState, brokers: ReachableBrokers, version: int
) -> MetadataResponsePartition:
    leader, code = brokers.leader(state), ErrorCode.NONE
    if leader == NO_LEADER:
        knows_listener = version >= LISTENER_NOT_FOUND_MIN_VERSION
        code = brokers.missing_leader_code(state) if knows_listener else ErrorCode.LEADER_NOT_AVAILABLE
    offline = brokers.offline_replicas(state)
    replicas: Sequence[int] = state.replicas
    isr: Sequence[int] = state.isr
    if offline and version == 0:
        replicas, isr = ([broker for broker in each if broker not in offline] for each in (replicas, isr))
        code = code or ErrorCode.REPLICA_NOT_AVAILABLE
    return MetadataResponsePartition(code, index, leader, state.leader_epoch, replicas, isr, offline)


def _topic_bits(name: str, request: MetadataRequest, access: Access) -> int:
    """Return what the client may do with the topic, whether or not it exists, if the request asks for that."""
    if not request.include_topic_authorized_operations:
        return OPERATIONS_OMITTED
    return allowed_bits(access, ResourceType.TOPIC, name)
