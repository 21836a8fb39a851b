"""kafka-configs refuses wrong quotas and SCRAM credentials with Kafka's messages, before anything is sent, and prints
quotas as Kafka's tool does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from moldau.cli.kafka.config_quotas import SCRAM_ITERATIONS, alter, describe, salted_credential
from moldau.cli.kafka.tool import ToolFailed
from moldau.client.channel import Channel
from moldau.wire.messages.describe_client_quotas import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

NO_CHANNEL = cast(Channel, None)
USER = ("users", "alice")
CLIENT = ("clients", "app")
SCRAM = {"SCRAM-SHA-256": "password=secret"}


def refusal(entities: Sequence[tuple[str, str]], added: dict[str, str], removed: Sequence[str] = ()) -> str:
    with pytest.raises(ToolFailed) as failure:
        alter(NO_CHANNEL, entities, added, removed)
    return str(failure.value)


def only(kinds: str, done: str, entity_type: str, names: str) -> str:
    return (
        f"Only {kinds} configs can be {done} for '{entity_type}' using --bootstrap-server."
        f" Unexpected config names: {names}"
    )


def test_an_unknown_config_is_reported_even_beside_a_credential() -> None:
    expected = only("quota and SCRAM credential", "added", "users", "x")
    assert refusal([USER], {"x": "1"}) == expected
    assert refusal([USER], SCRAM | {"x": "1"}) == expected


def test_configs_to_delete_are_called_deleted() -> None:
    assert refusal([USER], {}, ["y", "x"]) == only("quota and SCRAM credential", "deleted", "users", "x,y")
    assert refusal([CLIENT], {}, ["SCRAM-SHA-512"]) == only("quota", "deleted", "clients", "SCRAM-SHA-512")
    assert refusal([USER], {"x": "1"}, ["y"]) == only("quota and SCRAM credential", "added", "users", "x")


def test_deleted_configs_of_ips_are_called_added_as_in_kafka() -> None:
    assert refusal([("ips", "10.0.0.1")], {}, ["x"]) == only("connection quota", "added", "ips", "x")


@pytest.mark.parametrize("entities", [[USER, CLIENT], [CLIENT, USER], [CLIENT]])
def test_a_user_with_a_client_is_reported_as_a_client(entities: list[tuple[str, str]]) -> None:
    assert refusal(entities, SCRAM) == only("quota", "added", "clients", "SCRAM-SHA-256")
    assert refusal(entities, {"x": "1"}) == only("quota", "added", "clients", "x")


def test_a_quota_is_a_number_as_java_parses_it() -> None:
    for text in ("much", "1_000"):
        expected = f"Cannot parse quota configuration value for producer_byte_rate: {text}"
        assert refusal([USER], {"producer_byte_rate": text}) == expected


def test_a_credential_is_altered_alone_and_for_a_named_user() -> None:
    quota = {"producer_byte_rate": "1"}
    assert refusal([USER], SCRAM | quota).startswith("Cannot alter both quota and SCRAM credential configs")
    assert refusal([USER], quota, ["SCRAM-SHA-256"]).startswith("Cannot alter both quota and SCRAM credential configs")
    assert refusal([("users", "")], SCRAM | quota).startswith("The use of --entity-default or --user-defaults")


@pytest.mark.parametrize("iterations", ["-", "--1", "4096.0", "x", "9" * 20])
def test_iterations_that_are_not_an_integer_are_refused(iterations: str) -> None:
    with pytest.raises(ToolFailed, match="Invalid credential property SCRAM-SHA-256"):
        salted_credential("alice", "SCRAM-SHA-256", f"iterations={iterations},password=secret")


@pytest.mark.parametrize("text", ["password=secret", "iterations=,password=secret", "iterations=-1,password=secret"])
def test_iterations_have_a_default(text: str) -> None:
    assert salted_credential("alice", "SCRAM-SHA-256", text).iterations == SCRAM_ITERATIONS


class _Quotas:
    """A connection whose other end has one quota."""

    def __init__(self, value: float) -> None:
        self._value = value

    def offers(self, key: int) -> bool:
        return True

    def ask(self, *_: object) -> DescribeClientQuotasResponse:
        entry = EntryData([EntityData("client-id", "app")], [ValueData("producer_byte_rate", self._value)])
        return DescribeClientQuotasResponse(entries=[entry])


@pytest.mark.parametrize(("value", "text"), [(1024.0, "1024.0"), (10_485_760.0, "1.048576E7"), (0.0005, "5.0E-4")])
def test_quotas_are_printed_as_java_prints_doubles(value: float, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    describe(cast(Channel, _Quotas(value)), [CLIENT])
    assert capsys.readouterr().out == f"Quota configs for client-id 'app' are producer_byte_rate={text}\n"
