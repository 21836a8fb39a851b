"""Hostile clients beside a well-behaved one: half requests, garbage, floods, half handshakes, a byte a second. The
well-behaved client gets all its answers; the hostile ones are disconnected, and cost bounded memory.

`python -m bench.hostile` measures the same with 5,000 idle and 200 hostile clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.certificates import Authority
from harness.hostile_clients import BAD_USER, KINDS, SOURCE, Crowd, Target, has_address
from harness.patience import PATIENCE_S, Patience, wait_until

from moldau.assembly.connections import NodeConnections
from moldau.base import counters
from moldau.testing import TestBroker

pytestmark = pytest.mark.moldau_only
GOOD = ("good", "good-secret")
IDLE, HOSTILE = 200, 44
RECORDS = 200
LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
EXPECTED = {
    counters.CLOSED_NOT_AUTHENTICATED: "half frames, a byte a second, half handshakes",
    counters.CLOSED_MALFORMED: "garbage, floods of unauthenticated requests",
    counters.AUTHENTICATION_FAILED: "wrong passwords",
    counters.READING_PAUSED: "clients that never read, and floods",
    counters.REQUESTS_THROTTLED: "floods of requests of a user with a quota",
}


class AttackedBroker(TestBroker):
    @property
    def tls_address(self) -> str:
        assert self._node is not None
        return self._node.addresses[1].address

    @property
    def connections(self) -> NodeConnections:
        assert self._node is not None
        return self._node.assembly.connections


@pytest.fixture
def attacked(tmp_path: Path) -> Iterator[AttackedBroker]:
    issued = Authority().issue("localhost")
    key = issued.write(tmp_path / "node.pem")
    users = " ".join(f'user_{name}="{password}"' for name, password in (GOOD, BAD_USER))
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "inter.broker.listener.name": "SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{LOGIN_MODULE} required {users};",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": key,
        # So that a test of seconds sees what takes half a minute otherwise.
        "moldau.authentication.timeout.ms": 1000,
    }
    broker = AttackedBroker(tmp_path / "data", settings)
    broker.start()
    yield broker
    broker.stop()


def client_settings(broker: TestBroker) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": GOOD[0],
        "sasl.password": GOOD[1],
    }


def limit_bad_user(broker: TestBroker) -> None:
    from moldau.cli.kafka import configs

    properties = broker.data_dir.parent / "admin.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={LOGIN_MODULE} required username="{GOOD[0]}" password="{GOOD[1]}";\n'
    )
    arguments = f"--bootstrap-server {broker.bootstrap_servers} --command-config {properties} --alter"
    quota = f"--entity-type users --entity-name {BAD_USER[0]} --add-config request_percentage=1"
    assert configs.main([*arguments.split(), *quota.split()]) == 0


def produce_all(broker: TestBroker) -> int:
    """Send records one after the other, each after the answer to the one before; return how many were acknowledged."""
    producer = Producer({**client_settings(broker), "acks": "all", "linger.ms": 0})
    acknowledged: list[int] = []
    for number in range(RECORDS):
        producer.produce("orders", str(number), on_delivery=lambda error, _: acknowledged.append(error is None))
        producer.flush(PATIENCE_S)
    return sum(acknowledged)


async def attack(broker: AttackedBroker) -> int:
    source = SOURCE if has_address(SOURCE) else None
    crowd = Crowd(Target(broker.bootstrap_servers, broker.tls_address, source))
    await crowd.open_idle(IDLE, GOOD)
    crowd.attack(HOSTILE)
    producing = asyncio.get_running_loop().run_in_executor(None, produce_all, broker)
    reached = broker.limit_counters
    missing = set(EXPECTED)
    patience = Patience(lambda: ", ".join(EXPECTED[each] for each in missing))
    while missing or not producing.done():
        await asyncio.sleep(0.01)
        missing = {each for each in EXPECTED if not reached[each]}
        patience.check(dict(reached))
        assert broker.connections.clients.total <= IDLE + 10 * HOSTILE
    assert crowd.target.disconnects["idle"] == 0, "idle clients are left alone"
    await crowd.leave()
    return await producing


def test_a_well_behaved_client_is_served_beside_hostile_ones(attacked: AttackedBroker) -> None:
    assert len(KINDS) <= HOSTILE, "there is at least one attacker of each kind"
    limit_bad_user(attacked)
    admin = AdminClient(client_settings(attacked))
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(PATIENCE_S)
    assert asyncio.run(attack(attacked)) == RECORDS
    budget, limits = attacked.connections.budget, attacked.connections.budget.limits
    wait_until(lambda: attacked.connections.clients.total <= 5, "only the admin client is left")
    wait_until(
        lambda: (
            (budget.free, budget.of_strangers.free, budget.unsent_free)
            == (limits.receive_budget_bytes, limits.unauthenticated_budget_bytes, limits.unsent_budget_bytes)
        ),
        "the memory of hostile clients is free again",
    )
    assert admin.list_topics(timeout=PATIENCE_S).topics
