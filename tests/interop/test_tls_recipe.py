"""The recipes of docs/tls.md under "Certificates of your own", run as they are written except for the port."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness.depth import only_deep
from kafka_tools import Outcome, Tools

from moldau.base.properties import parse
from moldau.base.settings.security import AUTHORIZER_CLASS_NAME, SUPER_USERS
from moldau.security.authorizer_settings import STANDARD_AUTHORIZER
from moldau.testing import TestBroker

pytestmark = [
    pytest.mark.moldau_only,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed"),
]
TEXT = (Path(__file__).parents[2] / "docs" / "tls.md").read_text(encoding="utf-8")
RECIPES = TEXT[TEXT.index("## Certificates of your own") : TEXT.index("## Settings")]
SHELL = re.findall(r"```sh\n(.*?)```", RECIPES, re.DOTALL)
AUTHORITY_AND_NODE, START, USE, CLIENT, KEYTOOL = SHELL
PROPERTIES = re.findall(r"```properties\n# (\S+)\n(.*?)```", RECIPES, re.DOTALL)
SERVER, SERVER_MUTUAL, SERVER_KEYTOOL = (text for name, text in PROPERTIES if name == "server.properties")
CLIENT_TRUST, CLIENT_KEY = (text for name, text in PROPERTIES if name == "client.properties")


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests do not use the shared broker of this directory."""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    run(AUTHORITY_AND_NODE, directory)
    return directory


@pytest.fixture(autouse=True)
def chdir_to_certificates(certificates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(certificates)


def run(script: str, directory: Path) -> None:
    ran = subprocess.run(["sh", "-e"], input=script, cwd=directory, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


@contextmanager
def broker(data_dir: Path, text: str) -> Iterator[TestBroker]:
    running = TestBroker(data_dir, {each.key: each.value.replace("9092", "0") for each in parse(text)})
    running.start()
    try:
        yield running
    finally:
        running.stop()


class Shell:
    """Runs the commands of the recipe against the port of a running broker."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._fixtures = capsys, monkeypatch

    def create_topic(self, kafka: TestBroker, client: str) -> Outcome:
        Path("client.properties").write_text(client)
        address = f"localhost:{kafka.bootstrap_servers.rpartition(':')[2]}"
        create, listing = (
            line.split()[3:] for line in USE.splitlines() if line.startswith("kafka-topics.sh --bootstrap-server")
        )
        tools = Tools(address, *self._fixtures)
        created = tools("topics", *create)
        return tools("topics", *listing) if created.status == 0 else created


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(capsys, monkeypatch)


def test_the_recipe_for_a_node_certificate(shell: Shell, tmp_path: Path) -> None:
    assert START == "moldau start --config server.properties\n"
    with broker(tmp_path, SERVER) as kafka:
        assert shell.create_topic(kafka, CLIENT_TRUST).out == "orders\n"


def test_the_recipe_for_a_client_certificate(shell: Shell, certificates: Path, tmp_path: Path) -> None:
    run(CLIENT, certificates)
    only_ann = f"{AUTHORIZER_CLASS_NAME}={STANDARD_AUTHORIZER}\n{SUPER_USERS}=User:ann\n"
    with broker(tmp_path, SERVER + SERVER_MUTUAL + only_ann) as kafka:
        assert shell.create_topic(kafka, CLIENT_TRUST + CLIENT_KEY).out == "orders\n"
        refused = shell.create_topic(kafka, CLIENT_TRUST)
        assert refused.status == 1
        assert "refuses this client" in refused.out  # and not: the topic exists


@only_deep
@pytest.mark.skipif(shutil.which("keytool") is None, reason="keytool is not installed")
def test_the_recipe_for_a_keytool_store(shell: Shell, certificates: Path, tmp_path: Path) -> None:
    run(KEYTOOL, certificates)
    listeners = "".join(line + "\n" for line in SERVER.splitlines() if "listeners" in line)
    with broker(tmp_path, listeners + SERVER_KEYTOOL) as kafka:
        assert shell.create_topic(kafka, CLIENT_TRUST).out == "orders\n"
