"""examples/devices: pumps publish by MQTT, the pipeline finds alerts, and whoever follows the gateway gets them."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from itertools import islice, pairwise, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import PATIENCE_S, wait_until

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "devices"))

from devices import names, temperatures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).parents[2] / "examples" / "devices"
ADDRESS = re.compile(r"is (?:ready: |at (\w+)://)(localhost:\d+)")
PUMPS, SECONDS, SEED = 30, 80, 5
START = datetime(2026, 3, 14, 9, tzinfo=UTC)
WINDOW, SILENCE, DELAY, TOO_HOT = 10, 8, 5, 75
WATERMARK = SECONDS - 1 - DELAY
"""What was over at this second is told."""
END = {"alert": "none any more"}


@pytest.fixture
def addresses(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Those of a broker and its gateway: kafka, http, mqtt. They are started as the README has it."""
    log = tmp_path / "log"
    words = ["--data-dir", str(tmp_path / "data"), "--gateway", "localhost:0", "--mqtt", "localhost:0"]
    with log.open("wb") as out:
        command = [sys.executable, "-m", "moldau", "start", "--listen", "localhost:0", *words]
        process = subprocess.Popen(command, stdout=out, stderr=out)

    def found() -> dict[str, str]:
        assert process.poll() is None, log.read_text()
        return {scheme or "kafka": address for scheme, address in ADDRESS.findall(log.read_text())}

    try:
        wait_until(lambda: len(found()) == 3, lambda: f"a broker, HTTP and MQTT are there: {log.read_text()}")
        yield found()
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
    assert "Traceback" not in log.read_text()


def test_pumps_that_are_hot_or_silent_become_alerts(
    addresses: dict[str, str], tmp_path: Path, spark: SparkSession
) -> None:
    admin = AdminClient({"bootstrap.servers": addresses["kafka"]})
    topics = [NewTopic("telemetry", 3), NewTopic("status", 1), NewTopic("alerts", 1)]
    for created in admin.create_topics(topics).values():
        created.result(PATIENCE_S)
    measurements = {name: list(islice(temperatures(name, SEED), SECONDS)) for name in names(PUMPS)}
    sent = sum(celsius is not None for each in measurements.values() for celsius in each)
    with following(addresses["http"], "alerts") as alerts:
        assert run_devices(addresses["mqtt"]) == f"{sent:,} measurements of {PUMPS} pumps\n"
        run_pipeline(addresses["kafka"], tmp_path / "state", spark)
        assert request(addresses["http"], "POST", "/topics/alerts", END)["offsets"]
        found = list(takewhile(lambda alert: alert != END, alerts))
    expected = [alert for name, each in measurements.items() for alert in [*hot(name, each), *silent(name, each)]]
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert {alert["alert"] for alert in found} == {"too hot", "silent"}

    without_power = {name for name, each in measurements.items() if None in each}
    wait_until(lambda: lost(addresses["http"]) == without_power, lambda: f"wills of {without_power} are published")


def lost(address: str) -> set[str]:
    """The pumps whose last will was published."""
    records = request(address, "GET", "/topics/status/records")["records"]
    return {record["key"] for record in records if record["value"] == "lost"}


def run_devices(address: str) -> str:
    """Return what the devices print at their end."""
    command = [sys.executable, str(EXAMPLE / "devices.py"), "--mqtt", address, "--start", START.isoformat()]
    numbers = {"--devices": PUMPS, "--seconds": SECONDS, "--seed": SEED}
    words = [str(word) for option in numbers.items() for word in option]
    return subprocess.run([*command, *words], stdout=subprocess.PIPE, text=True, check=True).stdout


def run_pipeline(bootstrap: str, directory: Path, spark: SparkSession) -> None:
    from moldau.pipelines.planning.compiling import Mode
    from moldau.pipelines.reading.loading import load
    from moldau.pipelines.running.launching import RunOptions, launch
    from moldau.pipelines.running.silence import Silence
    from moldau.pipelines.running.state_directory import StateDirectory
    from moldau.pipelines.running.stop_request import Stop

    pipeline = load(EXAMPLE / "pipeline.yaml", {"too_hot": str(TOO_HOT)}, bootstrap)
    options = RunOptions(mode=Mode.UNTIL_CAUGHT_UP)
    ended = launch(pipeline, StateDirectory(directory), options, lambda on_phase: spark, Silence(), Stop())
    assert ended.state == "finished", ended.message


def request(address: str, method: str, path: str, body: Any = None) -> Any:
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    try:
        connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


@contextmanager
def following(address: str, topic: str) -> Iterator[Iterator[Any]]:
    """Follow a topic from now on as the page does: the values of its records."""
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    connection.request("GET", f"/topics/{topic}/records", headers={"Accept": "text/event-stream"})
    response = connection.getresponse()
    try:
        assert response.status == 200
        data = (line.removeprefix(b"data: ") for line in response if line.startswith(b"data: "))
        yield (json.loads(text)["value"] for text in data)
    finally:
        response.close()
        connection.close()


# --- what is expected -------------------------------------------------------------------------------------------------


def hot(name: str, measured: list[float | None]) -> Iterator[dict[str, Any]]:
    windows: dict[int, list[Decimal]] = defaultdict(list)
    for second, celsius in enumerate(measured):
        if celsius is not None:
            windows[second - second % WINDOW].append(Decimal(str(celsius)))
    for since, values in windows.items():
        mean = (sum(values) / len(values)).quantize(Decimal("0.1"), ROUND_HALF_UP)
        if mean > TOO_HOT and since + WINDOW <= WATERMARK:
            told = {"mean": float(mean), "highest": float(max(values))}
            yield {"device": name, "alert": "too hot", "since": iso(since), **told}


def silent(name: str, measured: list[float | None]) -> Iterator[dict[str, Any]]:
    heard = [second for second, celsius in enumerate(measured) if celsius is not None]
    for last, following in pairwise([*heard, SECONDS + SILENCE]):
        if following >= last + SILENCE <= WATERMARK:
            yield {"device": name, "alert": "silent", "since": iso(last)}


def iso(second: int) -> str:
    return f"{START + timedelta(seconds=second):%Y-%m-%dT%H:%M:%S}.000000Z"
