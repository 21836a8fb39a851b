"""Metrics of a real cluster: they have the series that dashboards for Kafka query, and equal the tools' output."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import PATIENCE_S, Patience, wait_until
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from moldau.testing import TestCluster, cluster

pytestmark = pytest.mark.moldau_only

TOPIC = "orders"
GROUP = 'the "slow" group'
SENT, READ = 60, 21
DASHBOARDS = {
    "kafka_server_replicamanager_leadercount": (),
    "kafka_server_replicamanager_partitioncount": (),
    "kafka_server_replicamanager_underreplicatedpartitions": (),
    "kafka_controller_kafkacontroller_activecontrollercount": (),
    "kafka_controller_kafkacontroller_offlinepartitionscount": (),
    "kafka_controller_controllerstats_uncleanleaderelections_total": (),
    "kafka_cluster_partition_atminisr": ("topic",),
    "kafka_cluster_partition_underminisr": ("topic",),
    "kafka_cluster_partition_replicascount": ("topic", "partition"),
    "kafka_log_log_size": ("topic", "partition"),
    "kafka_server_brokertopicmetrics_messagesin_total": ("topic",),
    "kafka_server_brokertopicmetrics_bytesin_total": ("topic",),
    "kafka_server_brokertopicmetrics_bytesout_total": ("topic",),
    "kafka_server_brokertopicmetrics_totalproducerequests_total": ("topic",),
    "kafka_server_brokertopicmetrics_totalfetchrequests_total": ("topic",),
    "kafka_server_brokertopicmetrics_failedproducerequests_total": ("topic",),
    "kafka_server_brokertopicmetrics_failedfetchrequests_total": ("topic",),
    "kafka_server_socket_server_metrics_connection_count": ("listener",),
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent": (),
    "kafka_network_socketserver_networkprocessoravgidle_percent": (),
    "kafka_network_requestmetrics_requests_total": ("request", "version"),
    "kafka_server_kafkaserver_linux_disk_read_bytes": (),
    "kafka_server_kafkaserver_linux_disk_write_bytes": (),
    "process_open_fds": (),
    "kafka_server_raftmetrics_current_state": ("current_state",),
    "kafka_server_raftmetrics_current_leader": (),
    "kafka_server_raftmetrics_current_epoch": (),
    "kafka_server_raftmetrics_current_vote": (),
    "kafka_server_raftmetrics_high_watermark": (),
    "kafka_server_raftmetrics_log_end_offset": (),
    "kafka_server_raftmetrics_append_records_rate": (),
    "kafka_server_raftmetrics_fetch_records_rate": (),
    "kafka_server_raftmetrics_commit_latency_avg": (),
    "kafka_server_raftchannelmetrics_incoming_byte_total": (),
    "kafka_server_raftchannelmetrics_outgoing_byte_total": (),
    "kafka_server_raftchannelmetrics_request_total": (),
    "kafka_server_raftchannelmetrics_response_total": (),
    "kafka_consumergroup_current_offset": ("consumergroup", "topic", "partition"),
    "kafka_consumergroup_lag": ("consumergroup", "topic", "partition"),
    "kafka_topic_partitions": ("topic",),
    "kafka_topic_partition_current_offset": ("topic", "partition"),
    "kafka_topic_partition_oldest_offset": ("topic", "partition"),
    "kafka_topic_partition_in_sync_replica": ("topic", "partition"),
    "kafka_topic_partition_replicas": ("topic", "partition"),
    "kafka_topic_partition_leader_is_preferred": ("topic", "partition"),
    "kafka_topic_partition_under_replicated_partition": ("topic", "partition"),
    "kafka_broker_info": ("id", "address"),
}
"""Names and labels in the queries of Strimzi's dashboards for Kafka, KRaft and the exporter, without those of the JVM
and of Kubernetes. The labels of single pods and namespaces are added by Prometheus."""
LINUX_ONLY = ("kafka_server_kafkaserver_linux_disk_read_bytes", "kafka_server_kafkaserver_linux_disk_write_bytes")


class Scraped:
    """The metrics of all nodes, as Prometheus would have them."""

    def __init__(self, families: dict[int, list[Metric]]) -> None:
        self.samples = [
            (sample.name, sample.labels, sample.value, node)
            for node, metrics in families.items()
            for metric in metrics
            for sample in metric.samples
        ]

    def sum(self, name: str, **labels: str) -> float:
        return sum(self.values(name, **labels))

    def values(self, name: str, **labels: str) -> list[float]:
        found = [s for s in self.samples if s[0] == name and labels.items() <= s[1].items()]
        return [value for _, _, value, _ in found]


def address(kafka: TestCluster, node_id: int) -> tuple[str, int]:
    node = kafka.nodes[node_id].node
    assert node is not None
    assert node.metrics_address is not None
    return node.metrics_address.host, node.metrics_address.port


def get(kafka: TestCluster, node_id: int) -> str:
    connection = http.client.HTTPConnection(*address(kafka, node_id), timeout=PATIENCE_S)
    try:
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return response.read().decode()
    finally:
        connection.close()


def scrape(kafka: TestCluster) -> Scraped:
    return Scraped({node: list(text_string_to_metric_families(get(kafka, node))) for node in kafka.nodes})


@pytest.fixture(scope="module")
def kafka() -> Iterator[TestCluster]:
    """A cluster with a topic of one replica, so that no node has all partitions, and a group that is behind."""
    with cluster(3, metrics_listener="127.0.0.1:0", offsets_topic_num_partitions=3) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 6, 1)])[TOPIC].result(PATIENCE_S)
        running.wait_for_topic(TOPIC)
        producer = Producer({"bootstrap.servers": running.bootstrap_servers})
        for number in range(SENT):
            producer.produce(TOPIC, b"value %d" % number, partition=number % 6)
        assert producer.flush(PATIENCE_S) == 0
        read_some(running)
        yield running


def read_some(kafka: TestCluster) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(6)])
    seen = 0
    patience = Patience(lambda: f"{SENT} records are read, {seen} were")
    while seen < SENT:
        patience.check(seen)
        seen += sum(message.error() is None for message in consumer.consume(SENT, 0.1))
    offsets = [TopicPartition(TOPIC, index, 1 + index) for index in range(6)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def test_every_query_of_the_dashboards_finds_series(kafka: TestCluster) -> None:
    scraped = scrape(kafka)
    labelled = {(name, label) for name, labels, _, _ in scraped.samples for label in labels}
    names = {name for name, _, _, _ in scraped.samples}
    optional = () if sys.platform == "linux" else LINUX_ONLY
    assert [name for name in DASHBOARDS if name not in names and name not in optional] == []
    wanted = [(name, label) for name, labels in DASHBOARDS.items() for label in labels]
    assert [pair for pair in wanted if pair not in labelled] == []


def test_sums_over_all_nodes_are_those_of_the_cluster(kafka: TestCluster) -> None:
    scraped = scrape(kafka)
    assert scraped.sum("kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert scraped.sum("kafka_controller_kafkacontroller_offlinepartitionscount") == 0
    assert scraped.sum("kafka_controller_kafkacontroller_globalpartitioncount") == 9
    assert scraped.values("kafka_brokers") == [3]
    assert scraped.values("kafka_topic_partitions", topic=TOPIC) == [6]
    assert len(scraped.values("kafka_broker_info")) == 3
    assert scraped.sum("kafka_topic_partition_replicas", topic=TOPIC) == 6
    assert scraped.sum("kafka_topic_partition_in_sync_replica", topic="__consumer_offsets") == 9
    assert scraped.sum("kafka_server_replicamanager_leadercount") == 9
    assert scraped.sum("kafka_server_replicamanager_partitioncount") == 6 + 3 * 3
    assert scraped.sum("kafka_server_replicamanager_underreplicatedpartitions") == 0
    assert scraped.sum("kafka_server_brokertopicmetrics_messagesin_total", topic=TOPIC) == SENT
    assert scraped.sum("kafka_topic_partition_current_offset", topic=TOPIC) == SENT
    assert scraped.sum("kafka_topic_partition_oldest_offset", topic=TOPIC) == 0
    assert scraped.sum("kafka_log_log_logendoffset", topic=TOPIC) == SENT
    bytes_in = scraped.sum("kafka_server_brokertopicmetrics_bytesin_total", topic=TOPIC)
    assert bytes_in == scraped.sum("kafka_log_log_size", topic=TOPIC)
    assert scraped.sum("kafka_server_brokertopicmetrics_bytesout_total", topic=TOPIC) >= bytes_in
    assert scraped.sum("kafka_server_replicamanager_isrshrinks_total") == 0


def test_the_raft_metrics_agree_on_the_leader(kafka: TestCluster) -> None:
    scraped = scrape(kafka)
    assert set(scraped.values("kafka_server_raftmetrics_current_leader")) == {kafka.controller()}
    assert len(scraped.values("kafka_server_raftmetrics_current_state", current_state="leader")) == 1
    assert len(scraped.values("kafka_server_raftmetrics_current_state", current_state="follower")) == 2
    assert scraped.sum("kafka_server_raftchannelmetrics_request_total") > 0
    assert scraped.sum("kafka_server_raftchannelmetrics_incoming_byte_total") > 0


def scrape_with_all_lags(kafka: TestCluster) -> Scraped | None:
    """The lag is missing in partitions whose leader has not answered the coordinator in time."""
    scraped = scrape(kafka)
    return scraped if len(scraped.values("kafka_consumergroup_lag", consumergroup=GROUP)) == 6 else None


def test_lag_equals_moldau_group_describe(kafka: TestCluster) -> None:
    """The group's coordinator leads only a third of the partitions, and has no replica of the others."""
    scraped = wait_until(lambda: scrape_with_all_lags(kafka), "the lag in all partitions is known")
    assert scraped is not None
    command = [sys.executable, "-m", "moldau", "group", "describe", GROUP, "--format", "json"]
    printed = subprocess.run(
        [*command, "-b", kafka.bootstrap_servers], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    ).stdout
    (described,) = json.loads(printed)
    rows = {str(row["partition"]): row for row in described["partitions"]}
    assert len(rows) == 6
    for index, row in rows.items():
        labels = {"consumergroup": GROUP, "topic": TOPIC, "partition": index}
        assert scraped.values("kafka_consumergroup_lag", **labels) == [row["lag"]]
        assert scraped.values("kafka_consumergroup_current_offset", **labels) == [1 + int(index)]
        assert scraped.values("moldau_consumergroup_lag_seconds", **labels) >= [0.0]
    assert scraped.values("kafka_consumergroup_lag_sum", consumergroup=GROUP) == [SENT - READ]
    assert scraped.values("kafka_consumergroup_current_offset_sum", consumergroup=GROUP) == [READ]


