"""The files of `moldau user add --save`, beyond what clients read in tests/interop/test_secure_start.py."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from moldau.base.errors import UnusableProperty
from moldau.cli.main import main
from moldau.cli.user.client_formats import FORMATS, authority_file, client_text, default_format
from moldau.cli.user.saving import FORMAT_NAMES
from moldau.secure_setup.settings import client_properties, login_properties

PEM = "-----BEGIN CERTIFICATE-----\nAA=\n-----END CERTIFICATE-----\n"
ODD = 'ü " \' \\ \\n {}%s"""#'


def config_of(text: str, path: Path) -> dict[str, Any]:
    path.write_text(text, encoding="utf-8")
    config = runpy.run_path(str(path))["config"]
    assert isinstance(config, dict)
    return config


def test_names_and_passwords_are_quoted_in_python(tmp_path: Path) -> None:
    properties = {"bootstrap.servers": "a:1,b:2", **client_properties(ODD, f"{ODD}2", PEM + ODD)}
    text, authority = client_text("python", properties, tmp_path / "x.py")
    assert authority is None
    assert config_of(text, tmp_path / "x.py") == {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "SASL_SSL",
        "ssl.ca.pem": PEM + ODD,
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": ODD,
        "sasl.password": f"{ODD}2",
    }
    text, authority = client_text("kafka-python", properties, tmp_path / "x.v2.py")
    assert authority == PEM + ODD
    assert config_of(text, tmp_path / "x.v2.py") == {
        "bootstrap_servers": "a:1,b:2",
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(tmp_path / "x.v2.ca.pem"),
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": ODD,
        "sasl_plain_password": f"{ODD}2",
    }


def test_a_password_that_no_file_can_hold_is_refused(tmp_path: Path) -> None:
    for file_format in FORMAT_NAMES:
        with pytest.raises(UnusableProperty, match="a name or password with control characters"):
            client_text(file_format, login_properties("ann", "a\nssl.ca.location=/evil"), tmp_path / "x")
    with pytest.raises(UnusableProperty, match=r"sasl\.password begins or ends with white space"):
        client_text("librdkafka", login_properties("ann", " a"), tmp_path / "x")


@pytest.mark.parametrize("file_format", FORMAT_NAMES)
def test_without_an_authority_of_its_own_there_is_no_file_beside(file_format: str, tmp_path: Path) -> None:
    properties = {
        "security.protocol": "SASL_SSL",
        "ssl.endpoint.identification.algorithm": "",
        **login_properties("ann", "secret"),
    }
    text, authority = client_text(file_format, properties, tmp_path / "x.py")
    assert authority is None
    assert ".ca.pem" not in text
    if file_format == "kafka-python":
        assert config_of(text, tmp_path / "x.py")["ssl_check_hostname"] is False


def test_the_formats_and_the_default() -> None:
    assert tuple(FORMATS) == FORMAT_NAMES
    assert default_format(Path("ann.py")) == "python"
    assert default_format(Path("ann")) == "java"
    assert authority_file(Path("d/ann.properties")) == Path("d/ann.ca.pem")
    refused = CliRunner().invoke(main, ["user", "add", "ann", "--format", "java", "-b", "127.0.0.1:1"])
    assert "--format says what --save FILE writes; give both" in refused.stderr
