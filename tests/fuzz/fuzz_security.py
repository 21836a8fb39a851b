"""Targets of files and certificates: DER, PEM and PKCS12, mapping rules, JAAS, properties and settings."""

from __future__ import annotations

import datetime
from functools import cache
from random import Random
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
from cryptography.x509.oid import NameOID
from fuzz_checks import PLANTED, Limits, Violation, check_line
from fuzz_mutations import mutate, mutate_der, mutate_text, without_mac
from fuzz_wire import Stateless
from harness.tls_files import MemoryKeyFiles

from moldau.base import properties
from moldau.base.broker_configs import BROKER_CONFIGS
from moldau.base.errors import KafkaError, MalformedData
from moldau.base.setting_sources import SettingsError
from moldau.base.topic_configs import TOPIC_CONFIGS
from moldau.security.sasl.jaas import JaasError, parse_file, parse_line
from moldau.security.tls.mapping_rules import MappingRules, NoRuleApplies
from moldau.security.tls.names import alternative_names, subject
from moldau.security.tls.pem import parse_blocks
from moldau.security.tls.settings import StoreSettings
from moldau.security.tls.stores import read_key_store, read_trust_store
from moldau.settings import from_properties

SECRET_TEXT = 3 * PLANTED
"""A password long enough that mutations leave a piece of it."""
PASSWORDS = ("ssl.key.password", "ssl.keystore.password", "ssl.truststore.password")


class _Identity:
    """A key with its certificate, the same in every process: Ed25519 signs without random numbers."""

    def __init__(self) -> None:
        key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
        name = x509.Name(
            [
                x509.NameAttribute(NameOID.COUNTRY_NAME, "CZ"),
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, 'A, "B" + C'),
                x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, " žluť "),
                x509.NameAttribute(NameOID.EMAIL_ADDRESS, "ann@example.org"),
                x509.NameAttribute(NameOID.COMMON_NAME, "ann"),
            ]
        )
        names = [x509.DNSName("localhost"), x509.RFC822Name("ann@example.org"), x509.UniformResourceIdentifier("a:b")]
        first_day = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
        self.certificate = (
            x509.CertificateBuilder(name, name, key.public_key(), 1, first_day, first_day + datetime.timedelta(999))
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, None)
        )
        self.der = self.certificate.public_bytes(Encoding.DER)
        pem = self.certificate.public_bytes(Encoding.PEM).decode()
        self.pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode() + pem
        p12 = pkcs12.serialize_key_and_certificates(b"ann", key, self.certificate, [self.certificate], NoEncryption())
        self.p12 = without_mac(p12)


@cache
def identity() -> _Identity:
    return _Identity()


class Certificates(Stateless):
    """The names in the certificate that a client presents."""

    name = "certificates"
    limits = Limits(per_byte=200)

    def make(self, rng: Random) -> bytes:
        return mutate_der(identity().der, rng) if rng.random() < 0.8 else bytes(mutate(identity().der, rng))

    def run(self, made: bytes) -> None:
        for read in (subject, alternative_names):
            try:
                read(made)
            except MalformedData as refused:
                check_line(str(refused))


class Stores(Stateless):
    """Key and trust stores: PEM and PKCS12 files, and PEM texts in settings."""

    name = "stores"
    limits = Limits(operations=100_000, per_byte=100, memory=3_000_000)

    def make(self, rng: Random) -> bytes:
        chance = rng.random()
        if chance < 0.25:
            return mutate_der(identity().p12, rng)
        if chance < 0.4:
            return bytes(mutate(identity().p12, rng))
        words = (
            "-----BEGIN ",
            "-----END ",
            "-----",
            "CERTIFICATE",
            "PRIVATE KEY",
            "ENCRYPTED ",
            "Proc-Type:",
            "=",
            "\n\n",
        )
        text = identity().pem.replace("\n", " ") if chance < 0.5 else identity().pem
        return mutate_text(text, rng, words=words).encode()

    def run(self, made: bytes) -> None:
        files = MemoryKeyFiles({"store": made})
        password = "right" if len(made) % 2 else None
        for read, prefix in ((read_key_store, "ssl.keystore"), (read_trust_store, "ssl.truststore")):
            try:
                read(StoreSettings(prefix, "PEM", "store", password, password), files)
            except SettingsError as refused:
                _check_one_line(str(refused), made)
        try:
            parse_blocks(made.decode("latin-1"))
        except MalformedData as refused:
            check_line(str(refused))


