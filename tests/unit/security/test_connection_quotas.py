"""Counts and rates of connections: by node, by listener and by address, with the rules of Kafka's ConnectionQuotas."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from moldau.base.config_def import BrokerLayers
from moldau.base.connection_settings import ConnectionMaxima, ListenerMaxima, connection_maxima
from moldau.base.limits import INT32_MAX
from moldau.base.setting_sources import SettingsError
from moldau.security.quotas import connections
from moldau.security.quotas.connections import ConnectionQuotas
from moldau.security.quotas.entities import CONNECTION_CREATION_RATE, Entity, entity
from moldau.security.quotas.rates import Window
from moldau.settings import from_properties

CLIENTS, BROKERS = "CLIENTS", "BROKERS"
TWO_LISTENERS = {CLIENTS: ListenerMaxima(), BROKERS: ListenerMaxima()}
HOST = "10.0.0.1"


def quotas_of(broker_listener: str = BROKERS, **counts: object) -> ConnectionQuotas:
    given = {"listeners": TWO_LISTENERS} | counts
    return ConnectionQuotas(ConnectionMaxima(**given), Window(), broker_listener)  # type: ignore[arg-type]


def enter(quotas: ConnectionQuotas, count: int, listener: str = CLIENTS, host: str = HOST, now_ms: int = 0) -> None:
    for _ in range(count):
        assert quotas.enter(listener, host, now_ms) is None


def test_the_node_has_at_most_max_connections() -> None:
    quotas = quotas_of(connections_max=2)
    enter(quotas, 2)
    assert not quotas.has_slot(CLIENTS)
    quotas.leave(CLIENTS, HOST)
    assert quotas.has_slot(CLIENTS)


def test_brokers_can_connect_above_max_connections() -> None:
    quotas = quotas_of(connections_max=2)
    enter(quotas, 2)
    assert quotas.has_slot(BROKERS)
    enter(quotas, 1, BROKERS)
    assert (quotas.excess(CLIENTS), quotas.excess(BROKERS)) == (1, 0)


def test_a_single_listener_is_not_exempt_from_max_connections() -> None:
    quotas = quotas_of(CLIENTS, connections_max=1, listeners={CLIENTS: ListenerMaxima()})
    enter(quotas, 1)
    assert not quotas.has_slot(CLIENTS)


def test_the_limit_of_a_listener_holds_for_brokers_too() -> None:
    quotas = quotas_of(listeners={CLIENTS: ListenerMaxima(), BROKERS: ListenerMaxima(1)})
    enter(quotas, 1, BROKERS)
    assert not quotas.has_slot(BROKERS)
    assert quotas.has_slot(CLIENTS)


def test_waiting_callbacks_run_when_a_connection_closes_or_limits_change() -> None:
    quotas = quotas_of(connections_max=1)
    calls: list[str] = []
    enter(quotas, 1)
    quotas.when_slot_is_free(lambda: calls.append("closed"))
    quotas.leave(CLIENTS, HOST)
    quotas.when_slot_is_free(lambda: calls.append("changed"))
    quotas.configure(ConnectionMaxima(connections_max=5))
    quotas.configure(ConnectionMaxima(connections_max=6))
    assert calls == ["closed", "changed"]


@pytest.mark.parametrize("host", ["10.0.0.1", "::ffff:10.0.0.1"])
def test_an_address_has_a_limit_of_its_own(host: str) -> None:
    quotas = quotas_of(per_ip_max=1, per_ip_overrides={"10.0.0.1": 2})
    enter(quotas, 2, host=host)
    refusal = quotas.enter(CLIENTS, HOST, 0)
    assert refusal == ("max.connections.per.ip=2 is reached", 0)
    enter(quotas, 1, host="10.0.0.2")
    assert quotas.enter(CLIENTS, "10.0.0.2", 0) is not None
    assert quotas.total == 3, "a refused connection is not counted"


@pytest.mark.parametrize("counts", [{"new_per_s_max": 2}, {"listeners": {CLIENTS: ListenerMaxima(new_per_s_max=2)}}])
def test_a_listener_pauses_above_the_rate(counts: Mapping[str, object]) -> None:
    quotas = quotas_of(**counts)
    enter(quotas, 20)
    assert quotas.accept_pause_ms(CLIENTS, 0) == 0, "a burst of ten seconds is allowed"
    enter(quotas, 1)
    assert 0 < quotas.accept_pause_ms(CLIENTS, 0) <= 1000
    assert quotas.accept_pause_ms(CLIENTS, 12_000) == 0


def test_the_rate_of_the_node_does_not_stop_brokers() -> None:
    quotas = quotas_of(new_per_s_max=1)
    enter(quotas, 50, BROKERS)
    assert quotas.accept_pause_ms(BROKERS, 0) == 0


def test_a_rate_of_zero_pauses_the_listener() -> None:
    quotas = quotas_of(new_per_s_max=0)
    enter(quotas, 1)
    assert quotas.accept_pause_ms(CLIENTS, 0) == 1000


def ip_quota(rate: float, name: str | None = HOST) -> Mapping[Entity, Mapping[str, float]]:
    return {entity(ip=name): {CONNECTION_CREATION_RATE: rate}}


def test_an_address_above_its_rate_is_refused_with_a_delay_and_not_counted() -> None:
    quotas = quotas_of()
    quotas.set_quotas(ip_quota(1))
    enter(quotas, 10)
    refusal = quotas.enter(CLIENTS, HOST, 0)
    assert refusal is not None
    assert 0 < refusal.delay_ms <= 1000
    assert quotas.total == 10
    enter(quotas, 1, host="10.0.0.2")
    assert quotas.enter(CLIENTS, HOST, 12_000) is None


def test_refused_connections_do_not_keep_an_address_out() -> None:
    quotas = quotas_of()
    quotas.set_quotas(ip_quota(1))
    enter(quotas, 10)
    for _ in range(1000):
        assert quotas.enter(CLIENTS, HOST, 5_000) is not None
    assert quotas.enter(CLIENTS, HOST, 12_000) is None


def test_the_default_is_the_rate_of_each_address_without_its_own() -> None:
    quotas = quotas_of()
    quotas.set_quotas({**ip_quota(1, None), **ip_quota(100)})
    enter(quotas, 100)
    enter(quotas, 10, host="::1")
    enter(quotas, 10, host="::2")
    assert quotas.enter(CLIENTS, "::1", 0) is not None


def test_a_quota_applies_to_every_spelling_of_an_address() -> None:
    quotas = quotas_of()
    quotas.set_quotas(ip_quota(1, "0:0:0:0:0:0:0:1"))
    enter(quotas, 10, host="::1")
    assert quotas.enter(CLIENTS, "::1", 0) is not None


def test_ever_new_addresses_use_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "RATES_MAX", 10)
    quotas = quotas_of()
    quotas.set_quotas(ip_quota(1, None))
    for number in range(100):
        enter(quotas, 1, host=f"10.0.1.{number}")
        quotas.leave(CLIENTS, f"10.0.1.{number}")
    assert len(quotas._address_rates) == 10
    assert not quotas._by_address


def test_the_maxima_are_those_of_the_settings_or_of_the_descriptors() -> None:
    layers = BrokerLayers(
        dynamic={"max.connections.per.ip.overrides": "::1:4,10.0.0.1:2"},
        dynamic_default={"max.connections": "9"},
        static={
            "max.connections": "7",
            "listener.name.inner.max.connections": "3",
            "max.connection.creation.rate": "5",
        },
    )
    maxima = connection_maxima(layers, descriptors_by_listener={"INNER": 8, "OUTER": 8}, descriptors_max=20)
    assert maxima.connections_max == 9, "a dynamic value overrides a static one"
    assert maxima.listeners == {
        "INNER": ListenerMaxima(connections_max=3, new_per_s_max=5),
        "OUTER": ListenerMaxima(connections_max=8, new_per_s_max=5),
    }, "without a value of its own, a listener has that of the broker, but not more than its descriptors"
    assert maxima.per_ip_overrides == {"::1": 4, "10.0.0.1": 2}
    few = connection_maxima(layers, descriptors_by_listener={}, descriptors_max=6)
    assert few.connections_max == 6
    unset = connection_maxima(BrokerLayers(), descriptors_by_listener={}, descriptors_max=INT32_MAX)
    assert unset == ConnectionMaxima()


@pytest.mark.parametrize("text", ["localhost:3", "10.0.0.1", "10.0.0.1:-1", "10.0.0.1:x", ":5"])
def test_wrong_overrides_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"max\.connections\.per\.ip\.overrides"):
        from_properties({"max.connections.per.ip.overrides": text})
