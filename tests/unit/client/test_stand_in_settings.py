"""Addresses and properties of the stand-in: it accepts what librdkafka accepts, and refuses the rest in one line."""

from __future__ import annotations

from typing import Any

import pytest
from stand_in_brokers import FakeBrokers

from moldau.base.errors import UnusableProperty
from moldau.client.properties import security
from moldau.client.stand_in.consumer import Consumer
from moldau.client.stand_in.producer import Producer
from moldau.client.stand_in.settings import connect
from moldau.client.stand_in.values import KafkaError, KafkaException


@pytest.mark.parametrize("address", ["one:2", "one:2,", " one:2 , ", "PLAINTEXT://one:2", "[::1]:2"])
def test_a_client_connects_to_the_given_address(brokers: FakeBrokers, address: str) -> None:
    connect({"bootstrap.servers": address}).topics()
    assert brokers.connections == [2]


@pytest.mark.parametrize("address", ["localhost", "PLAINTEXT://localhost", "[::1]"])
def test_the_default_port_is_kafkas(brokers: FakeBrokers, address: str) -> None:
    connect({"bootstrap.servers": address}).topics()
    assert brokers.connections == [9092]


@pytest.mark.parametrize("address", ["one:port", "one:0", "one:65536", ":9092", "", ","])
@pytest.mark.parametrize("client_class", [Producer, Consumer])
def test_an_invalid_address_is_refused_in_one_line(client_class: Any, address: str) -> None:
    assert refusal(client_class, {"bootstrap.servers": address}).startswith("bootstrap.servers")


@pytest.mark.parametrize("client_class", [Producer, Consumer])
def test_an_unknown_property_is_refused_with_librdkafkas_message(client_class: Any) -> None:
    message = refusal(client_class, {"bootstrap.servers": "one:1", "transactional.id": "t"})
    assert message.startswith('No such configuration property: "transactional.id"')


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("acks", "5"),
        ("compression.type", "foo"),
        ("linger.ms", "abc"),
        ("linger.ms", "nan"),
        ("message.timeout.ms", "-1"),
        ("queue.buffering.max.messages", "many"),
        ("auto.commit.interval.ms", "5s"),
    ],
)
@pytest.mark.parametrize("client_class", [Producer, Consumer])
def test_an_invalid_value_is_refused_with_librdkafkas_message(client_class: Any, name: str, value: str) -> None:
    message = refusal(client_class, {"bootstrap.servers": "one:1", name: value})
    assert message == f'Invalid value "{value}" for configuration property "{name}"'


@pytest.mark.parametrize("protocol", ["SASL_SLL", "TLS", "foo"])
def test_a_misspelt_security_protocol_is_refused(protocol: str) -> None:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
    with pytest.raises(UnusableProperty, match=r"security\.protocol: expected one of PLAINTEXT, SSL"):
        security({"security.protocol": protocol, **login})


def refusal(client_class: Any, config: dict[str, str]) -> str:
    with pytest.raises(KafkaException) as failed:
        client_class(config)
    error = failed.value.args[0]
    assert error.code() == KafkaError._INVALID_ARG
    message = str(error.str())
    assert "\n" not in message
    return message