def _check_one_line(line: str, made: bytes) -> None:
    """Check that an error about a key store is one line without any part of the key."""
    key = identity().pem.splitlines()[1]
    if "\n" in line or len(line) > 1000 or any(key[at : at + 8] in line for at in range(len(key) - 8)):
        raise Violation(
            f"an error about a key store has a part of the key, or is not one line: {line[:300]!r}, {len(made)} bytes"
        )


RULES = (
    "DEFAULT",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,DEFAULT",
    r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, RULE:(?<all>.*)/${all}-\$1$0/",
    "RULE:a/b\\/c/,RULE:/x/,RULE:.*/\\\\/L",
)
SUBJECTS = ("CN=ann", "CN=Ann,OU=ServiceUsers,O=X,C=CZ", "CN=a,OU=b,O=c,L=d,ST=e,C=f", "")
RULE_WORDS = ("RULE:", "/", "DEFAULT", ",", "$1", "$9", "${all}", "${", "\\", "(", ")", "[", "*", "?", "/L", "/U", " ")


class Rules(Stateless):
    """ssl.principal.mapping.rules with invalid rules, and invalid subjects."""

    name = "mapping rules"
    limits = Limits(operations=200_000, per_byte=1000, memory=3_000_000)

    def make(self, rng: Random) -> tuple[str, str]:
        rules, name = rng.choice(RULES), rng.choice(SUBJECTS)
        if rng.random() < 0.5:
            # A pattern is the operator's, and may take exponential time; so the subject is short.
            return mutate_text(rules, rng, words=RULE_WORDS), mutate_text(name[:8], rng, 2)[:12]
        return rules, mutate_text(name, rng) * rng.choice((1, 1, 1, 100))

    def size_of(self, made: tuple[str, str]) -> int:
        return sum(map(len, made))

    def run(self, made: tuple[str, str]) -> None:
        try:
            MappingRules(made[0]).user(made[1])
        except (ValueError, NoRuleApplies):
            return


JAAS_LINE = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    f' username="ann" password="{SECRET_TEXT}" user_ann="{SECRET_TEXT}" user_bob=\'b\\"ob\';'
)
JAAS_FILE = f"// users\nKafkaServer {{\n  {JAAS_LINE}\n}};\n/* other */ internal.KafkaServer {{ {JAAS_LINE} }};\n"
JAAS_WORDS = ("{", "}", ";", '"', "'", "=", "/*", "*/", "//", "\\", "\\777", "required", "\n", "é", "-1.5", "\0")


class Jaas(Stateless):
    """JAAS lines and files. No error quotes a part of them."""

    name = "jaas"
    limits = Limits(per_byte=100)

    def make(self, rng: Random) -> str:
        return mutate_text(rng.choice((JAAS_LINE, JAAS_FILE)), rng, words=JAAS_WORDS)

    def run(self, made: str) -> None:
        for parse in (parse_line, parse_file):
            try:
                parsed = parse(made)
            except JaasError as refused:
                check_line(str(refused))
            else:
                if PLANTED in repr(parsed) and "password" not in repr(parsed):
                    raise Violation("a password is in the repr of a login module")


