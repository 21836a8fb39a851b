"""Security settings that are valid, but most likely a mistake: each is warned of at the start. A failed start prints
these warnings too, since a misspelt key may be the reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from harness.certificates import Vault

from moldau.base.setting_sources import SettingText
from moldau.base.settings.security import AUTHORIZER_CLASS_NAME
from moldau.cli.kafka.server_start import warn_of_store_types
from moldau.cli.main import main
from moldau.security.authorizer_settings import STANDARD_AUTHORIZER
from moldau.settings import SettingsError, from_properties, from_texts

AUTHORIZER = {AUTHORIZER_CLASS_NAME.name: STANDARD_AUTHORIZER}
PLAIN_JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
PLAIN = {"listeners": "SASL_PLAINTEXT://localhost:1", "sasl.enabled.mechanisms": "PLAIN"}
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
TLS = {"listeners": "SSL://localhost:1", "ssl.keystore.type": "PEM", "ssl.keystore.location": "/x/node.pem"}


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        (AUTHORIZER, "authorizer.class.name without super.users: nobody may do anything, and nobody may add ACLs"),
        ({**AUTHORIZER, "super.users": " ; "}, "authorizer.class.name without super.users"),
        ({**AUTHORIZER, "super.users": "User:a,User:b"}, "semicolons, .* expected super.users=User:a;User:b$"),
        ({**AUTHORIZER, "super.users": "User:CN=a,OU=b, User:c"}, "expected super.users=User:CN=a,OU=b;User:c$"),
        ({"super.users": "User:ann"}, "super.users has no effect without authorizer.class.name=.* everybody may do"),
        ({"allow.everyone.if.no.acl.found": "true"}, "if.no.acl.found has no effect without authorizer.class.name="),
        ({**PLAIN, PLAIN_JAAS: f'{MODULE} required username="n" password="planted";'}, 'no user_NAME="PASSWORD"'),
        ({**TLS, "ssl.client.auth": "required"}, "ssl.client.auth=required without ssl.truststore.location"),
        ({**TLS, "listener.name.ssl.ssl.client.auth": "requested"}, "ssl.client.auth=requested without ssl.truststore"),
    ],
)
def test_a_likely_mistake_is_warned_of(properties: dict[str, str], words: str) -> None:
    (line,) = from_properties(properties).warnings
    assert re.search(words, line), line
    assert "planted" not in line


@pytest.mark.parametrize(
    "properties",
    [
        {**AUTHORIZER, "super.users": "User:admin;User:CN=node,OU=it,O=x"},
        {**AUTHORIZER, "allow.everyone.if.no.acl.found": "true"},
        {**PLAIN, PLAIN_JAAS: f'{MODULE} required user_ann="x";'},
        {**TLS, "ssl.client.auth": "required", "ssl.truststore.type": "PEM", "ssl.truststore.location": "/x/ca.pem"},
        {**TLS, "ssl.client.auth": "none"},
    ],
)
def test_correct_settings_give_no_warning(properties: dict[str, str]) -> None:
    assert from_properties(properties).warnings == ()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (f'{MODULE} required user_ann="planted"', "not terminated by semi-colon"),
        (f'{MODULE} user_ann="planted";', "Invalid login module control flag"),
        (f"{MODULE} required user_ann=1planted;", "values that are not words need quotes"),
        ('PlainLoginModule required user_ann="planted";', f"expected the login module {MODULE}"),
        ("", "Login module not specified"),
        (None, "is not set, but PLAIN on listener SASL_PLAINTEXT needs it"),
    ],
)
def test_the_error_of_a_wrong_jaas_line_shows_the_right_form(line: str | None, reason: str) -> None:
    with pytest.raises(SettingsError) as wrong:
        from_properties({**PLAIN, **({} if line is None else {PLAIN_JAAS: line})})
    assert reason in str(wrong.value)
    assert str(wrong.value).endswith(f'e.g. {MODULE} required user_ann="PASSWORD";')
    assert "planted" not in str(wrong.value)


def test_the_error_of_a_keystore_without_password_suggests_pem() -> None:
    with pytest.raises(SettingsError, match=r"ssl\.keystore\.location=/x/node\.pem: .*or ssl\.keystore\.type=PEM"):
        from_properties({"listeners": "SSL://localhost:1", "ssl.keystore.location": "/x/node.pem"})


def test_a_pem_file_with_another_store_type_is_warned_of(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    stores = {
        "listeners": "SSL://localhost:1",
        "ssl.keystore.location": vault.node,
        "ssl.keystore.password": "planted",
        "ssl.truststore.location": vault.trusted,
    }
    lines = list(warn_of_store_types(from_properties(stores)))
    assert [line.rpartition("; ")[2] for line in lines] == ["set ssl.keystore.type=PEM", "set ssl.truststore.type=PEM"]
    assert "planted" not in "".join(lines)
    del stores["ssl.keystore.password"]
    right = {**stores, "ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM"}
    assert list(warn_of_store_types(from_properties(right))) == []
    missing = {**right, "ssl.truststore.location": "/x/none", "ssl.truststore.type": "JKS"}
    assert list(warn_of_store_types(from_properties(missing))) == []  # an error when the store is read


def test_a_misspelt_key_is_reported_with_the_error() -> None:
    texts = {
        "listeners": SettingText("SSL://localhost:1", "file:1"),
        "ssl.keystor.location": SettingText("/x/node.pem", "file:2"),
    }
    with pytest.raises(SettingsError, match=r"ssl\.keystore\.location: a listener with TLS needs") as wrong:
        from_texts(texts)
    (line,) = wrong.value.warnings
    assert line == "file:2: unknown setting ssl.keystor.location is ignored; did you mean ssl.keystore.location?"


@pytest.mark.parametrize("more", [[], ["--secure"], ["--cores", "2"], ["--log-format", "json"]])
def test_a_failed_start_reports_a_misspelt_key(tmp_path: Path, more: list[str]) -> None:
    words = ["start", "-d", str(tmp_path), "-o", "num.partitons=3", "-o", "num.partitions=many", *more]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 1
    assert "unknown setting num.partitons is ignored; did you mean num.partitions?" in result.stderr
    assert "num.partitions" in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("option", "value", "key"),
    [
        ("--listen", "localhost:39092", "listeners"),
        ("--data-dir", "x", "log.dirs"),
        ("--advertise", "x", "advertised.listeners"),
    ],
)
def test_an_option_and_its_setting_exclude_each_other(option: str, value: str, key: str) -> None:
    result = CliRunner().invoke(main, ["start", option, value, "-o", f"{key}=y"])
    assert result.exit_code == 1
    assert f"{option} and --override {key}= set the same; give one of them" in result.stderr
