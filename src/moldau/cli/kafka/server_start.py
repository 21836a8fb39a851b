"""kafka-server-start: `[-daemon] server.properties [--override property=value]*`; and the one way every server starts.

Settings are read and complained about here, the data directories are claimed, then `moldau.node` runs until a signal.
Nothing may be imported that a running server does not need.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from moldau.base.errors import ListenFault, MalformedData, StorageFault
from moldau.base.setting_sources import SettingsError, parse_override
from moldau.cli.kafka.tool import ToolFailed, complain, guarded
from moldau.cli.log import output as log_output
from moldau.cli.log.output import LogOutput
from moldau.platforms.support import refusal
from moldau.settings import Settings, load

log = logging.getLogger("moldau.start")

USAGE: Final = "USAGE: kafka-server-start.sh [-daemon] server.properties [--override property=value]*"
DAEMON_OUTPUT: Final = "kafkaServer.out"


class StartLine(NamedTuple):
    """What the command line says."""

    file: str
    overrides: tuple[tuple[str, str], ...]
    daemon: bool


def main(argv: Sequence[str] | None = None) -> int:
    return guarded(_start, argv)


def parse_line(words: Sequence[str]) -> StartLine | None:
    """None when no file is named. SettingsError for words that mean nothing here."""
    files: list[str] = []
    overrides: list[tuple[str, str]] = []
    daemon = False
    rest = iter(words)
    for word in rest:
        if word in ("-daemon", "--daemon"):
            daemon = True
        elif word == "--override":
            overrides.append(parse_override(next(rest, "")))
        elif word.startswith("--override="):
            overrides.append(parse_override(word.partition("=")[2]))
        elif word.startswith("-") or files:
            raise SettingsError(f"{word}: not understood; {USAGE}")
        else:
            files.append(word)
    return StartLine(files[0], tuple(overrides), daemon) if files else None


def serve(read_settings: Callable[[], Settings], level: str | None = None, format: str | None = None) -> int:
    """Runs a node until it is told to stop; whatever keeps it from running is one line. `level` and `format` are those
    of its log lines, where options name them."""
    output = log_output_or_line(level, format)
    log_output.set_up(output)
    try:
        settings = settings_or_line(read_settings)
        log_output.set_up(output, settings.node_id)
        for warning in settings.warnings:
            if output.is_json:
                log.warning("%s", warning)
            else:
                complain(f"Warning: {warning}")
        return _run(settings)
    except ToolFailed as failed:
        if not output.is_json:
            raise
        log.error("%s", failed)
        return 1


def log_output_or_line(level: str | None = None, format: str | None = None) -> LogOutput:
    try:
        return log_output.choose(level, format, os.environ)
    except log_output.WrongLogChoice as wrong:
        raise ToolFailed(str(wrong)) from wrong


def _run(settings: Settings) -> int:
    from moldau import node  # after the settings: a wrong one is told before the broker's code is even read
    from moldau.log.meta_properties import ForeignDirectory

    try:
        return node.run(settings, announce=lambda line: print(line, flush=True))
    except StorageFault as refused:
        raise ToolFailed(_cannot_store(refused)) from refused
    except (MalformedData, ForeignDirectory) as refused:
        raise ToolFailed(str(refused)) from refused
    except ListenFault as refused:
        raise ToolFailed(_cannot_listen(refused)) from refused
    except OSError as refused:  # two that start at once both take an address; the second cannot listen on it
        where = ", ".join(listener.address for listener in (*settings.listeners, *settings.controller_listeners))
        raise ToolFailed(_cannot_listen(ListenFault(where, refused))) from refused


def _cannot_store(fault: StorageFault) -> str:
    if fault.cause.errno in (errno.EMFILE, errno.ENFILE):
        return f"{fault}; {fault.next_step}"
    step = f"{fault.next_step}, or choose" if fault.next_step else "choose"
    return f"{fault}; {step} another directory (the setting log.dirs, or `moldau start --data-dir DIR`)"


def _cannot_listen(fault: ListenFault) -> str:
    choose = "choose another address (the setting listeners, or `moldau start --listen HOST:PORT`)"
    if isinstance(fault.cause, socket.gaierror):
        return f"{fault}; add the name to /etc/hosts, write its address, or {choose}"
    if fault.cause.errno != errno.EADDRINUSE:
        return f"{fault}; {choose}"
    from moldau.doctor.verdicts import shortened
    from moldau.platforms.machine import listener_on

    holder = listener_on(int(fault.address.rpartition(":")[2]))
    who = "" if holder is None else f" by process {holder.pid} ({shortened(holder.command)})"
    return f"{fault}{who}; stop what listens there, or {choose}"


def settings_or_line(read_settings: Callable[[], Settings]) -> Settings:
    if line := refusal("the broker"):
        raise ToolFailed(line)
    try:
        return read_settings()
    except SettingsError as wrong:
        raise ToolFailed(str(wrong)) from wrong


def _start(words: Sequence[str]) -> int:
    try:
        line = parse_line(words)
    except SettingsError as wrong:
        raise ToolFailed(str(wrong)) from wrong
    if line is None:
        print(USAGE)
        return 1
    if line.daemon:
        return _detach(line)
    return serve(lambda: load(line.file, os.environ, line.overrides))


def _detach(line: StartLine) -> int:
    """The same command in a session of its own. A wrong setting is told here, where somebody still reads."""
    log_output_or_line()
    settings_or_line(lambda: load(line.file, os.environ, line.overrides))
    log_dir = os.environ.get("LOG_DIR", "logs")
    words = [line.file]
    for key, value in line.overrides:
        words += ["--override", f"{key}={value}"]
    try:
        os.makedirs(log_dir, exist_ok=True)
        with open(os.path.join(log_dir, DAEMON_OUTPUT), "ab") as output:
            subprocess.Popen(
                [sys.executable, "-m", __spec__.name if __spec__ else __name__, *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
    except OSError as refused:
        raise ToolFailed(f"{log_dir}: {refused.strerror}") from refused
    return 0


if __name__ == "__main__":
    sys.exit(main())
