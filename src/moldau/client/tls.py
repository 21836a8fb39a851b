"""The TLS context of our own clients, from client properties with Java's or librdkafka's names."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from moldau.base.broker_configs import BROKER_CONFIGS
from moldau.base.config_def import ConfigValue
from moldau.base.errors import KafkaError, UnusableProperty
from moldau.base.setting_sources import SettingsError
from moldau.platforms.key_files import DiskKeyFiles
from moldau.security.tls.context import client_context, read_stores
from moldau.security.tls.settings import read_tls
from moldau.security.tls.stores import STORE_BYTES_MAX


def tls_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """Return the context. Raise UnusableProperty, in one line without secrets, if the properties make none."""
    java = _in_java(properties)

    def value_of(key: str) -> ConfigValue:
        definition = BROKER_CONFIGS[key]
        return definition.parse(java[key]) if key in java else definition.default

    files = DiskKeyFiles()
    try:
        settings = read_tls(value_of, lambda key, reason: SettingsError(f"{key}: {reason}"), is_server=False)
        context = client_context(settings, read_stores(settings, files), files)
    except KafkaError as wrong:
        raise UnusableProperty(wrong.message) from None
    except SettingsError as wrong:
        raise UnusableProperty(str(wrong)) from None
    if java.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _in_java(properties: Mapping[str, str]) -> dict[str, str]:
    """Translate librdkafka's names of TLS properties to Java's."""
    java = dict(properties)
    if java.get("ssl.endpoint.identification.algorithm") == "none":
        java["ssl.endpoint.identification.algorithm"] = ""
    if "ssl.cipher.suites" in java:
        java["ssl.cipher.suites"] = java["ssl.cipher.suites"].replace(":", ",")
    for name, store, java_name in (
        ("ssl.ca.location", "truststore", "location"),
        ("ssl.ca.pem", "truststore", "certificates"),
        ("ssl.certificate.pem", "keystore", "certificate.chain"),
        ("ssl.key.pem", "keystore", "key"),
    ):
        if name in java:
            java[f"ssl.{store}.type"] = "PEM"
            java[f"ssl.{store}.{java_name}"] = java.pop(name)
    if "ssl.certificate.location" in java:
        java["ssl.keystore.type"] = "PEM"
        certificate, key = java["ssl.certificate.location"], java.get("ssl.key.location")
        if key in (None, certificate):
            java["ssl.keystore.location"] = certificate
        else:
            java["ssl.keystore.certificate.chain"] = _read("ssl.certificate.location", certificate)
            java["ssl.keystore.key"] = _read("ssl.key.location", key)
    return java


def _read(name: str, path: str | None) -> str:
    assert path is not None
    try:
        return DiskKeyFiles().read(path, STORE_BYTES_MAX).decode("latin-1")
    except OSError as refused:
        raise UnusableProperty(f"{name}={path}: cannot be read: {refused.strerror}") from None
