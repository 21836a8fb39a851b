"""Devices before a secured cluster of three brokers, over HTTP and MQTT, while a broker or the gateway is killed.

Every record that was acknowledged is in the topic. After the death of a broker each is there once; after that of the
gateway those may be there twice that nobody had answered. Readers miss none of them.
"""

from __future__ import annotations

import http.client
import shutil
import ssl
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
import trustme
from clients import poll_messages
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from gateway_process import EventReader, GatewayProcess, HttpSender, MqttSender, Sender, basic, mqtt_client
from harness.patience import wait_until
from mqtt_device import NetworkLoop

from moldau.testing import TestCluster, cluster

pytestmark = [
    pytest.mark.moldau_only,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
PARTITIONS = 3
PASSWORDS = {"pump": "of the pump", "page": "of the page"}


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests do not use the shared broker of this directory."""


@pytest.fixture(scope="module")
def kafka() -> Iterator[TestCluster]:
    with cluster(secure=True, offsets_topic_num_partitions=1, default_replication_factor=3) as running:
        for user, password in PASSWORDS.items():
            running.add_user(user, password)
        yield running


@pytest.fixture(scope="module")
def gateway(kafka: TestCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    log_file = tmp_path_factory.mktemp("gateway") / "gateway.log"
    with GatewayProcess(kafka.bootstrap_servers, kafka.command_config(), log_file) as running:
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log


def create(kafka: TestCluster, name: str) -> str:
    """Create a topic that the pump may write and the page may read."""
    admin = AdminClient(kafka.client_config())
    admin.create_topics([NewTopic(name, PARTITIONS, 3)])[name].result()
    kafka.wait_for_topic(name)
    kafka.allow("pump", "write,describe", topic=name)
    kafka.allow("page", "read,describe", topic=name)
    return name


def stored(kafka: TestCluster, topic: str) -> Counter[str]:
    """Return how often each value is in the topic, as another client reads it."""
    consumer = Consumer({**kafka.client_config(), "group.id": "check", "enable.auto.commit": False})
    try:
        partitions = [TopicPartition(topic, index, 0) for index in range(PARTITIONS)]
        ends = sum(consumer.get_watermark_offsets(each)[1] for each in partitions)
        consumer.assign(partitions)
        return Counter(message.value().decode() for message in poll_messages(consumer, ends))
    finally:
        consumer.close()


def senders(gateway: GatewayProcess, topic: str) -> list[Sender]:
    password = PASSWORDS["pump"]
    over_http = [
        HttpSender(f"http{number}", gateway, f"/topics/{topic}?key={number}", basic("pump", password))
        for number in range(3)
    ]
    over_mqtt = [MqttSender(f"mqtt{number}", gateway, f"{topic}/{number}", "pump", password) for number in range(2)]
    return [*over_http, *over_mqtt]


class Subscriber:
    """paho-mqtt with a session that stays."""

    def __init__(self, gateway: GatewayProcess, topic: str) -> None:
        self.values: set[str] = set()
        self.client = mqtt_client(f"subscriber of {topic}", gateway, "page", PASSWORDS["page"])
        self._topic, self._subscribed = topic, False
        self.client.on_connect = lambda *_: self.client.subscribe(f"{topic}/#", 1)
        self.client.on_subscribe = self._on_subscribe
        self.client.on_message = lambda _, __, message: self.values.add(message.payload.decode())
        self._loop = NetworkLoop(self.client)
        wait_until(lambda: self._subscribed, "the subscriber has subscribed")

    def _on_subscribe(self, *_: Any) -> None:
        self._subscribed = True

    def close(self) -> None:
        self._loop.stop()


def check(
    kafka: TestCluster, topic: str, sent: list[Sender], subscriber: Subscriber, reader: EventReader
) -> Counter[str]:
    """Check what holds after any failure; return how often each value is in the topic."""
    assert [sender.problems for sender in sent] == [[] for _ in sent]
    acknowledged = {sender.value(number) for sender in sent for number in range(sender.acknowledged)}
    found = stored(kafka, topic)
    assert acknowledged <= found.keys()
    unsure = {sender.value(number) for sender in sent for number in sender.unsure}
    assert {value for value, count in found.items() if count > 1} <= unsure
    wait_until(lambda: len(reader.found) >= found.total(), "the reader of events has all")
    assert Counter(reader.values()) == found
    assert reader.problems == []
    for index in range(PARTITIONS):
        offsets = [offset for partition, offset, _ in reader.found if partition == index]
        assert offsets == sorted(offsets)
    wait_until(lambda: subscriber.values >= found.keys(), "the subscriber has all")
    return found


def run(kafka: TestCluster, gateway: GatewayProcess, topic: str, fault: Any) -> tuple[list[Sender], Counter[str]]:
    """Let devices send and readers follow while `fault` does what it does."""
    sent = senders(gateway, topic)
    subscriber = Subscriber(gateway, topic)
    reader = EventReader(gateway, f"/topics/{topic}/records?from=earliest", basic("page", PASSWORDS["page"]))
    try:
        with reader:
            with ExitStack() as running:
                for sender in sent:
                    running.enter_context(sender)
                for sender in sent:
                    sender.wait_for(20)
                fault()
                for sender in sent:
                    sender.wait_for(20)
            return sent, check(kafka, topic, sent, subscriber, reader)
    finally:
        subscriber.close()


def test_the_death_of_a_broker_loses_and_doubles_nothing(kafka: TestCluster, gateway: GatewayProcess) -> None:
    topic = create(kafka, "broker-dies")

    def kill_a_leader() -> None:
        leader = kafka.leader_of(topic, 0)
        assert leader is not None
        kafka.kill(leader)
        kafka.wait_for_leader(topic, 0, other_than=leader)
        kafka.restart(leader)

    sent, found = run(kafka, gateway, topic, kill_a_leader)
    assert not any(sender.unsure for sender in sent)
    assert set(found.values()) == {1}


def test_the_death_of_the_gateway_loses_nothing(kafka: TestCluster, gateway: GatewayProcess) -> None:
    topic = create(kafka, "gateway-dies")

    def kill_the_gateway() -> None:
        gateway.kill()
        gateway.start()

    run(kafka, gateway, topic, kill_the_gateway)


# --- rights -----------------------------------------------------------------------------------------------------------


def curl(gateway: GatewayProcess, *words: str) -> tuple[int, str]:
    """Return the status and the body."""
    command = ["curl", "--silent", "--write-out", "\n%{http_code}", *words[:-1]]
    done = subprocess.run(
        [*command, f"localhost:{gateway.http_port}{words[-1]}"], capture_output=True, text=True, check=True
    )
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_curl_does_what_its_user_may_do(kafka: TestCluster, gateway: GatewayProcess) -> None:
    topic = create(kafka, "rights")
    pump, page = (["-u", f"{user}:{password}"] for user, password in PASSWORDS.items())
    send = ["-d", "21.5", "-H", "Content-Type: application/json", f"/topics/{topic}"]
    assert curl(gateway, *pump, *send)[0] == 200
    assert curl(gateway, *page, *send)[0] == 403
    assert curl(gateway, "-u", "pump:guess", *send)[0] == 401
    assert curl(gateway, *send)[0] == 401
    status, body = curl(gateway, *page, f"/topics/{topic}/records")
    assert (status, '"value":21.5' in body) == (200, True)
    assert curl(gateway, *pump, f"/topics/{topic}/records")[0] == 403
    assert curl(gateway, *page, f"/topics/{topic}/records?group=others")[0] == 403


def test_over_tls_a_certificate_is_a_user(kafka: TestCluster, tmp_path: Path) -> None:
    topic = create(kafka, "certificates")
    kafka.allow("pump7", "write,describe", topic=topic)
    config = tmp_path / "client.properties"
    config.write_text(kafka.command_config().read_text() + "ssl.principal.mapping.rules=RULE:^CN=([^,]+),.*$/$1/\n")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    server = authority.issue_cert("localhost")
    server.private_key_pem.write_to_path(tmp_path / "server.key")
    server.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    authority.issue_cert(common_name="pump7", organization_name="Prague").configure_cert(context)
    files = {"--tls-certificate": "server.pem", "--tls-key": "server.key", "--tls-client-ca": "ca.pem"}
    words = [word for option, name in files.items() for word in (option, str(tmp_path / name))]
    log_file = tmp_path / "gateway.log"
    with GatewayProcess(kafka.bootstrap_servers, config, log_file, *words) as gateway:
        connection = http.client.HTTPSConnection("localhost", gateway.http_port, context=context)
        connection.request("POST", f"/topics/{topic}", "over HTTP", {"Content-Type": "text/plain"})
        assert connection.getresponse().status == 200
        connection.close()
        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="pump7")
        client.tls_set_context(context)
        client.connect_async("localhost", gateway.mqtt_port)
        loop = NetworkLoop(client)
        wait_until(client.is_connected, lambda: f"the client is connected: {gateway.log}")
        sent = client.publish(f"{topic}/pump7", "over MQTT", qos=1)
        wait_until(sent.is_published, lambda: f"the message is acknowledged: {gateway.log}")
        loop.stop()
        assert gateway.stop() == 0
    assert stored(kafka, topic) == {"over HTTP": 1, "over MQTT": 1}


def test_a_group_has_its_place_in_kafka(kafka: TestCluster, gateway: GatewayProcess) -> None:
    requests = pytest.importorskip("requests", reason="needs requests")
    topic = create(kafka, "places")
    kafka.allow("page", "read,describe", group="pages")
    session = requests.Session()
    session.auth = ("page", PASSWORDS["page"])
    url = f"http://localhost:{gateway.http_port}/topics/{topic}"
    requests.post(url, json=[1, 2, 3], params={"partition": 0}, auth=("pump", PASSWORDS["pump"])).raise_for_status()
    assert session.get(f"{url}/groups/pages").json() == {"position": None}
    assert session.put(f"{url}/groups/pages", json={"position": "0:2"}).status_code == 200
    page = session.get(f"{url}/records", params={"group": "pages"}).json()
    assert [record["value"] for record in page["records"]] == [3]
    assert session.get(f"{url}/groups/others").status_code == 403
    consumer = Consumer({**kafka.client_config("page"), "group.id": "pages"})
    try:
        (committed,) = consumer.committed([TopicPartition(topic, 0)])
        assert committed.offset == 2
    finally:
        consumer.close()


def test_requests_sends_and_reads(kafka: TestCluster, gateway: GatewayProcess) -> None:
    requests = pytest.importorskip("requests", reason="needs requests")
    url = f"http://localhost:{gateway.http_port}/topics/{create(kafka, 'requests')}"
    answer = requests.post(url, json=[{"n": 1}, {"n": 2}], auth=("pump", PASSWORDS["pump"]))
    assert [place["offset"] for place in answer.json()["offsets"]] == [0, 1]
    page = requests.get(f"{url}/records", auth=("page", PASSWORDS["page"])).json()
    assert [record["value"] for record in page["records"]] == [{"n": 1}, {"n": 2}]


@pytest.mark.skipif(not shutil.which("mosquitto_pub"), reason="needs Debian's mosquitto-clients")
def test_mosquitto_does_what_its_user_may_do(kafka: TestCluster, gateway: GatewayProcess, tmp_path: Path) -> None:
    topic = create(kafka, "mosquitto")

    def run(tool: str, user: str, password: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [f"mosquitto_{tool}", "-h", "localhost", "-p", str(gateway.mqtt_port), "-V", "mqttv5", "-q", "1"]
        return subprocess.run(
            [*command, "-u", user, "-P", password, *words], capture_output=True, text=True, check=False
        )

    name = ["-t", f"{topic}/line1"]
    assert run("pub", "pump", PASSWORDS["pump"], *name, "-m", "21.5", "--retain").returncode == 0
    assert "Not authorized" in run("pub", "page", PASSWORDS["page"], *name, "-m", "21.5").stderr
    assert run("pub", "pump", "guess", *name, "-m", "21.5").returncode != 0
    kept = run("sub", "page", PASSWORDS["page"], "-t", f"{topic}/#", "-C", "1", "-W", "60")
    assert kept.stdout == "21.5\n"
    refused = run("sub", "pump", PASSWORDS["pump"], "-t", f"{topic}/#", "-C", "1", "-W", "60")
    assert "denied" in refused.stderr
