"""Certificates for tests: an authority that issues them, and the files and settings that use them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

PASSWORD = "planted-secret"


class Issued:
    """A private key with its certificate."""

    def __init__(self, leaf: trustme.LeafCert) -> None:
        self.key = leaf.private_key_pem.bytes().decode()
        self.chain = "".join(pem.bytes().decode() for pem in leaf.cert_chain_pems)
        self.certificate = x509.load_pem_x509_certificate(self.chain.encode())

    @property
    def pem(self) -> str:
        return self.key + self.chain

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    def encrypted_key(self, password: str = PASSWORD) -> str:
        key = load_pem_private_key(self.key.encode(), None)
        encryption = BestAvailableEncryption(password.encode())
        return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    def pkcs12(self, authority: Authority, password: str = PASSWORD) -> bytes:
        key = load_pem_private_key(self.key.encode(), None)
        encryption = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(
            b"moldau",
            key,  # type: ignore[arg-type]
            self.certificate,
            [authority.certificate],
            encryption,
        )

    def write(self, path: Path) -> str:
        """Write key and certificates, replacing the file in one step."""
        written = path.with_suffix(".new")
        written.write_text(self.pem)
        written.replace(path)
        return str(path)


class Authority:
    def __init__(self) -> None:
        self._ca = trustme.CA()
        self.pem = self._ca.cert_pem.bytes().decode()
        self.certificate = x509.load_pem_x509_certificate(self.pem.encode())

    def issue(self, *names: str, user: str | None = None, unit: str = "tests", expired: bool = False) -> Issued:
        now = datetime.now(UTC)
        leaf = self._ca.issue_cert(
            *(names or ("localhost", "127.0.0.1")),
            common_name=user,
            organization_name="Moldau",
            organization_unit_name=unit,
            not_before=now - timedelta(days=2),
            not_after=now - timedelta(days=1) if expired else now + timedelta(days=2),
        )
        return Issued(leaf)

    def write(self, path: Path) -> str:
        path.write_text(self.pem)
        return str(path)


class Vault:
    """A directory with the authority's certificate and the key of a node: most tests need no more."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority()
        self.trusted = self.authority.write(directory / "ca.pem")
        self.node = self.issue("node")

    def issue(self, name: str, *hosts: str, user: str | None = None, expired: bool = False) -> str:
        issued = self.authority.issue(*hosts, user=user, expired=expired)
        return issued.write(self.directory / f"{name}.pem")

    def spoil(self, name: str) -> None:
        """Replace a file by an incomplete one, as an interrupted program leaves it."""
        (self.directory / f"{name}.pem").write_text("half")

    def server(self, **more: str) -> dict[str, str]:
        """Return the settings of a node; `client_auth="required"` sets ssl.client.auth."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.node,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.trusted,
            **{f"ssl.{key.replace('_', '.')}": value for key, value in more.items()},
        }
