"""Writes a batch in a process that kills itself (SIGKILL) before its n-th step, for each n, then repeats the batch in
another process, and checks that each row is there once.

    python killed_writes.py URL append|upsert|history EVERY

It tries each EVERY-th step, and prints the number of the last one at which a process was killed. Processes are forks of
this one, which has imported the driver for all and itself connects nowhere.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness import database_checks as checks
from moldau.databases.database import driver_of
from moldau.databases.urls import parse_url

ROWS = [(number, 1, "new", number == 3) for number in range(6)]


def ended(work: Callable[[], object]) -> bool:
    """Run the work in a fork; return whether it came to its end, instead of being killed."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return False
    assert status == 0, f"wait status {status}"
    return True


def main(url: str, mode: str, every: str) -> None:
    last = 0
    driver_of(parse_url(url).kind)
    for step in range(1, 100, int(every)):
        to = {"append": checks.destination, "upsert": checks.upserts, "history": checks.history}[mode](url)
        if step % 2:  # in half of the tries the table is there already
            assert ended(lambda to=to: checks.write(to, 0, (3, 0, "old", False), run="first"))

        if ended(partial(killed_write, to, step)):
            print(last)
            return
        last = step
        assert ended(lambda to=to: checks.write(to, 1, *ROWS, run="second"))
        assert ended(partial(check, to, mode, step % 2 == 1)), f"killed before step {step}"
    raise AssertionError("the write has too many steps")


def killed_write(to: checks.Destination, step: int) -> None:
    names: list[str] = []

    def before(name: str) -> None:
        names.append(name)
        if len(names) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    with checks.steps(to, before):
        checks.write(to, 1, *ROWS, run="first")


def check(to: checks.Destination, mode: str, has_old: bool) -> None:
    old = [(3, "old")] if has_old else []
    new = [(number, "new") for number in range(6)]
    expected = [row for row in new if row[0] != 3] if mode == "upsert" else sorted(old + new)
    found = sorted(checks.stored(to, "id", "value"))
    assert found == sorted(expected), found


if __name__ == "__main__":
    main(*sys.argv[1:])
