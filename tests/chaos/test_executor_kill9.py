"""kill -9 of executors while their driver keeps running: their tasks run again, no record is lost or duplicated.

The executors are processes of their own: Spark's local cluster, two with one core each.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from chaos_pipeline import SEED, SPEC, finish_and_check, start, writing_numbers
from harness.patience import PATIENCE_S, wait_until

KILLS = int(os.environ.get("MOLDAU_CHAOS_EXECUTOR_KILLS", "6"))
CLUSTER = ("--master", "local-cluster[2,1,700]", "--conf", "spark.executor.memory=600m",
           "--conf", "spark.deploy.maxExecutorRetries=-1")  # fmt: skip


def executors(driver: subprocess.Popen[bytes]) -> list[int]:
    """Return the executors of a driver: they are in its process group."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                is_executor = b"CoarseGrainedExecutorBackend" in (entry / "cmdline").read_bytes()
                if is_executor and os.getpgid(int(entry.name)) == driver.pid:
                    found.append(int(entry.name))
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended meanwhile
    return found


def batches(folder: Path) -> int:
    """Return how many batches the run's queries have done, by its own status."""
    try:
        status = json.loads((folder / ".moldau" / "pipelines" / "chaos" / "status.json").read_text())
    except FileNotFoundError:
        return 0
    return sum(query["batch_id"] or 0 for query in status["queries"])


def test_no_record_is_lost_when_executors_are_killed(broker: str, tmp_path: Path) -> None:
    (tmp_path / "chaos.yaml").write_text(SPEC)
    chance = random.Random(SEED)
    with writing_numbers(broker):
        driver = start(tmp_path, broker, *CLUSTER)
        try:
            for number in range(KILLS):
                before = batches(tmp_path)
                wait_until(lambda before=before: batches(tmp_path) > before, "a batch is done")  # type: ignore[misc]
                time.sleep(chance.uniform(0, 2))
                wait_until(lambda: executors(driver), "an executor runs")
                os.kill(chance.choice(executors(driver)), signal.SIGKILL)
                print(f"executor {number + 1} of {KILLS} killed", flush=True)
            after = batches(tmp_path)
            wait_until(lambda: batches(tmp_path) > after, "a batch is done after the last kill")
            assert driver.poll() is None, "the driver ended with its executors"
            stop = [sys.executable, "-m", "moldau", "pipeline", "stop", str(tmp_path / "chaos.yaml")]
            subprocess.run(stop, check=True, timeout=PATIENCE_S, capture_output=True)
            assert driver.wait(PATIENCE_S) == 0
        finally:
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()
    finish_and_check(tmp_path, broker)
