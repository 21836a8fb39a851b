"""Listeners with TLS and SCRAM for a broker that is measured: the same settings for ours and for Apache Kafka."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import trustme
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from bench.brokers.kafka_process import HOST, free_ports

PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"
PROTOCOLS: Final = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
USER, PASSWORD = "ann", "ann-secret"
ITERATIONS = 4096
TIMEOUT_S = 60


class SecuredListeners:
    """The four kinds of listeners on free ports, with a certificate of an authority of its own."""

    def __init__(self, directory: Path, key_type: trustme.KeyType = trustme.KeyType.RSA) -> None:
        """RSA keys of 2048 bits are what most clusters have."""
        authority = trustme.CA(key_type=key_type)
        leaf = authority.issue_cert(HOST, "localhost", key_type=key_type)
        key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())  # Java reads no other form
        store = directory / f"node-{free_ports(1)[0]}.pem"
        store.write_bytes(text + b"".join(pem.bytes() for pem in leaf.cert_chain_pems))
        self.addresses = {
            name: f"{HOST}:{port}" for name, port in zip(PROTOCOLS, free_ports(len(PROTOCOLS)), strict=True)
        }
        self.authority = authority.cert_pem.bytes().decode()
        self.context = ssl.create_default_context(cadata=self.authority)
        self._store = store

    @property
    def settings(self) -> Mapping[str, str]:
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        return {
            "listeners": ",".join(f"{name}://{address}" for name, address in self.addresses.items()),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._store),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            **{
                f"listener.name.{name.lower()}.{mechanism.lower()}.sasl.jaas.config": module
                for name in (SASL_PLAINTEXT, SASL_SSL)
                for mechanism in MECHANISMS
            },
        }

    def add_user(self) -> None:
        """Add the user to a running broker; return when it can log in."""
        admin = AdminClient({"bootstrap.servers": self.addresses[PLAINTEXT], "log_level": 0})
        changes = [
            UserScramCredentialUpsertion(
                USER, ScramCredentialInfo(mechanism, ITERATIONS), PASSWORD.encode(), salt=b"salt-of-ann"
            )
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for change in changes:  # a request may name a user once
            admin.alter_user_scram_credentials([change])[USER].result(TIMEOUT_S)
