"""Client properties under the names of Java's clients, translated for librdkafka and for our own channel.

Java names without a meaning here (serializers, metric reporters) are dropped silently. The caller that creates the
client warns of those that librdkafka does not know. Passwords are passed on and never printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moldau.base.errors import UnusableProperty
from moldau.client.channel import Security
from moldau.security.sasl.client import ClientLogin
from moldau.security.sasl.jaas import JaasError, parse_line
from moldau.security.sasl.mechanism import SUPPORTED_MECHANISMS

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


def for_librdkafka(java: Mapping[str, str]) -> dict[str, str]:
    """Return the same settings under librdkafka's names."""
    settings: dict[str, str] = {}
    for name, value in java.items():
        if name == "buffer.memory":
            settings["queue.buffering.max.kbytes"] = str(max(1, int(value) // 1024))
        elif name == "partition.assignment.strategy":
            settings.update(_assignors(value))
        elif name == "sasl.jaas.config":
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
    try:
        options = parse_line(jaas).options
    except JaasError as wrong:
        raise UnusableProperty(f"sasl.jaas.config: {wrong}") from None
    if options.get("tokenauth", "false").lower() == "true":
        raise UnusableProperty("sasl.jaas.config: delegation tokens (tokenauth) cannot be used here")
    return {f"sasl.{name}": options[name] for name in ("username", "password") if name in options}


def _store(name: str, path: str, java: Mapping[str, str]) -> dict[str, str]:
    """Translate key and trust stores: PEM and PKCS#12 can be read, Java's own JKS cannot."""
    is_trust = name.startswith("ssl.trust")
    kind = java.get("ssl.truststore.type" if is_trust else "ssl.keystore.type", "JKS").upper()
    if kind == "PEM":
        return {"ssl.ca.location": path} if is_trust else {"ssl.certificate.location": path, "ssl.key.location": path}
    if kind == "PKCS12" and not is_trust:
        return {name: path}
    raise UnusableProperty(f"{name}: a {kind} file cannot be read here; write it as PEM and say {name[:-8]}type=PEM")


def public_java_properties(librdkafka: Mapping[str, str]) -> dict[str, str]:
    """Return the protocol, and which servers are trusted, with Java's names: for the file of another user. Keys and
    passwords are left out."""
    protocol = librdkafka.get("security.protocol", "PLAINTEXT").upper()
    java = {"security.protocol": protocol if protocol.startswith("SASL") else f"SASL_{protocol}"}
    for name, java_name in (("ssl.ca.pem", "certificates"), ("ssl.ca.location", "location")):
        if name in librdkafka:
            java |= {"ssl.truststore.type": "PEM", f"ssl.truststore.{java_name}": librdkafka[name]}
    algorithm = librdkafka.get("ssl.endpoint.identification.algorithm")
    if algorithm is not None:
        java["ssl.endpoint.identification.algorithm"] = algorithm.replace("none", "")
    return java


def security(java: Mapping[str, str]) -> Security:
    """Return how our own channel connects to a node: with TLS or not, and the user for SASL."""
    settings = for_librdkafka({name: value for name, value in java.items() if not name.startswith("ssl.")})
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    tls = None
    if protocol.endswith("SSL"):
        from moldau.client.tls import tls_context  # only here: most clients do not need it

        tls = tls_context(java)
    if not protocol.startswith("SASL"):
        return Security(tls)
    mechanism = (settings.get("sasl.mechanism") or settings.get("sasl.mechanisms") or "").upper()
    if mechanism not in SUPPORTED_MECHANISMS:
        raise UnusableProperty(f"sasl.mechanism: expected one of {', '.join(SUPPORTED_MECHANISMS)}")
    return Security(tls, ClientLogin(mechanism, settings.get("sasl.username", ""), settings.get("sasl.password", "")))
