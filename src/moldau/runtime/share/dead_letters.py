"""Writes the dead letters of share groups into their topics, at whatever broker leads them.

A dead letter is written at least once: a leader that takes over writes those again of which it does not know that they
are written. One that cannot be written is reported and left out, as in Apache Kafka: the group must go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from moldau.base.broker_configs import broker_integer, broker_value
from moldau.base.clock import Clock
from moldau.base.config_def import BrokerLayers
from moldau.base.errors import ErrorCode, KafkaError, MalformedData, StorageFault
from moldau.base.ports import RunInThread
from moldau.base.promise import Promise
from moldau.base.settings.share_coordinator import (
    ERRORS_DEADLETTERQUEUE_AUTO_CREATE_TOPICS_ENABLE,
    ERRORS_DEADLETTERQUEUE_TOPIC_NAME_PREFIX,
)
from moldau.base.settings.topics import (
    ERRORS_DEADLETTERQUEUE_GROUP_ENABLE,
    MAX_MESSAGE_BYTES,
    MESSAGE_TIMESTAMP_TYPE,
)
from moldau.base.steps import WaitingSteps
from moldau.log.reading import Slice, whole_batches
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import TopicImage
from moldau.metadata.records import ConfigResource
from moldau.replica.partition import Partition
from moldau.runtime.broker.broker_client import BrokerClient
from moldau.runtime.controller.channel import TopicCreator
from moldau.runtime.own_work import OwnWork
from moldau.runtime.thread_work import in_thread
from moldau.share.dead_letters import Content, DeadLetter, dead_letter_record
from moldau.share.limits import ShareLimits
from moldau.share.ports import ShareKey
from moldau.wire.apis import ApiKey
from moldau.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from moldau.wire.records import Record, build_batch, decode_records

log = logging.getLogger("moldau.share")
R = TypeVar("R")
TRIES_MAX: Final = 5
FIRST_DELAY_MS: Final = 250
ACKS_ALL: Final = -1
PRODUCE_TIMEOUT_MS: Final = 30_000
BATCH_OVERHEAD: Final = 100
RECORD_OVERHEAD: Final = 64
"""Upper bounds for what a batch and a record need besides their texts."""
READ_BYTES_MAX: Final = 1 << 20
_INTERNAL_PREFIX: Final = "__"
_PASSING: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


class DeadLetters:
    """`configs_of` returns all configs of a topic with these overrides, `layers` those of this broker."""

    def __init__(
        self,
        current: CurrentImage,
        brokers: BrokerClient,
        creator: TopicCreator,
        layers: Callable[[], BrokerLayers],
        configs_of: Callable[[Mapping[str, str]], Mapping[str, str]],
        clock: Clock,
        own_work: OwnWork,
        run_in_thread: RunInThread,
    ) -> None:
        self._current = current
        self._brokers = brokers
        self._creator = creator
        self._layers = layers
        self._configs_of = configs_of
        self._clock = clock
        self._own_work = own_work
        self._run_in_thread = run_in_thread

    def write(
        self, key: ShareKey, source: Partition, limits: ShareLimits, letters: Sequence[DeadLetter]
    ) -> Promise[None]:
        """Return a promise that is done when they are written, or cannot be."""
        done: Promise[None] = Promise()
        self._own_work.long_work(self._write(key, source, limits, letters), done.complete)()
        return done

    def _write(
        self, key: ShareKey, source: Partition, limits: ShareLimits, letters: Sequence[DeadLetter]
    ) -> WaitingSteps[None]:
        topic = limits.dead_letter_topic
        try:
            if topic == source.name.topic:
                raise _refused(
                    f"{topic} is the topic that group {key.group_id} reads; a topic of dead letters is another one"
                )
            yield from self._create_if_missing(key.group_id, topic)
            contents: dict[int, Content] = {}
            if limits.copies_dead_letters:
                contents = yield from self._contents(source, letters)
            records = self._records(key, source, letters, contents)
            for batch in self._batches(topic, records):
                yield from self._produce(topic, key.partition, batch)
        except KafkaError as error:
            count = sum(letter.last_offset - letter.first_offset + 1 for letter in letters)
            log.warning(
                "%s: share group %s has no dead letters for %d of its offsets %d to %d: %s",
                source.name,
                key.group_id,
                count,
                letters[0].first_offset,
                letters[-1].last_offset,
                error,
            )

    # --- the topic ----------------------------------------------------------------------------------------------

    def _create_if_missing(self, group: str, topic: str) -> WaitingSteps[None]:
        """Raise KafkaError if the topic is none for dead letters, or does not exist and is not to be created."""
        image, layers = self._current.image, self._layers()
        prefix = str(broker_value(ERRORS_DEADLETTERQUEUE_TOPIC_NAME_PREFIX, layers) or "")
        if topic.startswith(_INTERNAL_PREFIX):
            raise _refused(f"the topic {topic} of group {group} begins with {_INTERNAL_PREFIX}, as internal topics do")
        if not topic.startswith(prefix):
            rule = ERRORS_DEADLETTERQUEUE_TOPIC_NAME_PREFIX.name
            raise _refused(f"the topic {topic} of group {group} does not begin with {prefix!r}, the broker's {rule}")
        if topic in image.views:
            raise _refused(f"the topic {topic} is a view, and nothing is written to views")
        if topic in image.topics:
            configs = self._configs_of(image.configs_of(ConfigResource.TOPIC, topic))
            if configs[ERRORS_DEADLETTERQUEUE_GROUP_ENABLE.name] != "true":
                raise _refused(f"the topic {topic} lacks the config {ERRORS_DEADLETTERQUEUE_GROUP_ENABLE.name}=true")
            return
        if not broker_integer(ERRORS_DEADLETTERQUEUE_AUTO_CREATE_TOPICS_ENABLE, layers):
            raise _refused(f"there is no topic {topic}; create it with {ERRORS_DEADLETTERQUEUE_GROUP_ENABLE.name}=true")
        configs = {ERRORS_DEADLETTERQUEUE_GROUP_ENABLE.name: "true", MESSAGE_TIMESTAMP_TYPE.name: "CreateTime"}
        spec = CreatableTopic(topic, -1, -1, configs=[CreatableTopicConfig(*each) for each in configs.items()])
        response = yield from _result(self._creator.create_topics(CreateTopicsRequest([spec])))
        code = response.code if isinstance(response, KafkaError) else ErrorCode(response.topics[0].error_code)
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise KafkaError(code, f"the topic {topic} could not be created")

    # --- the records --------------------------------------------------------------------------------------------

    def _contents(self, source: Partition, letters: Sequence[DeadLetter]) -> WaitingSteps[dict[int, Content]]:
        """Read the records of which dead letters are copies. One that cannot be read has a dead letter without."""
        contents: dict[int, Content] = {}
        for letter in letters:
            offset = max(letter.first_offset, source.log.start_offset)
            while offset <= letter.last_offset:
                try:
                    piece = source.log.read(offset, READ_BYTES_MAX, source.high_watermark)
                    if piece is None:
                        break
                    read = partial(_read_contents, piece, offset, letter.last_offset)
                    found, after = yield from in_thread(self._run_in_thread, read)
                except (KafkaError, MalformedData, StorageFault) as error:
                    log.warning("%s: records of dead letters cannot be read: %s", source.name, error)
                    break
                contents.update(found)
                offset = max(after, offset + 1)
        return contents

    def _records(
        self, key: ShareKey, source: Partition, letters: Sequence[DeadLetter], contents: Mapping[int, Content]
    ) -> Iterator[Record]:
        now_ms = self._clock.now_ms()
        for letter in letters:
            for offset in range(letter.first_offset, letter.last_offset + 1):
                content = contents.get(offset, Content())
                yield dead_letter_record(key, source.name.topic, letter, offset, content, now_ms)

    def _batches(self, topic: str, records: Iterable[Record]) -> Iterator[bytearray]:
        """Yield batches as large as the topic allows; a larger record has one of its own, which is refused."""
        image = self._current.image
        configs = self._configs_of(image.configs_of(ConfigResource.TOPIC, topic))
        bytes_max = int(configs[MAX_MESSAGE_BYTES.name])
        some: list[Record] = []
        size = BATCH_OVERHEAD
        for record in records:
            needed = _size_of(record)
            if some and size + needed > bytes_max:
                yield build_batch(some)
                some, size = [], BATCH_OVERHEAD
            some.append(record)
            size += needed
        if some:
            yield build_batch(some)

    # --- sending ------------------------------------------------------------------------------------------------

    def _produce(self, topic: str, source_partition: int, batch: bytearray) -> WaitingSteps[None]:
        """Raise KafkaError if a batch is not written after several tries."""
        error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for number in range(TRIES_MAX):
            if number:
                yield self._pause(FIRST_DELAY_MS << (number - 1))
            image = self._current.image.topics.get(topic)
            if image is None:
                continue
            response = yield from _result(self._send(image, source_partition % len(image.partitions), batch))
            code = response.code if isinstance(response, KafkaError) else _code_of(response)
            if not code:
                return
            error = KafkaError(code)
            if code not in _PASSING:
                break
        raise error

    def _send(self, topic: TopicImage, index: int, batch: bytearray) -> Promise[ProduceResponse | KafkaError]:
        records = memoryview(bytearray(batch))  # the log writes offsets into it, also if it then refuses it
        data = TopicProduceData(topic.id, topic.name, [PartitionProduceData(index, records)])
        request = ProduceRequest(acks=ACKS_ALL, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=[data])
        return self._brokers.ask(topic.partitions[index].leader, ApiKey.PRODUCE, request)

    def _pause(self, delay_ms: int) -> Promise[float]:
        over: Promise[float] = Promise()
        self._own_work.after_ms(delay_ms, lambda: over.complete(0.0))
        return over


def _read_contents(piece: Slice, first: int, last: int) -> tuple[dict[int, Content], int]:
    """Return the keys and values of a slice's records, and the offset after them."""
    found: dict[int, Content] = {}
    after = first
    for position, header in whole_batches(piece, last + 1):
        batch = piece.file.pread(header.size_in_bytes, position)
        if not header.is_control:
            for record in decode_records(batch, header):
                if first <= record.offset <= last:
                    found[record.offset] = Content(record.key, record.value)
        after = header.next_offset
    return found, after


def _size_of(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") + 6 for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + RECORD_OVERHEAD


def _result(promise: Promise[R]) -> WaitingSteps[R]:
    """Wait for a promise, and return its value."""
    if not promise.done:
        waiting: Promise[float] = Promise()
        promise.then(lambda _: waiting.complete(0.0))
        yield waiting
    return promise.value()


def _code_of(response: ProduceResponse) -> ErrorCode:
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


def _refused(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, reason)
