"""`moldau console` and `moldau start --console` as processes."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from console_server import Page
from harness.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.moldau_only


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests do not use the shared broker of this directory."""


@contextmanager
def running(log: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "moldau", *words], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def console_page(log: Path) -> Page:
    def port() -> int | None:
        found = re.search(r"the console of \S+ is at http://localhost:(\d+)/", log.read_text())
        return int(found[1]) if found else None

    page = Page(wait_until(port, lambda: f"the console prints its address: {log.read_text()}") or 0)
    page.begin()
    return page


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_console_beside_a_killed_broker_ends(tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = ("start", "-d", str(tmp_path / "data"), "-l", "localhost:0", "--console", "localhost:0")
    with running(log, *words) as broker:
        page = console_page(log)
        wait_until(lambda: page.get("/api/overview").data["complete"], "the cluster was read", every_s=0.1)
        assert page.post("/api/topics", {"name": "orders"}).status == 201
        broker.kill()
        broker.wait(PATIENCE_S)
        wait_until(lambda: is_free(page.port), "the console has ended", every_s=0.1)


def test_a_console_without_a_cluster_reports_it_and_recovers(tmp_path: Path) -> None:
    log, broker_log = tmp_path / "log", tmp_path / "broker-log"
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
    with running(log, "console", "-b", f"127.0.0.1:{port}", "--listen", "localhost:0") as console:
        page = console_page(log)
        wait_until(lambda: page.get("/api/overview").data["read_error"], "the error is shown", every_s=0.1)
        overview = page.get("/api/overview").data
        assert overview["problems"][0]["title"] == "The cluster cannot be read"
        assert (overview["complete"], overview["lag"]) == (False, None)
        refused = page.get("/api/topics/orders/records")
        assert (refused.status, refused.code) == (502, "CLUSTER_UNREACHABLE")
        with running(broker_log, "start", "-d", str(tmp_path / "data"), "-l", f"127.0.0.1:{port}"):
            wait_until(lambda: page.get("/api/overview").data["complete"], "the cluster was read", every_s=0.1)
            wait_until(
                lambda: page.get("/api/overview").data["read_error"] is None,
                "the error is no longer shown",
                every_s=0.1,
            )
            console.send_signal(signal.SIGINT)
            assert console.wait(PATIENCE_S) in (0, 130)


def test_a_port_in_use_is_reported_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        words = [sys.executable, "-m", "moldau", "console", "--listen", address]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert done.stderr == f"moldau: --listen {address}: Address already in use\n"


def test_a_secured_broker_asks_for_a_login_and_its_console_ends_with_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = ("start", "--secure", "-d", str(tmp_path / "data"), "-l", "localhost:0", "--console", "localhost:0")
    with running(log, *words) as broker:
        page = console_page(log)
        assert page.begin()["login_required"] is True
        assert page.get("/api/overview").status == 401
        properties = (tmp_path / "data" / "client.properties").read_text()
        password = re.search(r'password="([^"]+)"', properties)
        assert password is not None
        answer = page.login("admin", json.loads(f'"{password[1]}"'))
        assert answer.status == 200, answer.body
        assert page.get("/api/overview").status == 200
        broker.send_signal(signal.SIGTERM)
        broker.wait(PATIENCE_S)
        wait_until(lambda: is_free(page.port), "the console has ended", every_s=0.1)
    assert password[1] not in log.read_text().partition("the console of")[2]
