"""What dynamic configs make of a listener's TLS and SASL, and which are refused; no error quotes a secret."""

from __future__ import annotations

import pytest

from moldau.base.setting_sources import SettingsError
from moldau.node.listener_security import static_listeners
from moldau.security.dynamic_listeners import StaticListeners
from moldau.settings import from_properties

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
INTERNAL = "listener.name.internal"
SECRET = "planted-secret"


def listeners(**more: str) -> StaticListeners:
    return static_listeners(
        from_properties(
            {
                "listeners": "CLIENTS://:9092,INTERNAL://:9094,OPEN://:9095,CONTROLLER://:9093",
                "listener.security.protocol.map": "CONTROLLER:SSL,CLIENTS:SASL_SSL,INTERNAL:SASL_SSL,OPEN:PLAINTEXT",
                "controller.listener.names": "CONTROLLER",
                "inter.broker.listener.name": "INTERNAL",
                "process.roles": "broker,controller",
                "controller.quorum.bootstrap.servers": "other:9093",
                "node.id": "1",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": "/x/node.pem",
                "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "listener.name.clients.plain.sasl.jaas.config": f'{MODULE} required user_ann="a";',
                f"{INTERNAL}.plain.sasl.jaas.config": f'{MODULE} required username="n" password="p" user_n="p";',
                **more,
            }
        )
    )


def test_without_dynamic_configs_nothing_changes() -> None:
    static = listeners()
    assert {name: static.tls_of(name, {}) for name in static.tls} == static.tls
    assert {name: static.sasl_of(name, {}) for name in static.with_sasl} == static.sasl.listeners
    assert set(static.tls) == {"CLIENTS", "INTERNAL"}


def test_dynamic_configs_override_static_ones_of_their_listener_only() -> None:
    static = listeners(**{"listener.name.clients.ssl.keystore.location": "/x/clients.pem"})
    dynamic = {
        "listener.name.clients.ssl.keystore.location": "/x/new.pem",
        "listener.name.clients.ssl.client.auth": "required",
        "listener.name.clients.ssl.principal.mapping.rules": "no rule",  # ignored, like all that are not dynamic here
        "listener.name.clients.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": f'{MODULE} required user_bob="b";',
        "listener.name.clients.connections.max.reauth.ms": "5000",
        "ssl.keystore.location": "/x/ignored.pem",
    }
    tls, sasl = static.tls_of("CLIENTS", dynamic), static.sasl_of("CLIENTS", dynamic)
    assert (tls.key_store.location, tls.client_auth) == ("/x/new.pem", "required")
    assert (sasl.passwords, sasl.lifetimes_ms) == ({"bob": "b"}, {"PLAIN": 5000})
    assert static.tls_of("INTERNAL", dynamic) == static.tls["INTERNAL"]
    assert static.sasl_of("INTERNAL", dynamic) == static.sasl.listeners["INTERNAL"]
    assert static.tls_of("CLIENTS", {}).key_store.location == "/x/clients.pem"


def test_a_lifetime_may_be_that_of_one_mechanism() -> None:
    dynamic = {f"{INTERNAL}.connections.max.reauth.ms": "5000", f"{INTERNAL}.plain.connections.max.reauth.ms": "7000"}
    assert listeners().sasl_of("INTERNAL", dynamic).lifetimes_ms == {"PLAIN": 7000, "SCRAM-SHA-256": 5000}


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("ssl.keystore.type", "PKCS12", "its properties: ssl.keystore.location=/x/node.pem: set ssl.keystore.password"),
        ("ssl.keystore.key", SECRET, "ssl.keystore.key=[hidden]: set ssl.keystore.certificate.chain too"),
        ("ssl.keystore.location", "", "ssl.keystore.location=: a listener with TLS needs a key and a certificate"),
        ("ssl.enabled.protocols", "SSLv3", "SSLv3 is not supported"),
    ],
)
def test_which_tls_is_refused(name: str, text: str, reason: str) -> None:
    with pytest.raises(SettingsError) as refused:
        listeners().tls_of("INTERNAL", {f"{INTERNAL}.{name}": text})
    assert reason in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("sasl.enabled.mechanisms", "", "listener INTERNAL needs one of PLAIN"),
        ("sasl.enabled.mechanisms", "PLAIN,GSSAPI", "GSSAPI on listener INTERNAL is not supported"),
        ("sasl.enabled.mechanisms", "PLAIN,OAUTHBEARER", "OAUTHBEARER cannot be added while the broker runs"),
        ("sasl.enabled.mechanisms", "SCRAM-SHA-256", "must include PLAIN, with which this node logs in to other nodes"),
        ("plain.sasl.jaas.config", f'Other required user_x="{SECRET}";', "=[hidden]: expected the login module"),
        ("plain.sasl.jaas.config", f"{MODULE} required user_x={SECRET}", "not terminated by semi-colon"),
        ("plain.sasl.jaas.config", f'{MODULE} required user_x="{SECRET}";', "expected the user n with the same"),
        ("plain.sasl.jaas.config", f'{MODULE} required user_n="{SECRET}";', "expected the user n with the same"),
    ],
)
def test_which_sasl_is_refused(name: str, text: str, reason: str) -> None:
    with pytest.raises(SettingsError) as refused:
        listeners().sasl_of("INTERNAL", {f"{INTERNAL}.{name}": text})
    assert reason in str(refused.value)
    assert SECRET not in str(refused.value)


CONTROLLERS = "a node that starts connects to the controllers before it knows its dynamic configs; set this in .*"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("listener.name.clients.ssl.client.auth", None),
        ("listener.name.controller.ssl.client.auth", CONTROLLERS),
        ("listener.name.client.ssl.client.auth", "this broker has no listener CLIENT with TLS"),
        ("listener.name.open.ssl.client.auth", "this broker has no listener OPEN with TLS"),
        ("listener.name.open.sasl.enabled.mechanisms", "this broker has no listener OPEN with SASL"),
        ("listener.name.controller.plain.sasl.jaas.config", CONTROLLERS),
    ],
)
def test_configs_without_effect_are_refused(name: str, reason: str | None) -> None:
    if reason is None:
        listeners().refuse_without_effect([name])
        return
    with pytest.raises(SettingsError, match=f"^{name}: {reason}$"):
        listeners().refuse_without_effect([name])
