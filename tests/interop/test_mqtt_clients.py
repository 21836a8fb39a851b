"""Real clients of MQTT against the server: paho-mqtt, and Debian's mosquitto_pub and mosquitto_sub."""

from __future__ import annotations

import queue
import shutil
import subprocess
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from harness.mqtt_server import RunningMqttServer, gateway_cluster
from harness.patience import PATIENCE_S, wait_until
from mqtt_device import NetworkLoop

from moldau.gateway.mqtt.limits import MqttLimits

VERSIONS = pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
needs_mosquitto = pytest.mark.skipif(not shutil.which("mosquitto_pub"), reason="needs Debian's mosquitto-clients")


@pytest.fixture(scope="module")
def server() -> Iterator[RunningMqttServer]:
    cluster = gateway_cluster(telemetry=3, retained=1, away=1, wills=1)
    cluster.passwords["anna"] = "secret"
    with RunningMqttServer(cluster, limits=MqttLimits(session_save_s=0.05)) as running:
        yield running


# --- mosquitto --------------------------------------------------------------------------------------------------------


def mosquitto(tool: str, server: RunningMqttServer, version: str, *words: str) -> list[str]:
    return [f"mosquitto_{tool}", "-h", "127.0.0.1", "-p", str(server.port), "-V", version, *words]


def publish(server: RunningMqttServer, version: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = mosquitto("pub", server, version, *words)
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def wait_until_subscribed(server: RunningMqttServer) -> None:
    """mosquitto_sub says so, but keeps its lines in a buffer."""
    wait_until(lambda: server.do(lambda: server.server.tails), "the client has subscribed")


@pytest.fixture(autouse=True)
def nobody_is_left(server: RunningMqttServer) -> Iterator[None]:
    yield
    counters = server.server.counters
    wait_until(lambda: server.do(lambda: counters.connections + server.server.tails) == 0, "all have gone")


@needs_mosquitto
@VERSIONS
def test_mosquitto_publishes_and_subscribes(server: RunningMqttServer, version: str) -> None:
    topic = f"telemetry/{version}"
    command = mosquitto("sub", server, version, "-t", f"{topic}/+", "-q", "1", "-C", "2", "-F", "%t %p")
    reader = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with reader:
        assert reader.stdout is not None
        wait_until_subscribed(server)
        assert publish(server, version, "-t", f"{topic}/a", "-m", "1", "-q", "1").returncode == 0
        assert publish(server, version, "-t", f"{topic}/b", "-m", "2", "-u", "anna", "-P", "secret").returncode == 0
        assert reader.stdout.read().splitlines() == [f"{topic}/a 1", f"{topic}/b 2"]


@needs_mosquitto
@VERSIONS
def test_mosquitto_gets_retained_messages(server: RunningMqttServer, version: str) -> None:
    topic = f"retained/{version}"
    assert publish(server, version, "-t", topic, "-m", "kept", "-r", "-q", "1").returncode == 0
    command = mosquitto("sub", server, version, "-t", topic, "-C", "1", "-F", "%r %p")
    assert subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout == "1 kept\n"


@needs_mosquitto
@VERSIONS
def test_mosquitto_gets_what_was_sent_while_it_was_away(server: RunningMqttServer, version: str) -> None:
    topic = f"away/{version}"
    stays = ["-c"] if version == "mqttv311" else ["-c", "-x", "100"]
    words = ("-t", topic, "-q", "1", "-i", f"away-{version}", *stays)
    subprocess.run(mosquitto("sub", server, version, *words, "-E"), timeout=PATIENCE_S, check=True)
    assert publish(server, version, "-t", topic, "-m", "missed", "-q", "1").returncode == 0
    command = mosquitto("sub", server, version, *words, "-C", "1")
    assert subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout == "missed\n"


@needs_mosquitto
@VERSIONS
def test_mosquitto_is_told_what_is_refused(server: RunningMqttServer, version: str) -> None:
    assert publish(server, version, "-t", "telemetry/x", "-m", "", "-u", "anna", "-P", "wrong").returncode != 0
    words = ("-t", "telemetry/x", "-m", "twice", "-q", "2")
    refused = publish(server, version, *words)
    assert version == "mqttv311" or refused.returncode != 0 or "QoS" in refused.stderr
    command = mosquitto("sub", server, version, "-t", "#", "-C", "1")
    denied = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert "denied" in denied.stderr
    assert b"twice" not in server.values("telemetry")


@needs_mosquitto
@VERSIONS
def test_a_will_of_mosquitto_is_sent_when_it_is_killed(server: RunningMqttServer, version: str) -> None:
    topic = f"wills/{version}"
    words = ("-t", "telemetry/#", "--will-topic", topic, "--will-payload", f"gone {version}")
    with subprocess.Popen(mosquitto("sub", server, version, *words)) as killed:
        wait_until_subscribed(server)
        killed.kill()
    wait_until(lambda: f"gone {version}".encode() in server.values("wills"), "the will is there")


# --- paho -------------------------------------------------------------------------------------------------------------


class PahoClient:
    """A client of paho-mqtt whose network loop runs in a thread."""

    def __init__(self, paho: ModuleType, server: RunningMqttServer, version: str, client_id: str = "", **options: Any):
        is_v5 = version == "mqttv5"
        self.messages: queue.Queue[Any] = queue.Queue()
        self.events: queue.Queue[tuple[str, Any]] = queue.Queue()
        clean = {} if is_v5 else {"clean_session": options.get("clean", True)}
        self.client = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            client_id,
            protocol=paho.MQTTv5 if is_v5 else paho.MQTTv311,
            reconnect_on_failure=False,
            **clean,
        )
        client = self.client
        client.on_message = lambda _client, _data, message: self.messages.put(message)
        client.on_connect = lambda _c, _d, flags, reason, _p: self.events.put(("connect", (flags, reason)))
        client.on_disconnect = lambda _c, _d, _f, reason, _p: self.events.put(("disconnect", reason))
        client.on_subscribe = lambda _c, _d, _m, reasons, _p: self.events.put(("subscribe", reasons))
        client.on_publish = lambda _c, _d, number, reason, _p: self.events.put(("publish", reason))
        if "user" in options:
            client.username_pw_set(*options["user"])
        of_v5 = {"clean_start": options.get("clean", True)} if is_v5 else {}
        client.connect("127.0.0.1", server.port, options.get("keep_alive", 60), **of_v5)
        self._loop = NetworkLoop(client, connects=False)

    def expect(self, kind: str) -> Any:
        found, what = self.events.get(timeout=PATIENCE_S)
        assert found == kind, what
        return what

    def __enter__(self) -> PahoClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.stop()


