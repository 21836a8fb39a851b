"""Creating, growing and deleting topics, as pure functions of the image that return a response and records.

CreateTopics v2–7, CreatePartitions v0–3, DeleteTopics v1–6: each topic of a request succeeds or fails alone. A request
may name thousands of topics, or create thousands of partitions: it is decided in steps, all on the same image.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import ZERO_UUID, Uuid
from moldau.base.steps import Steps, TurnItems, split
from moldau.base.topic_names import METADATA_TOPIC, collision_key, topic_name_problem
from moldau.base.turns import LISTED_A_TURN
from moldau.base.view_configs import VIEW_PREFIX
from moldau.metadata.controller.assignments import check_assignment, partition_record
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.placement import place
from moldau.metadata.controller.views import NewViews, create_view, refuse_view
from moldau.metadata.image import MetadataImage, TopicImage
from moldau.metadata.records import ConfigResource
from moldau.wire.log_records.metadata import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from moldau.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from moldau.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from moldau.wire.schema import MetadataRecord

PARTITIONS_PER_REQUEST_MAX = 10_000
"""Kafka's limit of one request: a typing error should not create a million files."""
TOPIC_COST: Final = 10
"""A topic takes as long to decide as 10 partitions."""
CONFIGS_COST: Final = 100
"""The configs of a topic, checked and described, take half a millisecond: as long as 100 partitions."""
REPLICAS_COST: Final = 10
"""Without its replicas, a partition takes as long to decide as 10 replicas."""

Charge = Callable[[int], None]
"""Counts partitions for the client's quota. Raises KafkaError THROTTLING_QUOTA_EXCEEDED if it is exceeded."""


def unlimited(partitions: int) -> None:
    """Count nothing: the client has no quota."""


@dataclass(frozen=True, slots=True)
class TopicRules:
    """What applies to the topics of a request: defaults of what it does not set, whether topics may be deleted, and the
    functions that check and describe configs."""

    num_partitions: int
    replication_factor: int
    delete_enabled: bool
    check_configs: Callable[[Mapping[str, str]], None]
    """Raises KafkaError INVALID_CONFIG for an invalid config."""
    describe_configs: Callable[[Mapping[str, str]], Sequence[CreatableTopicConfigs]]
    """Returns all configs of a topic with these overrides."""
    case_insensitive_names: bool = False
    """Whether names that differ only in case collide, because the file system ignores case."""


class _Limits:
    """How many partitions a request may still create, and how much the present step may still decide."""

    def __init__(self) -> None:
        self._partitions_left = PARTITIONS_PER_REQUEST_MAX
        self._turn = TurnItems(LISTED_A_TURN)

    def count_topic(self, configs: int = 0) -> Steps[None]:
        """Called before each topic, with the number of its configs: end the step if it has decided enough."""
        if self._turn.is_over():
            yield
        self._turn.count(TOPIC_COST + (CONFIGS_COST + configs if configs else 0))

    def count_partitions(self, count: int) -> None:
        """Called before a topic's partitions are built: they cost the same if the topic is then refused. Raise
        KafkaError POLICY_VIOLATION if they are too many for the request."""
        if count > self._partitions_left:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Excessively large number of partitions per request: at most {PARTITIONS_PER_REQUEST_MAX}.",
            )
        self._partitions_left -= count
        self._turn.count(count)


