"""What `moldau cluster start` shows: the nodes' output prefixed with their ids, and on a terminal a status line.

Without a terminal, or on one that cannot encode the signs, there is no status line and no escape code. `Foreground`
prints state changes as lines on every screen.
"""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

import click

from moldau.cli.cluster.processes import NodeState

READ_BYTES: Final = 256 << 10
OUTPUT_CLOSED: Final = (errno.EPIPE, errno.EIO, errno.EBADF)
"""A pipe without a reader, a terminal that is gone, a closed file."""
SIGNS: Final = {
    NodeState.UP: ("●", "green"),
    NodeState.STARTING: ("◌", "yellow"),
    NodeState.PAUSED: ("◍", "yellow"),
    NodeState.DOWN: ("○", "red"),
}


class Screen(Protocol):
    def line(self, text: str) -> None: ...

    def node_line(self, node_id: int, text: str) -> None: ...

    def show_states(self, states: Mapping[int, NodeState]) -> None: ...


class PlainScreen:
    def line(self, text: str) -> None:
        click.echo(_encodable(text, sys.stdout.encoding))

    def node_line(self, node_id: int, text: str) -> None:
        self.line(f"[{node_id}] {text}")

    def show_states(self, states: Mapping[int, NodeState]) -> None:
        """Print nothing: `Foreground` prints state changes as lines on every screen."""


class JsonScreen(PlainScreen):
    """One JSON object per line. A node's log lines already are JSON objects with a field `node`; they are passed on
    unchanged."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now

    def line(self, text: str) -> None:
        self._write({}, text)

    def node_line(self, node_id: int, text: str) -> None:
        if text.startswith("{"):
            super().line(text)
        else:
            self._write({"node": node_id}, text)

    def _write(self, fields: Mapping[str, int], text: str) -> None:
        time = self._now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        click.echo(json.dumps({"time": time, "level": "info", "logger": "moldau.start", **fields, "message": text}))


class LiveScreen:
    """Output scrolls, the states of all nodes stay at the bottom."""

    def __init__(self, live: Any, encoding: str) -> None:
        self._live = live
        self._encoding = encoding
        self._shown: dict[int, NodeState] = {}

    def line(self, text: str) -> None:
        from rich.text import Text

        self._live.console.print(Text(_encodable(text, self._encoding)), soft_wrap=True)

    def node_line(self, node_id: int, text: str) -> None:
        self.line(f"[{node_id}] {text}")

    def show_states(self, states: Mapping[int, NodeState]) -> None:
        from rich.text import Text

        if states == self._shown:
            return
        self._shown = dict(states)
        parts = (
            (f"{SIGNS[state][0]} {node_id} {state.value}   ", SIGNS[state][1]) for node_id, state in states.items()
        )
        self._live.update(Text.assemble("nodes: ", *parts), refresh=True)


class ClosableScreen:
    """Shows everything on a screen until its output is closed (`| head`, a closed terminal), and nothing after
    that."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self.error: OSError | None = None
        """Why nothing can be shown any more."""

    def line(self, text: str) -> None:
        self._show(lambda: self._screen.line(text))

    def node_line(self, node_id: int, text: str) -> None:
        self._show(lambda: self._screen.node_line(node_id, text))

    def show_states(self, states: Mapping[int, NodeState]) -> None:
        self._show(lambda: self._screen.show_states(states))

    def _show(self, show: Callable[[], None]) -> None:
        if self.error is not None:
            return
        try:
            show()
        except OSError as error:
            # A full disk, to which the output may go, is no reason to stop the nodes: only the line is lost.
            if error.errno in OUTPUT_CLOSED:
                self.error = error


def _encodable(text: str, encoding: str) -> str:
    """Escape the characters that the output cannot encode: nodes log what clients call themselves."""
    return text.encode(encoding, "backslashreplace").decode(encoding)


@contextmanager
def screen(is_json: bool = False) -> Iterator[Screen]:
    if is_json:
        yield JsonScreen(lambda: datetime.now(UTC))
        return
    encoding = sys.stdout.encoding  # `Live` replaces stdout by one without an encoding
    signs = "".join(sign for sign, _ in SIGNS.values())
    if not sys.stdout.isatty() or _encodable(signs, encoding) != signs:
        yield PlainScreen()
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(highlight=False), auto_refresh=False, transient=True) as live:
        yield LiveScreen(live, encoding)


class Tail:
    """Reads the lines that are appended to a file after a position."""

    def __init__(self, path: Path, position: int) -> None:
        self._path = path
        self._position = position
        self._rest = b""

    def read_lines(self) -> list[str]:
        """Return the next complete lines, of at most READ_BYTES; none if there is nothing new, and none while a line is
        longer than READ_BYTES."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                data = file.read(READ_BYTES)
        except FileNotFoundError:
            return []
        self._position += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [line.decode(errors="replace") for line in whole]
