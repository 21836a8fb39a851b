"""An event loop whose time stands still until all wait, and then jumps to the next timer: thirty seconds of patience
pass at once. If all wait and there is no timer, something would wait for ever, and the run fails.

Without sockets and threads: whatever runs on it talks to a model.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
START_S = 1_000.0


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.now = START_S
        self.faults: list[dict[str, Any]] = []
        """What callbacks raised, and exceptions of tasks that nobody awaited."""
        super().__init__(_JumpingSelector(self))
        self.set_exception_handler(lambda _, context: self.faults.append(context))

    def time(self) -> float:
        return self.now


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._virtual = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everything waits for ever"
        self._virtual.now += max(0.0, timeout)
        return super().select(0)


def run_virtual(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run it to its end in virtual time, and fail if a callback has raised anything."""
    loops: list[VirtualLoop] = []

    def new_loop() -> VirtualLoop:
        loops.append(VirtualLoop())
        return loops[-1]

    with asyncio.Runner(loop_factory=new_loop) as runner:
        result = runner.run(main())
    for fault in loops[0].faults:
        raise AssertionError(f"{fault.get('message')}: {fault!r}") from fault.get("exception")
    return result


async def settle(turns: int = 20) -> None:
    """Let everybody who can go on do so, without a step of the clock."""
    for _ in range(turns):
        await asyncio.sleep(0)
