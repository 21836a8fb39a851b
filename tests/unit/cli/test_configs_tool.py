"""kafka-configs: what it prints and what it keeps secret; without a broker."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.cli.kafka import client_metrics, configs
from moldau.cli.kafka.connection import clients
from moldau.cli.kafka.tool import ToolFailed
from moldau.wire.apis import ApiKey
from moldau.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from moldau.wire.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from moldau.wire.messages.list_config_resources import ListConfigResourcesResponse
from moldau.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from moldau.wire.schema import Message

SERVER = ["--bootstrap-server", "localhost:1"]


class FakeChannel:
    """A connection to a broker that answers each API with the same response."""

    def __init__(self, responses: dict[ApiKey, Message]) -> None:
        self._responses = responses

    def __enter__(self) -> FakeChannel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def offers(self, key: ApiKey) -> bool:
        return key in self._responses

    def ask(self, key: ApiKey, request: Message, response_type: type[Message]) -> Message:
        return self._responses[key]


class FakeCluster:
    """Brokers, each with its own responses."""

    def __init__(self, *brokers: dict[ApiKey, Message]) -> None:
        self._channels = dict(enumerate(map(FakeChannel, brokers), 1))

    def nodes(self) -> list[int]:
        return list(self._channels)

    def channel(self, node_id: int) -> FakeChannel:
        return self._channels[node_id]

    def retry(self, action: Callable[[], Any], timeout_ms: float, retriable: object) -> Any:
        return action()

    def close(self) -> None:
        pass


def serve(monkeypatch: pytest.MonkeyPatch, *brokers: dict[ApiKey, Message]) -> None:
    """Let the tool connect to these brokers, to the first one as the bootstrap server."""
    monkeypatch.setattr(clients, "channel", lambda servers, java_config: FakeChannel(brokers[0]))
    monkeypatch.setattr(clients, "cluster", lambda servers, java_config: FakeCluster(*brokers))


# --- secrets


REFUSED: dict[ApiKey, Message] = {
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: AlterUserScramCredentialsResponse(
        results=[AlterUserScramCredentialsResult(user="u", error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
    )
}


@pytest.mark.parametrize("dashes", ["-", "--", "---"])
@pytest.mark.parametrize("has_equals", [True, False])
def test_no_form_of_add_config_shows_a_password(
    dashes: str, has_equals: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(monkeypatch, REFUSED)
    value = "SCRAM-SHA-256=[iterations=8192,password=geheim]"
    changes = [f"{dashes}add-config={value}"] if has_equals else [f"{dashes}add-config", value]
    assert configs.main([*SERVER, "--alter", "--user", "u", *changes]) == 1
    shown = capsys.readouterr()
    assert "geheim" not in shown.out + shown.err
    assert shown.err == (
        "Error while executing config command with args '--bootstrap-server localhost:1 --alter --user u"
        " --add-config [hidden]': CLUSTER_AUTHORIZATION_FAILED\n"
    )


def test_the_rest_of_a_password_that_a_shell_has_split_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(monkeypatch, REFUSED)
    words = ["--alter", "--user=u", "--add-config", "SCRAM-SHA-256=[password=very]", "geheim"]
    assert configs.main([*SERVER, *words]) == 1
    assert "geheim" not in capsys.readouterr().err


def test_a_piece_of_a_password_is_not_quoted_as_a_name() -> None:
    with pytest.raises(ToolFailed, match=r"Invalid character found for config key: \[hidden\]"):
        configs.parse_added("SCRAM-SHA-256=[password=a],ge!heim=[x]")
    with pytest.raises(ToolFailed, match="Invalid character found for config key: ge!heim"):
        configs.parse_added("ge!heim=x")


# --- names


def test_empty_parts_at_the_end_are_dropped_as_java_drops_them() -> None:
    assert configs.parse_added("a=1,") == configs.parse_added("a=1,,") == {"a": "1"}
    assert configs.parse_added(",") == {}
    for refused in ("", ",a=1", "a=1,,b=2"):
        with pytest.raises(ToolFailed, match='in the format "key=val"'):
            configs.parse_added(refused)


NO_CONFIGS: dict[ApiKey, Message] = {
    ApiKey.LIST_CONFIG_RESOURCES: ListConfigResourcesResponse(),
    ApiKey.LIST_GROUPS: ListGroupsResponse(groups=[ListedGroup(group_id="g1")]),
    ApiKey.DESCRIBE_CONFIGS: DescribeConfigsResponse(results=[DescribeConfigsResult(error_message=None)]),
}
OTHER_BROKER: dict[ApiKey, Message] = {
    ApiKey.LIST_GROUPS: ListGroupsResponse(groups=[ListedGroup(group_id="g2")]),
}
NO_RIGHT = ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def test_a_group_of_another_coordinator_exists(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(monkeypatch, NO_CONFIGS, OTHER_BROKER)
    assert configs.main([*SERVER, "--describe", "--group", "g2"]) == 0
    assert capsys.readouterr().out == "Dynamic configs for group g2 are:\n"
    assert configs.main([*SERVER, "--describe", "--entity-type", "groups"]) == 0
    assert capsys.readouterr().out == "Dynamic configs for group g1 are:\nDynamic configs for group g2 are:\n"
    assert configs.main([*SERVER, "--describe", "--group", "g3"]) == 0
    assert capsys.readouterr().out == "The group 'g3' doesn't exist and doesn't have dynamic config.\n"


def test_a_group_that_is_listed_needs_no_right_on_the_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(monkeypatch, {**NO_CONFIGS, ApiKey.LIST_CONFIG_RESOURCES: NO_RIGHT})
    assert configs.main([*SERVER, "--describe", "--group", "g1"]) == 0
    assert capsys.readouterr().out == "Dynamic configs for group g1 are:\n"
    assert configs.main([*SERVER, "--describe", "--group", "g2"]) == 1
    assert capsys.readouterr().err.endswith(": CLUSTER_AUTHORIZATION_FAILED\n")


def test_an_error_is_not_printed_as_an_empty_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loading = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    serve(monkeypatch, {**NO_CONFIGS, ApiKey.LIST_CONFIG_RESOURCES: NO_RIGHT, ApiKey.LIST_GROUPS: loading})
    assert configs.main([*SERVER, "--describe", "--client-metrics", "m"]) == 1
    assert capsys.readouterr().err.endswith(": CLUSTER_AUTHORIZATION_FAILED\n")
    assert client_metrics.main([*SERVER, "--list"]) == 1
    assert capsys.readouterr() == ("Error while executing client metrics command : CLUSTER_AUTHORIZATION_FAILED\n", "")
    assert configs.main([*SERVER, "--describe", "--group", "g1"]) == 1
    assert capsys.readouterr().err.endswith(": COORDINATOR_NOT_AVAILABLE\n")


def test_configs_come_from_the_command_line_or_from_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    both = ["--add-config", "retention.ms=5", "--add-config-file", "/dev/null"]
    assert configs.main([*SERVER, "--alter", "--topic", "t", *both]) == 1
    assert capsys.readouterr().err == "Only one of --add-config or --add-config-file must be specified\n"


def test_a_short_flag_may_be_there_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert configs.main([*SERVER, "--describe", "--topic", "a", "--topic", "b"]) == 1
    assert capsys.readouterr().err.startswith("Found multiple arguments for option topic, but you asked for only one\n")
