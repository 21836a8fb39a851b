"""A driver process that stops itself (SIGSTOP) at one step of its batch, while another driver runs the same query.

    python stopped_driver.py parquet|delta|iceberg DIRECTORY append|overwrite STEPS_OF_B [EVERY]

Driver A stops in its batch; driver B replays that batch and writes the next one, and stops too, or does not (0); A
continues (SIGCONT), then B; at last driver C replays everything. One line of JSON for each pair of steps. All drivers
are forked from one process that has imported everything and started no thread: starting one takes milliseconds.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable

from moldau.spark.lake import BatchTag, disk
from moldau.spark.lake.delta import DeltaLakeTable
from moldau.spark.lake.files import write_files
from moldau.spark.lake.iceberg import IcebergTable
from moldau.spark.lake.tables import DataFile
from moldau.spark.lake.writing import abort, commit, prepare

CHANGES = ("makedirs", "rename", "link", "unlink", "rmdir", "open", "write")
LOG_STEPS = (
    (DeltaLakeTable, "_open"),
    (DeltaTable, "create_write_transaction"),
    (IcebergTable, "_table"),
    (SqlCatalog, "commit_table"),
)
"""Steps of the tables' own logs."""


class StoppingOs:
    """The module os, with a step before every change."""

    def __init__(self, step: Callable[[str], None]) -> None:
        self._step = step

    def __getattr__(self, name: str) -> Any:
        return before(getattr(os, name), lambda: self._step(name)) if name in CHANGES else getattr(os, name)


def before(call: Callable[..., Any], hook: Callable[[], None]) -> Callable[..., Any]:
    def hooked(*args: Any, **named: Any) -> Any:
        hook()
        return call(*args, **named)

    return hooked


def stop_at(number: int) -> None:
    """Make this process stop before its step of this number."""
    count = 0

    def step(name: str) -> None:
        nonlocal count
        count += 1
        if count == number:
            print(json.dumps(name), flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)

    disk.os = StoppingOs(step)  # type: ignore[assignment]
    for owner, name in LOG_STEPS:
        setattr(owner, name, before(getattr(owner, name), lambda name=name: step(name)))


def run_batch(path: Path, kind: str, driver: str, batch: int, overwrite: bool) -> str:
    """What Spark does for one micro-batch: prepare, tasks, commit, or abort if that fails."""
    tag = BatchTag("query", batch, run_id=driver)
    values = list(range(10 * batch, 10 * batch + 10))
    rows = [
        pa.table({"id": values[:5], "odd": [0, 1] * 2 + [0]}),
        pa.table({"id": values[5:], "odd": [0, 1] * 2 + [0]}),
    ]
    files: list[DataFile] = []
    try:
        target = prepare(str(path), kind, rows[0].schema, ["odd"])
        for task, part in enumerate(rows):
            files += write_files(target, tag, task, part.to_batches())
        return "written" if commit(str(path), kind, files, tag, overwrite) else "already stored"
    except Exception as error:
        abort(str(path), tag)
        return f"{type(error).__name__}: {error}"


def visible(path: Path, kind: str) -> object:
    try:
        match kind:
            case "parquet":
                found = ds.dataset(path, format="parquet", partitioning="hive").to_table(columns=["id"])
            case "delta":
                found = DeltaTable(str(path)).to_pyarrow_table(columns=["id"])
            case _:
                found = StaticTable.from_metadata(str(path)).scan(selected_fields=("id",)).to_arrow()
    except Exception as error:
        return f"unreadable: {error}"
    return sorted(found["id"].to_pylist())


def forked(work: Callable[[], object]) -> tuple[int, Callable[[], str]]:
    """Run the work in a fork of this process; its result is a line of JSON."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writing, 1)
        try:
            print(json.dumps(work()), flush=True)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writing)

    def output() -> str:
        with os.fdopen(reading) as pipe:
            return pipe.read()

    return child, output


def ended(work: Callable[[], object]) -> Any:
    child, output = forked(work)
    check_exit(os.waitpid(child, 0)[1])
    return json.loads(output())


def check_exit(status: int) -> None:
    if not os.WIFEXITED(status) or os.WEXITSTATUS(status) != 0:
        raise RuntimeError(f"a driver failed: wait status {status}")


def try_steps(path: Path, kind: str, overwrite: bool, step_of_a: int, step_of_b: int) -> dict[str, object] | None:
    """Stop driver A before its step `step_of_a` and B before its step `step_of_b`, continue A, then B. A third driver
    replays what is missing. None if A has fewer steps."""
    ended(lambda: run_batch(path, kind, "earlier", 0, overwrite))
    with Driver(lambda: run_batch(path, kind, "a", 1, overwrite), step_of_a) as a:
        if not a.is_stopped:
            return None
        with Driver(lambda: [run_batch(path, kind, "b", batch, overwrite) for batch in (1, 2)], step_of_b) as b:
            (a_stopped_before, a_result), (b_stopped_before, b_result) = a.result(), b.result()
    rows = ended(lambda: visible(path, kind))
    c_result = ended(lambda: [run_batch(path, kind, "c", batch, overwrite) for batch in (1, 2, 3)])
    return {
        "step_of_a": [step_of_a, a_stopped_before], "step_of_b": [step_of_b, b_stopped_before],
        "a": a_result, "b": b_result, "c": c_result, "rows": rows, "rows_later": ended(lambda: visible(path, kind)),
        "left": [str(file.relative_to(path)) for file in path.rglob("*.staged")],
    }  # fmt: skip


class Driver:
    """A fork that stops before its step of this number; 0: nowhere."""

    def __init__(self, work: Callable[[], object], step: int) -> None:
        def stopping() -> object:
            stop_at(step)
            return work()

        self._process, self._output = forked(stopping)
        _, status = os.waitpid(self._process, os.WUNTRACED)
        self.is_stopped = os.WIFSTOPPED(status)
        if not self.is_stopped:
            check_exit(status)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it if it is still stopped."""
        if self.is_stopped:
            os.kill(self._process, signal.SIGKILL)
            os.waitpid(self._process, 0)

    def result(self) -> tuple[str | None, Any]:
        """Let it continue to its end; return the name of the step before which it stopped, and its result."""
        if self.is_stopped:
            os.kill(self._process, signal.SIGCONT)
            _, status = os.waitpid(self._process, 0)
            self.is_stopped = False
            check_exit(status)
        *steps, result = map(json.loads, self._output().splitlines())
        return (steps[0] if steps else None), result


def main(kind: str, directory: str, mode: str, steps_of_b: str, every: str = "1") -> None:
    """`steps_of_b`: with commas; `every`: each n-th step of A."""
    for step_of_b in map(int, steps_of_b.split(",")):
        for step_of_a in range(1, 1000, int(every)):
            path = Path(directory) / f"{step_of_a}-{step_of_b}"
            report = try_steps(path, kind, mode == "overwrite", step_of_a, step_of_b)
            if report is None:
                break
            print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
