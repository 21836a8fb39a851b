"""`moldau start --secure`: when the console is started, and with which client file."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from harness.patience import PATIENCE_S

from moldau.base.listeners import Listener
from moldau.base.setting_sources import SettingText
from moldau.cli import secure_start
from moldau.cli.secure_start import SecureStart
from moldau.secure_setup.directory import SecureDirectory
from moldau.secure_setup.problems import SetupFailed

LISTENER = Listener("SASL_SSL", "SASL_SSL", "localhost", 9092)
METRICS = Listener("METRICS", "PLAINTEXT", "localhost", 9404)


class Console:
    """Records what client.properties contained when the console was started."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.listener: Listener | None = None
        self.metrics: Listener | None = None
        self.read: str | None = None

    def start(self, listener: Listener, metrics: Listener | None, client_file: Path) -> None:
        self.listener, self.metrics = listener, metrics
        self.read = client_file.read_text() if client_file.exists() else None
        self.started.set()


def prepared(data_dir: Path, console: Console) -> SecureStart:
    texts = {"log.dirs": SettingText(str(data_dir), "--data-dir")}
    start = SecureStart(texts, {}, (), console.start)
    start.prepare()
    return start


def test_the_console_starts_with_the_first_client_file(tmp_path: Path) -> None:
    console = Console()
    prepared(tmp_path, console).announce("ready", LISTENER, METRICS)
    assert (console.listener, console.metrics) == (LISTENER, METRICS)
    assert console.read == (tmp_path / "client.properties").read_text()


def test_the_console_starts_after_a_lost_client_file_was_recreated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = Console()
    prepared(tmp_path, console)
    lost = tmp_path / "client.properties"
    lost.unlink()

    def renew(address: str, properties: Mapping[str, str], directory: SecureDirectory) -> str:
        assert not console.started.is_set()
        with directory.new_client_file("new"):
            return "new"

    monkeypatch.setattr(secure_start, "renew_admin_password", renew)
    prepared(tmp_path, console).announce("ready", LISTENER, METRICS)
    assert console.started.wait(PATIENCE_S)
    assert (console.listener, console.metrics) == (LISTENER, METRICS)
    assert console.read == lost.read_text()
    assert 'password="new"' in lost.read_text().replace("\\", "")


def test_the_console_starts_although_the_client_file_cannot_be_recreated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = Console()
    prepared(tmp_path, console)
    (tmp_path / "client.properties").unlink()

    def fail(address: str, properties: Mapping[str, str], directory: SecureDirectory) -> str:
        raise SetupFailed("no connection")

    monkeypatch.setattr(secure_start, "renew_admin_password", fail)
    prepared(tmp_path, console).announce("ready", LISTENER, METRICS)
    assert console.started.wait(PATIENCE_S)
    assert console.read is None
