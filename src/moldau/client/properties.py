"""Client properties under the names of Java's clients, translated for librdkafka and for our own channel.

Java names without a meaning here (serializers, metric reporters) are dropped silently. The caller that creates the
client warns of those that librdkafka does not know. Passwords are passed on and never printed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from moldau.base.errors import UnusableProperty
from moldau.client.channel import Security
from moldau.security.sasl.client import ClientLogin, LoginFailed
from moldau.security.sasl.jaas import SCRAM_MODULE, JaasError, LoginModule, parse_line
from moldau.security.sasl.mechanism import OAUTHBEARER, SUPPORTED_MECHANISMS

if TYPE_CHECKING:
    from moldau.client.access_tokens import AccessTokens
    from moldau.security.sasl.oauthbearer.settings import TokenRequest

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
JAAS: Final = "sasl.jaas.config"
RENAMED: Final = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}
_MEANINGLESS: Final = """
    key.serializer value.serializer key.deserializer value.deserializer interceptor.classes metric.reporters
    metrics.num.samples metrics.recording.level metrics.sample.window.ms partitioner.class partitioner.ignore.keys
    partitioner.adaptive.partitioning.enable max.poll.records max.block.ms
    default.api.timeout.ms exclude.internal.topics security.providers auto.include.jmx.reporter config.providers
    ssl.truststore.type ssl.truststore.password ssl.keystore.type ssl.protocol ssl.enabled.protocols
    sasl.login.class sasl.login.callback.handler.class sasl.client.callback.handler.class enable.metrics.push
"""
MEANINGLESS: Final = frozenset(_MEANINGLESS.split())
ASSIGNORS: Final = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
"""Java's assignors, by class, that librdkafka has too."""


_OWN: Final = """
    security.protocol sasl.mechanism sasl.mechanisms sasl.username sasl.password
    ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem ssl.key.location ssl.key.pem
    ssl.key.password ssl.keystore.location ssl.keystore.password ssl.endpoint.identification.algorithm
    ssl.cipher.suites enable.ssl.certificate.verification
"""
OWN_PROPERTIES: Final = frozenset(_OWN.split())
"""The properties of librdkafka that our own client reads."""
OF_TOKENS: Final = ("sasl.oauthbearer.", "sasl.login.")
"""The beginnings of properties that say where a token of OAUTHBEARER comes from."""
LIBRDKAFKAS_TOKENS: Final = {
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}
"""Java's names of properties for which librdkafka has other names."""
OauthCallback = Callable[[str], tuple[str, float]]
"""Returns a token, and when it expires: `oauth_cb` of confluent-kafka."""


def for_librdkafka(java: Mapping[str, str]) -> dict[str, Any]:
    """Return the same settings under librdkafka's names."""
    settings = with_tokens(java)
    callbacks = {name: settings.pop(name) for name in ("oauth_cb",) if name in settings}
    return {**_renamed(settings), **callbacks}


