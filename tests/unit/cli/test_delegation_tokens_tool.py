"""kafka-delegation-tokens: its flags, and what it prints; without a broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.cli.kafka import delegation_tokens
from moldau.cli.kafka.tool import ToolFailed
from moldau.client.admin.delegation_tokens import TokenWithHmac
from moldau.security.delegation_tokens import DelegationToken
from moldau.security.principals import Principal

SERVER = ["--bootstrap-server", "localhost:1"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Command must include exactly one action: --create, --renew, --expire or --describe"),
        (["--create", "--renew"], "Command must include exactly one action"),
        (["--describe"], 'Missing required argument "[command-config]"'),
        (["--create", "CONFIG"], 'Missing required argument "[max-life-time-period]"'),
        (["--renew", "CONFIG"], 'Missing required argument "[hmac]"'),
        (["--renew", "CONFIG", "--hmac", "AA=="], 'Missing required argument "[renew-time-period]"'),
        (["--expire", "CONFIG", "--hmac", "AA=="], 'Missing required argument "[expiry-time-period]"'),
        (
            ["--create", "CONFIG", "--max-life-time-period", "-1", "--hmac", "AA=="],
            'Option "[create]" can\'t be used with option "[hmac]"',
        ),
        (["--describe", "CONFIG", "--hmac", "AA=="], 'Option "[describe]" can\'t be used with option "[hmac]"'),
    ],
)
def test_wrong_flags_are_reported(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "client.properties"
    config.write_text("")
    named = [part for word in words for part in (["--command-config", str(config)] if word == "CONFIG" else [word])]
    assert delegation_tokens.main([*SERVER, *named]) == 1
    assert message in capsys.readouterr().err


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("utc")
def test_tokens_are_printed_as_by_kafka(capsys: pytest.CaptureFixture[str]) -> None:
    admin, alice = Principal("User", "admin"), Principal("User", "alice")
    day_ms, issued_ms = 86_400_000, 1_794_888_359_000
    token = DelegationToken(
        "O4WiRbVnTmWk-exbfuY_nQ", admin, admin, (alice,), issued_ms, issued_ms + 7 * day_ms, issued_ms + day_ms
    )
    shown = TokenWithHmac(token, bytes(range(8)))
    delegation_tokens._print_tokens([shown])
    assert capsys.readouterr().out == (
        "\nTOKENID         HMAC                           OWNER           REQUESTER       RENEWERS                 "
        " ISSUEDATE       EXPIRYDATE      MAXDATE        \n"
        "\nO4WiRbVnTmWk-exbfuY_nQ AAECAwQFBgc=                   User:admin      User:admin      [User:alice]      "
        "        2026-11-17T04:05 2026-11-18T04:05 2026-11-24T04:05\n"
    )
    assert "AAECAw" not in repr(shown)
    assert "\\x01" not in repr(shown)


def test_an_hmac_that_is_not_base64_is_refused() -> None:
    arguments = delegation_tokens.FLAGS.parse(["--hmac", "p4ss!"])
    with pytest.raises(ToolFailed, match="is not base64") as failed:
        delegation_tokens._hmac(arguments)
    assert "p4ss" not in str(failed.value)


def test_the_error_without_a_secret_key_has_its_setting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)

    monkeypatch.setattr(delegation_tokens, "connect_to_brokers", refuse)
    (tmp_path / "config").touch()
    words = ["--bootstrap-server", "x:1", "--command-config", str(tmp_path / "config"), "--describe"]
    assert delegation_tokens.main(words) == 1
    assert capsys.readouterr().err.endswith(
        "Delegation Token feature is not enabled."
        " Set delegation.token.secret.key to the same text on all brokers and controllers.\n"
    )
