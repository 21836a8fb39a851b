"""The SASL settings of a node, from properties with Kafka's names.

`listener.name.LISTENER.KEY` overrides `KEY` for one listener, and `listener.name.LISTENER.MECHANISM.KEY` for one
mechanism of it. The JAAS line of a listener and mechanism names the users that a server of PLAIN knows, and the user as
which this node logs in to the same listener of other nodes. No error quotes a JAAS line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from moldau.base.broker_configs import BROKER_CONFIGS
from moldau.base.config_def import ConfigDef
from moldau.base.setting_sources import SettingsError, Values
from moldau.base.settings import node, security
from moldau.security.sasl.client import ClientLogin
from moldau.security.sasl.jaas import (
    OAUTHBEARER_MODULE,
    PLAIN_MODULE,
    SCRAM_MODULE,
    JaasError,
    LoginModule,
    parse_file,
    parse_line,
)
from moldau.security.sasl.mechanism import (
    OAUTHBEARER,
    PLAIN,
    SCRAM_MECHANISMS,
    SUPPORTED_MECHANISMS,
)
from moldau.security.sasl.oauthbearer.settings import (
    LOGIN_HANDLER,
    SERVER_HANDLER,
    TOKEN_URL,
    OAuthBearerSettings,
    TokenRequest,
    read_token_request,
    read_validation,
    require_joserfc,
)
from moldau.security.sasl.use import SaslListenerSettings, SaslSettings, SaslUse

SERVER_CONTEXT: Final = "KafkaServer"
_MODULES: Final = {
    PLAIN: PLAIN_MODULE,
    OAUTHBEARER: OAUTHBEARER_MODULE,
    **dict.fromkeys(SCRAM_MECHANISMS, SCRAM_MODULE),
}

JaasFile = Mapping[str, tuple[LoginModule, ...]]
"""The login modules of a JAAS file by context."""
TokenSource = Callable[[TokenRequest], Callable[[], str]]
"""Returns a function that gets a token; it may wait for a file or the network."""


def read_jaas_file(path: str, origin: str) -> JaasFile:
    """Read the file that KAFKA_OPTS names as Java's java.security.auth.login.config."""
    try:
        with open(path, encoding="utf-8") as file:
            return parse_file(file.read())
    except OSError as refused:
        raise SettingsError(f"{origin}: {path}: cannot be read: {refused.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{origin}: {path}: is not UTF-8") from None
    except JaasError as wrong:
        example = f"{SERVER_CONTEXT} {{ {jaas_example(PLAIN)} }};"
        raise SettingsError(f"{origin}: {path}: {wrong}; expected e.g. {example}") from None


def read_sasl(
    values: Values, use: SaslUse, jaas_file: JaasFile, token_source: TokenSource, allowed_urls: frozenset[str] | None
) -> SaslSettings:
    """`allowed_urls` are the only ones that OAUTHBEARER may use; None allows all."""
    reader = _Reader(values, jaas_file, token_source, allowed_urls)
    delay_ms, idle_ms = (
        values.integer(security.CONNECTION_FAILED_AUTHENTICATION_DELAY_MS),
        values.integer(node.CONNECTIONS_MAX_IDLE_MS),
    )
    if use.serves and 0 <= idle_ms <= delay_ms:
        raise values.error(
            security.CONNECTION_FAILED_AUTHENTICATION_DELAY_MS,
            f"expected less than {node.CONNECTIONS_MAX_IDLE_MS}={idle_ms}: the answer would come too late",
        )
    return SaslSettings(
        {listener: reader.listener(listener) for listener in use.serves},
        delay_ms,
        None if use.brokers is None else reader.login(use.brokers, security.SASL_MECHANISM_INTER_BROKER_PROTOCOL, use),
        None
        if use.controllers is None
        else reader.login(use.controllers, security.SASL_MECHANISM_CONTROLLER_PROTOCOL, use),
        jaas_file,
    )


