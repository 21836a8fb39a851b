"""`moldau start --console`: a console in a process of its own beside the broker.

It is an ordinary `moldau console`: it knows nothing of the broker but its address, and cannot hold it up. It ends with
the broker, also if that is killed, because its standard input then ends.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from moldau.base.limits import PORT_MAX
from moldau.base.listeners import Listener
from moldau.cli.connect import COMMAND_CONFIG_VARIABLE
from moldau.cli.kafka.tool import ToolFailed
from moldau.cli.stop_signals import STOP_WITH_STDIN

if TYPE_CHECKING:
    from moldau.cli.kafka.server_start import Announce
    from moldau.settings import Settings

log = logging.getLogger("moldau.start")

LISTEN_DEFAULT: Final = "localhost:8080"
CONSOLE_MISSING: Final = "the console needs the extra `console`: pip install 'moldau[console]'"
NO_BROKER: Final = (
    "--console: this node is only a controller (process.roles); run `moldau console -b HOST:PORT` with the address of a"
    " broker"
)
STOP_TIMEOUT_S: Final = 5.0

console_option = click.option(
    "--console",
    "console_listen",
    is_flag=False,
    flag_value=LISTEN_DEFAULT,
    metavar="[HOST:PORT]",
    help=f"Serve the web console too, in a process of its own. Without an address: {LISTEN_DEFAULT}",
)


class ConsoleProcess:
    """The process of the console beside a broker. It does nothing without an address to listen on."""

    def __init__(self, listen: str | None) -> None:
        self._listen = listen
        # `start` may be called in another thread than `stop`.
        self._lock = threading.Lock()
        self._is_stopped = False
        self._process: subprocess.Popen[bytes] | None = None
        if listen is not None and not all(map(importlib.util.find_spec, ("starlette", "uvicorn"))):
            raise ToolFailed(CONSOLE_MISSING)
        if listen is not None:
            split_listen(listen, "--console")

    def checked(self, settings: Settings) -> Settings:
        """Return the settings of the node. Raise ToolFailed if there is a console and the node is no broker."""
        if self._listen is not None and not settings.is_broker:
            raise ToolFailed(NO_BROKER)
        return settings

    def announcing_then_starting(self, announce: Announce) -> Announce:
        """Return a function that calls `announce` and then starts the console."""

        def announce_and_start(line: str, listener: Listener, metrics: Listener | None) -> None:
            announce(line, listener, metrics)
            self.start(listener, metrics)

        return announce_and_start

    def start(self, listener: Listener, metrics: Listener | None, command_config: Path | None = None) -> None:
        """Start the console, unless it has no address to listen on or the broker is stopping. `metrics` is where the
        broker serves them, `command_config` the file with which clients reach the broker, if they need one. A failure
        is logged: the broker goes on without a console."""
        if self._listen is None:
            return
        words = ["-b", listener.address, "--listen", self._listen]
        environment = {**os.environ, STOP_WITH_STDIN: "1"}
        if command_config is not None:
            words += ["--command-config", str(command_config)]
        elif listener.security_protocol == "PLAINTEXT":
            environment.pop(COMMAND_CONFIG_VARIABLE, None)  # it is of another cluster
        if metrics is not None:
            words += ["--metrics", f"http://{metrics.on_this_machine.address}/metrics"]
        with self._lock:
            if self._is_stopped:
                return
            command = [sys.executable, "-m", "moldau", "console", *words]
            try:
                self._process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
            except OSError as error:
                log.error("the console cannot be started: %s", error.strerror or error)

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def split_listen(listen: str, option: str = "--listen") -> tuple[str, int]:
    """Return host and port; raise ToolFailed, naming the option, if `listen` is not HOST:PORT."""
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > PORT_MAX:
        raise ToolFailed(f"{option} {listen}: expected HOST:PORT, such as {LISTEN_DEFAULT}")
    return host.strip("[]"), int(port)
