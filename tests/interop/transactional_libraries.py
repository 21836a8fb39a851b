"""Transactional producers of three libraries behind one interface, and the matching consumers.

It has `Writer` (transactions), `Input` (reads committed records for a group), and `LIBRARIES`: by library name its
Writer, its Input and its errors. Errors that a library calls retriable are retried; a call in which kafka-python gets
stuck raises its KafkaTimeoutError; other errors are raised. It contains no assertions about behaviour.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import aiokafka
import kafka
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from harness.patience import PATIENCE_S

TRY_S = 5.0
POLL_S = 0.1
KAFKA_PYTHON_POLL_MS = 2000
"""Its poll also runs the rebalance, and gives up what is not done by its timeout."""
BATCH = 50
TIMEOUT_MS = 60_000
Places = Mapping[tuple[str, int], int]
"""By topic and partition, the offset of the next record."""
Result = TypeVar("Result")


class Found(NamedTuple):
    topic: str
    partition: int
    offset: int
    value: bytes


class Input(Protocol):
    """Reads committed records for a group and never commits itself. Constructed with `member=True` it joins the group,
    else it assigns itself all partitions."""

    def poll(self) -> list[Found]: ...

    def rewind(self) -> None:
        """Go back to the committed offsets, or to the beginning."""

    def close(self) -> None: ...


class Writer:
    """Ready for its first transaction after construction."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self) -> None:
        raise NotImplementedError

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        raise NotImplementedError

    def send_offsets(self, places: Places, group: str, source: Any = None) -> None:
        """Send offsets, with the member's id and generation if `source` is given and the library supports it."""
        raise NotImplementedError

    def commit(self) -> None:
        raise NotImplementedError

    def abort(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Release resources but leave an open transaction open, as if the process had died."""


class ConfluentWriter(Writer):
    """Closes nothing: the library's own `close` aborts an open transaction."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> None:
        self.bootstrap = bootstrap
        settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0}
        settings |= {"transaction.timeout.ms": timeout_ms, "reconnect.backoff.max.ms": 500, "log_level": 0}
        self.producer = Producer(settings)
        self.patiently(self.producer.init_transactions)

    def patiently(self, call: Callable[[float], None]) -> None:
        """Retry where the library's manual advises it: a call can be stuck with a coordinator that is gone."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return call(TRY_S)
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self.producer.produce(topic, value, partition=partition)
        self.producer.poll(0)

    def send_offsets(self, places: Places, group: str, source: Any = None) -> None:
        consumer = source.consumer if source else Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        offsets = [TopicPartition(*place, offset) for place, offset in places.items()]
        try:
            member = consumer.consumer_group_metadata()
            self.patiently(lambda try_s: self.producer.send_offsets_to_transaction(offsets, member, try_s))
        finally:
            if not source:
                consumer.close()

    def commit(self) -> None:
        self.patiently(self.producer.commit_transaction)

    def abort(self) -> None:
        self.patiently(self.producer.abort_transaction)


class ConfluentInput:
    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int = 1, member: bool = False) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        settings |= {"enable.auto.commit": False, "isolation.level": "read_committed", "fetch.wait.max.ms": 100}
        settings |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200, "reconnect.backoff.max.ms": 500}
        settings |= {"log_level": 0}
        self.consumer = Consumer(settings)
        if member:
            self.consumer.subscribe([topic])
        else:
            self.consumer.assign([TopicPartition(topic, index) for index in range(partitions)])

    def poll(self) -> list[Found]:
        found = self.consumer.consume(BATCH, POLL_S)
        return [Found(one.topic(), one.partition(), one.offset(), one.value()) for one in found if not one.error()]

    def rewind(self) -> None:
        for place in self.consumer.committed(self.consumer.assignment(), PATIENCE_S):
            place.offset = max(place.offset, 0)
            self.consumer.seek(place)

    def close(self) -> None:
        self.consumer.close()


class KafkaPythonWriter(Writer):
    """kafka-python loses a request when its coordinator refuses the connection, and then waits for ever.

    After a timeout this raises an error; the caller can only start again with another producer.
    """

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> None:
        self.producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            linger_ms=0,
            reconnect_backoff_max_ms=500,
            request_timeout_ms=2000,  # how long it tries a dead coordinator before it looks for the next
            max_block_ms=int(PATIENCE_S * 1000),
        )
        self.sent: list[Any] = []
        self.is_stuck = False
        try:
            self.within_time(self.producer.init_transactions)
        except BaseException:
            self.close()
            raise

    def within_time(self, call: Callable[..., None], *arguments: Any) -> None:
        if self.is_stuck:
            raise kafka.errors.KafkaTimeoutError("an earlier request is stuck")
        done: Future[None] = Future()

        def run() -> None:
            try:
                done.set_result(call(*arguments))
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=run, name="kafka-python", daemon=True).start()
        try:
            done.result(TRY_S)
        except FutureTimeout as late:
            self.is_stuck = True
            raise kafka.errors.KafkaTimeoutError(f"{call.__name__} takes more than {TRY_S:g} s") from late

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self.sent.append(self.producer.send(topic, value, partition=partition))

    def send_offsets(self, places: Places, group: str, source: Any = None) -> None:
        offsets = {
            kafka.TopicPartition(*place): kafka.structs.OffsetAndMetadata(offset, "", -1)
            for place, offset in places.items()
        }
        member = source.consumer.group_metadata() if source else group
        self.within_time(self.producer.send_offsets_to_transaction, offsets, member)

    def commit(self) -> None:
        """The library also commits if sends failed, so check these first."""
        sent, self.sent = self.sent, []
        for each in sent:
            each.get(PATIENCE_S)
        self.within_time(self.producer.commit_transaction)

    def abort(self) -> None:
        self.sent.clear()
        self.within_time(self.producer.abort_transaction)

    def close(self) -> None:
        try:
            self.producer.close(timeout=0)
        except kafka.errors.KafkaTimeoutError:  # it flushes first; records in flight keep it from ending its thread
            self.producer._sender.force_close()
            self.producer._sender.join(PATIENCE_S)
            self.producer._closed = True


class KafkaPythonInput:
    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int = 1, member: bool = False) -> None:
        self.consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap.split(","),
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=6000,
            heartbeat_interval_ms=200,
            fetch_max_wait_ms=100,
            max_poll_records=BATCH,
            reconnect_backoff_max_ms=500,
            metadata_max_age_ms=500,  # its first assignment may be empty, if it does not know the topic yet
        )
        if member:
            self.consumer.subscribe([topic])
        else:
            self.consumer.assign([kafka.TopicPartition(topic, index) for index in range(partitions)])

    def poll(self) -> list[Found]:
        try:
            polled = self.consumer.poll(timeout_ms=KAFKA_PYTHON_POLL_MS)
        except kafka.errors.KafkaConnectionError:
            return []  # Its poll fails when the node it asks for the coordinator is just gone.
        return [Found(one.topic, one.partition, one.offset, one.value) for some in polled.values() for one in some]

    def rewind(self) -> None:
        for place in self.consumer.assignment():
            self.consumer.seek(place, self.consumer.committed(place) or 0)

    def close(self) -> None:
        self.consumer.close(autocommit=False)


class Loop:
    """An event loop in a thread of its own, for a library that needs one."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="aiokafka", daemon=True)
        self.thread.start()

    def run(self, call: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(call, PATIENCE_S), self.loop).result()

    def start(self, client: Callable[[], Any]) -> Any:
        """Make a client and start it. If it cannot start, this loop ends too."""

        async def start() -> Any:
            made = client()
            try:
                await made.start()
            except BaseException:
                await made.stop()
                raise
            return made

        try:
            return self.run(start())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class AioKafkaWriter(Writer):
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> None:
        self.loop = Loop()
        self.sent: list[Any] = []
        self.producer = self.loop.start(
            lambda: aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
            )
        )

    def begin(self) -> None:
        self.loop.run(self.producer.begin_transaction())

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self.sent.append(self.loop.run(self.producer.send(topic, value, partition=partition)))

    def send_offsets(self, places: Places, group: str, source: Any = None) -> None:
        offsets = {aiokafka.TopicPartition(*place): offset for place, offset in places.items()}
        self.loop.run(self.producer.send_offsets_to_transaction(offsets, group))

    def commit(self) -> None:
        """The library also commits if sends failed, so check these first."""
        sent, self.sent = self.sent, []

        async def commit() -> None:
            await asyncio.gather(*sent)
            await self.producer.commit_transaction()

        self.loop.run(commit())

    def abort(self) -> None:
        self.sent.clear()
        self.loop.run(self.producer.abort_transaction())

    def close(self) -> None:
        """The library's own stop waits for records in flight; a process that died would not."""

        async def let_go() -> None:
            await self.producer._sender.close()
            await self.producer.client.close()
            self.producer._closed = True

        self.loop.run(let_go())
        self.loop.close()


