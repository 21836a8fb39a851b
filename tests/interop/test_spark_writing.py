"""Writing with the connector, without a JVM: Arrow rows to records that real clients read; lost connections, errors."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from harness.patience import PATIENCE_S, Patience
from spark_connector import NOW_MS, CreateTopic, producing, write

from moldau.base.errors import KafkaError

pytest.importorskip("pyspark")
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


def consume(bootstrap: str, topic: str, partitions: int, count: int) -> list[Message]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False, "log_level": 0}
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    seen: list[Message] = []
    patience = Patience(f"{count} records of {topic}")
    while len(seen) < count:
        seen += [message for message in consumer.consume(10_000, 1.0) if not message.error()]
        patience.check(progress=len(seen))
    seen += consumer.consume(1, 0.2)
    consumer.close()
    return sorted(seen, key=lambda message: (message.partition(), message.offset()))


@pytest.mark.parametrize("codec", CODECS)
def test_clients_read_the_written_rows(bootstrap: str, create_topic: CreateTopic, codec: str) -> None:
    topic = create_topic(3)
    numbers = range(4000)
    keys = [None if number % 9 == 0 else b"key-%d" % (number % 60) for number in numbers]
    values = [None if number % 13 == 0 else b"v" * (number % 200) for number in numbers]
    headers = [[("h", b"%d" % number), ("none", None)] if number % 4 == 0 else [] for number in numbers]
    columns = {
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.array(headers, HEADERS),
    }
    write(bootstrap, pa.record_batch(columns), topic=topic, **{"kafka.compression.type": codec})
    seen = consume(bootstrap, topic, 3, 4000)
    got = [(one.key(), one.value(), one.headers() or []) for one in seen]
    assert sorted(got, key=repr) == sorted(zip(keys, values, headers, strict=True), key=repr)
    for key in set(keys) - {None}:
        assert len({one.partition() for one in seen if one.key() == key}) == 1
        assert [one.value() for one in seen if one.key() == key] == [
            value for each, value in zip(keys, values, strict=True) if each == key
        ], "order within a key"
    assert {one.timestamp() for one in seen} == {(1, NOW_MS)}


def test_large_rows_become_several_batches(bootstrap: str, create_topic: CreateTopic) -> None:
    topic = create_topic(1)
    values = [bytes([number % 256]) * 300_000 for number in range(12)]
    write(bootstrap, pa.record_batch({"value": pa.array(values)}), topic=topic)
    assert [one.value() for one in consume(bootstrap, topic, 1, 12)] == values


def test_each_row_is_written_to_its_topic(bootstrap: str, admin: AdminClient, topic: Callable[[], str]) -> None:
    """The broker creates missing topics, as it does for every client."""
    one, two = topic(), topic()
    batch = pa.record_batch({"value": pa.array([b"1", b"2", b"3"]), "topic": pa.array([one, two, one])})
    write(bootstrap, batch)
    for name, values in ((one, [b"1", b"3"]), (two, [b"2"])):
        partitions = len(admin.list_topics(name, timeout=PATIENCE_S).topics[name].partitions)
        assert [message.value() for message in consume(bootstrap, name, partitions, len(values))] == values


def test_each_row_is_written_with_its_partition_and_timestamp(bootstrap: str, create_topic: CreateTopic) -> None:
    topic = create_topic(2)
    stamps = pa.array([(NOW_MS + 123) * 1000, (NOW_MS + 456) * 1000], pa.timestamp("us", "UTC"))
    columns = {"value": pa.array(["a", "b"]), "partition": pa.array([1, 0], pa.int32()), "timestamp": stamps}
    write(bootstrap, pa.record_batch(columns), topic=topic, includeTimestamp="true")
    seen = [(one.partition(), one.value(), one.timestamp()[1]) for one in consume(bootstrap, topic, 2, 2)]
    assert seen == [(0, b"b", NOW_MS + 456), (1, b"a", NOW_MS + 123)]


@pytest.mark.parametrize("acks", ["0", "1"])
def test_rows_are_written_with_acks_0_and_1(bootstrap: str, create_topic: CreateTopic, acks: str) -> None:
    topic = create_topic(1)
    write(bootstrap, pa.record_batch({"value": pa.array([b"x"] * 100)}), topic=topic, **{"kafka.acks": acks})
    assert len(consume(bootstrap, topic, 1, 100)) == 100


def test_a_record_that_is_too_large_is_refused(bootstrap: str, create_topic: CreateTopic) -> None:
    topic = create_topic(1, {"max.message.bytes": "1000"})
    with pytest.raises(KafkaError, match=f"{topic}-0: "):
        write(bootstrap, pa.record_batch({"value": pa.array([b"x" * 5000])}), topic=topic)


def test_an_invalid_topic_name_is_reported_at_once(bootstrap: str) -> None:
    with pytest.raises(KafkaError, match="topic no spaces"):
        write(bootstrap, pa.record_batch({"value": pa.array([b"x"])}), topic="no spaces")


def test_a_producer_unknown_to_the_broker_starts_its_sequences_again(bootstrap: str, create_topic: CreateTopic) -> None:
    """As after a restart that kept only the last batch: the sequences start again, and no record is lost."""
    topic = create_topic(1)
    with producing(bootstrap, topic=topic) as (producer, send):
        send(pa.record_batch({"value": pa.array([b"1", b"2"])}))
        producer.flush()
        producer._sequences = {where: sequence + 7 for where, sequence in producer._sequences.items()}
        send(pa.record_batch({"value": pa.array([b"3", b"4"])}))
        send(pa.record_batch({"value": pa.array([b"5"])}))
    assert [one.value() for one in consume(bootstrap, topic, 1, 5)] == [b"1", b"2", b"3", b"4", b"5"]


class FlakyProxy:
    """A proxy that closes a connection after so many response bytes: the request arrives, its response is lost."""

    def __init__(self, upstream: str, cuts: list[int]) -> None:
        host, _, port = upstream.rpartition(":")
        self._upstream = host, int(port)
        self._cuts = cuts
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.cut = 0
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    def _begin(self, target: Callable[..., None], *args: Any) -> None:
        self._threads.append(threading.Thread(target=target, args=args, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                upstream = socket.create_connection(self._upstream)
                self._sockets += (client, upstream)
                self._begin(self._pump, client, upstream, None)
                self._begin(self._pump, upstream, client, self._cuts.pop(0) if self._cuts else None)

    def _pump(self, here: socket.socket, there: socket.socket, bytes_max: int | None) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := here.recv(65536):
                passed += len(data)
                if bytes_max is not None and passed > bytes_max:
                    self.cut += 1
                    break
                there.sendall(data)
        self._end(here, there)

    def _end(self, *sockets: socket.socket) -> None:
        """Shut the sockets down, which wakes waiting threads; closing alone would not."""
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._end(self._server, *self._sockets)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for one in (self._server, *self._sockets):
            one.close()


@pytest.fixture
def start_flaky_proxy(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[list[int]], FlakyProxy]]:
    """Let all connections of the connector go through a proxy, whatever address the broker advertises."""
    import moldau.client.cluster as cluster
    from moldau.client.channel import Channel

    proxies: list[FlakyProxy] = []

    def begin(cuts: list[int]) -> FlakyProxy:
        proxy = FlakyProxy(bootstrap, cuts)
        proxies.append(proxy)
        monkeypatch.setattr(cluster, "Channel", lambda _host, _port, *rest: Channel("127.0.0.1", proxy.port, *rest))
        return proxy

    yield begin
    for proxy in proxies:
        proxy.close()


@pytest.mark.parametrize("cut", [1500, 2000, 2600])
def test_lost_responses_do_not_duplicate_records(
    bootstrap: str, create_topic: CreateTopic, start_flaky_proxy: Callable[[list[int]], FlakyProxy], cut: int
) -> None:
    """Every request arrives and some responses are lost: repeated requests are recognised by their sequence numbers."""
    topic = create_topic(2)
    proxy = start_flaky_proxy([cut, cut + 50, cut + 90])
    values: Any = pa.array([b"%06d" % number + b"x" * 3000 for number in range(6000)])
    partitions = pa.array([number % 2 for number in range(6000)], pa.int32())
    batch = pa.record_batch({"value": values, "partition": partitions})
    write(bootstrap, batch, topic=topic, **{"kafka.max.request.size": "200000"})
    seen = consume(bootstrap, topic, 2, 6000)
    for partition in range(2):
        numbers = [int(one.value()[:6]) for one in seen if one.partition() == partition]
        assert numbers == list(range(partition, 6000, 2)), "every record once, in order"
    assert proxy.cut, "the connection was cut while records were in flight"