def test_requests_and_connections_are_counted(kafka: TestCluster) -> None:
    before = scrape(kafka).sum("kafka_network_requestmetrics_requests_total", request="Metadata")
    AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=PATIENCE_S)
    scraped = scrape(kafka)
    assert scraped.sum("kafka_network_requestmetrics_requests_total", request="Metadata") > before
    assert scraped.sum("kafka_network_requestmetrics_totaltimems_sum", request="Fetch") > scraped.sum(
        "kafka_network_requestmetrics_localtimems_sum", request="Fetch"
    )
    assert scraped.sum("kafka_server_socket_server_metrics_connection_count", listener="CONTROLLER") > 0


def ask(kafka: TestCluster, request: bytes) -> bytes:
    """Send any bytes to node 1 and return its response until it closes the connection. It may reset a connection if it
    has not read all bytes."""
    answer = b""
    with socket.create_connection(address(kafka, 1), timeout=PATIENCE_S) as sock:
        with suppress(ConnectionError):
            sock.sendall(request)
        with suppress(ConnectionResetError):
            while data := sock.recv(65536):
                answer += data
    return answer


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"GET / HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /metrics/../../etc/passwd HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /metrics HTTP/9.9\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", b"400"),
        (b"GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 20_000, b"431"),
        (b"GET /" + b"x" * 100_000, b"431"),
    ],
)
def test_invalid_http_requests_are_refused(kafka: TestCluster, request_bytes: bytes, status: bytes) -> None:
    answer = ask(kafka, request_bytes)
    assert answer.split(b" ")[1] == status
    assert b"metrics_" not in answer


def test_http_keep_alive_http_1_0_and_head_are_served(kafka: TestCluster) -> None:
    kept = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
    answer = ask(kafka, kept + b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert answer.endswith(b"0\r\n\r\n")
    old = ask(kafka, b"GET /metrics HTTP/1.0\r\n\r\n")
    assert b"chunked" not in old
    assert list(text_string_to_metric_families(old.partition(b"\r\n\r\n")[2].decode()))
    head = ask(kafka, b"HEAD /metrics HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert head.endswith(b"\r\n\r\n")


def test_metrics_are_served_after_too_many_silent_connections(kafka: TestCluster) -> None:
    silent = [socket.create_connection(address(kafka, 1), timeout=PATIENCE_S) for _ in range(40)]
    try:
        wait_until(lambda: refused(silent[-1]), "the last of many connections is refused")
    finally:
        for each in silent:
            each.close()
    wait_until(lambda: get_or_none(kafka), "metrics are served again")


def refused(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def get_or_none(kafka: TestCluster) -> str | None:
    try:
        return get(kafka, 1)
    except (OSError, http.client.HTTPException):
        return None