def with_tokens(settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the same settings; with OAUTHBEARER our own code gets the token, also from a file, unless librdkafka is
    told to do it (sasl.oauthbearer.method). It may wait for the first token."""
    if _mechanism(settings) != OAUTHBEARER or "sasl.oauthbearer.method" in settings:
        return dict(settings)
    others = {name: value for name, value in settings.items() if not name.startswith(OF_TOKENS)}
    tokens, _ = access_tokens(settings)
    try:
        tokens.current()  # librdkafka would wait ten seconds for it, and not say what is wrong
    except LoginFailed as failed:
        raise UnusableProperty(str(failed)) from None
    return {**others, "oauth_cb": tokens.with_expiry}


def access_tokens(properties: Mapping[str, str]) -> tuple[AccessTokens, TokenRequest]:
    """Return where the tokens of OAUTHBEARER come from."""
    from moldau.client.access_tokens import AccessTokens  # only here: most clients do not need it
    from moldau.security.sasl.oauthbearer.settings import read_token_request
    from moldau.security.sasl.oauthbearer.urls import allowed_urls

    request = read_token_request(
        lambda name: properties.get(name) or properties.get(LIBRDKAFKAS_TOKENS.get(name, name)),
        _login_module(properties[JAAS]).options if properties.get(JAAS) else {},
        lambda key, reason: UnusableProperty(f"{key}: {reason}"),
        allowed_urls(os.environ.get("KAFKA_OPTS", "")),
    )
    return AccessTokens(request), request


def _mechanism(settings: Mapping[str, str]) -> str:
    return (settings.get("sasl.mechanism") or settings.get("sasl.mechanisms") or "").upper()


def _renamed(java: Mapping[str, str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name, value in java.items():
        if name == "buffer.memory":
            if not re.fullmatch("[0-9]{1,18}", value):
                raise UnusableProperty(f"{name}: expected a number of bytes")
            settings["queue.buffering.max.kbytes"] = str(max(1, int(value) // 1024))
        elif name == "partition.assignment.strategy":
            settings.update(_assignors(value))
        elif name == JAAS:
            settings.update(_credentials(value))
        elif name == "ssl.endpoint.identification.algorithm":
            settings[name] = value or "none"
        elif name in ("ssl.truststore.location", "ssl.keystore.location"):
            settings.update(_store(name, value, java))
        elif name not in MEANINGLESS:
            settings[RENAMED.get(name, name)] = value
    return settings


def _assignors(classes: str) -> dict[str, str]:
    """Translate class names to librdkafka's names and drop the others; if none is left, its default applies."""
    names = [each.strip().rpartition(".")[2] for each in classes.split(",")]
    supported = [ASSIGNORS.get(each, each) for each in names if each in ASSIGNORS or each in ASSIGNORS.values()]
    # librdkafka cannot mix cooperative and eager assignors, as Java's consumer does during a migration.
    eager = [each for each in supported if each != "cooperative-sticky"]
    chosen = eager if eager else supported
    return {"partition.assignment.strategy": ",".join(chosen)} if chosen else {}


def _credentials(jaas: str) -> dict[str, str]:
    """Extract user and password from a JAAS line such as `...PlainLoginModule required username="u" password="p";`."""
    module = _login_module(jaas)
    if _is_token(module):
        raise UnusableProperty(
            "sasl.jaas.config: librdkafka cannot log in with a delegation token (tokenauth=true); use a user's password"
        )
    return _user_and_password(module)


def _login_module(jaas: str) -> LoginModule:
    try:
        return parse_line(jaas)
    except JaasError as wrong:
        raise UnusableProperty(f"sasl.jaas.config: {wrong}") from None


def _is_token(module: LoginModule) -> bool:
    """Whether the user is a delegation token; only SCRAM's login module has that option."""
    return module.class_name == SCRAM_MODULE and module.options.get("tokenauth", "").lower() == "true"


def _user_and_password(module: LoginModule) -> dict[str, str]:
    return {f"sasl.{name}": module.options[name] for name in ("username", "password") if name in module.options}


def _store(name: str, path: str, java: Mapping[str, str]) -> dict[str, str]:
    """Translate key and trust stores: librdkafka reads both as PEM, a key store also as PKCS#12, and no JKS."""
    is_trust = name.startswith("ssl.trust")
    kind = java.get("ssl.truststore.type" if is_trust else "ssl.keystore.type", "JKS").upper()
    if kind == "PEM":
        return {"ssl.ca.location": path} if is_trust else {"ssl.certificate.location": path, "ssl.key.location": path}
    if kind == "PKCS12" and not is_trust:
        return {name: path}
    raise UnusableProperty(f"{name}: a {kind} file cannot be read here; write it as PEM and say {name[:-8]}type=PEM")


def public_java_properties(librdkafka: Mapping[str, str]) -> dict[str, str]:
    """Return the protocol, and which servers are trusted, with Java's names: for the client properties of a new user,
    which `moldau user create` writes. Keys and passwords are left out."""
    protocol = librdkafka.get("security.protocol", "PLAINTEXT").upper()
    java = {"security.protocol": protocol if protocol.startswith("SASL") else f"SASL_{protocol}"}
    for name, java_name in (("ssl.ca.pem", "certificates"), ("ssl.ca.location", "location")):
        if name in librdkafka:
            java |= {"ssl.truststore.type": "PEM", f"ssl.truststore.{java_name}": librdkafka[name]}
    algorithm = librdkafka.get("ssl.endpoint.identification.algorithm")
    if algorithm is not None:
        java["ssl.endpoint.identification.algorithm"] = algorithm.replace("none", "")
    return java


def security(java: Mapping[str, str], oauth_cb: OauthCallback | None = None) -> Security:
    """Return how our own channel connects to a node: with TLS or not, and the user for SASL. With `oauth_cb`, tokens
    come from there."""
    settings = _renamed({name: value for name, value in java.items() if not name.startswith(("ssl.", JAAS))})
    by_token = False
    if JAAS in java:
        module = _login_module(java[JAAS])
        by_token = _is_token(module)
        settings |= _user_and_password(module)
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise UnusableProperty(f"security.protocol: expected one of {', '.join(PROTOCOLS)}")
    tls = None
    if protocol.endswith("SSL"):
        from moldau.client.tls import tls_context  # only here: most clients do not need it

        tls = tls_context(java)
    if not protocol.startswith("SASL"):
        return Security(tls)
    mechanism = _mechanism(settings)
    if mechanism not in SUPPORTED_MECHANISMS:
        raise UnusableProperty(f"sasl.mechanism: expected one of {', '.join(SUPPORTED_MECHANISMS)}")
    if mechanism == OAUTHBEARER:
        return Security(tls, _token_login(java, oauth_cb))
    user, password = settings.get("sasl.username", ""), settings.get("sasl.password", "")
    return Security(tls, ClientLogin(mechanism, user, password, by_token))


def _token_login(java: Mapping[str, str], oauth_cb: OauthCallback | None) -> ClientLogin:
    if oauth_cb is not None:
        return ClientLogin(OAUTHBEARER, "the bearer of a token", token=lambda: oauth_cb("")[0])
    tokens, request = access_tokens(java)
    return ClientLogin(OAUTHBEARER, request.user, token=tokens.current, extensions=request.extensions)