def read_changed_listener(
    values: Values, listener: str, running: SaslSettings, own_login: ClientLogin | None
) -> SaslListenerSettings:
    """Read the settings of a listener of a node that runs already. `own_login` is that of this node at this listener of
    other nodes: they have the same users, so it must stay valid. Raise SettingsError."""
    reader = _Reader(values, running.jaas_file, None, None)
    changed = reader.listener(listener, running.listeners[listener])
    if own_login is None:
        return changed
    if own_login.mechanism not in changed.lifetimes_ms:
        key = reader.key(listener, security.SASL_ENABLED_MECHANISMS)
        raise values.error(key, f"must include {own_login.mechanism}, with which this node logs in to other nodes")
    if own_login.mechanism == PLAIN and changed.passwords.get(own_login.user) != own_login.password:
        raise values.error(
            jaas_key(listener, PLAIN),
            f"expected the user {own_login.user} with the same password: nodes log in to each other as this user",
        )
    return changed


class _Reader:
    def __init__(
        self,
        values: Values,
        jaas_file: JaasFile,
        token_source: TokenSource | None,
        allowed_urls: frozenset[str] | None,
    ) -> None:
        """`token_source` is for `login`."""
        self._values = values
        self._jaas_file = jaas_file
        self._token_source = token_source
        self._allowed_urls = allowed_urls

    def listener(self, name: str, running: SaslListenerSettings | None = None) -> SaslListenerSettings:
        """`running` are the settings with which the listener runs already: what it has of OAUTHBEARER stays."""
        enabled = self._enabled(name)
        key = self.key(name, security.SASL_ENABLED_MECHANISMS)
        if not enabled:
            raise self._values.error(key, f"listener {name} needs one of {', '.join(SUPPORTED_MECHANISMS)}")
        for mechanism in enabled:
            if mechanism not in SUPPORTED_MECHANISMS:
                raise self._values.error(
                    key,
                    f"{mechanism} on listener {name} is not supported; expected {', '.join(SUPPORTED_MECHANISMS)}",
                )
        size_key = self.key(name, security.SASL_SERVER_MAX_RECEIVE_SIZE)
        if (size := self._values.integer(size_key)) < 1:
            raise self._values.error(size_key, "expected at least 1")
        lifetimes_ms = {
            mechanism: self._values.integer(self.key(name, security.CONNECTIONS_MAX_REAUTH_MS, mechanism))
            for mechanism in enabled
        }
        passwords = self._module(name, PLAIN).users() if PLAIN in enabled else {}
        if running is not None:
            oauthbearer = running.oauthbearer
            if OAUTHBEARER in enabled and oauthbearer is None:
                raise self._values.error(key, f"{OAUTHBEARER} cannot be added while the broker runs; restart it")
        else:
            oauthbearer = self._validation(name, key) if OAUTHBEARER in enabled else None
        return SaslListenerSettings(lifetimes_ms, size, passwords, oauthbearer)

    def _validation(self, listener: str, key: str) -> OAuthBearerSettings:
        missing = "OAUTHBEARER needs the package joserfc: pip install 'moldau[oauth]'"
        require_joserfc(self._values.error(key, missing))
        options = self._oauth_options(listener)
        return read_validation(
            partial(self._oauth_text, listener), options, partial(self._oauth_error, listener), self._allowed_urls
        )

    def login(self, listener: str, mechanism_key: ConfigDef, use: SaslUse) -> ClientLogin | None:
        """Return how this node logs in to that listener of other nodes."""
        values = self._values
        mechanism = values.text(mechanism_key) or ""
        if use.is_alone and (mechanism_key not in values or self._find_module(listener, mechanism) is None):
            return None
        if mechanism not in SUPPORTED_MECHANISMS:
            raise values.error(
                mechanism_key,
                f"{mechanism} on listener {listener} is not supported; expected {', '.join(SUPPORTED_MECHANISMS)}",
            )
        if listener in use.serves and mechanism not in self._enabled(listener):
            raise values.error(
                mechanism_key, f"must be included in {security.SASL_ENABLED_MECHANISMS} of listener {listener}"
            )
        if mechanism == OAUTHBEARER:
            return self._token_login(listener, use)
        options = self._module(listener, mechanism).options
        user, password = options.get("username"), options.get("password")
        if not user or not password:
            if use.is_alone:
                return None
            key = jaas_key(listener, mechanism)
            raise values.error(key, "expected username and password, with which this node logs in to other nodes")
        return ClientLogin(mechanism, user, password)

    def _token_login(self, listener: str, use: SaslUse) -> ClientLogin | None:
        if use.is_alone and self._oauth_text(listener, TOKEN_URL) is None:
            return None
        request = read_token_request(
            partial(self._oauth_text, listener),
            self._oauth_options(listener),
            partial(self._oauth_error, listener),
            self._allowed_urls,
        )
        assert self._token_source is not None
        token, extensions = self._token_source(request), request.extensions
        return ClientLogin(OAUTHBEARER, request.user, token=token, extensions=extensions)

    def _oauth_options(self, listener: str) -> Mapping[str, str]:
        """Return the options of the JAAS line, which may be missing."""
        is_set = self._find_module(listener, OAUTHBEARER) is not None
        return self._module(listener, OAUTHBEARER).options if is_set else {}

    def _oauth_text(self, listener: str, name: str) -> str | None:
        key = self._oauth_key(listener, name)
        if name not in BROKER_CONFIGS or (name in (SERVER_HANDLER, LOGIN_HANDLER) and key not in self._values):
            return None
        value = self._values.value(key)
        return None if value is None else ",".join(value) if isinstance(value, tuple) else str(value)

    def _oauth_error(self, listener: str, name: str, reason: str) -> SettingsError:
        key = self._oauth_key(listener, name)
        setting = self._values.texts.get(key)
        if setting is not None and "@" in setting.text:  # a URL with a password
            return SettingsError(f"{setting.origin}: {key}: {reason}")
        return self._values.error(key, reason)

    def _oauth_key(self, listener: str, name: str) -> str:
        if name in (security.SASL_JAAS_CONFIG.name, SERVER_HANDLER, LOGIN_HANDLER):  # only in this form, as in Kafka
            return f"listener.name.{listener.lower()}.{OAUTHBEARER.lower()}.{name}"
        return self.key(listener, name, OAUTHBEARER)

    def _enabled(self, listener: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._values.strings(self.key(listener, security.SASL_ENABLED_MECHANISMS))))

    def key(self, listener: str, key: ConfigDef | str, mechanism: str | None = None) -> str:
        """Return the most specific key that is set."""
        prefix = f"listener.name.{listener.lower()}."
        candidates = [f"{prefix}{mechanism.lower()}.{key}"] if mechanism else []
        return next((each for each in (*candidates, f"{prefix}{key}") if each in self._values), str(key))

    def _module(self, listener: str, mechanism: str) -> LoginModule:
        module, key = self._find_module(listener, mechanism), jaas_key(listener, mechanism)
        expected = _MODULES[mechanism]
        if module is None:
            raise SettingsError(
                f"{key}: is not set, but {mechanism} on listener {listener} needs it; expected e.g."
                f" {jaas_example(mechanism)}"
            )
        if module.class_name != expected:
            raise self._values.error(key, f"expected the login module {expected}; e.g. {jaas_example(mechanism)}")
        return module

    def _find_module(self, listener: str, mechanism: str) -> LoginModule | None:
        key = jaas_key(listener, mechanism)
        if key in self._values:
            try:
                return parse_line(self._values.text(key) or "")
            except JaasError as wrong:
                raise self._values.error(key, f"{wrong}; expected e.g. {jaas_example(mechanism)}") from None
        expected = _MODULES.get(mechanism)
        for context in (f"{listener.lower()}.{SERVER_CONTEXT}", SERVER_CONTEXT):
            if context in self._jaas_file:
                return next((each for each in self._jaas_file[context] if each.class_name == expected), None)
        return None


def jaas_key(listener: str, mechanism: str) -> str:
    return f"listener.name.{listener.lower()}.{mechanism.lower()}.{security.SASL_JAAS_CONFIG}"


def jaas_example(mechanism: str) -> str:
    """Return a JAAS line in the right form."""
    options = {PLAIN: ' user_ann="PASSWORD"', OAUTHBEARER: ""}.get(mechanism, ' username="NAME" password="PASSWORD"')
    return f"{_MODULES.get(mechanism, PLAIN_MODULE)} required{options};"
