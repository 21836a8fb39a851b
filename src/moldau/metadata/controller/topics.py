"""Creating, growing and deleting topics. Pure: the image in, an answer and records out.

CreateTopics v2–7, CreatePartitions v0–3, DeleteTopics v1–6: each topic of a request succeeds or fails by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import ZERO_UUID, Uuid
from moldau.base.names import METADATA_TOPIC, collision_key, topic_name_problem
from moldau.metadata.controller.assignments import check_assignment, partition_record
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.placement import place
from moldau.metadata.image import MetadataImage, TopicImage
from moldau.metadata.records import (
    ConfigRecord,
    ConfigResource,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
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

PARTITIONS_PER_REQUEST_MAX = 10_000
"""Kafka's bound on what one request may create: a slip of the finger should not make a million files."""


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """What a topic gets where the request is silent, and who judges its configs."""

    num_partitions: int
    replication_factor: int
    delete_enabled: bool
    check_configs: Callable[[Mapping[str, str]], None]
    """Raises KafkaError INVALID_CONFIG for a config that no topic can have."""
    describe_configs: Callable[[Mapping[str, str]], Sequence[CreatableTopicConfigs]]
    """All configs a topic with these overrides has."""
    ignores_case: bool = False
    """Whether names that differ only in case collide: they do where the file system takes them for one."""


def decide_create_topics(
    image: MetadataImage, request: CreateTopicsRequest, defaults: TopicDefaults, rng: Random
) -> Decision[CreateTopicsResponse]:
    times = Counter(topic.name for topic in request.topics)
    taken: dict[str, str] = {}
    lowered = {name.lower(): name for name in image.topics} if defaults.ignores_case else {}
    results: list[CreatableTopicResult] = []
    records: list[MetadataRecord] = []
    room = PARTITIONS_PER_REQUEST_MAX
    for topic in request.topics:
        try:
            if times[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            result, made = _create(image, topic, taken, lowered, defaults, rng, room)
        except KafkaError as refused:
            results.append(_refused_topic(topic.name, refused))
            continue
        room -= result.num_partitions
        taken[collision_key(topic.name)] = topic.name
        if defaults.ignores_case:
            lowered[topic.name.lower()] = topic.name
        results.append(result)
        if not request.validate_only:
            records += made
    unique = list({result.name: result for result in results}.values())
    return Decision(CreateTopicsResponse(topics=unique), tuple(records))


def _create(
    image: MetadataImage,
    topic: CreatableTopic,
    taken: Mapping[str, str],
    lowered: Mapping[str, str],
    defaults: TopicDefaults,
    rng: Random,
    room: int,
) -> tuple[CreatableTopicResult, list[MetadataRecord]]:
    _check_name(topic.name, image, taken, lowered)
    configs = {config.name: config.value for config in topic.configs}
    null = [name for name, value in configs.items() if value is None]
    if null:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {', '.join(null)}")
    overrides = {name: value for name, value in configs.items() if value is not None}
    replicas = _replicas(image, topic, defaults, rng, room)
    defaults.check_configs(overrides)
    topic_id = new_uuid(rng)
    records: list[MetadataRecord] = [TopicRecord(topic.name, topic_id)]
    records += [ConfigRecord(ConfigResource.TOPIC, topic.name, name, value) for name, value in overrides.items()]
    records += [partition_record(image, index, topic_id, brokers) for index, brokers in enumerate(replicas)]
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        num_partitions=len(replicas),
        replication_factor=len(replicas[0]),
        configs=defaults.describe_configs(overrides),
    )
    return result, records


def _check_name(name: str, image: MetadataImage, taken: Mapping[str, str], lowered: Mapping[str, str]) -> None:
    """`lowered` has the names of all topics in lower case where case makes no difference, and is empty elsewhere."""
    problem = topic_name_problem(name)
    if problem:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
    if name == METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    if name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = taken.get(collision_key(name)) or image.colliding_names.get(collision_key(name))
    if other is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")
    if (other := lowered.get(name.lower())) is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {other}; the controller's file system ignores case.",
        )


def _replicas(
    image: MetadataImage, topic: CreatableTopic, defaults: TopicDefaults, rng: Random, room: int
) -> list[tuple[int, ...]]:
    """The replicas of each partition: as the request assigns them, or as we place them."""
    if topic.assignments:
        _check_room(len(topic.assignments), room)
        return _assigned(image, topic)
    if topic.num_partitions == 0 or topic.num_partitions < -1:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    if topic.replication_factor == 0 or topic.replication_factor < -1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor was set to an invalid non-positive value."
        )
    partitions = defaults.num_partitions if topic.num_partitions == -1 else topic.num_partitions
    factor = defaults.replication_factor if topic.replication_factor == -1 else topic.replication_factor
    _check_room(partitions, room)
    return place(list(image.brokers.values()), partitions, factor, rng)