def decide_create_topics(
    image: MetadataImage,
    request: CreateTopicsRequest,
    rules: TopicRules,
    rng: Random,
    charge: Charge = unlimited,
) -> Steps[Decision[CreateTopicsResponse]]:
    counts = Counter(topic.name for topic in request.topics)
    new_names: dict[str, str] = {}
    lowered = {name.lower(): name for name in image.topics} if rules.case_insensitive_names else {}
    results: list[CreatableTopicResult] = []
    records: list[MetadataRecord] = []
    limits = _Limits()
    new_views = NewViews(image)
    for topic in request.topics:
        yield from limits.count_topic(len(topic.configs))
        try:
            if counts[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            result, topic_records = yield from _create(image, topic, new_names, lowered, rules, rng, limits, new_views)
            partitions = sum(isinstance(record, PartitionRecord) for record in topic_records)
            charge(max(partitions, 1))  # a view has no partitions of its own
        except KafkaError as refused:
            results.append(_topic_error(topic.name, refused))
            continue
        if not partitions:
            new_views.count += 1
        new_names[collision_key(topic.name)] = topic.name
        if rules.case_insensitive_names:
            lowered[topic.name.lower()] = topic.name
        results.append(result)
        if not request.validate_only:
            records += topic_records
    unique = list({result.name: result for result in results}.values())
    return Decision(CreateTopicsResponse(topics=unique), tuple(records))


def _create(
    image: MetadataImage,
    topic: CreatableTopic,
    new_names: Mapping[str, str],
    lowered: Mapping[str, str],
    rules: TopicRules,
    rng: Random,
    limits: _Limits,
    new_views: NewViews,
) -> Steps[tuple[CreatableTopicResult, list[MetadataRecord]]]:
    _check_name(topic.name, image, new_names, lowered)
    configs = {config.name: config.value for config in topic.configs}
    nulls = [name for name, value in configs.items() if value is None]
    if nulls:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {', '.join(nulls)}")
    overrides = {name: value for name, value in configs.items() if value is not None}
    if any(name.startswith(VIEW_PREFIX) for name in overrides):
        return create_view(image, topic, overrides, rules.describe_configs, new_uuid(rng), new_views)
    replicas = yield from _choose_replicas(image, topic, rules, rng, limits)
    rules.check_configs(overrides)
    topic_id = new_uuid(rng)
    records: list[MetadataRecord] = [TopicRecord(topic.name, topic_id)]
    records += [ConfigRecord(ConfigResource.TOPIC, topic.name, name, value) for name, value in overrides.items()]
    records += yield from _partition_records(image, 0, topic_id, replicas)
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(replicas),
        replication_factor=len(replicas[0]),
        configs=rules.describe_configs(overrides),
    )
    return result, records


def _partition_records(
    image: MetadataImage, first_index: int, topic_id: Uuid, replicas: Sequence[tuple[int, ...]]
) -> Steps[list[PartitionRecord]]:
    records: list[PartitionRecord] = []
    turn = TurnItems(LISTED_A_TURN * REPLICAS_COST)
    for index, brokers in enumerate(replicas, first_index):
        if turn.ends_after(REPLICAS_COST + len(brokers)):
            yield
        records.append(partition_record(image, index, topic_id, brokers))
    return records


def _check_name(name: str, image: MetadataImage, new_names: Mapping[str, str], lowered: Mapping[str, str]) -> None:
    """Refuse a name that is invalid, in use or colliding. Where the file system ignores case, `lowered` maps each
    lower-cased name to the real one; elsewhere it is empty."""
    problem = topic_name_problem(name)
    if problem:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
    if name == METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    if name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = new_names.get(collision_key(name)) or image.names_by_collision_key.get(collision_key(name))
    if other is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")
    if (other := lowered.get(name.lower())) is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {other}; the controller's file system ignores case.",
        )


def _choose_replicas(
    image: MetadataImage, topic: CreatableTopic, rules: TopicRules, rng: Random, limits: _Limits
) -> Steps[list[tuple[int, ...]]]:
    """Return the replicas of each partition: as the request assigns them, or as `place` chooses them."""
    if topic.assignments:
        limits.count_partitions(len(topic.assignments))
        return (yield from _assigned_replicas(image, topic))
    if topic.num_partitions == 0 or topic.num_partitions < -1:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    if topic.replication_factor == 0 or topic.replication_factor < -1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor was set to an invalid non-positive value."
        )
    partitions = rules.num_partitions if topic.num_partitions == -1 else topic.num_partitions
    factor = rules.replication_factor if topic.replication_factor == -1 else topic.replication_factor
    limits.count_partitions(partitions)
    return place(list(image.brokers.values()), partitions, factor, rng)


def _assigned_replicas(image: MetadataImage, topic: CreatableTopic) -> Steps[list[tuple[int, ...]]]:
    if topic.replication_factor != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        )
    if topic.num_partitions != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    assigned: dict[int, tuple[int, ...]] = {}
    turn = TurnItems(LISTED_A_TURN)
    for assignment in topic.assignments:
        if turn.is_over():
            yield
        turn.count(1)
        if assignment.partition_index in assigned:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {assignment.partition_index}",
            )
        assigned[assignment.partition_index] = check_assignment(image, assignment.broker_ids)
    if sorted(assigned) != list(range(len(assigned))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    if len({len(brokers) for brokers in assigned.values()}) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment has uneven replica counts."
        )
    return [assigned[index] for index in range(len(assigned))]