PROPERTIES = f"""\
# a node
process.roles=broker,controller
node.id = 1
listeners=SASL_SSL://0.0.0.0:9092,CONTROLLER://127.0.0.1:9093,PLAINTEXT://localhost:9094
advertised.listeners: SASL_SSL://broker.example.org:9092,PLAINTEXT://localhost:9094
listener.security.protocol.map=CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:9093
log.dirs=data\\u00e9,\\
    more
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
listener.name.sasl_ssl.plain.sasl.jaas.config={JAAS_LINE}
ssl.keystore.type=PEM
ssl.keystore.location=/node.pem
ssl.key.password={SECRET_TEXT}
ssl.client.auth=requested
ssl.principal.mapping.rules=RULE:^CN=(.*?),.*$/$1/L,DEFAULT
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin;User:node
num.partitions=3
log.retention.hours=168
min.insync.replicas=1
compression.type=zstd
auto.create.topics.enable=false
group.consumer.assignors=uniform,range
"""
PROPERTY_WORDS = (
    "=",
    ":",
    "\n",
    "\\\n",
    "\\u12",
    "\\uD800",
    "#",
    "!",
    " ",
    "://",
    ",",
    "@",
    "-1",
    "0",
    "9" * 30,
    "1e9",
    "[::1]",
    "é",
    "\0",
)


class Properties(Stateless):
    """Properties files as bytes."""

    name = "properties"
    limits = Limits(per_byte=200)

    def make(self, rng: Random) -> bytes:
        start = rng.randrange(len(PROPERTIES) - 300)
        piece = PROPERTIES[start : start + 300]
        if rng.random() < 0.5:
            return bytes(mutate(piece.encode(), rng))
        return mutate_text(piece, rng, words=PROPERTY_WORDS).encode("utf-8", "surrogatepass")

    def run(self, made: bytes) -> None:
        try:
            found = properties.parse(properties.decode(made))
        except MalformedData as refused:
            check_line(str(refused))
            return
        values = {each.key: each.value for each in found}
        if {each.key: each.value for each in properties.parse(properties.render(values))} != values:
            raise Violation("properties are not the same after they were written and read")


SETTING_VALUES = ("", "-1", "0", "1", "2147483648", "9" * 30, "true", "x", "a,b", ",", "1.5", "é\0", "INFINITY", " 1 ")


class Settings(Stateless):
    """The settings of a node, and of a topic: a valid file with a few mutated values."""

    name = "settings"
    limits = Limits(operations=300_000, per_byte=200, memory=3_000_000)

    def __init__(self) -> None:
        self._valid = {each.key: each.value for each in properties.parse(PROPERTIES)}
        self._keys = tuple(BROKER_CONFIGS)
        self._topic_keys = tuple(TOPIC_CONFIGS)

    def make(self, rng: Random) -> tuple[dict[str, str], str, str]:
        values = dict(self._valid)
        for _ in range(rng.choice((1, 1, 2, 3))):
            key = rng.choice((rng.choice(self._keys), rng.choice(tuple(self._valid))))
            if key in values and rng.random() < 0.6:
                values[key] = mutate_text(values[key], rng, words=PROPERTY_WORDS)
            elif key in values and rng.random() < 0.3:
                del values[key]
            else:
                values[key] = SECRET_TEXT if key in PASSWORDS else rng.choice(SETTING_VALUES)
        if rng.random() < 0.1:
            values[mutate_text(rng.choice(self._keys), rng)] = "1"
        return values, rng.choice(self._topic_keys), rng.choice(SETTING_VALUES)

    def size_of(self, made: Any) -> int:
        return sum(map(len, made[0].values()))

    def run(self, made: tuple[dict[str, str], str, str]) -> None:
        values, key, text = made
        try:
            from_properties(values)
        except SettingsError as refused:
            if PLANTED in str(refused) or not str(refused).isprintable():
                raise Violation(f"an error shows a password, or is not one line: {str(refused)[:500]!r}") from None
        try:
            TOPIC_CONFIGS[key].parse(text)
        except KafkaError:
            return
