"""What is started beside a broker, `moldau start --console` and `--gateway`; `moldau console` with wrong options."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from moldau.base.listeners import Listener
from moldau.cli.kafka.tool import ToolFailed
from moldau.cli.main import main
from moldau.cli.side_processes import CONSOLE, GATEWAY, Kind, SideProcesses, asked_for
from moldau.cli.stop_signals import STOP_WITH_STDIN

PLAINTEXT = Listener("PLAINTEXT", "PLAINTEXT", "localhost", 9092)
SASL = Listener("CLIENTS", "SASL_SSL", "localhost", 9092)


class Started:
    """Takes the place of subprocess.Popen and keeps what it is called with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: OSError | None = None) -> None:
        self.words: list[str] = []
        self.environment: dict[str, str] = {}
        self._error = error
        monkeypatch.setattr(subprocess, "Popen", self._begin)

    def _begin(self, words: list[str], **settings: Any) -> None:
        if self._error is not None:
            raise self._error
        self.words, self.environment = words[3:], settings["env"]


def test_a_console_that_cannot_be_started_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Started(monkeypatch, OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
    console = SideProcesses(asked_for("localhost:8080", None, None))
    with caplog.at_level(logging.ERROR):
        console.start(PLAINTEXT, None)
    assert [each.getMessage() for each in caplog.records] == [
        "the console cannot be started: Resource temporarily unavailable"
    ]
    console.stop()


@pytest.mark.parametrize(("listener", "is_kept"), [(PLAINTEXT, False), (SASL, True)])
def test_a_plaintext_broker_needs_no_client_file(
    listener: Listener, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOLDAU_COMMAND_CONFIG", "/of/another/cluster.properties")
    started = Started(monkeypatch)
    SideProcesses(asked_for("localhost:8080", None, None)).start(listener, None)
    assert started.words == ["console", "-b", "localhost:9092", "--listen", "localhost:8080"]
    assert ("MOLDAU_COMMAND_CONFIG" in started.environment) == is_kept
    assert started.environment[STOP_WITH_STDIN] == "1"


@pytest.mark.parametrize(
    ("host", "reached"),
    [("localhost", "localhost"), ("", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "[::1]")],
)
def test_the_console_reads_the_metrics_of_the_broker(host: str, reached: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started = Started(monkeypatch)
    console = SideProcesses(asked_for("localhost:8080", None, None))
    announced: list[str] = []
    announce = console.announcing_then_starting(lambda line, *_: announced.append(line))
    announce("ready", PLAINTEXT, Listener("METRICS", "PLAINTEXT", host, 9404))
    assert announced == ["ready"]
    assert started.words[-2:] == ["--metrics", f"http://{reached}:9404/metrics"]


def test_the_gateway_needs_no_metrics_of_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    started = Started(monkeypatch)
    processes = SideProcesses(asked_for(None, "localhost:8082", None))
    processes.start(PLAINTEXT, Listener("METRICS", "PLAINTEXT", "localhost", 9404))
    assert started.words == ["gateway", "-b", "localhost:9092", "--http", "localhost:8082"]


def test_the_gateway_serves_mqtt_in_the_same_process(monkeypatch: pytest.MonkeyPatch) -> None:
    started = Started(monkeypatch)
    SideProcesses(asked_for(None, "localhost:8082", "localhost:1883")).start(PLAINTEXT, None)
    listen = ["--http", "localhost:8082", "--mqtt", "localhost:1883"]
    assert started.words == ["gateway", "-b", "localhost:9092", *listen]


def test_an_address_that_cannot_be_is_refused_by_its_option() -> None:
    with pytest.raises(ToolFailed, match=r"^--mqtt devices: expected HOST:PORT"):
        SideProcesses(asked_for(None, "localhost:8082", "devices"))


@pytest.mark.parametrize("kind", [CONSOLE, GATEWAY], ids=lambda kind: kind.command)
def test_what_is_beside_a_broker_needs_one(kind: Kind, tmp_path: Path) -> None:
    """The listener of a controller is not for clients."""
    of_controller = {
        "process.roles": "controller",
        "node.id": "1",
        "listeners": "CONTROLLER://localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@localhost:9093",
        "log.dirs": str(tmp_path),
    }
    overrides = [word for key, value in of_controller.items() for word in ("--override", f"{key}={value}")]
    result = CliRunner().invoke(main, ["start", kind.option, *overrides])
    assert result.exit_code == 1
    assert result.stderr == (
        f"moldau: {kind.option}: this node is only a controller (process.roles);"
        f" run `moldau {kind.command} -b HOST:PORT` with the address of a broker\n"
    )
    assert list(tmp_path.iterdir()) == []


def moldau_console(*words: str) -> str:
    result = CliRunner().invoke(main, ["console", *words])
    assert result.exit_code == 1
    return result.stderr


def test_the_error_for_a_wrong_listen_address_is_one_line() -> None:
    expected = "moldau: --listen here: expected HOST:PORT, such as localhost:8080\n"
    assert moldau_console("--listen", "here") == expected


def test_the_error_for_a_name_that_is_none_names_the_option() -> None:
    expected = "moldau: --allow-host proxy:x: expected NAME or NAME:PORT\n"
    assert moldau_console("--allow-host", "proxy:x") == expected


def test_a_missing_or_wrong_certificate_is_reported_with_its_option(tmp_path: Path) -> None:
    missing, wrong = tmp_path / "missing.pem", tmp_path / "wrong.pem"
    wrong.write_text("nothing")
    listen = ("--listen", "localhost:0")
    stderr = moldau_console(*listen, "--tls-certificate", str(missing), "--tls-key", str(wrong))
    assert stderr == f"moldau: --tls-certificate {missing}: No such file or directory\n"
    stderr = moldau_console(*listen, "--tls-certificate", str(wrong), "--tls-key", str(missing))
    assert stderr == f"moldau: --tls-key {missing}: No such file or directory\n"
    stderr = moldau_console(*listen, "--tls-certificate", str(wrong), "--tls-key", str(wrong))
    assert stderr.startswith(f"moldau: --tls-certificate {wrong}, --tls-key {wrong}: ")