def _check_room(partitions: int, room: int) -> None:
    if partitions > room:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Excessively large number of partitions per request: at most {PARTITIONS_PER_REQUEST_MAX}.",
        )


def _assigned(image: MetadataImage, topic: CreatableTopic) -> list[tuple[int, ...]]:
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
    wanted: dict[int, tuple[int, ...]] = {}
    for assignment in topic.assignments:
        if assignment.partition_index in wanted:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {assignment.partition_index}",
            )
        wanted[assignment.partition_index] = check_assignment(image, assignment.broker_ids)
    if sorted(wanted) != list(range(len(wanted))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    if len({len(brokers) for brokers in wanted.values()}) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment has uneven replica counts."
        )
    return [wanted[index] for index in range(len(wanted))]


def new_uuid(rng: Random) -> Uuid:
    """A random id that is none of the reserved ones and, as Kafka takes care of, does not begin with a dash."""
    while True:
        uuid = rng.randbytes(16)
        if uuid[:15] != bytes(15) and uuid[0] >> 2 != 62:
            return uuid


def _refused_topic(name: str, refused: KafkaError) -> CreatableTopicResult:
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
    image: MetadataImage, request: CreatePartitionsRequest, rng: Random
) -> Decision[CreatePartitionsResponse]:
    times = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatePartitionsTopicResult] = {}
    records: list[MetadataRecord] = []
    for topic in request.topics:
        try:
            if times[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            made = _grow(image, topic, rng)
        except KafkaError as refused:
            results[topic.name] = CreatePartitionsTopicResult(topic.name, refused.code, refused.message)
            continue
        results[topic.name] = CreatePartitionsTopicResult(topic.name, 0, None)
        if not request.validate_only:
            records += made
    return Decision(CreatePartitionsResponse(results=list(results.values())), tuple(records))


def _grow(image: MetadataImage, request: CreatePartitionsTopic, rng: Random) -> list[PartitionRecord]:
    topic = image.topics.get(request.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    have = len(topic.partitions)
    if request.count == have:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {have} partition(s).")
    if request.count < have:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {request.name} currently has {have} partition(s); {request.count} would not be an increase.",
        )
    more = request.count - have
    _check_room(more, PARTITIONS_PER_REQUEST_MAX)
    if request.assignments is None:
        replicas = place(list(image.brokers.values()), more, topic.replication_factor, rng)
    else:
        replicas = _assigned_growth(image, topic, [a.broker_ids for a in request.assignments], more)
    return [partition_record(image, have + index, topic.id, brokers) for index, brokers in enumerate(replicas)]


def _assigned_growth(
    image: MetadataImage, topic: TopicImage, assignments: list[Sequence[int]], more: int
) -> list[tuple[int, ...]]:
    if len(assignments) != more:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {more} additional partition(s), but only {len(assignments)} assignment(s) "
            "were specified.",
        )
    replicas = [check_assignment(image, brokers) for brokers in assignments]
    if any(len(brokers) != topic.replication_factor for brokers in replicas):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment must have {topic.replication_factor} replica(s), as the topic has.",
        )
    return replicas


def decide_delete_topics(
    image: MetadataImage, request: DeleteTopicsRequest, defaults: TopicDefaults
) -> Decision[DeleteTopicsResponse]:
    wanted = list(request.topics) or [DeleteTopicState(name=name) for name in request.topic_names]
    results: list[DeletableTopicResult] = []
    records: dict[Uuid, RemoveTopicRecord] = {}
    times = Counter((topic.name, topic.topic_id) for topic in wanted)
    for topic in wanted:
        try:
            if times[topic.name, topic.topic_id] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name or id.")
            found = _to_delete(image, topic, defaults)
        except KafkaError as refused:
            results.append(DeletableTopicResult(topic.name, topic.topic_id, refused.code, refused.message))
            continue
        results.append(DeletableTopicResult(found.name, found.id, 0, None))
        records[found.id] = RemoveTopicRecord(found.id)
    return Decision(DeleteTopicsResponse(responses=results), tuple(records.values()))


def _to_delete(image: MetadataImage, request: DeleteTopicState, defaults: TopicDefaults) -> TopicImage:
    if (request.name is None) == (request.topic_id == ZERO_UUID):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Either the name or the id of a topic must be given, not both.")
    if not defaults.delete_enabled:
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    found = image.topics.get(request.name) if request.name is not None else image.topic_by_id(request.topic_id)
    if found is None and request.name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    if found is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    return found
