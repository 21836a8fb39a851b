"""`moldau start --console`, `--gateway` and `--mqtt`: a console and a gateway in processes of their own beside the
broker.

They are ordinary commands, `moldau console` and `moldau gateway`: they know nothing of the broker but its address, and
cannot hold it up. They end with the broker, also if that is killed, because their standard input then ends.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

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
HTTP_DEFAULT: Final = "localhost:8082"
MQTT_DEFAULT: Final = "localhost:1883"
STOP_TIMEOUT_S: Final = 15.0
"""The gateway takes five seconds for open requests and five for consumers that leave their groups."""


class Kind(NamedTuple):
    command: str
    """Of `moldau`, and the option of `moldau start`."""
    modules: tuple[str, ...]
    reads_metrics: bool
    """Whether it is told where the broker serves its metrics."""

    @property
    def option(self) -> str:
        return f"--{self.command}"

    @property
    def missing(self) -> str:
        return f"the {self.command} needs the extra `{self.command}`: pip install 'moldau[{self.command}]'"

    @property
    def needs_broker(self) -> str:
        return (
            f"{self.option}: this node is only a controller (process.roles); run `moldau {self.command} -b HOST:PORT`"
            " with the address of a broker"
        )


CONSOLE: Final = Kind("console", ("starlette", "uvicorn"), True)
GATEWAY: Final = Kind("gateway", ("starlette", "uvicorn", "httptools", "websockets", "msgspec"), False)


class Address(NamedTuple):
    """Where a process is to listen, from an option of `moldau start`."""

    kind: Kind
    option: str
    listen: str
    """The option of the process."""
    text: str
    """HOST:PORT, as it was given."""


def asked_for(console: str | None, http: str | None, mqtt: str | None) -> list[Address]:
    """Return what the options `console_option`, `gateway_option` and `mqtt_option` ask for."""
    options = [
        (CONSOLE, "--console", "--listen", console),
        (GATEWAY, "--gateway", "--http", http),
        (GATEWAY, "--mqtt", "--mqtt", mqtt),
    ]
    return [Address(kind, option, listen, text) for kind, option, listen, text in options if text is not None]


console_option = click.option(
    CONSOLE.option,
    "console_listen",
    is_flag=False,
    flag_value=LISTEN_DEFAULT,
    metavar="[HOST:PORT]",
    help=f"Serve the web console too, in a process of its own. Without an address: {LISTEN_DEFAULT}",
)
gateway_option = click.option(
    GATEWAY.option,
    "gateway_listen",
    is_flag=False,
    flag_value=HTTP_DEFAULT,
    metavar="[HOST:PORT]",
    help=f"Serve the HTTP gateway for devices too, in a process of its own. Without an address: {HTTP_DEFAULT}",
)
mqtt_option = click.option(
    "--mqtt",
    "mqtt_listen",
    is_flag=False,
    flag_value=MQTT_DEFAULT,
    metavar="[HOST:PORT]",
    help=f"Serve MQTT too, in the process of the gateway. Without an address: {MQTT_DEFAULT}",
)


class SideProcesses:
    """Those that were asked for."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        kinds = dict.fromkeys(each.kind for each in addresses)
        self._processes = [SideProcess(kind, [each for each in addresses if each.kind is kind]) for kind in kinds]

    def checked(self, settings: Settings) -> Settings:
        """Return the settings of the node. Raise ToolFailed if it is no broker, and one of these needs one."""
        for process in self._processes:
            if not settings.is_broker:
                raise ToolFailed(process.kind.needs_broker)
        return settings

    def announcing_then_starting(self, announce: Announce) -> Announce:
        """Return a function that calls `announce` and then starts them."""

        def announce_and_start(line: str, listener: Listener, metrics: Listener | None) -> None:
            announce(line, listener, metrics)
            self.start(listener, metrics)

        return announce_and_start

    def start(self, listener: Listener, metrics: Listener | None, command_config: Path | None = None) -> None:
        """Start them, unless the broker is stopping. `metrics` is where the broker serves them, `command_config` the
        file with which clients reach the broker, if they need one. A failure is logged: the broker goes on alone."""
        for process in self._processes:
            process.start(listener, metrics, command_config)

    def stop(self) -> None:
        for process in self._processes:
            process.stop()


class SideProcess:
    def __init__(self, kind: Kind, addresses: Sequence[Address]) -> None:
        self.kind, self._addresses = kind, addresses
        # `start` may be called in another thread than `stop`.
        self._lock = threading.Lock()
        self._is_stopped = False
        self._process: subprocess.Popen[bytes] | None = None
        if not all(map(importlib.util.find_spec, kind.modules)):
            raise ToolFailed(kind.missing)
        for each in addresses:
            split_listen(each.text, each.option)

    def start(self, listener: Listener, metrics: Listener | None, command_config: Path | None) -> None:
        words = ["-b", listener.address]
        for each in self._addresses:
            words += [each.listen, each.text]
        environment = {**os.environ, STOP_WITH_STDIN: "1"}
        if command_config is not None:
            words += ["--command-config", str(command_config)]
        elif listener.security_protocol == "PLAINTEXT":
            environment.pop(COMMAND_CONFIG_VARIABLE, None)  # it is of another cluster
        if metrics is not None and self.kind.reads_metrics:
            words += ["--metrics", f"http://{metrics.on_this_machine.address}/metrics"]
        with self._lock:
            if self._is_stopped:
                return
            command = [sys.executable, "-m", "moldau", self.kind.command, *words]
            try:
                self._process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
            except OSError as error:
                log.error("the %s cannot be started: %s", self.kind.command, error.strerror or error)

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


def split_listen(listen: str, option: str) -> tuple[str, int]:
    """Return host and port; raise ToolFailed, naming the option, if `listen` is not HOST:PORT."""
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > PORT_MAX:
        raise ToolFailed(f"{option} {listen}: expected HOST:PORT, such as {LISTEN_DEFAULT}")
    return host.strip("[]"), int(port)