@pytest.fixture(scope="module")
def paho() -> ModuleType:
    found: ModuleType = pytest.importorskip("paho.mqtt.client", reason="needs paho-mqtt")
    return found


@VERSIONS
def test_paho_publishes_and_subscribes(server: RunningMqttServer, paho: ModuleType, version: str) -> None:
    name = f"telemetry/paho/{version}"
    with PahoClient(paho, server, version) as reader, PahoClient(paho, server, version) as device:
        reader.expect("connect")
        device.expect("connect")
        reader.client.subscribe([(f"{name}/#", 1), ("#", 1)])
        granted = [each.value for each in reader.expect("subscribe")]
        assert granted == [1, 0x8F if version == "mqttv5" else 0x80]
        for number in range(50):
            device.client.publish(f"{name}/{number % 3}", str(number), qos=1)
        assert {device.expect("publish").value for _ in range(50)} == {0}
        found = [reader.messages.get(timeout=PATIENCE_S) for _ in range(50)]
        assert sorted(int(each.payload) for each in found) == list(range(50))
        assert {each.qos for each in found} == {1}


def test_properties_of_paho_come_back(server: RunningMqttServer, paho: ModuleType) -> None:
    properties = pytest.importorskip("paho.mqtt.properties")
    packet_types = pytest.importorskip("paho.mqtt.packettypes")
    with PahoClient(paho, server, "mqttv5") as client:
        client.expect("connect")
        client.client.subscribe("telemetry/properties", 1)
        client.expect("subscribe")
        sent = properties.Properties(packet_types.PacketTypes.PUBLISH)
        sent.UserProperty = [("a", "1"), ("b", "ä")]
        sent.ContentType = "text/plain"
        sent.ResponseTopic = "telemetry/answer"
        sent.CorrelationData = b"\x00\xff"
        sent.MessageExpiryInterval = 500
        client.client.publish("telemetry/properties", "x", 1, properties=sent)
        found = client.messages.get(timeout=PATIENCE_S).properties
        for name in ("UserProperty", "ContentType", "ResponseTopic", "CorrelationData"):
            assert getattr(found, name) == getattr(sent, name)
        assert 400 < found.MessageExpiryInterval <= 500


@VERSIONS
def test_paho_is_taken_over_and_refused(server: RunningMqttServer, paho: ModuleType, version: str) -> None:
    with PahoClient(paho, server, version, "same") as first:
        first.expect("connect")
        with PahoClient(paho, server, version, "same") as second:
            second.expect("connect")
            reason = first.expect("disconnect")
            assert version != "mqttv5" or reason.value == 0x8E
    with PahoClient(paho, server, version, user=("anna", "wrong")) as refused:
        _, reason = refused.expect("connect")
        assert reason.is_failure
