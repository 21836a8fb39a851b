"""The settings of a client in the forms that clients take. Pure: Java's properties in, the text of a file out.

java           a properties file for Kafka's tools and ours, with the authority's certificate in it
librdkafka     key=value lines, as kcat -F takes them; a value is one line, so the certificate is in a file beside
python         a Python file for confluent-kafka, with the certificate in it
kafka-python   a Python file for kafka-python, which takes the certificate from a file
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from moldau.base.errors import UnusableProperty
from moldau.client.properties import JAAS, for_librdkafka
from moldau.secure_setup.settings import client_file

AUTHORITY_SUFFIX: Final = ".ca.pem"
CA: Final = "ssl.ca.pem"
CHECK_NAMES: Final = "ssl.endpoint.identification.algorithm"
KAFKA_PYTHON: Final = {
    "bootstrap.servers": "bootstrap_servers",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
}
LIBRDKAFKA_HEADER: Final = """\
# The settings of a client of librdkafka, such as kcat -F FILE -L. Keep this file private: it has a password.
"""
PYTHON: Final = '''\
"""The settings of a client of confluent-kafka (pip install confluent-kafka). Keep this file private: it has a password.

A program imports `config` from it: `Producer(config)`. Run by itself, it connects and lists the topics.
"""

from confluent_kafka.admin import AdminClient

config = {
%s}

if __name__ == "__main__":
    for topic in sorted(AdminClient(config).list_topics(timeout=10).topics):
        print(topic)
'''
KAFKA_PYTHON_FILE: Final = '''\
"""The settings of a client of kafka-python (pip install kafka-python). Keep this file private: it has a password.

A program imports `config` from it: `KafkaProducer(**config)`. Run by itself, it connects and lists the topics.
"""

from pathlib import Path

from kafka import KafkaConsumer

config = {
%s}

if __name__ == "__main__":
    consumer = KafkaConsumer(**config)
    for topic in sorted(consumer.topics()):
        print(topic)
    consumer.close()
'''


class ClientText(NamedTuple):
    text: str
    """With a password: for the user alone."""
    authority: str | None = None
    """The certificate that the client reads from a file beside, which everybody may read; None if it needs none."""


def authority_file(path: Path) -> Path:
    """Return the file with the authority's certificate beside a file of settings."""
    return path.with_suffix(AUTHORITY_SUFFIX)


def _java(properties: Mapping[str, str], path: Path) -> ClientText:
    return ClientText(client_file(properties))


def _librdkafka(properties: Mapping[str, str], path: Path) -> ClientText:
    settings = for_librdkafka(properties)
    authority = settings.pop(CA, None)
    if authority is not None:
        settings["ssl.ca.location"] = str(authority_file(path).absolute())
    for name, value in settings.items():
        if value != value.strip():
            raise UnusableProperty(f"{name} begins or ends with white space, which readers of lines remove")
    lines = "".join(f"{name}={value}\n" for name, value in settings.items())
    return ClientText(LIBRDKAFKA_HEADER + lines, authority)


def _python(properties: Mapping[str, str], path: Path) -> ClientText:
    settings = for_librdkafka(properties)
    entries = {name: _literal(value) for name, value in settings.items()}
    if CA in settings:
        lines = "".join(f"        {_literal(line)}\n" for line in settings[CA].splitlines(keepends=True))
        entries[CA] = f"(\n{lines}    )"
    return ClientText(PYTHON % _dictionary(entries))


def _kafka_python(properties: Mapping[str, str], path: Path) -> ClientText:
    settings = for_librdkafka(properties)
    entries = {ours: _literal(settings[name]) for name, ours in KAFKA_PYTHON.items() if name in settings}
    if CA in settings:
        entries["ssl_cafile"] = f"str(Path(__file__).with_name({_literal(authority_file(path).name)}))"
    if settings.get(CHECK_NAMES) == "none":
        entries["ssl_check_hostname"] = "False"
    return ClientText(KAFKA_PYTHON_FILE % _dictionary(entries), settings.get(CA))


def _dictionary(entries: Mapping[str, str]) -> str:
    return "".join(f"    {_literal(name)}: {expression},\n" for name, expression in entries.items())


def _literal(value: Any) -> str:
    """Return a string of Python: with non-ASCII characters as they are, JSON's escapes are Python's."""
    return json.dumps(value, ensure_ascii=False)


FORMATS: Final[Mapping[str, Callable[[Mapping[str, str], Path], ClientText]]] = {
    "java": _java,
    "librdkafka": _librdkafka,
    "kafka-python": _kafka_python,
    "python": _python,
}


def default_format(path: Path) -> str:
    return "python" if path.suffix == ".py" else "java"


def client_text(file_format: str, properties: Mapping[str, str], path: Path) -> ClientText:
    """Return what belongs into the file at the path. Raise UnusableProperty if the format cannot express it."""
    if not properties[JAAS].isprintable():
        raise UnusableProperty("a name or password with control characters does not fit into a file")
    return FORMATS[file_format](properties, path)
