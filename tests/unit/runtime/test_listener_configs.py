"""The dynamic configs of a broker's listeners in a running node: checked alone, applied alone, and kept if unusable."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from certificates import Vault

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.persistent_map import PersistentMap
from moldau.metadata.apply import Changes
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigResource
from moldau.node.listener_security import static_listeners
from moldau.runtime.listener_configs import ListenerConfigs
from moldau.runtime.node_tls import NodeTls
from moldau.security.sasl.use import SaslListenerSettings
from moldau.settings import from_properties

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
KEY_STORE = "listener.name.{}.ssl.keystore.location"
JAAS = "listener.name.{}.plain.sasl.jaas.config"
RESOURCE = (int(ConfigResource.BROKER), "1")


class Listeners:
    """Two listeners with TLS and SASL, A and B."""

    def __init__(self, directory: Path) -> None:
        self.vault = Vault(directory)
        settings = from_properties(
            {
                "node.id": "1",
                "listeners": "A://:1,B://:2",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,A:SASL_SSL,B:SASL_SSL",
                "inter.broker.listener.name": "A",
                "sasl.enabled.mechanisms": "PLAIN",
                **{JAAS.format(name): f'{MODULE} required user_ann="a";' for name in "ab"},
                **self.vault.server(),
            }
        )
        self.tls = NodeTls(settings.tls, ["A", "B"], [])
        self.sasl: dict[str, SaslListenerSettings] = {}
        self.configs = ListenerConfigs(1, static_listeners(settings), self.tls, self.sasl.__setitem__)

    def contexts(self) -> list[object]:
        return [tls.server for name in "AB" if (tls := self.tls.server(name)) is not None]


def image(**configs: str) -> MetadataImage:
    return MetadataImage(configs=PersistentMap({RESOURCE: PersistentMap(configs)}))


def users(**passwords: str) -> str:
    return f"{MODULE} required {' '.join(f'user_{name}={password}' for name, password in passwords.items())};"


def test_configs_are_used_from_the_start_and_when_they_change(tmp_path: Path) -> None:
    listeners = Listeners(tmp_path)
    configs, (a, b) = listeners.configs, listeners.contexts()
    first = image(**{KEY_STORE.format("a"): listeners.vault.issue("new"), JAAS.format("b"): users(bob="b")})
    second = image(**{JAAS.format("b"): users(eve="e"), "log.retention.ms": "5"})
    changes = Changes(configs={RESOURCE})

    async def run() -> None:
        configs.on_image(second, changes)  # before the start: nothing
        assert listeners.sasl == {}
        await configs.start(first)
        assert listeners.contexts()[0] is not a
        assert listeners.contexts()[1] is b
        assert {name: each.passwords for name, each in listeners.sasl.items()} == {"B": {"bob": "b"}}
        configs.on_image(second, Changes(configs={(RESOURCE[0], "2")}))  # of another broker
        assert listeners.sasl["B"].passwords == {"bob": "b"}
        configs.on_image(second, changes)
        assert listeners.sasl["B"].passwords == {"eve": "e"}
        assert listeners.sasl.keys() == {"B"}

    asyncio.run(run())


def test_configs_that_cannot_be_used_leave_their_listener_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listeners = Listeners(tmp_path)
    a, b = listeners.contexts()
    stored = {
        KEY_STORE.format("a"): str(tmp_path / "gone.pem"),
        KEY_STORE.format("b"): listeners.vault.issue("new"),
        JAAS.format("a"): "planted-secret",
        JAAS.format("b"): users(bob="b"),
        "listener.name.removed.ssl.client.auth": "required",
    }
    asyncio.run(listeners.configs.start(image(**stored)))
    assert listeners.contexts()[0] is a
    assert listeners.contexts()[1] is not b
    assert listeners.sasl.keys() == {"B"}
    messages = [record.getMessage() for record in caplog.records]
    assert [each for each in messages if "listener B" in each and "cannot" in each] == []
    assert any("listener A: SASL stays as it was, its dynamic configs cannot be used" in each for each in messages)
    assert any("listener A: the old certificates stay in use" in each for each in messages)
    assert "planted-secret" not in caplog.text


def test_a_value_of_another_release_is_ignored_with_its_listener(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listeners = Listeners(tmp_path)
    a, b = listeners.contexts()
    stored = {"listener.name.b.ssl.client.auth": "sometimes", KEY_STORE.format("a"): listeners.vault.issue("new")}
    asyncio.run(listeners.configs.start(image(**stored)))
    assert listeners.contexts()[0] is not a
    assert listeners.contexts()[1] is b
    assert "listener B: TLS stays as it was, its dynamic configs cannot be used" in caplog.text


def test_only_the_listeners_that_are_named_are_checked(tmp_path: Path) -> None:
    check, vault = Listeners(tmp_path).configs.check, Vault(tmp_path)
    old = {KEY_STORE.format("b"): "/gone"}
    check([KEY_STORE.format("a")], old, {**old, KEY_STORE.format("a"): vault.node})
    check([KEY_STORE.format("b")], old, {})
    gone = {"listener.name.removed.ssl.client.auth": "none"}
    check(list(gone), gone, {})  # it can be deleted
    for names, new, reason in (
        ([KEY_STORE.format("b")], old, "^listener B: ssl.keystore.location=/gone: cannot be read"),
        (list(gone), gone, "^listener.name.removed.ssl.client.auth: this broker has no listener REMOVED with TLS$"),
    ):
        with pytest.raises(KafkaError, match=reason) as refused:
            check(names, {}, new)
        assert refused.value.code == ErrorCode.INVALID_REQUEST