class AioKafkaInput:
    """Never a group member: aiokafka does not ask for stable offsets (KIP-447). After a rebalance, a new member would
    get the offsets from before a transaction that is still being committed, and read its records again."""

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int = 1, member: bool = False) -> None:
        self.loop = Loop()
        self.places = [aiokafka.TopicPartition(topic, index) for index in range(partitions)]

        def client() -> Any:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
                fetch_max_wait_ms=100,
            )
            consumer.assign(self.places)
            return consumer

        self.consumer = self.loop.start(client)

    def poll(self) -> list[Found]:
        polled = self.loop.run(self.consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=BATCH))
        return [Found(one.topic, one.partition, one.offset, one.value) for some in polled.values() for one in some]

    def rewind(self) -> None:
        async def rewind() -> None:
            for place in self.places:
                self.consumer.seek(place, await self.consumer.committed(place) or 0)

        self.loop.run(rewind())

    def close(self) -> None:
        self.loop.run(self.consumer.stop())
        self.loop.close()


class Library(NamedTuple):
    writer: Any
    input: Any
    errors: tuple[type[Exception], ...]


LIBRARIES = {
    "confluent": Library(ConfluentWriter, ConfluentInput, (KafkaException,)),
    "kafka-python": Library(KafkaPythonWriter, KafkaPythonInput, (kafka.errors.KafkaError,)),
    "aiokafka": Library(AioKafkaWriter, AioKafkaInput, (AioKafkaError, TimeoutError)),
}


def is_fenced(error: BaseException) -> bool:
    """Whether it is the library's error for: another producer has this transactional id now."""
    if isinstance(error, KafkaException):
        return error.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    fenced = (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError, aiokafka.errors.ProducerFenced)
    return isinstance(error, fenced)


def next_places(records: Sequence[Found]) -> dict[tuple[str, int], int]:
    """Return the offsets to commit after these records."""
    return {(one.topic, one.partition): one.offset + 1 for one in records}
