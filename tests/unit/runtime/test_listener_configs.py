"""The dynamic configs of a broker's listeners in a running node: checked alone, applied alone, and kept if unusable."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from harness.certificates import Vault

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.persistent_map import PersistentMap
from moldau.metadata.apply import Changes
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigResource
from moldau.node.listener_security import static_listeners
from moldau.runtime.listener_configs import ListenerConfigs
from moldau.runtime.node_tls import NodeTls
from moldau.security.principals import ANONYMOUS, Principal
from moldau.security.sasl.use import SaslListenerSettings
from moldau.security.tls.renewal import NoContextYet
from moldau.settings import from_properties

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
KEY_STORE = "listener.name.{}.ssl.keystore.location"
JAAS = "listener.name.{}.plain.sasl.jaas.config"
RESOURCE = (int(ConfigResource.BROKER), "1")


class Listeners:
    """Two listeners with TLS and SASL, A and B."""

    def __init__(self, directory: Path, is_ignored: bool = False, more_name: str | None = None) -> None:
        """`more_name` is one that only the certificate of the properties file has."""
        self.vault = Vault(directory)
        if more_name:
            self.vault.issue("node", "localhost", more_name)
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
        self.configs = ListenerConfigs(1, static_listeners(settings), self.tls, self.sasl.__setitem__, is_ignored)

    def contexts(self) -> list[object]:
        """Return those of A and B; None for a listener that has none yet."""
        return [self._context(name) for name in "AB"]

    def _context(self, listener: str) -> object:
        tls = self.tls.server(listener)
        assert tls is not None
        try:
            return tls.server
        except NoContextYet:
            return None


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


def test_configs_that_cannot_be_used_at_a_start_let_nobody_in(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    listeners = Listeners(tmp_path)
    _, b = listeners.contexts()
    stored = {
        KEY_STORE.format("a"): str(tmp_path / "gone.pem"),
        KEY_STORE.format("b"): listeners.vault.issue("new"),
        JAAS.format("a"): "planted-secret",
        JAAS.format("b"): users(bob="b"),
        "listener.name.removed.ssl.client.auth": "required",
    }
    asyncio.run(listeners.configs.start(image(**stored)))
    assert listeners.contexts()[0] is None
    assert listeners.contexts()[1] not in (None, b)
    assert {name: (each.lifetimes_ms, each.passwords) for name, each in listeners.sasl.items()} == {
        "A": ({}, {"ann": "a"}),
        "B": ({"PLAIN": 0}, {"bob": "b"}),
    }
    messages = [record.getMessage() for record in caplog.records]
    assert [each for each in messages if "listener B" in each and "cannot" in each] == []
    assert any("listener A: nobody can log in until its dynamic configs can be used" in each for each in messages)
    assert any("listener A: no connections are accepted until the dynamic configs can" in each for each in messages)
    assert "planted-secret" not in caplog.text


def test_the_certificate_of_a_start_is_not_compared_with_that_of_the_properties_file(tmp_path: Path) -> None:
    """Which was renewed, with one more name, while clients saw the other one."""
    listeners = Listeners(tmp_path, more_name="more.example")
    stored = {
        KEY_STORE.format("a"): listeners.vault.issue("new", "localhost"),
        "listener.name.a.ssl.client.auth": "required",
    }
    asyncio.run(listeners.configs.start(image(**stored)))
    context = listeners.contexts()[0]
    assert isinstance(context, ssl.SSLContext)
    assert context.verify_mode is ssl.CERT_REQUIRED
    check(listeners, list(stored), stored, {})  # and it can be deleted
    check(listeners, [KEY_STORE.format("a")], stored, {"listener.name.a.ssl.client.auth": "required"})


def test_configs_that_cannot_be_used_later_leave_their_listener_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listeners = Listeners(tmp_path)
    (a, b), gone = listeners.contexts(), str(tmp_path / "gone.pem")
    wrong = {"listener.name.a.ssl.client.auth": "sometimes", KEY_STORE.format("b"): gone, JAAS.format("a"): "x"}

    async def run() -> None:
        await listeners.configs.start(image())
        listeners.configs.on_image(image(**wrong), Changes(configs={RESOURCE}))
        listeners.tls.reload()

    asyncio.run(run())
    assert listeners.contexts() == [a, b]
    assert listeners.sasl == {}
    for line in ("listener A: TLS stays as it was", "listener A: SASL stays as it was", "listener B: the old cert"):
        assert line in caplog.text


def test_a_listener_opens_when_its_configs_are_set_right(tmp_path: Path) -> None:
    listeners = Listeners(tmp_path)
    wrong = {"listener.name.a.ssl.client.auth": "sometimes", JAAS.format("a"): "planted-secret"}

    async def run() -> None:
        await listeners.configs.start(image(**wrong))
        assert listeners.contexts()[0] is None
        check(listeners, list(wrong), wrong, {})
        listeners.configs.on_image(image(), Changes(configs={RESOURCE}))
        listeners.tls.reload()

    asyncio.run(run())
    assert listeners.contexts()[0] is not None
    assert listeners.sasl["A"].lifetimes_ms == {"PLAIN": 0}


def test_a_start_can_ignore_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    listeners = Listeners(tmp_path, is_ignored=True)
    before, stored = listeners.contexts(), image(**{JAAS.format("a"): users(an="a"), KEY_STORE.format("a"): "/gone"})

    async def run() -> None:
        await listeners.configs.start(stored)
        listeners.configs.on_image(stored, Changes(configs={RESOURCE}))

    asyncio.run(run())
    assert (listeners.contexts(), listeners.sasl) == (before, {})
    assert "are ignored: moldau.ignore.dynamic.listener.configs=true" in caplog.text


def test_a_value_of_another_release_closes_its_listener(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    listeners = Listeners(tmp_path)
    a, _ = listeners.contexts()
    stored = {"listener.name.b.ssl.client.auth": "sometimes", KEY_STORE.format("a"): listeners.vault.issue("new")}
    asyncio.run(listeners.configs.start(image(**stored)))
    assert listeners.contexts()[0] is not a
    assert listeners.contexts()[1] is None
    assert listeners.sasl == {}  # SASL is as it was
    assert "listener B: no connections are accepted until the dynamic configs can be used: " in caplog.text


def test_only_the_listeners_that_are_named_are_checked(tmp_path: Path) -> None:
    listeners = Listeners(tmp_path)
    old = {KEY_STORE.format("b"): "/gone"}
    check(listeners, [KEY_STORE.format("a")], old, {**old, KEY_STORE.format("a"): listeners.vault.node})
    check(listeners, [KEY_STORE.format("b")], old, {})
    gone = {"listener.name.removed.ssl.client.auth": "none"}
    check(listeners, list(gone), gone, {})  # it can be deleted
    for names, new, reason in (
        ([KEY_STORE.format("b")], old, "^listener B: ssl.keystore.location=/gone: cannot be read"),
        (list(gone), gone, "^listener.name.removed.ssl.client.auth: this broker has no listener REMOVED with TLS$"),
    ):
        with pytest.raises(KafkaError, match=reason) as refused:
            check(listeners, names, {}, new)
        assert refused.value.code == ErrorCode.INVALID_REQUEST


def test_only_what_is_changed_is_checked(tmp_path: Path) -> None:
    """A user can be removed while the files of TLS cannot be used, also by a request that names all configs."""
    listeners, names = Listeners(tmp_path), [KEY_STORE.format("a"), JAAS.format("a")]
    tls, sasl = {names[0]: "/gone"}, {names[1]: "planted-secret"}
    check(listeners, names[1:], tls, {**tls, names[1]: users(bob="b")})
    check(listeners, names, tls, {**tls, names[1]: users(bob="b")})
    check(listeners, names[:1], sasl, {**sasl, names[0]: listeners.vault.node})
    with pytest.raises(KafkaError, match="cannot be read: No such file"):  # the same value reads the file again
        check(listeners, names[:1], tls, tls)
    with pytest.raises(KafkaError, match="cannot be read: it is not a valid path"):
        check(listeners, names[:1], {}, {names[0]: "/a\0b"})


def test_users_of_plain_cannot_remove_themselves(tmp_path: Path) -> None:
    listeners, ann, mistyped = Listeners(tmp_path), Principal("User", "ann"), users(an="a")
    name, mechanisms = JAAS.format("a"), "listener.name.a.sasl.enabled.mechanisms"
    with pytest.raises(KafkaError, match=r"^listener A: ann would not be a user of PLAIN any more"):
        check(listeners, [name], {}, {name: mistyped}, ann)
    with pytest.raises(KafkaError, match="ann would not be a user of PLAIN"):
        check(listeners, [mechanisms], {}, {mechanisms: "SCRAM-SHA-256"}, ann)
    check(listeners, [name], {}, {name: users(ann="other", bob="b")}, ann)
    check(listeners, [name], {}, {name: mistyped}, Principal("User", "eve"))
    asyncio.run(listeners.configs.start(image(**{name: users(bob="b")})))
    check(listeners, [name], {name: users(bob="b")}, {}, Principal("User", "bob"))  # back to the properties file


def test_sessions_that_end_at_once_are_refused(tmp_path: Path) -> None:
    listeners = Listeners(tmp_path)
    for name in ("listener.name.a.connections.max.reauth.ms", "listener.name.a.plain.connections.max.reauth.ms"):
        check(listeners, [name], {}, {name: "0"})
        check(listeners, [name], {}, {name: "1000"})
        with pytest.raises(KafkaError, match=f"^{name}=999: expected 0, for no end, or at least 1000$"):
            check(listeners, [name], {}, {name: "999"})


def check(
    listeners: Listeners,
    names: list[str],
    old: dict[str, str],
    new: dict[str, str],
    requester: Principal = ANONYMOUS,
) -> None:
    listeners.configs.check(names, old, new, requester)