def new_uuid(rng: Random) -> Uuid:
    """Return a random id that is not reserved and, like Kafka's, does not begin with a dash in its text form."""
    while True:
        uuid = rng.randbytes(16)
        if uuid[:15] != bytes(15) and uuid[0] >> 2 != 62:
            return uuid


def _topic_error(name: str, refused: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name,
        error_code=refused.code,
        error_message=refused.message,
        num_partitions=-1,
        replication_factor=-1,
        topic_config_error_code=0,
        configs=(),
    )


def decide_create_partitions(
    image: MetadataImage, request: CreatePartitionsRequest, rng: Random, charge: Charge = unlimited
) -> Steps[Decision[CreatePartitionsResponse]]:
    counts = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatePartitionsTopicResult] = {}
    records: list[MetadataRecord] = []
    limits = _Limits()
    for topic in request.topics:
        yield from limits.count_topic()
        try:
            if counts[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            new_partitions = yield from _new_partitions(image, topic, rng, limits)
            charge(len(new_partitions))
        except KafkaError as refused:
            results[topic.name] = CreatePartitionsTopicResult(topic.name, refused.code, refused.message)
            continue
        results[topic.name] = CreatePartitionsTopicResult(topic.name, 0, None)
        if not request.validate_only:
            records += new_partitions
    return Decision(CreatePartitionsResponse(results=list(results.values())), tuple(records))


def _new_partitions(
    image: MetadataImage, request: CreatePartitionsTopic, rng: Random, limits: _Limits
) -> Steps[list[PartitionRecord]]:
    topic = image.topics.get(request.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    refuse_view(image, topic)
    current = len(topic.partitions)
    if request.count == current:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    if request.count < current:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {request.name} currently has {current} partition(s); {request.count} would not be an increase.",
        )
    added = request.count - current
    limits.count_partitions(added)
    if request.assignments is None:
        replicas = place(list(image.brokers.values()), added, topic.replication_factor, rng)
    else:
        replicas = yield from _assigned_new_replicas(image, topic, [a.broker_ids for a in request.assignments], added)
    return (yield from _partition_records(image, current, topic.id, replicas))


def _assigned_new_replicas(
    image: MetadataImage, topic: TopicImage, assignments: list[Sequence[int]], added: int
) -> Steps[list[tuple[int, ...]]]:
    if len(assignments) != added:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {added} additional partition(s), but only {len(assignments)} assignment(s) "
            "were specified.",
        )
    replicas: list[tuple[int, ...]] = []
    for number, some in enumerate(split(assignments, LISTED_A_TURN)):
        if number:
            yield
        replicas += [check_assignment(image, brokers) for brokers in some]
    if any(len(brokers) != topic.replication_factor for brokers in replicas):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment must have {topic.replication_factor} replica(s), as the topic has.",
        )
    return replicas


def decide_delete_topics(
    image: MetadataImage, request: DeleteTopicsRequest, rules: TopicRules, charge: Charge = unlimited
) -> Steps[Decision[DeleteTopicsResponse]]:
    requested = list(request.topics) or [DeleteTopicState(name=name) for name in request.topic_names]
    results: list[DeletableTopicResult] = []
    records: dict[Uuid, RemoveTopicRecord] = {}
    counts = Counter((topic.name, topic.topic_id) for topic in requested)
    turn = TurnItems(LISTED_A_TURN // TOPIC_COST)
    for topic in requested:
        if turn.ends_after(1):
            yield
        try:
            if counts[topic.name, topic.topic_id] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name or id.")
            deleted = _find_deletable(image, topic, rules)
            if deleted.id not in records:  # it may be named and also given by its id
                charge(1 if deleted.is_view else len(deleted.partitions))
        except KafkaError as refused:
            results.append(DeletableTopicResult(topic.name, topic.topic_id, refused.code, refused.message))
            continue
        results.append(DeletableTopicResult(deleted.name, deleted.id, 0, None))
        records[deleted.id] = RemoveTopicRecord(deleted.id)
    return Decision(DeleteTopicsResponse(responses=results), tuple(records.values()))


def _find_deletable(image: MetadataImage, request: DeleteTopicState, rules: TopicRules) -> TopicImage:
    if (request.name is None) == (request.topic_id == ZERO_UUID):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Either the name or the id of a topic must be given, not both.")
    if not rules.delete_enabled:
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    topic = image.topics.get(request.name) if request.name is not None else image.topic_by_id(request.topic_id)
    if topic is None and request.name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    return topic
