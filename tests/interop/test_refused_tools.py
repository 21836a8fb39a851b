"""Tools run by a user without permissions: they print one line and end with status 1, instead of waiting forever.
Also the warning of `moldau user add` on a broker without an authorizer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from harness.patience import PATIENCE_S
from kafka_tools import Tools, program

from moldau.cli.main import main
from moldau.testing import TestBroker, broker

pytestmark = pytest.mark.moldau_only
ONE = ("--max-messages", "1")
PARTITION = ("--partition", "0", "--offset", "earliest")


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests do not use the shared broker of this directory."""


@pytest.fixture(scope="module")
def secured() -> Iterator[TestBroker]:
    with broker(secure=True) as running:
        running.add_user("ann")
        running.add_user("eve")
        running.add_user("bob")
        running.allow("ann", "read,write,create", topic="homework")
        running.allow("bob", "describe", topic="homework")
        yield running


@pytest.fixture
def tools(secured: TestBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tools:
    tools = Tools(secured.bootstrap_servers, capsys, monkeypatch)
    words = ("--topic", "homework", "--command-config", str(secured.command_config("ann")))
    assert tools("console_producer", *words, stdin="hello\n").status == 0
    return tools


def config(secured: TestBroker, user: str) -> tuple[str, str]:
    return "--command-config", str(secured.command_config(user))


def test_a_console_consumer_without_permission_ends_with_an_error(secured: TestBroker, tools: Tools) -> None:
    ann, eve = config(secured, "ann"), config(secured, "eve")
    refused = tools("console_consumer", "--topic", "homework", "--group", "g", *ann)
    assert refused.status == 1
    assert "Not authorized to access group: g; this user needs READ on it\n" in refused.err
    without_group = tools("console_consumer", "--topic", "homework", *ann)
    assert without_group.status == 1
    assert "its name is console-consumer-N, so allow that prefix" in without_group.err
    for words in (("--partition", "0"), ("--partition", "0", "--offset", "earliest")):
        refused = tools("console_consumer", "--topic", "homework", *words, *eve)
        assert refused.status == 1
        assert "Not authorized to access topics: [homework]; this user needs READ on the topic homework" in refused.err


def test_reading_a_partition_needs_no_group_permission(secured: TestBroker, tools: Tools) -> None:
    read = tools("console_consumer", "--topic", "homework", *PARTITION, *ONE, *config(secured, "ann"))
    assert (read.status, read.out) == (0, "hello\n")


def test_a_member_without_read_on_the_topic_is_refused(secured: TestBroker, tools: Tools) -> None:
    secured.allow("eve", "read", group="eves")
    refused = tools("console_consumer", "--topic", "homework", "--group", "eves", *config(secured, "eve"))
    assert refused.status == 1
    assert "Not authorized to access topics: [homework]" in refused.err


def test_a_console_producer_without_permission_ends_with_an_error(secured: TestBroker) -> None:
    """The producer runs in its own process, because librdkafka writes to standard error by itself."""
    words = ("--topic", "homework", "--bootstrap-server", secured.bootstrap_servers, *config(secured, "eve"))
    with program("kafka-console-producer.sh", *words) as producer:
        _, err = producer.communicate("x\n", timeout=PATIENCE_S)
    assert producer.returncode == 1
    assert "Topic authorization failed" in err
    assert err.count("\n") == 1


def test_a_perf_test_without_permission_ends_with_an_error(secured: TestBroker, tools: Tools) -> None:
    words = ("--topic", "homework", "--num-records", "1")
    refused = tools("consumer_perf", *words, *config(secured, "eve"))
    assert refused.status == 1
    assert "Not authorized to access topics: [homework]" in refused.err
    refused = tools("consumer_perf", *words, "--group", "g", *config(secured, "eve"))
    assert refused.status == 1
    assert "Not authorized to access the group" in refused.err
    assert tools("consumer_perf", *words, *config(secured, "ann")).status == 0


@pytest.mark.parametrize("tool", ["console_consumer", "console_producer", "topics"])
def test_a_wrong_password_or_protocol_ends_with_an_error(
    secured: TestBroker, tools: Tools, tool: str, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.properties"
    wrong.write_text(secured.command_config("ann").read_text().replace(secured.password("ann"), "planted-secret"))
    words = ("--list",) if tool == "topics" else ("--topic", "homework")
    refused = tools(tool, *words, "--command-config", str(wrong), stdin="x\n")
    assert refused.status == 1
    assert (
        "refuses this client: Authentication failed during authentication due to invalid credentials"
        in refused.err + refused.out
    )
    assert "planted-secret" not in refused.err + refused.out
    no_tls = tools(tool, *words, stdin="x\n")
    assert no_tls.status == 1
    assert "check the port, and the TLS and SASL settings in --command-config" in no_tls.err + no_tls.out


def moldau(kafka: TestBroker, *words: str, status: int = 0) -> Result:
    result = CliRunner(env={"MOLDAU_BOOTSTRAP": kafka.bootstrap_servers}).invoke(main, list(words))
    assert result.exit_code == status, result.output
    return result


def test_librdkafkas_own_log_is_printed_only_with_debug(secured: TestBroker) -> None:
    """librdkafka prints that an idempotent producer is refused, which is fatal, whatever its log level is. The commands
    run in processes of their own, because it writes to standard error by itself."""
    moldau(secured, "topic", "create", "homework", "--if-not-exists", *config(secured, "ann"))
    errors = []
    for option in ([], ["--debug"]):
        command = [sys.executable, "-m", "moldau", *option, "produce", "homework", *config(secured, "bob")]
        words = [*command, "-b", secured.bootstrap_servers]
        errors.append(subprocess.run(words, input="x\n", capture_output=True, text=True, timeout=PATIENCE_S).stderr)
    quiet, debugging = errors
    assert "moldau: this user may not write to homework" in quiet
    assert "rdkafka" not in quiet
    assert "rdkafka" in debugging


def test_moldau_acl_suggests_the_right_user_name(secured: TestBroker) -> None:
    allowed = moldau(secured, "acl", "allow", "anm", "read", "--topic", "exam", *config(secured, "admin"))
    assert "did you mean ann?" in allowed.stderr
    assert "User:anm" in allowed.stdout
    tested = moldau(secured, "acl", "test", "anm", "read", "--topic", "exam", *config(secured, "admin"))
    assert "did you mean ann?" in tested.stderr


def test_user_add_warns_if_there_is_no_authorizer() -> None:
    with broker() as kafka:
        added = moldau(kafka, "user", "add", "ann")
        assert added.stdout.startswith("added ann; password: ")
        assert added.stderr.startswith("ann may do everything, like everybody who can connect")
        refused = moldau(kafka, "acl", "list", status=1)
        assert "set authorizer.class.name and super.users on all nodes" in refused.stderr
